//! What one process says to the one that writes a store: a file for each word, put there whole or not at all, taken once. A word said
//! while nobody has the run under way is heard when it is gone on with.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use conclave_core::ids::{CallId, RoomId, TaskName};
use conclave_core::policy::Approval;
use conclave_core::request::Request;
use serde::{Deserialize, Serialize};

use super::{StoreError, schema};
use crate::clock::{Clock, SystemClock};
use crate::durable_file::{self, Access};

/// In the store's folder.
const FOLDER: &str = "mail";
/// In the mail's folder: what is no word.
const BAD: &str = "bad";
/// How a word's file ends once it is whole.
const WHOLE: &str = ".json";
/// Bytes of one word.
const MOST: u64 = 1 << 20;
/// A word that nobody will hear is kept so long.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// A word to the process that has a run under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mail {
    /// The room that is meant.
    pub room: RoomId,
    pub word: Word,
}

/// What is said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "kebab-case")]
pub enum Word {
    /// About a call that waits for an approval.
    Decide { call: CallId, approval: Approval },
    /// The run is to end.
    Stop { reason: String },
    /// Nothing new is to begin in it.
    Pause { reason: String },
    /// It is to go on.
    Unpause,
    /// Its agent is to read this in its next step.
    Tell {
        /// None: the entry task's agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskName>,
        text: String,
    },
    /// Something else that a room can be asked; nobody waits for the reply.
    Ask { what: Box<Request> },
}

impl Mail {
    /// Puts it where the store's process finds it.
    ///
    /// # Errors
    /// When it is too long, and what the operating system says.
    pub fn send(&self, store: &Path) -> Result<(), StoreError> {
        if !schema::path(store).is_file() {
            return Err(StoreError::Missing { folder: store.to_owned() });
        }
        let bytes = serde_json::to_vec(self).map_err(io::Error::other);
        bytes.and_then(|bytes| put(&store.join(FOLDER), &bytes)).map_err(|error| failed(store, &error))
    }

    /// What was said to the process of this store and not heard yet, oldest first. It stays there.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn pending(store: &Path) -> Result<Vec<Self>, StoreError> {
        Ok(words(store)?.iter().filter_map(|path| read(path).ok()).collect())
    }

    /// Takes words back that were not heard yet, and gives those that it took.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn take_back(store: &Path, is_meant: impl Fn(&Self) -> bool) -> Result<Vec<Self>, StoreError> {
        take(store, &is_meant, &|_| false)
    }
}

fn failed(store: &Path, error: &io::Error) -> StoreError {
    StoreError::Other { folder: store.to_owned(), what: format!("its mail: {error}") }
}

fn put(folder: &Path, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() as u64 > MOST {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a word of {} bytes is too long; {MOST} are taken", bytes.len())));
    }
    schema::make_folder(folder)?;
    // A draft has another ending, and is no word.
    durable_file::replace(&folder.join(format!("{}{WHOLE}", name())), bytes, &Access::Private)
}

/// In order of time, and of no other word.
fn name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{:020}-{count:06}-{}", SystemClock.now().0, std::process::id())
}

/// The files of whole words, oldest first.
fn words(store: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match fs::read_dir(store.join(FOLDER)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(store, &error)),
    };
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut words: Vec<PathBuf> = paths.filter(|path| path.as_os_str().as_encoded_bytes().ends_with(WHOLE.as_bytes())).collect();
    words.sort();
    Ok(words)
}

/// `is_over` tells rooms that nobody will go on with from others; it is asked about old words only.
pub(super) fn take(store: &Path, is_meant: &dyn Fn(&Mail) -> bool, is_over: &dyn Fn(&RoomId) -> bool) -> Result<Vec<Mail>, StoreError> {
    let folder = store.join(FOLDER);
    let mut taken = Vec::new();
    for path in words(store)? {
        match read(&path) {
            // It waits for whoever it is meant for.
            Ok(mail) if !is_meant(&mail) => {
                if is_old(&path) && is_over(&mail.room) {
                    // Else it is looked at again.
                    let _ = fs::remove_file(&path);
                }
            }
            // Gone first: a word that cannot be taken away would be heard again and again.
            Ok(mail) => match fs::remove_file(&path) {
                Ok(()) => taken.push(mail),
                // Whoever said it took it back, or somebody else has heard it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // What was heard so far must not be lost.
                Err(error) if taken.is_empty() => return Err(failed(store, &error)),
                Err(_) => break,
            },
            Err(_) => put_aside(&folder, &path),
        }
    }
    Ok(taken)
}

/// As its name has it.
fn is_old(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let said = name.split('-').next().and_then(|said| said.parse::<u64>().ok());
    said.is_some_and(|said| SystemClock.now().0.saturating_sub(said) > DAY_MS)
}

fn read(path: &Path) -> io::Result<Mail> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(serde_json::from_slice(&bytes)?)
}

/// What is no word is kept for whoever wonders, and not looked at again.
fn put_aside(folder: &Path, path: &Path) {
    let bad = folder.join(BAD);
    let moved = schema::make_folder(&bad).and_then(|()| path.file_name().map_or(Ok(()), |name| fs::rename(path, bad.join(name))));
    // Where it cannot be put aside it stays, and is tried again.
    let _ = moved;
}
