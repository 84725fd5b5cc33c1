//! Rust's text as tokens, for the checks that read it without a compiler.

/// A word or a mark of Rust's text, with its line from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

impl Token<'_> {
    pub(crate) fn is_word(&self) -> bool {
        self.text.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
    }
}

/// The tokens of a file without its comments, texts and characters. A text is one `"`.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let (mut rest, mut line) = (text, 1);
    let mut all = Vec::new();
    while let Some(letter) = rest.chars().next() {
        let length = token_length(rest, letter);
        let (token, after) = rest.split_at(length);
        let is_quoted = token.contains('"') && !token.starts_with('/');
        let is_character = letter == '\'' && length > 1;
        if is_quoted {
            all.push(Token { text: "\"", line });
        } else if !letter.is_whitespace() && !token.starts_with("//") && !token.starts_with("/*") {
            let text = if is_character { "'" } else { token };
            all.push(Token { text, line });
        }
        line += token.matches('\n').count();
        rest = after;
    }
    all
}

/// The length of the token at the beginning of a text, in bytes.
fn token_length(rest: &str, letter: char) -> usize {
    let up_to = |end: &str, from: usize| {
        rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len())
    };
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return up_to("*/", 2);
    }
    if letter == '"' {
        return text_length(rest, 1);
    }
    if letter == '\'' {
        return character_length(rest);
    }
    let word = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let word = word.unwrap_or(rest.len());
    let after = &rest[word..];
    match &rest[..word] {
        "" if rest.starts_with("::") || rest.starts_with("=>") || rest.starts_with("->") => 2,
        "" => letter.len_utf8(),
        "r" | "br" | "cr" if after.trim_start_matches('#').starts_with('"') => {
            let marks = after.find('"').unwrap_or_default();
            up_to(&format!("\"{}", "#".repeat(marks)), word + marks + 1)
        }
        "b" | "c" if after.starts_with('"') => text_length(rest, word + 1),
        _ => word,
    }
}

/// The length of a text whose content begins at `start`.
fn text_length(rest: &str, start: usize) -> usize {
    let mut is_escaped = false;
    for (at, letter) in rest[start..].char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return start + at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of a character, such as `'x'` or `'\n'`, or of a lifetime.
fn character_length(rest: &str) -> usize {
    let mut letters = rest.char_indices().skip(1);
    match letters.next() {
        Some((_, '\\')) => {
            let end = rest.char_indices().skip(3).find(|(_, letter)| *letter == '\'');
            end.map_or(1, |(at, _)| at + 1)
        }
        Some((start, _)) => match letters.next() {
            Some((at, '\'')) => at + 1,
            _ => {
                let end =
                    rest[start..].find(|letter: char| !letter.is_alphanumeric() && letter != '_');
                end.map_or(rest.len(), |end| start + end)
            }
        },
        None => 1,
    }
}

const FOR_TESTS: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];

/// The tokens of a product: those that are no item behind `#[cfg(test)]`.
pub(crate) fn product_of<'a>(all: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut product = Vec::with_capacity(all.len());
    let mut rest = all;
    while let Some((token, after)) = rest.split_first() {
        rest = match attribute(rest) {
            Some((attribute, item)) if attribute.iter().map(|it| it.text).eq(FOR_TESTS) => {
                &item[item_length(item)..]
            }
            _ => {
                product.push(*token);
                after
            }
        };
    }
    product
}

/// The attribute at the beginning, and what follows it.
pub(crate) fn attribute<'t, 'a>(
    rest: &'t [Token<'a>],
) -> Option<(&'t [Token<'a>], &'t [Token<'a>])> {
    let inside = rest.get(2..).filter(|_| rest[0].text == "#" && rest[1].text == "[")?;
    let mut depth = 1_usize;
    let end = inside.iter().position(|token| {
        match token.text {
            "[" => depth += 1,
            "]" => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    Some(rest.split_at(end + 3))
}

/// The number of tokens of the item, statement or field at the beginning, with its attributes.
pub(crate) fn item_length(item: &[Token<'_>]) -> usize {
    let (mut depth, mut generics, mut is_in_where) = (0_usize, 0_usize, false);
    for (at, token) in item.iter().enumerate() {
        match token.text {
            // Its commas are between bounds: a body or a semicolon ends the item.
            "where" if depth == 0 => is_in_where = true,
            "<" if depth == 0 => generics += 1,
            ">" if depth == 0 => generics = generics.saturating_sub(1),
            "(" | "[" | "{" => depth += 1,
            // The end of what holds a field or a variant that has no comma of its own.
            ")" | "]" | "}" if depth == 0 => return at,
            ")" | "]" => depth -= 1,
            "}" if depth == 1 => {
                // As behind `use a::{b, c}`.
                let has_end = item.get(at + 1).is_some_and(|next| next.text == ";");
                return at + 1 + usize::from(has_end);
            }
            "}" => depth -= 1,
            ";" if depth == 0 => return at + 1,
            "," if depth == 0 && generics == 0 && !is_in_where => return at + 1,
            _ => {}
        }
    }
    item.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(text: &str) -> String {
        let tokens: Vec<&str> = product_of(&tokens(text)).iter().map(|token| token.text).collect();
        tokens.join(" ")
    }

    #[test]
    fn comments_are_no_tokens_and_a_text_is_one() {
        assert_eq!(product("//! a\nlet x = \"a b c\"; /* d */"), "let x = \" ;");
    }

    #[test]
    fn what_only_tests_have_is_no_product() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { c(); }\n}\nfn d() {}";
        assert_eq!(product(text), "fn a ( ) { } fn d ( ) { }");
        let text = "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nuse a::{b, c};\nfn d() {}";
        assert_eq!(product(text), "fn d ( ) { }");
        let text = "#[cfg(test)]\n#[expect(dead_code, reason = \"x\")]\nfn a(b: u8) {}\nfn d() {}";
        assert_eq!(product(text), "fn d ( ) { }");
        let text = "struct A {\n    #[cfg(test)]\n    seen: Vec<(u8, u8)>,\n    b: u8,\n}";
        assert_eq!(product(text), "struct A { b : u8 , }");
        assert_eq!(product("#[cfg(test)]\nfn a<T, U>(t: T, u: U) {}\nfn d() {}"), "fn d ( ) { }");
        let text = "#[cfg(test)]\nfn a<T>(t: T)\nwhere\n    T: Ord,\n{\n    b(t);\n}\nfn d() {}";
        assert_eq!(product(text), "fn d ( ) { }");
        let text = "#[cfg(test)]\nstruct A<T>(T)\nwhere\n    T: Ord,\n    T: Copy;\nfn d() {}";
        assert_eq!(product(text), "fn d ( ) { }");
        assert_eq!(
            product("#[cfg(not(test))]\nfn d() {}"),
            "# [ cfg ( not ( test ) ) ] fn d ( ) { }"
        );
    }
}
