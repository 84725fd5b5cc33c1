//! Texts that do not say plainly where they lead: `..`, `.`, doubled slashes, backslashes, their percent forms, control and invisible
//! characters. What such a text leads to, read as a path. Knows no file system.

use crate::text::is_deceptive;

/// The text holds something that can make it lead elsewhere than it seems to. Allocates nothing.
#[must_use]
pub fn is_odd(text: &str) -> bool {
    text.chars().any(is_deceptive) || text.contains(['\\', '%']) && has_hidden_separators(text) || has_odd_segment(text)
}

/// A backslash, or a dot, slash or backslash in its percent form; `%25` could be one for whoever decodes twice.
fn has_hidden_separators(text: &str) -> bool {
    let is_hidden = |code: &[u8]| matches!(code, [b'2', b'e' | b'E' | b'f' | b'F' | b'5'] | [b'5', b'c' | b'C'] | [b'0', _]);
    text.contains('\\') || text.as_bytes().windows(3).any(|window| window[0] == b'%' && is_hidden(&window[1..]))
}

/// A `.` or `..` between separators, or nothing between two slashes; `//` behind a scheme is how an address begins.
fn has_odd_segment(text: &str) -> bool {
    let mut parts = text.split(is_separator).peekable();
    let dots = parts.any(|part| matches!(part.trim(), "." | ".."));
    let address = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)).map_or(text, |(_, rest)| rest);
    dots || address.contains("//")
}

fn is_separator(c: char) -> bool {
    matches!(c, '/' | '\\' | '?' | '#' | ';' | ':')
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// What an odd text leads to when it is read as a path: `/a/b` of `/a//x/..\b`. Control and invisible characters are left out.
pub(super) fn led_to(text: &str) -> String {
    let plain: String = decoded(text).chars().filter(|c| !is_deceptive(*c)).map(|c| if c == '\\' { '/' } else { c }).collect();
    let (start, path) = match plain.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (if plain.starts_with('/') { "/".to_owned() } else { String::new() }, plain.as_str()),
    };
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment.trim() {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    start + &segments.join("/")
}

/// The percent forms of ASCII as what they stand for, once.
fn decoded(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        let code = after.get(..2).filter(|code| code.bytes().all(|c| c.is_ascii_hexdigit()));
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()).filter(u8::is_ascii) {
            Some(byte) => {
                decoded.push(char::from(byte));
                rest = &after[2..];
            }
            None => {
                decoded.push('%');
                rest = after;
            }
        }
    }
    decoded + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_hides_where_it_leads_is_odd() {
        let odd = [
            "/notes/../x",
            "..",
            "/notes/..",
            "../x",
            "/a/./b",
            "/a//b",
            "//a",
            "a\\b",
            "/a/%2e%2e/b",
            "/a/%2E./b",
            "/a%2fb",
            "/a%5Cb",
            "/a/..%2fb",
            "/a/%252e%252e/b",
            "/a/..;/b",
            "/a/.. /b",
            "a\u{0}b",
            "a\nb",
            "a\u{202e}b",
            "a\u{200b}b",
            "https://h//x",
            "https://h/a/..?q",
            "c:..",
            "%00",
        ];
        for text in odd {
            assert!(is_odd(text), "{text:?}");
        }
        for text in ["/notes/a.md", "a..b", "wait... what", "https://api.example.org/x?y=1", "", "/a b/c", "100 %", "é", "a.", "/.git/x"] {
            assert!(!is_odd(text), "{text:?}");
        }
    }

    #[test]
    fn what_an_odd_text_leads_to_is_found() {
        let cases = [
            ("/notes/x/../secret/a", "/notes/secret/a"),
            ("/notes//secret/./a", "/notes/secret/a"),
            ("\\notes\\secret", "/notes/secret"),
            ("/../../x", "/x"),
            ("/notes/%2e%2e/x", "/x"),
            ("https://h/a/../b", "https://h/b"),
            ("/no\u{200b}tes/x", "/notes/x"),
            ("/a/%2", "/a/%2"),
            ("%zz", "%zz"),
            ("..", ""),
            ("é%c3x", "é%c3x"),
        ];
        for (text, expected) in cases {
            assert_eq!(led_to(text), expected, "{text:?}");
        }
    }
}
