//! The three tools over a disk. Every failure is a sentence that a model can act on.

use conclave_sdk::files::{EntryKind, FileError, FileErrorKind};
use conclave_sdk::{Error, Outcome, Result};
use conclave_trajectory::edit::{self, EditError};
use conclave_trajectory::{
    Era, Observation, TrajectoryEvent, action, observation, read_lines, truncate, write_lines,
};
use serde_json::json;

use crate::disk::Disk;
use crate::path::{Place, place};
use crate::tools::{Edit, Read, Write};

/// Bytes of a file that can be read, and of its part that is shown at once.
const LARGEST_READ: usize = 16 * 1024 * 1024;
const MOST_SHOWN: usize = 200_000;
/// Bytes of a file that can be written: it is written in one piece, so that no reader ever sees
/// half of it.
const LARGEST_WRITTEN: usize = 1_000_000;
/// Bytes of a file's text up to which an edit's observation includes it.
const MOST_TOLD: usize = 100_000;
/// Entries that `view` shows of a directory, two levels deep.
const MOST_ENTRIES: usize = 500;
/// Edits that can be undone, as far as there is room.
const MOST_UNDONE: usize = 20;

/// The granted folders as one workspace.
pub(crate) struct Workspace<D> {
    disk: D,
    /// The folder to which paths are relative.
    root: String,
    folders: Vec<String>,
}

impl<D: Disk> Workspace<D> {
    /// Opens the workspace. `root` is the granted folder to which paths are relative; empty for the
    /// first.
    pub(crate) fn open(disk: D, root: &str) -> Result<Self> {
        let folders: Vec<String> = disk.roots().into_iter().map(|root| root.path).collect();
        let Some(first) = folders.first() else {
            // The call lets the host refuse, and so report the missing grant to the operator.
            disk.list("/")?;
            return Err(Error::other("There is no workspace: no folder was granted."));
        };
        let root =
            if root.is_empty() { first.clone() } else { format!("/{}", root.trim_matches('/')) };
        if matches!(place("", &root, &folders), Place::Outside(_)) {
            return Err(Error::other(format!(
                "The setting `root` is {root}, which is in none of the granted folders: {}.",
                folders.join(", ")
            )));
        }
        Ok(Self { disk, root, folders })
    }

    /// O-136
    pub(crate) fn read(&mut self, arguments: Read) -> Result<String> {
        let place = self.place(&arguments.path)?;
        let text = self
            .text(&arguments.path, &place, LARGEST_READ)?
            .ok_or_else(|| not_found(&arguments.path))?;
        let content = match &arguments.view_range {
            Some(range) => edit::view(&text, Some(range)).map_err(Error::other)?,
            None => read_lines(&text, arguments.start, arguments.end),
        };
        Ok(truncate(&content, MOST_SHOWN))
    }

    /// O-137
    pub(crate) fn write(&mut self, arguments: Write) -> Result<String> {
        let Write { path, content, start, end } = arguments;
        let place = self.place(&path)?;
        // A file that is replaced as a whole need not be read or be text, and the new text is
        // written byte for byte.
        let written = if start == 0 && end == -1 {
            content
        } else {
            write_lines(self.text(&path, &place, LARGEST_WRITTEN)?.as_deref(), &content, start, end)
        };
        self.put(&path, &place, &written)?;
        Ok(format!("I wrote to the file {path}."))
    }

    /// Executes one command of the editor.
    pub(crate) fn edit(&mut self, arguments: Edit) -> Result<Outcome> {
        let place = self.place(&arguments.path)?;
        let path = arguments.path.as_str();
        if arguments.command == "view" {
            return self.view(&arguments, &place);
        }
        let existing = self.text(path, &place, LARGEST_WRITTEN)?;
        let mut before = self.disk.before();
        let last = before.iter().rposition(|(of, _)| *of == place);
        let previous = last.map(|last| before[last].1.clone());
        let is_undo = arguments.command == "undo_edit";
        let (mut observation, text) =
            edit::apply(&action(&arguments), existing.as_deref(), previous.as_deref())
                .map_err(|error| wording(path, error))?;
        if let Some(text) = text {
            self.put(path, &place, &text)?;
            if let (true, Some(last)) = (is_undo, last) {
                before.remove(last);
                self.disk.keep(&before);
            } else if let Some(existing) = &existing
                && !self.remember(before, &place, existing)
            {
                observation.content.push_str(
                    "\nThis edit cannot be undone: the text before was too large to be kept.",
                );
            }
        }
        told(observation)
    }

    fn view(&mut self, arguments: &Edit, place: &str) -> Result<Outcome> {
        let path = arguments.path.as_str();
        let content = match self.disk.list(place) {
            Ok(_) => self.listing(path, place)?,
            Err(_) => {
                let text = self.text(path, place, LARGEST_READ)?.ok_or_else(|| not_found(path))?;
                edit::view(&text, arguments.view_range.as_deref()).map_err(Error::other)?
            }
        };
        let observation = observation::Edit {
            content: truncate(&content, MOST_SHOWN),
            path: path.to_owned(),
            prev_exist: true,
            ..Default::default()
        };
        told(observation)
    }

    /// Returns a directory's entries, two levels deep, without hidden names.
    fn listing(&self, path: &str, place: &str) -> Result<String> {
        let mut lines =
            vec![format!("Files and directories in {path}, two levels deep, without hidden ones:")];
        let mut add = |line: String| {
            let is_room = lines.len() <= MOST_ENTRIES;
            if is_room {
                lines.push(line);
            }
            is_room
        };
        let shown = |name: &str| !name.starts_with('.');
        'all: for entry in self.disk.list(place).map_err(|error| failure(path, &error))? {
            if !shown(&entry.name) {
                continue;
            }
            let is_directory = entry.kind == EntryKind::Directory;
            if !add(format!("{}{}", entry.name, if is_directory { "/" } else { "" })) {
                break;
            }
            // A directory that cannot be listed is still shown.
            let below = if is_directory {
                self.disk.list(&format!("{place}/{}", entry.name)).unwrap_or_default()
            } else {
                Vec::new()
            };
            for inner in below.into_iter().filter(|inner| shown(&inner.name)) {
                if !add(format!(
                    "{}/{}{}",
                    entry.name,
                    inner.name,
                    if inner.kind == EntryKind::Directory { "/" } else { "" }
                )) {
                    break 'all;
                }
            }
        }
        if lines.len() > MOST_ENTRIES {
            lines.push(format!("(Only the first {MOST_ENTRIES} are shown.)"));
        }
        Ok(lines.join("\n"))
    }

    /// Returns the place of a path in the granted folders.
    fn place(&self, path: &str) -> Result<String> {
        match place(path, &self.root, &self.folders) {
            Place::Inside(place) => Ok(place),
            Place::Outside(place) => {
                // The host refuses this read, and so reports it to the operator.
                let _ = self.disk.read(&place, 0);
                Err(outside(path))
            }
        }
    }

    /// Returns a text file, or `None` if it is absent.
    fn text(&self, path: &str, place: &str, most: usize) -> Result<Option<String>> {
        match self.disk.read(place, most) {
            Ok(Some(bytes)) => String::from_utf8(bytes)
                .map(Some)
                .map_err(|_| Error::other(format!("File could not be decoded as utf-8: {path}"))),
            Ok(None) => Err(Error::other(format!(
                "The file {path} has more than {most} bytes, and such files are not read for this."
            ))),
            Err(error) if error.kind == FileErrorKind::NotFound => Ok(None),
            Err(error) => Err(failure(path, &error)),
        }
    }

    fn put(&mut self, path: &str, place: &str, text: &str) -> Result<()> {
        if text.len() > LARGEST_WRITTEN {
            return Err(Error::other(format!(
                "The file {path} would have {} bytes, and at most {LARGEST_WRITTEN} are written.",
                text.len()
            )));
        }
        self.disk.write(place, text).map_err(|error| match &error.kind {
            FileErrorKind::Denied(denial) if self.is_readable(place) => Error::other(format!(
                "You're not allowed to write to this path: {path}. {}",
                denial.detail
            )),
            _ => failure(path, &error),
        })
    }

    /// Whether the path can be read, so that the refusal was about writing only.
    fn is_readable(&self, place: &str) -> bool {
        let read = self.disk.read(place, 0);
        !matches!(read, Err(FileError { kind: FileErrorKind::Denied(_), .. }))
    }

    /// Stores a file's old text, and drops the oldest texts without room. Returns false if there is
    /// no room for this one.
    fn remember(&mut self, mut before: Vec<(String, String)>, place: &str, text: &str) -> bool {
        before.push((place.to_owned(), text.to_owned()));
        let surplus = before.len().saturating_sub(MOST_UNDONE);
        before.drain(..surplus);
        while !before.is_empty() {
            if self.disk.keep(&before) {
                return true;
            }
            before.remove(0);
        }
        // Otherwise an undo would restore an older text in its place.
        self.disk.keep(&[]);
        false
    }
}

fn action(arguments: &Edit) -> action::Edit {
    action::Edit {
        path: arguments.path.clone(),
        command: Some(arguments.command.clone()),
        file_text: arguments.file_text.clone(),
        old_str: arguments.old_str.clone(),
        new_str: arguments.new_str.clone(),
        insert_line: arguments.insert_line,
        ..Default::default()
    }
}

/// Returns the observation in its fixed form beside its text. Whole texts are included only if they
/// are short.
fn told(mut observation: observation::Edit) -> Result<Outcome> {
    for text in [&mut observation.old_content, &mut observation.new_content] {
        *text = text.take().filter(|text| text.len() <= MOST_TOLD);
    }
    let content = observation.content.clone();
    let mut event = TrajectoryEvent::from(Observation::from(observation)).to_json(Era::V2025);
    if let Some(event) = event.as_object_mut() {
        event.remove("message");
    }
    Outcome::text(content).with_value(&json!({ "observation": event }))
}

fn wording(path: &str, error: EditError) -> Error {
    match error {
        EditError::NotFound => not_found(path),
        EditError::NothingToUndo => Error::other(format!(
            "There is no edit of {path} to undo: edits of this task are kept, as far as there is room for them."
        )),
        error => Error::other(error),
    }
}

fn not_found(path: &str) -> Error {
    Error::other(format!("File not found: {path}"))
}

/// O-135
fn outside(path: &str) -> Error {
    Error::other(format!(
        "You're not allowed to access this path: {path}. You can only access paths inside the workspace."
    ))
}

fn failure(path: &str, error: &FileError) -> Error {
    match &error.kind {
        FileErrorKind::NotFound => not_found(path),
        FileErrorKind::NotAFile => {
            Error::other(format!("Path is a directory: {path}. You can only read files"))
        }
        FileErrorKind::NotADirectory => {
            Error::other(format!("A part of this path is a file, not a directory: {path}"))
        }
        // The host sees links that lead out, which the names do not show.
        FileErrorKind::Denied(_) => outside(path),
        FileErrorKind::QuotaExceeded(limit) => Error::other(format!(
            "The limit of {limit} is reached, so {path} was not read or written."
        )),
        FileErrorKind::Other(text) => Error::other(format!("{path}: {text}")),
    }
}

#[cfg(test)]
mod tests;
