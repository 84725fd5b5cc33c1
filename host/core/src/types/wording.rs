//! Names and values in sentences for people. Untrusted text is shown so that it cannot deceive a
//! reader or control a terminal.

use std::fmt::Display;

use crate::types::text::{cut_chars, is_deceptive};

/// The limit of a quoted value in characters.
const QUOTED: usize = 64;

/// A printable character: a space for a tab, a replacement for a deceptive one.
pub(crate) fn plain(c: char) -> char {
    match c {
        '\t' => ' ',
        c if is_deceptive(c) => '\u{fffd}',
        c => c,
    }
}

/// A name or value between backquotes, cut if it is long.
pub(crate) fn code(text: &str) -> String {
    format!("`{}`", cut_chars(text, QUOTED).chars().map(plain).collect::<String>())
}

/// A TOML string: quoted and escaped.
pub(crate) fn string(text: &str) -> String {
    format!("{:?}", text.chars().map(plain).collect::<String>())
}

/// A TOML array of strings.
pub(crate) fn array<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| string(item.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

/// `a`, `b` or `c`, each between backquotes; empty for no items.
pub(crate) fn one_of<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let mut items: Vec<String> = items.into_iter().map(|item| code(item.as_ref())).collect();
    match items.pop() {
        Some(last) if items.is_empty() => last,
        Some(last) => format!("{} or {last}", items.join(", ")),
        None => String::new(),
    }
}

/// A number in groups of three digits: `50 000`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun: `1 call`, `3 calls`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(number))
}

/// An amount of money: `$0.20`, with more digits only if there are any.
pub(crate) fn money(micro_usd: u64) -> String {
    let fraction = format!("{:06}", micro_usd % 1_000_000);
    let digits = fraction.trim_end_matches('0').len().max(2);
    format!("${}.{}", micro_usd / 1_000_000, &fraction[..digits])
}

/// The most similar known name, or all of them; `None` if there are none.
pub(crate) fn suggest<T: AsRef<str> + Display>(
    written: &str,
    known: &[T],
    noun: &str,
) -> Option<String> {
    let names = || known.iter().map(AsRef::as_ref);
    let all = || format!("{noun}: {}", names().map(code).collect::<Vec<_>>().join(", "));
    did_you_mean(written, names()).or_else(|| (!known.is_empty()).then(all))
}

/// The most similar known name, as a question; `None` if none is similar enough.
#[must_use]
pub fn did_you_mean<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(written, known).map(|near| format!("did you mean {}?", code(near)))
}

/// The most similar name; `None` if none is similar enough.
pub(crate) fn nearest<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let written = written.to_lowercase();
    // A name this long is no misspelling, and the comparison takes quadratic time.
    if written.chars().count() > QUOTED {
        return None;
    }
    let allowed = |name: &str| (name.chars().count().max(written.chars().count()) / 3).max(1);
    let with_distance =
        known.into_iter().map(|name| (distance(&written, &name.to_lowercase()), name));
    with_distance
        .filter(|(distance, name)| *distance <= allowed(name))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// The number of insertions, deletions, replacements and swaps of neighbours that turn one into the
/// other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for (i, a_char) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b_char) in b.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(a_char != b_char);
            let mut least = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a_char == b[j - 1] && a[i - 1] == *b_char {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// A text as TOML writes it; deceptive characters are escaped.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if is_deceptive(c) => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_near() {
        let cases = [
            ("memmory", Some("memory")),
            ("Memory", Some("memory")),
            ("mermory", Some("memory")),
            ("uotput", Some("output")),
            ("xyz", None),
            ("", None),
        ];
        for (written, expected) in cases {
            assert_eq!(nearest(written, ["memory", "output", "wall"]), expected, "{written}");
        }
    }

    #[test]
    fn numbers_and_money_read_well() {
        assert_eq!(
            (thousands(7), thousands(50_000), thousands(1_234_567)),
            ("7".into(), "50 000".into(), "1 234 567".into())
        );
        assert_eq!(
            (money(200_000), money(1_234_567), money(3_000_000)),
            ("$0.20".into(), "$1.234567".into(), "$3.00".into())
        );
        assert_eq!((count(1, "call"), count(2, "call")), ("1 call".into(), "2 calls".into()));
    }

    #[test]
    fn a_quoted_value_cannot_move_the_cursor_or_hide() {
        assert_eq!(code("a\u{1b}[2Jb\u{202e}c\u{e0041}"), "`a\u{fffd}[2Jb\u{fffd}c\u{fffd}`");
        assert_eq!(code(&"x".repeat(70)), format!("`{}…`", "x".repeat(64)));
    }
}
