//! What an edit changed, line by line, for people who want to see it before they trust it.

use std::fmt;

use serde::Serialize;
use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices};

use crate::types::wording::plain;

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
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let removed =
        |index: usize| LineChange::Removed { line: index + 1, text: old[index].to_owned() };
    let added = |index: usize| LineChange::Added { line: index + 1, text: new[index].to_owned() };
    let mut changes = Vec::new();
    for (tag, old, new) in
        capture_diff_slices(Algorithm::Myers, &old, &new).iter().map(DiffOp::as_tag_tuple)
    {
        if tag != DiffTag::Equal {
            changes.extend(old.map(removed).chain(new.map(added)));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn changed_lines(before: &str, after: &str) -> Vec<String> {
        changes(before, after).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_lines_that_differ_are_shown() {
        assert_eq!(
            changed_lines("a\nb\nc\n", "a\nB\nc\nd\n"),
            ["-   2  b", "+   2  B", "+   4  d"]
        );
        assert_eq!(changed_lines("a\nb\nc\nd\n", "a\nc\nd\ne\n"), ["-   2  b", "+   4  e"]);
        assert!(changed_lines("a\n", "a\n").is_empty());
        assert_eq!(changed_lines("", "a\u{1b}[2J"), ["+   1  a\u{fffd}[2J"]);
    }
}
