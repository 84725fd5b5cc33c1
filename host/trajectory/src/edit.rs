//! The editor of 2025-11 over text: view, create, replace exactly one place, insert, undo. Pure:
//! whoever calls it holds the files.

use std::fmt;

use crate::action;
use crate::observation;
use crate::vocabulary::EditSource;

/// How many lines are shown around a change.
const AROUND: usize = 4;

/// Why the editor did nothing; the text is meant for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditError {
    /// There is no such command.
    UnknownCommand(String),
    /// The command needs this argument.
    Missing {
        /// The command.
        command: &'static str,
        /// The argument.
        argument: &'static str,
    },
    /// `create` on a file that is there.
    Exists,
    /// The file is not there.
    NotFound,
    /// The text to replace is not in the file.
    NoMatch {
        /// The text looked for.
        old: String,
        /// Whether it is there when blanks at the ends of lines are ignored.
        nearly: bool,
    },
    /// The text to replace is in the file more than once.
    ManyMatches {
        /// The lines where it begins, from 1.
        lines: Vec<usize>,
    },
    /// Replacing a text by itself.
    SameText,
    /// The text to replace is empty.
    EmptyText,
    /// A line that the file does not have.
    BadLine {
        /// The line asked for.
        line: i64,
        /// How many lines there are.
        lines: usize,
    },
    /// A range that the file does not have.
    BadRange {
        /// The range asked for.
        range: Vec<i64>,
        /// How many lines there are.
        lines: usize,
    },
    /// Nothing was edited before.
    NothingToUndo,
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EditError::UnknownCommand(command) => {
                write!(f, "The editor has no command `{command}`. Known are: view, create, str_replace, insert, undo_edit.")
            }
            EditError::Missing { command, argument } => write!(f, "`{command}` needs `{argument}`."),
            EditError::Exists => {
                f.write_str("The file exists, and `create` does not overwrite. Use `str_replace` or `insert` to change it.")
            }
            EditError::NotFound => f.write_str("The file does not exist. Use `create` to make it."),
            EditError::NoMatch { nearly: true, .. } => f.write_str(
                "No replacement was made: `old_str` is not in the file word for word, but it is when blanks at the ends of lines are \
                 ignored. View the file and copy the lines exactly.",
            ),
            EditError::NoMatch { old, .. } => {
                let start: String = old.chars().take(80).collect();
                write!(f, "No replacement was made: `old_str` is not in the file word for word. It begins: {start:?}. View the file first.")
            }
            EditError::ManyMatches { lines } => {
                let lines = lines.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
                write!(f, "No replacement was made: `old_str` is in the file more than once, in lines {lines}. Add lines around it.")
            }
            EditError::SameText => f.write_str("No replacement was made: `new_str` and `old_str` are the same."),
            EditError::EmptyText => f.write_str("No replacement was made: `old_str` is empty. Use `insert` to add text."),
            EditError::BadLine { line, lines } => {
                write!(f, "`insert_line` is {line}, and must be from 0 (before the first line) to {lines} (after the last).")
            }
            EditError::BadRange { range, lines } => write!(
                f,
                "`view_range` is {range:?}, and must be two whole numbers: the first line, from 1 to {lines}, and the last, not before it, \
                 or -1 for the end."
            ),
            EditError::NothingToUndo => f.write_str("There is no edit of this file to undo."),
        }
    }
}

impl std::error::Error for EditError {}

/// A text that the editor changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditedText {
    /// The text now.
    pub text: String,
    /// The lines around the change, numbered.
    pub snippet: String,
}

/// The lines of a text with their numbers, all or from the first to the last of `range` (from 1, -1
/// for the end).
pub fn view(text: &str, range: Option<&[i64]>) -> Result<String, EditError> {
    let lines: Vec<&str> = text.lines().collect();
    let Some(range) = range else { return Ok(numbered(&lines, 0, lines.len())) };
    let bad = || EditError::BadRange { range: range.to_vec(), lines: lines.len() };
    let [first, last] = range else { return Err(bad()) };
    let count = lines.len() as i64;
    if *first < 1 || *first > count || (*last != -1 && *last < *first) {
        return Err(bad());
    }
    // An end past the text is its end: models guess it.
    let last = if *last == -1 { count } else { (*last).min(count) };
    Ok(numbered(&lines, (*first - 1) as usize, last as usize))
}

/// The text of a new file; refused when there is one.
pub fn create(existing: Option<&str>, text: &str) -> Result<EditedText, EditError> {
    match existing {
        Some(_) => Err(EditError::Exists),
        None => Ok(EditedText { text: text.to_owned(), snippet: String::new() }),
    }
}

/// Replaces `old` by `new` where it is exactly once.
pub fn str_replace(text: &str, old: &str, new: &str) -> Result<EditedText, EditError> {
    if old.is_empty() {
        return Err(EditError::EmptyText);
    }
    if old == new {
        return Err(EditError::SameText);
    }
    let mut places = text.match_indices(old).map(|(at, _)| at);
    let Some(at) = places.next() else {
        return Err(EditError::NoMatch {
            old: old.to_owned(),
            nearly: trimmed_lines(text).contains(&trimmed_lines(old)),
        });
    };
    let line_of = |at: usize| text[..at].matches('\n').count() + 1;
    let more: Vec<usize> = places.map(line_of).collect();
    if !more.is_empty() {
        return Err(EditError::ManyMatches {
            lines: std::iter::once(line_of(at)).chain(more).collect(),
        });
    }
    let edited = [&text[..at], new, &text[at + old.len()..]].concat();
    let first = line_of(at) - 1;
    let snippet = around(&edited, first, first + new.lines().count());
    Ok(EditedText { text: edited, snippet })
}

/// Puts `new` after that line, 0 for before the first.
pub fn insert(text: &str, line: i64, new: &str) -> Result<EditedText, EditError> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let at = usize::try_from(line).ok().filter(|at| *at <= lines.len());
    let Some(at) = at else { return Err(EditError::BadLine { line, lines: lines.len() }) };
    let mut before = lines[..at].concat();
    if !before.is_empty() && !before.ends_with('\n') {
        before.push('\n');
    }
    let after = lines[at..].concat();
    // What is inserted ends its line, unless it is put after a last line that did not end its own.
    let ends = new.ends_with('\n') || (after.is_empty() && !text.ends_with('\n'));
    let edited = [before.as_str(), new, if ends { "" } else { "\n" }, after.as_str()].concat();
    let snippet = around(&edited, at, at + new.lines().count());
    Ok(EditedText { text: edited, snippet })
}

/// The text before the last edit.
pub fn undo(previous: Option<&str>) -> Result<EditedText, EditError> {
    let text = previous.ok_or(EditError::NothingToUndo)?;
    Ok(EditedText { text: text.to_owned(), snippet: String::new() })
}

/// Carries out an `edit` action: the observation to tell, and the text to write, if any.
///
/// `existing` is the file's text, none when there is no file; `previous` its text before the last
/// edit.
pub fn apply(
    action: &action::Edit,
    existing: Option<&str>,
    previous: Option<&str>,
) -> Result<(observation::Edit, Option<String>), EditError> {
    let missing = |command, argument| EditError::Missing { command, argument };
    let there = || existing.ok_or(EditError::NotFound);
    let (what, edited) = match action.command.as_deref().unwrap_or_default() {
        "view" => {
            let content = view(there()?, None)?;
            return Ok((told(action, existing, None, content), None));
        }
        "create" => {
            let text = action.file_text.as_deref().ok_or_else(|| missing("create", "file_text"))?;
            ("is created", create(existing, text)?)
        }
        "str_replace" => {
            let old = action.old_str.as_deref().ok_or_else(|| missing("str_replace", "old_str"))?;
            (
                "is edited",
                str_replace(there()?, old, action.new_str.as_deref().unwrap_or_default())?,
            )
        }
        "insert" => {
            let line = action.insert_line.ok_or_else(|| missing("insert", "insert_line"))?;
            let new = action.new_str.as_deref().ok_or_else(|| missing("insert", "new_str"))?;
            ("is edited", insert(there()?, line, new)?)
        }
        "undo_edit" => ("is as it was before the last edit", undo(previous)?),
        other => return Err(EditError::UnknownCommand(other.to_owned())),
    };
    let mut content = format!("The file {} {what}.", action.path);
    if !edited.snippet.is_empty() {
        content.push_str(&format!(" The lines around the change:\n{}", edited.snippet));
    }
    Ok((told(action, existing, Some(&edited.text), content), Some(edited.text)))
}

fn told(
    action: &action::Edit,
    existing: Option<&str>,
    new: Option<&str>,
    content: String,
) -> observation::Edit {
    observation::Edit {
        content,
        path: action.path.clone(),
        prev_exist: existing.is_some(),
        old_content: existing.map(str::to_owned),
        new_content: new.map(str::to_owned),
        impl_source: EditSource::OhAci,
        ..observation::Edit::default()
    }
}

fn trimmed_lines(text: &str) -> String {
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// The lines from `first` to `end` (from 0, not included) and some on each side.
fn around(text: &str, first: usize, end: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    numbered(&lines, first.saturating_sub(AROUND), end.saturating_add(AROUND))
}

fn numbered(lines: &[&str], first: usize, end: usize) -> String {
    let shown = lines.iter().enumerate().take(end).skip(first);
    shown.map(|(at, line)| format!("{:6}\t{line}\n", at + 1)).collect()
}
