//! What an edit changed, line by line, for people who want to see it before they trust it.

use std::fmt;

use serde::Serialize;

use crate::types::wording::plain;

/// Lines compared with each other at most; past this a change is told as one block.
const MOST: usize = 4_000_000;

/// A line that went or came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum LineChange {
    /// `line` counts from 1 in the text of before.
    Removed { line: usize, text: String },
    /// `line` counts from 1 in the text of now.
    Added { line: usize, text: String },
}

impl fmt::Display for LineChange {
    /// `+ 12  grants.tools = ["search.find"]`, safe to print.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, line, text) = match self {
            Self::Removed { line, text } => ('-', line, text),
            Self::Added { line, text } => ('+', line, text),
        };
        write!(out, "{sign} {line:>3}  {}", text.chars().map(plain).collect::<String>())
    }
}

/// The lines that differ, in order; a removed one before what took its place.
#[must_use]
pub fn changes(before: &str, after: &str) -> Vec<LineChange> {
    let (before, after): (Vec<&str>, Vec<&str>) =
        (before.lines().collect(), after.lines().collect());
    let same = before.iter().zip(&after).take_while(|(old, new)| old == new).count();
    let (old, new) = (&before[same..], &after[same..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    let longest = common(old, new);
    let (mut i, mut j, mut changes) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        let removes =
            i < old.len() && (j == new.len() || longest.at(i + 1, j) >= longest.at(i, j + 1));
        if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
        } else if removes {
            changes.push(LineChange::Removed { line: same + i + 1, text: old[i].to_owned() });
            i += 1;
        } else {
            changes.push(LineChange::Added { line: same + j + 1, text: new[j].to_owned() });
            j += 1;
        }
    }
    changes
}

/// The two configs have the same values, but for what stands at these paths, and for tables that
/// hold nothing else.
pub(super) fn is_same_elsewhere(before: &str, after: &str, paths: &[Vec<String>]) -> bool {
    let rest = |text: &str| {
        let mut table = toml::from_str::<toml::Table>(text).ok()?;
        paths.iter().for_each(|path| cut(&mut table, path));
        Some(table)
    };
    match (rest(before), rest(after)) {
        // What is no number equals nothing, not even itself, so that the two are compared as text
        // then.
        (Some(before), Some(after)) => {
            before == after || format!("{before:?}") == format!("{after:?}")
        }
        _ => false,
    }
}

fn cut(table: &mut toml::Table, path: &[String]) {
    let Some((key, below)) = path.split_first() else { return };
    let is_left = match table.get_mut(key) {
        Some(toml::Value::Table(inner)) if !below.is_empty() => {
            cut(inner, below);
            !inner.is_empty()
        }
        _ => !below.is_empty(),
    };
    if !is_left {
        table.remove(key);
    }
}

/// Lengths of the longest common subsequences of what is left from each place on; all 0 for texts
/// that are too long to compare.
struct Common {
    width: usize,
    lengths: Vec<u32>,
}

impl Common {
    fn at(&self, i: usize, j: usize) -> u32 {
        self.lengths.get(i * self.width + j).copied().unwrap_or_default()
    }
}

fn common(old: &[&str], new: &[&str]) -> Common {
    let width = new.len() + 1;
    let size = (old.len() + 1).saturating_mul(width);
    let mut common =
        Common { width, lengths: if size > MOST { Vec::new() } else { vec![0; size] } };
    if common.lengths.is_empty() {
        return common;
    }
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common.lengths[i * width + j] = if old[i] == new[j] {
                common.at(i + 1, j + 1) + 1
            } else {
                common.at(i + 1, j).max(common.at(i, j + 1))
            };
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(before: &str, after: &str) -> Vec<String> {
        changes(before, after).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_lines_that_differ_are_shown() {
        assert_eq!(shown("a\nb\nc\n", "a\nB\nc\nd\n"), ["-   2  b", "+   2  B", "+   4  d"]);
        assert_eq!(shown("a\nb\nc\nd\n", "a\nc\nd\ne\n"), ["-   2  b", "+   4  e"]);
        assert!(shown("a\n", "a\n").is_empty());
        assert_eq!(shown("", "a\u{1b}[2J"), ["+   1  a\u{fffd}[2J"]);
    }
}
