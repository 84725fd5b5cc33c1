//! What a shell keeps from one call to the next, in the plugin's scratch: one per task. Its form is
//! a line of JSON, followed by the contents of the files in memory.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bashkit::{ShellState, VfsEntry, VfsEntryKind, VfsSnapshot};
use conclave_sdk::scratch::{self, ScratchError};
use conclave_sdk::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::background::Job;
use crate::folder::FolderNotes;

/// Bytes of a state that are stored on trial before all of it. A call is stopped if it hands over
/// more than `limits.output` (1 MiB) at once, and a smaller `limits.scratch` is an error instead.
const PROBED: usize = 512 << 10;

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
    /// Returns the state of this call's task; a new one at first.
    pub(crate) fn load() -> Result<Self> {
        Self::decode(&scratch::bytes())
    }

    /// Stores the state. Fails if it exceeds the limit, and the state before this call remains.
    pub(crate) fn store(mut self) -> Result<(), StateTooLarge> {
        let bytes = self.encode();
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
            StateTooLarge { length: bytes.len() as u64, limit }
        })
    }

    pub(crate) fn snapshot(&self) -> VfsSnapshot {
        VfsSnapshot::from_entries(self.memory.clone())
    }

    fn encode(&mut self) -> Vec<u8> {
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
        bytes.push(b'\n');
        bytes.extend(contents);
        bytes
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

/// A state that exceeds `limits.scratch`.
#[derive(Debug)]
pub(crate) struct StateTooLarge {
    length: u64,
    limit: u64,
}

impl std::fmt::Display for StateTooLarge {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { length, limit } = self;
        let enough = length.next_power_of_two().max(128 << 10) >> 10;
        write!(
            formatter,
            "terminal: the shell is as it was before this command, because its variables, functions, background commands and \
             files in /tmp and /home/agent need {length} bytes and `limits.scratch` is {limit}; keep large files in a granted \
             folder, or set `limits.scratch = \"{enough} KiB\"`"
        )
    }
}
