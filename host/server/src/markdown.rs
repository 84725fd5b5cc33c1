//! A small part of Markdown, as data that pages build nodes from: paragraphs, headings, lists,
//! quotes, code, emphasis, links. There is no HTML in it, and what is not recognised stays text. A
//! link shows its whole address, which is one of http or https.

use serde::Serialize;

/// Bytes of a text up to which it is read as Markdown.
const LONGEST: usize = 256 << 10;
/// Bytes of a line in which the end of a part is searched, so that no text takes long.
const WINDOW: usize = 4 << 10;
/// Depth of lists; deeper items stay at this one.
const DEEPEST: usize = 3;
/// Depth of quotes, and of emphasis in emphasis.
const NESTED: usize = 4;

/// A part of a text, below the one before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "block", rename_all = "kebab-case")]
pub(crate) enum Block {
    Paragraph { inlines: Vec<Inline> },
    Heading { level: usize, inlines: Vec<Inline> },
    List { items: Vec<Item> },
    Quote { blocks: Vec<Block> },
    Code { text: String },
    Rule,
}

/// An item of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Item {
    pub(crate) depth: usize,
    /// The mark in front of it: `•`, or the number as it is written.
    pub(crate) mark: String,
    pub(crate) inlines: Vec<Inline>,
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "inline", rename_all = "kebab-case")]
pub(crate) enum Inline {
    Text {
        text: String,
    },
    Code {
        text: String,
    },
    Strong {
        inlines: Vec<Inline>,
    },
    Emphasis {
        inlines: Vec<Inline>,
    },
    /// The text in front of the address is a part of its own.
    Link {
        url: String,
    },
    Break,
}

/// The blocks of a text; one paragraph with all of it if it is very long.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    if text.len() > LONGEST {
        return vec![Block::Paragraph { inlines: vec![plain(text)] }];
    }
    let lines: Vec<&str> = text.lines().collect();
    blocks_of(&lines, 0)
}

fn plain(text: &str) -> Inline {
    Inline::Text { text: text.to_owned() }
}

fn blocks_of(lines: &[&str], depth: usize) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut rest = lines;
    while let Some((line, behind)) = rest.split_first() {
        let trimmed = line.trim();
        if trimmed.is_empty() {
            rest = behind;
        } else if let Some(fence) = fence(trimmed) {
            let end = behind.iter().position(|line| is_end(line.trim(), fence));
            let end = end.unwrap_or(behind.len());
            blocks.push(Block::Code { text: behind[..end].join("\n") });
            rest = behind.get(end + 1..).unwrap_or_default();
        } else if let Some((level, text)) = heading(trimmed) {
            blocks.push(Block::Heading { level, inlines: inlines(text) });
            rest = behind;
        } else if is_rule(trimmed) {
            blocks.push(Block::Rule);
            rest = behind;
        } else if trimmed.starts_with('>') && depth < NESTED {
            let end = rest.iter().position(|line| !line.trim().starts_with('>'));
            let (quoted, behind) = rest.split_at(end.unwrap_or(rest.len()));
            let strip = |line: &&'_ str| -> String {
                let line = line.trim().trim_start_matches('>');
                line.strip_prefix(' ').unwrap_or(line).to_owned()
            };
            let quoted: Vec<String> = quoted.iter().map(strip).collect();
            let quoted: Vec<&str> = quoted.iter().map(String::as_str).collect();
            blocks.push(Block::Quote { blocks: blocks_of(&quoted, depth + 1) });
            rest = behind;
        } else if item(line).is_some() {
            let (items, behind) = list(rest);
            blocks.push(Block::List { items });
            rest = behind;
        } else {
            let end = rest.iter().skip(1).position(|line| interrupts(line));
            let (own, behind) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
            blocks.push(Block::Paragraph { inlines: lines_of(own) });
            rest = behind;
        }
    }
    blocks
}

/// The lines of a paragraph, which stay lines: agents mean them so.
fn lines_of(lines: &[&str]) -> Vec<Inline> {
    let mut all = Vec::new();
    for line in lines {
        if !all.is_empty() {
            all.push(Inline::Break);
        }
        all.extend(inlines(line.trim()));
    }
    all
}

/// Whether a line ends a paragraph above it.
fn interrupts(line: &str) -> bool {
    let trimmed = line.trim();
    trimmed.is_empty()
        || fence(trimmed).is_some()
        || heading(trimmed).is_some()
        || is_rule(trimmed)
        || trimmed.starts_with('>')
        || item(line).is_some()
}

/// The characters that open a block of code, if the line does.
fn fence(line: &str) -> Option<&str> {
    ['`', '~'].into_iter().find_map(|mark| {
        let length = line.len() - line.trim_start_matches(mark).len();
        // Behind it stands a language at most: three marks in a line are code in a line.
        (length >= 3 && !line[length..].contains(mark)).then(|| &line[..length])
    })
}

fn is_end(line: &str, fence: &str) -> bool {
    line.starts_with(fence) && line.trim_start_matches(&fence[..1]).is_empty()
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    let text = text.strip_prefix(' ')?.trim();
    ((1..=6).contains(&level) && !text.is_empty()).then_some((level, text))
}

fn is_rule(line: &str) -> bool {
    let mark = line.chars().next().unwrap_or_default();
    let is_mark = |c: char| c == mark || c == ' ';
    "-*_".contains(mark) && line.chars().all(is_mark) && line.matches(mark).count() >= 3
}

/// The depth, the mark and the text of an item of a list.
fn item(line: &str) -> Option<(usize, String, &str)> {
    let text = line.trim_start();
    let indent = line.len() - text.len();
    let (mark, rest) = match text.split_once(' ') {
        Some(("-" | "*" | "+", rest)) => ("•".to_owned(), rest),
        Some((number, rest)) => {
            let digits = number.strip_suffix(['.', ')'])?;
            let is_number =
                (1..=9).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit());
            is_number.then(|| (format!("{digits}."), rest))?
        }
        None => return None,
    };
    (!is_rule(text)).then(|| ((indent / 2).min(DEEPEST), mark, rest.trim()))
}

fn list<'a, 'b>(lines: &'b [&'a str]) -> (Vec<Item>, &'b [&'a str]) {
    let mut items: Vec<Item> = Vec::new();
    let mut rest = lines;
    while let Some((line, behind)) = rest.split_first() {
        if let Some((depth, mark, text)) = item(line) {
            items.push(Item { depth, mark, inlines: inlines(text) });
        } else if let (Some(last), true) = (items.last_mut(), line.starts_with("  "))
            && !interrupts(line)
        {
            last.inlines.push(Inline::Break);
            last.inlines.extend(inlines(line.trim()));
        } else if !(line.trim().is_empty() && behind.first().is_some_and(|it| item(it).is_some())) {
            break;
        }
        rest = behind;
    }
    (items, rest)
}

fn inlines(text: &str) -> Vec<Inline> {
    inlines_within(text, 0)
}

fn inlines_within(text: &str, depth: usize) -> Vec<Inline> {
    let mut all = Vec::new();
    // The beginning of the text that is not in a part yet, and the place that is looked at.
    let (mut begin, mut at) = (0, 0);
    while let Some(next) = text[at..].chars().next() {
        let found = match next {
            '`' => code(window(&text[at..])),
            '*' | '_' if depth < NESTED => emphasis(text, at, depth),
            '[' => link(window(&text[at..])),
            'h' if is_boundary(text[..at].chars().next_back()) => address(window(&text[at..])),
            '\\' => escaped(&text[at..]),
            _ => None,
        };
        match found {
            Some((parts, length)) => {
                push_text(&mut all, &text[begin..at]);
                for part in parts {
                    match part {
                        Inline::Text { text } => push_text(&mut all, &text),
                        part => all.push(part),
                    }
                }
                at += length;
                begin = at;
            }
            // A run of marks that opens nothing is not looked at again, mark by mark.
            None if "`*_".contains(next) => {
                at += text[at..].len() - text[at..].trim_start_matches(next).len();
            }
            None => at += next.len_utf8(),
        }
    }
    push_text(&mut all, &text[begin..]);
    all
}

fn push_text(all: &mut Vec<Inline>, more: &str) {
    match all.last_mut() {
        Some(Inline::Text { text }) => text.push_str(more),
        _ if more.is_empty() => {}
        _ => all.push(plain(more)),
    }
}

/// The beginning of a text in which the end of a part is searched.
fn window(text: &str) -> &str {
    let end = (0..=WINDOW.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or_default()]
}

type Found = Option<(Vec<Inline>, usize)>;

fn is_boundary(before: Option<char>) -> bool {
    before.is_none_or(|before| !before.is_alphanumeric())
}

/// Code in a line: between two runs of as many marks.
fn code(text: &str) -> Found {
    let length = text.len() - text.trim_start_matches('`').len();
    let (marks, rest) = text.split_at(length);
    let mut from = 0;
    while let Some(found) = rest[from..].find(marks) {
        let end = from + found;
        let behind = &rest[end..];
        let run = behind.len() - behind.trim_start_matches('`').len();
        if run == length {
            let text = rest[..end].trim().to_owned();
            return Some((vec![Inline::Code { text }], length + end + run));
        }
        from = end + run;
    }
    None
}

/// `*emphasis*`, `**strong**`; not in the middle of a word for `_`.
fn emphasis(text: &str, at: usize, depth: usize) -> Found {
    let rest = window(&text[at..]);
    let mark = &rest[..1];
    let run = rest.len() - rest.trim_start_matches(mark).len();
    if run > 2 || (mark == "_" && !is_boundary(text[..at].chars().next_back())) {
        return None;
    }
    let (marks, inner) = rest.split_at(run);
    if inner.starts_with(char::is_whitespace) {
        return None;
    }
    let mut from = 0;
    while let Some(found) = inner[from..].find(marks) {
        let end = from + found;
        let behind = &inner[end..];
        let length = behind.len() - behind.trim_start_matches(mark).len();
        let after = behind[length..].chars().next();
        let closes = length == run
            && end > 0
            && !inner[..end].ends_with(char::is_whitespace)
            && (mark == "*" || is_boundary(after));
        if closes {
            let inlines = inlines_within(&inner[..end], depth + 1);
            let part = match run {
                1 => Inline::Emphasis { inlines },
                _ => Inline::Strong { inlines },
            };
            return Some((vec![part], run + end + run));
        }
        from = end + length;
    }
    None
}

/// `[text](address)`: the text, and behind it the whole address.
fn link(text: &str) -> Found {
    let (label, rest) = text[1..].split_once("](")?;
    let (target, _) = rest.split_once(')')?;
    let url = web_address(target)?;
    if label.contains(['[', ']', '\n']) {
        return None;
    }
    let length = 1 + label.len() + 2 + target.len() + 1;
    let mut parts = Vec::new();
    if !label.is_empty() && label != url {
        parts.push(plain(&format!("{label} ")));
    }
    parts.push(Inline::Link { url });
    Some((parts, length))
}

/// An address that stands in a text by itself.
fn address(text: &str) -> Found {
    let end = text.find(|c: char| c.is_whitespace() || "<>\"`|{}[]".contains(c));
    // Half of an address would be another one.
    let end = end.or_else(|| (text.len() < WINDOW).then_some(text.len()))?;
    let found = text[..end].trim_end_matches(['.', ',', ';', ':', '!', '?', '*', '_', '\'']);
    let found = match found.contains('(') {
        true => found,
        false => found.trim_end_matches(')'),
    };
    let url = web_address(found)?;
    Some((vec![Inline::Link { url }], found.len()))
}

/// The address if browsers go to exactly it: of http or https, in ASCII, and without a name of a
/// user, behind which another host could hide.
fn web_address(text: &str) -> Option<String> {
    let is_plain = text.bytes().all(|it| it.is_ascii_graphic());
    let url = url::Url::parse(text).ok().filter(|_| is_plain)?;
    let is_web = matches!(url.scheme(), "http" | "https")
        && (text.starts_with("http://") || text.starts_with("https://"));
    (is_web && url.has_host() && url.username().is_empty() && url.password().is_none())
        .then(|| text.to_owned())
}

fn escaped(text: &str) -> Found {
    let next = text[1..].chars().next().filter(char::is_ascii_punctuation)?;
    Some((vec![plain(&next.to_string())], 2))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The inlines of a text in short: `*…*`, `**…**`, `` `…` ``, `<…>`.
    fn line(text: &str) -> String {
        fn all(inlines: &[Inline]) -> String {
            inlines.iter().map(one).collect()
        }
        fn one(inline: &Inline) -> String {
            match inline {
                Inline::Text { text } => text.clone(),
                Inline::Code { text } => format!("`{text}`"),
                Inline::Strong { inlines } => format!("S({})", all(inlines)),
                Inline::Emphasis { inlines } => format!("E({})", all(inlines)),
                Inline::Link { url } => format!("<{url}>"),
                Inline::Break => "\n".to_owned(),
            }
        }
        all(&inlines(text))
    }

    #[test]
    fn parts_of_a_line_are_recognised_and_all_else_stays_text() {
        for (text, expected) in [
            ("a *b* **c** `d*e*`", "a E(b) S(c) `d*e*`"),
            ("**a *b* c**", "S(a E(b) c)"),
            ("snake_case_name and _so_", "snake_case_name and E(so)"),
            ("2 * 3 * 4 and **", "2 * 3 * 4 and **"),
            ("``a`b`` and `c", "`a`b` and `c"),
            ("\\*a\\*", "*a*"),
            (
                "see https://a.example/x_y, (http://b.example).",
                "see <https://a.example/x_y>, (<http://b.example>).",
            ),
            ("[here](https://a.example/b)", "here <https://a.example/b>"),
            ("[https://a.example](https://b.example)", "https://a.example <https://b.example>"),
            ("<b>x</b> <script>", "<b>x</b> <script>"),
        ] {
            assert_eq!(line(text), expected, "{text}");
        }
    }

    #[test]
    fn only_plain_addresses_of_the_web_become_links() {
        for text in [
            "[a](javascript:alert(1))",
            "[a](JAVASCRIPT:alert)",
            "[a](data:text/html,x)",
            "[a](//there/x)",
            "[a](https://bank.example@evil.example)",
            "[a](https://ex\u{430}mple.org)",
            "[a](https:evil)",
            "[a](ht\ttps://a.example)",
            "xhttps://a.example",
        ] {
            assert!(!line(text).contains('<'), "{text}: {}", line(text));
        }
    }

    #[test]
    fn blocks_are_recognised() {
        let text = "# Head\n\none\ntwo\n- a\n  more\n  - b\n1. c\n\n```rust\n# x\n<b>\n```\n> q\n> - r\n\n---\n";
        let kinds: Vec<Value> =
            blocks(text).iter().map(|block| json!(block)["block"].clone()).collect();
        assert_eq!(kinds, ["heading", "paragraph", "list", "code", "quote", "rule"]);
        let Block::List { items } = &blocks(text)[2] else { panic!() };
        let items: Vec<(usize, &str)> =
            items.iter().map(|item| (item.depth, item.mark.as_str())).collect();
        assert_eq!(items, [(0, "•"), (1, "•"), (0, "1.")]);
        assert_eq!(blocks(text)[3], Block::Code { text: "# x\n<b>".to_owned() });
        // A block that nobody closes ends with the text.
        assert_eq!(blocks("~~~\na"), [Block::Code { text: "a".to_owned() }]);
    }

    #[test]
    fn no_text_of_marks_takes_long() {
        let hostile = [
            "*".repeat(50_000),
            "*a ".repeat(5_000),
            "**a".repeat(5_000),
            "[".repeat(50_000),
            "[a](".repeat(10_000),
            "`".repeat(50_000),
            "`a``b".repeat(3_000),
            "> ".repeat(30_000),
            "- ".repeat(30_000),
            "http://".repeat(10_000),
        ];
        for text in hostile {
            assert!(!blocks(&text).is_empty());
        }
    }
}
