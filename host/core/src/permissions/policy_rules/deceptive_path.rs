//! Texts that obscure their target: `..`, `.`, doubled slashes, backslashes, their percent forms,
//! control and invisible characters. Also their target as a path. Does not access a file system.

use crate::types::text::is_deceptive;

/// Whether the text may have another target than it seems. Allocates nothing.
#[must_use]
pub fn is_odd(text: &str) -> bool {
    text.chars().any(is_deceptive)
        || text.contains(['\\', '%']) && has_hidden_separators(text)
        || has_odd_segment(text)
}

/// Whether the text has a backslash, or a percent form of a character that needs none. These are
/// letters, digits, dots, slashes, backslashes and control characters; `%25` may hide one from a
/// reader who decodes twice.
fn has_hidden_separators(text: &str) -> bool {
    let is_hidden = |byte: u8| {
        byte.is_ascii_alphanumeric() || byte.is_ascii_control() || b"%./\\-_~".contains(&byte)
    };
    let percent = |window: &[u8]| matches!(window, [b'%', high, low] if of_hex(*high, *low).is_some_and(is_hidden));
    text.contains('\\') || text.as_bytes().windows(3).any(percent)
}

/// The byte of two hexadecimal digits.
fn of_hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? * 16 + digit(low)?)
}

/// Whether there is a `.` or `..` between separators, or an empty segment; `//` after a scheme is
/// the normal form of a URL.
fn has_odd_segment(text: &str) -> bool {
    let mut parts = text.split(is_separator).peekable();
    let dots = parts.any(|part| matches!(part.trim(), "." | ".."));
    let address = text
        .split_once("://")
        .filter(|(scheme, _)| is_scheme(scheme))
        .map_or(text, |(_, rest)| rest);
    dots || address.contains("//")
}

fn is_separator(c: char) -> bool {
    matches!(c, '/' | '\\' | '?' | '#' | ';' | ':')
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// The target of a deceptive text as a path: `/a/b` for `/a//x/..\b`. Control and invisible
/// characters are dropped.
pub(super) fn led_to(text: &str) -> String {
    let plain: String = decoded(text)
        .chars()
        .filter(|c| !is_deceptive(*c))
        .map(|c| if c == '\\' { '/' } else { c })
        .collect();
    let (start, path) = match plain.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => {
            (if plain.starts_with('/') { "/".to_owned() } else { String::new() }, plain.as_str())
        }
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

/// Decodes the percent forms of ASCII until none is left. Each character is examined once.
fn decoded(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    for c in text.chars() {
        decoded.push(c);
        // A decoded character may complete another form.
        while let Some(byte) = last_form(&decoded) {
            decoded.truncate(decoded.len() - 3);
            decoded.push(char::from(byte));
        }
    }
    decoded
}

fn last_form(text: &str) -> Option<u8> {
    match text.as_bytes() {
        [.., b'%', high, low] => of_hex(*high, *low).filter(u8::is_ascii),
        _ => None,
    }
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
            "/pub/a\u{180b}b",
            "/pub/a\u{fe00}b",
            "https://h//x",
            "https://h/a/..?q",
            "c:..",
            "%00",
            "/%73ecret",
            "%31",
        ];
        for text in odd {
            assert!(is_odd(text), "{text:?}");
        }
        for text in [
            "/notes/a.md",
            "a..b",
            "wait... what",
            "https://api.example.org/x?y=1",
            "",
            "/a b/c",
            "/a%20b",
            "100 %",
            "é",
            "a.",
            "/.git/x",
        ] {
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
            ("/a/%252525252e%2e/b", "/b"),
            ("/%2573ecret", "/secret"),
            ("é%c3x", "é%c3x"),
        ];
        for (text, expected) in cases {
            assert_eq!(led_to(text), expected, "{text:?}");
        }
    }
}
