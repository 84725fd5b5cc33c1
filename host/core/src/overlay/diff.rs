//! The difference of two files as hunks of lines, as a unified diff shows it. Time and memory are
//! bounded, because a guest chooses the contents.

use std::collections::BTreeMap;
use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff, group_diff_ops};

/// Lines of context around a change.
const CONTEXT: usize = 3;
/// Changed lines up to which the shortest difference is searched, which takes time in the square of
/// their number. Above it, all old lines are removed and all new ones added.
const SEARCHED: usize = 10_000;
/// Bytes at the beginning of a file in which a NUL makes it a binary one, as in git.
const INSPECTED: usize = 8_000;

/// The sign of a line in a hunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineSign {
    Context,
    Removed,
    Added,
}

impl LineSign {
    /// The sign at the beginning of the line.
    #[must_use]
    pub fn as_char(self) -> char {
        match self {
            Self::Context => ' ',
            Self::Removed => '-',
            Self::Added => '+',
        }
    }
}

/// A line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HunkLine {
    pub sign: LineSign,
    /// The text without its line feed.
    pub text: String,
    /// Whether it is the last line of its file and has no line feed.
    pub unterminated: bool,
}

/// Changed lines with the lines around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// The header of a unified diff: `@@ -1,3 +1,4 @@`.
    pub header: String,
    pub lines: Vec<HunkLine>,
}

/// The difference of two texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextChange {
    pub hunks: Vec<Hunk>,
    /// The number of added lines.
    pub added: u64,
    /// The number of removed lines.
    pub removed: u64,
}

/// The text of a file, or `None` for a binary one: with a NUL at its beginning, or not in UTF-8.
#[must_use]
pub fn as_text(bytes: &[u8]) -> Option<&str> {
    let begin = &bytes[..bytes.len().min(INSPECTED)];
    if begin.contains(&0) { None } else { std::str::from_utf8(bytes).ok() }
}

/// The difference of two texts.
#[must_use]
pub fn text_change(old: &str, new: &str) -> TextChange {
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    let mut change = TextChange::default();
    for group in group_diff_ops(operations(&old, &new), CONTEXT) {
        let Some((first, last)) = group.first().zip(group.last()) else { continue };
        let old_range = first.old_range().start..last.old_range().end;
        let new_range = first.new_range().start..last.new_range().end;
        let header = format!("@@ -{} +{} @@", range(&old_range), range(&new_range));
        let mut lines = Vec::new();
        for operation in group {
            if let DiffOp::Equal { old_index, len, .. } = operation {
                lines.extend(hunk_lines(LineSign::Context, &old[old_index..old_index + len]));
            } else {
                lines.extend(hunk_lines(LineSign::Removed, &old[operation.old_range()]));
                lines.extend(hunk_lines(LineSign::Added, &new[operation.new_range()]));
                change.removed += operation.old_range().len() as u64;
                change.added += operation.new_range().len() as u64;
            }
        }
        change.hunks.push(Hunk { header, lines });
    }
    change
}

/// The operations that turn the old lines into the new ones.
fn operations(old: &[&str], new: &[&str]) -> Vec<DiffOp> {
    let alike = |(one, other): &(&&str, &&str)| one == other;
    let prefix = old.iter().zip(new).take_while(alike).count();
    let rest = old[prefix..].iter().rev().zip(new[prefix..].iter().rev());
    let suffix = rest.take_while(alike).count();
    let (old_end, new_end) = (old.len() - suffix, new.len() - suffix);
    let mut operations = Vec::new();
    if prefix > 0 {
        operations.push(DiffOp::Equal { old_index: 0, new_index: 0, len: prefix });
    }
    if old_end - prefix + new_end - prefix > SEARCHED {
        operations.push(DiffOp::Replace {
            old_index: prefix,
            old_len: old_end - prefix,
            new_index: prefix,
            new_len: new_end - prefix,
        });
    } else {
        // Numbers are compared in constant time, however long the lines are.
        let mut numbers = BTreeMap::new();
        let mut number = |line| {
            let next = numbers.len();
            *numbers.entry(line).or_insert(next)
        };
        let old: Vec<usize> = old.iter().map(|line| number(*line)).collect();
        let new: Vec<usize> = new.iter().map(|line| number(*line)).collect();
        let (from, to) = (prefix..old_end, prefix..new_end);
        operations.extend(capture_diff(Algorithm::Myers, &old, from, &new, to));
    }
    if suffix > 0 {
        operations.push(DiffOp::Equal { old_index: old_end, new_index: new_end, len: suffix });
    }
    renumbered(operations)
}

/// The operations with each index at the end of the operation before. The search leaves the index
/// of the other text inexact for insertions and deletions, and the headers need both.
fn renumbered(operations: Vec<DiffOp>) -> Vec<DiffOp> {
    let (mut old_index, mut new_index) = (0, 0);
    let exact = operations.into_iter().map(|operation| {
        let (old_len, new_len) = (operation.old_range().len(), operation.new_range().len());
        let exact = match operation {
            DiffOp::Equal { len, .. } => DiffOp::Equal { old_index, new_index, len },
            DiffOp::Delete { .. } => DiffOp::Delete { old_index, old_len, new_index },
            DiffOp::Insert { .. } => DiffOp::Insert { old_index, new_index, new_len },
            DiffOp::Replace { .. } => DiffOp::Replace { old_index, old_len, new_index, new_len },
        };
        (old_index, new_index) = (old_index + old_len, new_index + new_len);
        exact
    });
    exact.collect()
}

fn hunk_lines<'a>(sign: LineSign, lines: &'a [&str]) -> impl Iterator<Item = HunkLine> + 'a {
    lines.iter().map(move |line| {
        let text = line.strip_suffix('\n');
        HunkLine { sign, text: text.unwrap_or(line).to_owned(), unterminated: text.is_none() }
    })
}

/// `START,LENGTH`. An empty range is after its start, as in git.
fn range(lines: &Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => (lines.start + 1).to_string(),
        length => format!("{},{length}", lines.start + 1),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use proptest::prelude::*;

    use super::*;

    fn unified(change: &TextChange) -> String {
        let mut text = String::new();
        for hunk in &change.hunks {
            let _ = writeln!(text, "{}", hunk.header);
            for line in &hunk.lines {
                let _ = writeln!(text, "{}{}", line.sign.as_char(), line.text);
                if line.unterminated {
                    let _ = writeln!(text, "\\ No newline at end of file");
                }
            }
        }
        text
    }

    #[test]
    fn a_difference_has_the_lines_that_git_shows() {
        let old = "one\ntwo\nthree\nfour\nfive\nsix\n";
        let new = "one\ntwo\nthree\nfour\nFIVE\nsix\nseven";
        let change = text_change(old, new);
        assert_eq!((change.added, change.removed), (2, 1));
        assert_eq!(
            unified(&change),
            "@@ -2,5 +2,6 @@\n two\n three\n four\n-five\n+FIVE\n six\n+seven\n\\ No newline at end of file\n"
        );
        assert_eq!(unified(&text_change("", "a\n")), "@@ -0,0 +1 @@\n+a\n");
        assert_eq!(unified(&text_change("a\nb\n", "")), "@@ -1,2 +0,0 @@\n-a\n-b\n");
        assert_eq!(text_change("a", "a"), TextChange::default());
        // A carriage return ends no line.
        assert_eq!(unified(&text_change("a\rb\n", "a\rc\n")), "@@ -1 +1 @@\n-a\rb\n+a\rc\n");
    }

    #[test]
    fn texts_with_more_changed_lines_than_are_searched_are_replaced_as_a_whole() {
        let lines = |word: &str| -> String {
            std::iter::once("same\n".to_owned())
                .chain((0..SEARCHED).map(|line| format!("{word}{}\n", line % 7)))
                .collect()
        };
        let change = text_change(&lines("a"), &lines("b"));
        assert_eq!((change.added, change.removed), (10_000, 10_000));
        assert_eq!(change.hunks.len(), 1);
        assert_eq!(change.hunks[0].lines[0].sign, LineSign::Context);
    }

    #[test]
    fn a_file_with_a_nul_or_without_utf_8_is_binary() {
        assert_eq!(as_text(b"a\nb"), Some("a\nb"));
        assert_eq!(as_text(b"a\0b"), None);
        assert_eq!(as_text(b"\xff"), None);
    }

    proptest! {
        /// The hunks turn the old text into the new one.
        #[test]
        fn hunks_are_a_patch(old in "([ab]?\n?){0,30}", new in "([ab]?\n?){0,30}") {
            let change = text_change(&old, &new);
            let old_lines: Vec<&str> = old.split_inclusive('\n').collect();
            let (mut patched, mut next) = (String::new(), 0);
            for hunk in &change.hunks {
                let (start, length) = hunk.header[4..].split_once(' ').unwrap().0
                    .split_once(',').map_or((hunk.header[4..].split_once(' ').unwrap().0, "1"), |pair| pair);
                let start = start.parse::<usize>().unwrap() - usize::from(length != "0");
                patched.extend(old_lines[next..start].iter().copied());
                next = start + length.parse::<usize>().unwrap();
                for line in hunk.lines.iter().filter(|line| line.sign != LineSign::Removed) {
                    patched.push_str(&line.text);
                    if !line.unterminated {
                        patched.push('\n');
                    }
                }
            }
            patched.extend(old_lines[next..].iter().copied());
            prop_assert_eq!(patched, new);
        }
    }
}
