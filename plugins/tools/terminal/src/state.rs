//! What a shell keeps from one call to the next, in the plugin's scratch: one per task. Its form is
//! a line of JSON, followed by the contents of the files in memory.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bashkit::{ShellState, VfsEntry, VfsEntryKind, VfsSnapshot};
use conclave_sdk::scratch::{self, ScratchError};
use conclave_sdk::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::background::Job;
use crate::folder::FolderNotes;

/// Bytes of a state that are stored on trial before all of it. A call is stopped if it hands over
/// more than `limits.output` (1 MiB) at once, and a smaller `limits.scratch` is an error instead.
const PROBED: usize = 1_000_000;
/// Levels of a state in JSON that can be read again: the limit of the library.
const READABLE_LEVELS: usize = 127;

/// The state of a task's terminal.
#[derive(Default, Deserialize, Serialize)]
pub(crate) struct TerminalState {
    /// `None` before the first command.
    pub(crate) shell: Option<ShellState>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) folders: BTreeMap<String, FolderNotes>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) jobs: BTreeMap<i64, Job>,
    /// How many background commands were started.
    #[serde(default)]
    pub(crate) started: i64,
    /// The files of /tmp and of the home directory, without their contents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    files: Vec<SavedFile>,
    #[serde(skip)]
    pub(crate) memory: Vec<VfsEntry>,
    /// Why this is a new shell, for the agent; `None` if it is the one of the call before.
    #[serde(skip)]
    pub(crate) lost: Option<String>,
}

#[derive(Deserialize, Serialize)]
struct SavedFile {
    path: PathBuf,
    mode: u32,
    kind: SavedKind,
}

#[derive(Deserialize, Serialize)]
enum SavedKind {
    /// With the length of its content.
    File(usize),
    Directory,
    Symlink(PathBuf),
    Fifo,
}

impl TerminalState {
    /// The state of this call's task; a new one at first, and in place of one that cannot be read.
    pub(crate) fn load() -> Self {
        Self::decode(&scratch::bytes()).unwrap_or_else(|error| {
            let lost = format!(
                "terminal: this is a new shell, because the stored one cannot be read: {error}"
            );
            Self { lost: Some(lost), ..Self::default() }
        })
    }

    /// Stores the state. If it cannot be stored, the state before this call remains.
    pub(crate) fn store(mut self) -> Result<(), StateNotStored> {
        let bytes = self.encode()?;
        let before = scratch::bytes();
        let stored = if bytes.len() > PROBED {
            scratch::set_bytes(&bytes[..PROBED]).and_then(|()| scratch::set_bytes(&bytes))
        } else {
            scratch::set_bytes(&bytes)
        };
        stored.map_err(|error| {
            // The probe may have replaced the previous state, which is within the limit.
            drop(scratch::set_bytes(&before));
            let limit = match error {
                ScratchError::TooLarge(limit) => limit,
                ScratchError::Other(_) => 0,
            };
            StateNotStored::TooLarge { length: bytes.len() as u64, limit }
        })
    }

    pub(crate) fn snapshot(&self) -> VfsSnapshot {
        VfsSnapshot::from_entries(self.memory.clone())
    }

    fn encode(&mut self) -> Result<Vec<u8>, StateNotStored> {
        let mut contents: Vec<u8> = Vec::new();
        self.memory.sort_by(|one, other| one.path.cmp(&other.path));
        let save = |entry: &VfsEntry| SavedFile {
            path: entry.path.clone(),
            mode: entry.mode,
            kind: match &entry.kind {
                VfsEntryKind::File { content } => {
                    contents.extend(content);
                    SavedKind::File(content.len())
                }
                VfsEntryKind::Directory => SavedKind::Directory,
                VfsEntryKind::Symlink { target } => SavedKind::Symlink(target.clone()),
                VfsEntryKind::Fifo => SavedKind::Fifo,
            },
        };
        self.files = self.memory.iter().map(save).collect();
        let mut bytes =
            serde_json::to_vec(&*self).expect("its maps have text keys and it has no floats");
        if levels(&bytes) > READABLE_LEVELS {
            bytes = self.with_functions_as_text();
            if serde_json::from_slice::<Self>(&bytes).is_err() {
                return Err(StateNotStored::TooDeep);
            }
        }
        bytes.push(b'\n');
        bytes.extend(contents);
        Ok(bytes)
    }

    /// The state with deep functions as the text that they were written in, without their syntax
    /// trees.
    fn with_functions_as_text(&self) -> Vec<u8> {
        let mut state = serde_json::to_value(self).expect("it was serialised before");
        let jobs = state.get_mut("jobs").and_then(Value::as_object_mut);
        let of_jobs = jobs.into_iter().flat_map(|jobs| jobs.values_mut());
        of_jobs.filter_map(|job| job.get_mut("shell")).for_each(drop_deep_trees);
        state.get_mut("shell").into_iter().for_each(drop_deep_trees);
        serde_json::to_vec(&state).expect("it was serialised before")
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let wrong = || Error::other("the stored state of the shell cannot be read");
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(wrong)?;
        let (header, mut contents) = (&bytes[..end], &bytes[end + 1..]);
        let mut state: Self = serde_json::from_slice(header)?;
        for SavedFile { path, mode, kind } in std::mem::take(&mut state.files) {
            let kind = match kind {
                SavedKind::File(length) => {
                    let (content, rest) = contents.split_at_checked(length).ok_or_else(wrong)?;
                    contents = rest;
                    VfsEntryKind::File { content: content.to_vec() }
                }
                SavedKind::Directory => VfsEntryKind::Directory,
                SavedKind::Symlink(target) => VfsEntryKind::Symlink { target },
                SavedKind::Fifo => VfsEntryKind::Fifo,
            };
            state.memory.push(VfsEntry { path, kind, mode });
        }
        Ok(state)
    }
}

/// Removes the syntax trees of a shell's deep functions, which have their text too.
fn drop_deep_trees(shell: &mut Value) {
    let functions = shell.get_mut("functions").and_then(Value::as_object_mut);
    for function in functions.into_iter().flat_map(|functions| functions.values_mut()) {
        let is_deep = levels(function.to_string().as_bytes()) > READABLE_LEVELS / 2;
        if let Some(function) = function.as_object_mut().filter(|_| is_deep) {
            function.remove("ast");
        }
    }
}

/// Returns how deep the lists and objects of a JSON text are nested.
fn levels(json: &[u8]) -> usize {
    let (mut level, mut most, mut is_text, mut is_escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'{' | b'[' if !is_text => level += 1,
            b'}' | b']' if !is_text => level = level.saturating_sub(1),
            _ => {}
        }
        most = most.max(level);
    }
    most
}

/// Why a state was not stored.
#[derive(Debug)]
pub(crate) enum StateNotStored {
    /// It exceeds `limits.scratch`.
    TooLarge { length: u64, limit: u64 },
    /// It could not be read again.
    TooDeep,
}

impl std::fmt::Display for StateNotStored {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self::TooLarge { length, limit } = self else {
            return formatter.write_str(
                "terminal: the shell is as it was before this command, because one of its \
                 functions is nested too deep to be stored; split the function",
            );
        };
        let enough = length.next_power_of_two().max(128 << 10) >> 10;
        write!(
            formatter,
            "terminal: the shell is as it was before this command, because its variables, functions, background commands and \
             files in /tmp and /home/agent need {length} bytes and `limits.scratch` is {limit}; keep large files in a granted \
             folder, or set `limits.scratch = \"{enough} KiB\"`"
        )
    }
}
