//! The editor of 2025-11 on text: view, create, replace a unique text, insert, undo. Does no I/O;
//! callers hold the files.

use std::fmt;

use crate::action;
use crate::observation;
use crate::vocabulary::EditSource;

/// Number of lines shown around a change.
const AROUND: usize = 4;

/// Why the editor changed nothing; the text is for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditError {
    /// An unknown command.
    UnknownCommand(String),
    /// A missing argument.
    Missing {
        /// The command.
        command: &'static str,
        /// The argument.
        argument: &'static str,
    },
    /// `create` for an existing file.
    Exists,
    /// The file does not exist.
    NotFound,
    /// The text to replace is not in the file.
    NoMatch {
        /// The text to replace.
        old: String,
        /// Whether it matches if blanks at line ends are ignored.
        nearly: bool,
    },
    /// The text to replace occurs more than once.
    ManyMatches {
        /// The lines where it begins, from 1.
        lines: Vec<usize>,
    },
    /// The old and the new text are equal.
    SameText,
    /// The text to replace is empty.
    EmptyText,
    /// A line outside the file.
    BadLine {
        /// The requested line.
        line: i64,
        /// The number of lines.
        lines: usize,
    },
    /// A range outside the file.
    BadRange {
        /// The requested range.
        range: Vec<i64>,
        /// The number of lines.
        lines: usize,
    },
    /// There is no earlier edit.
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

/// An edited text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditedText {
    /// The new text.
    pub text: String,
    /// The lines around the change, numbered.
    pub snippet: String,
}

/// Returns the numbered lines of a text, all or those of `range` (first and last line from 1, −1
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
    // Models guess the end, so one after the text is clamped.
    let last = if *last == -1 { count } else { (*last).min(count) };
    Ok(numbered(&lines, (*first - 1) as usize, last as usize))
}

/// Returns the text of a new file; an existing file is an error.
pub fn create(existing: Option<&str>, text: &str) -> Result<EditedText, EditError> {
    match existing {
        Some(_) => Err(EditError::Exists),
        None => Ok(EditedText { text: text.to_owned(), snippet: String::new() }),
    }
}

/// Replaces `old`, which must occur exactly once, by `new`.
pub fn str_replace(text: &str, old: &str, new: &str) -> Result<EditedText, EditError> {
    if old.is_empty() {
        return Err(EditError::EmptyText);
    }
    if old == new {
        return Err(EditError::SameText);
    }
    let mut positions = text.match_indices(old).map(|(at, _)| at);
    let Some(at) = positions.next() else {
        return Err(EditError::NoMatch {
            old: old.to_owned(),
            nearly: trimmed_lines(text).contains(&trimmed_lines(old)),
        });
    };
    let line_of = |at: usize| text[..at].matches('\n').count() + 1;
    let more: Vec<usize> = positions.map(line_of).collect();
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

/// Inserts `new` after a line, 0 for before the first.
pub fn insert(text: &str, line: i64, new: &str) -> Result<EditedText, EditError> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let at = usize::try_from(line).ok().filter(|at| *at <= lines.len());
    let Some(at) = at else { return Err(EditError::BadLine { line, lines: lines.len() }) };
    let mut before = lines[..at].concat();
    if !before.is_empty() && !before.ends_with('\n') {
        before.push('\n');
    }
    let after = lines[at..].concat();
    // The inserted text ends its line, except after a last line without a newline.
    let ends = new.ends_with('\n') || (after.is_empty() && !text.ends_with('\n'));
    let edited = [before.as_str(), new, if ends { "" } else { "\n" }, after.as_str()].concat();
    let snippet = around(&edited, at, at + new.lines().count());
    Ok(EditedText { text: edited, snippet })
}

/// Returns the text before the last edit.
pub fn undo(previous: Option<&str>) -> Result<EditedText, EditError> {
    let text = previous.ok_or(EditError::NothingToUndo)?;
    Ok(EditedText { text: text.to_owned(), snippet: String::new() })
}

/// Performs an `edit` action. Returns the observation, and the text to write, if any.
///
/// `existing` is the text of the file, `None` if there is no file; `previous` is its text before
/// the last edit.
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
            return Ok((edit_observation(action, existing, None, content), None));
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
    Ok((edit_observation(action, existing, Some(&edited.text), content), Some(edited.text)))
}

fn edit_observation(
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

/// The lines from `first` to `end` (from 0, exclusive) with some context.
fn around(text: &str, first: usize, end: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    numbered(&lines, first.saturating_sub(AROUND), end.saturating_add(AROUND))
}

fn numbered(lines: &[&str], first: usize, end: usize) -> String {
    let window = lines.iter().enumerate().take(end).skip(first);
    window.map(|(at, line)| format!("{:6}\t{line}\n", at + 1)).collect()
}
