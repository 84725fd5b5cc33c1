//! Text between values: where comments, commas and lines begin and end. Knows TOML's strings well
//! enough not to look into them.

use std::ops::Range;

/// A range of a text, and what takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Splice {
    pub(super) range: Range<usize>,
    pub(super) text: String,
}

impl Splice {
    pub(super) fn insert(at: usize, text: impl Into<String>) -> Self {
        Self { range: at..at, text: text.into() }
    }

    pub(super) fn replace(range: Range<usize>, text: impl Into<String>) -> Self {
        Self { range, text: text.into() }
    }

    pub(super) fn remove(range: Range<usize>) -> Self {
        Self::replace(range, "")
    }
}

/// The text with everything put in; ranges do not overlap.
pub(super) fn apply(text: &str, mut splices: Vec<Splice>) -> String {
    splices.sort_by_key(|splice| (splice.range.start, splice.range.end));
    let mut edited = String::with_capacity(text.len());
    let mut at = 0;
    for splice in splices {
        edited.push_str(&text[at..splice.range.start]);
        edited.push_str(&splice.text);
        at = splice.range.end;
    }
    edited.push_str(&text[at..]);
    edited
}

/// Where the line of a byte begins.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// Where the line of a byte ends, behind its line end.
pub(super) fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1)
}

/// The blanks that a line begins with.
pub(super) fn indent(text: &str, line: usize) -> &str {
    let rest = &text[line..];
    let length = rest.find(|c: char| c != ' ' && c != '\t').unwrap_or(rest.len());
    &rest[..length]
}

/// The line end that a text uses.
pub(super) fn newline(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Nothing but blanks.
pub(super) fn is_blank(text: &str) -> bool {
    text.chars().all(|c| matches!(c, ' ' | '\t' | '\r' | '\n'))
}

/// Comments in a piece of TOML, each without its line end.
pub(super) fn comments(text: &str) -> Vec<&str> {
    pieces(text)
        .into_iter()
        .filter(|(kind, _)| *kind == Piece::Comment)
        .map(|(_, range)| text[range].trim_end())
        .collect()
}

/// Where the comments of a whole text begin, in order; at most one on each line.
pub(super) fn comment_starts(text: &str) -> Vec<usize> {
    pieces(text)
        .into_iter()
        .filter(|(kind, _)| *kind == Piece::Comment)
        .map(|(_, range)| range.start)
        .collect()
}

/// The first comma in a piece of TOML between two values.
pub(super) fn comma(text: &str) -> Option<usize> {
    pieces(text).into_iter().find(|(kind, _)| *kind == Piece::Comma).map(|(_, range)| range.start)
}

/// The first byte that is neither blank nor comma nor in a comment.
pub(super) fn content(text: &str) -> usize {
    pieces(text)
        .into_iter()
        .find(|(kind, _)| *kind == Piece::Content)
        .map_or(text.len(), |(_, range)| range.start)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Comment,
    Comma,
    Content,
}

fn pieces(text: &str) -> Vec<(Piece, Range<usize>)> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let (kind, length) = match c {
            ' ' | '\t' | '\r' | '\n' => (None, 1),
            '#' => (Some(Piece::Comment), rest.find('\n').unwrap_or(rest.len())),
            ',' => (Some(Piece::Comma), 1),
            '"' | '\'' => (Some(Piece::Content), string_length(rest, c)),
            _ => (Some(Piece::Content), c.len_utf8()),
        };
        pieces.extend(kind.map(|kind| (kind, at..at + length)));
        at += length;
    }
    pieces
}

/// Bytes of the string that a text begins with, quotes included.
fn string_length(text: &str, quote: char) -> usize {
    let long: String = [quote; 3].iter().collect();
    let (start, end) = if text.starts_with(&long) { (3, long) } else { (1, quote.to_string()) };
    let mut at = start;
    while let Some(c) = text[at..].chars().next() {
        if quote == '"' && c == '\\' {
            let escaped = text[at + 1..].chars().next();
            at += 1 + escaped.map_or(0, char::len_utf8);
        } else if text[at..].starts_with(&end) {
            at += end.len();
            // A long string may end with two quotes of its own.
            let more = if start == 3 {
                text[at..].chars().take(2).take_while(|c| *c == quote).count()
            } else {
                0
            };
            return at + more;
        } else {
            at += c.len_utf8();
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_found_and_strings_are_not_looked_into() {
        let text = "[ # a\n \"# no \\\" #\", '#', \"\"\"# \"\"\"\"\", # b\r\n]";
        assert_eq!(comments(text), ["# a", "# b"]);
        assert_eq!(comma(" # , \n ,"), Some(7));
        assert_eq!(content(" # x\n , b"), 8);
    }

    #[test]
    fn splices_are_applied_at_their_old_places() {
        let splices =
            vec![Splice::remove(4..5), Splice::insert(0, "<"), Splice::replace(1..3, "--")];
        assert_eq!(apply("abcde", splices), "<a--d");
    }
}
