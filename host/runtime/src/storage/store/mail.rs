//! Control messages from other processes to the one that writes a store: one file each, written
//! whole or not at all. The receiver journals a message first and deletes its file afterwards, so a
//! crash in between delivers it again, and the room ignores it by its id.
//!
//! A file is `ID.json` while nobody has it, and `ID.taken` from when the receiver hands it to a
//! room until it is deleted: a sender can take back only the first. A message to a run that no
//! process has waits until the run is resumed.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use conclave_core::protocol::event::Event;
use conclave_core::types::approval::{Approval, ApprovalAuthor};
use conclave_core::types::ids::{CallId, ControlId, RoomId, TaskName};
use conclave_core::types::request::{RequestId, RoomRequest};
use serde::{Deserialize, Serialize};

use super::{StoreError, schema};
use crate::support::clock::{Clock, SystemClock};
use crate::support::durable_file::{self, FileAccess};
use crate::support::fail_points::kill_point;

/// In the store's folder.
const FOLDER: &str = "mail";
/// In the mail's folder: files that hold no message.
const BAD: &str = "bad";
/// How a message's file ends once it is whole.
const WHOLE: &str = "json";
/// How it ends once the receiver has it.
const TAKEN: &str = "taken";
/// Bytes of one message.
const MOST: u64 = 1 << 20;
/// How long a message is kept that no run will receive.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// A message to the process that has a run under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControlMessage {
    /// Unique. The room journals it with the message, and lets no message take effect twice.
    pub id: ControlId,
    /// The recipient.
    pub room: RoomId,
    pub word: ControlCommand,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "kebab-case")]
pub enum ControlCommand {
    /// About a call that waits for an approval.
    Decide { call: CallId, approval: Approval },
    /// The run is to end.
    Stop { reason: String },
    /// Nothing new is to begin in it.
    Pause { reason: String },
    /// It is to continue.
    Unpause,
    /// Its agent is to read this in its next step.
    Tell {
        /// None: the entry task's agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskName>,
        text: String,
    },
    /// Any other request to a room; nobody waits for the reply.
    Ask { what: Box<RoomRequest> },
}

impl ControlCommand {
    /// Returns the event that it is to the room.
    pub(crate) fn to_event(&self) -> Event {
        match self.clone() {
            Self::Decide { call, approval } => {
                let author = ApprovalAuthor::Person { at: "another terminal".to_owned() };
                Event::Decided { call, approval, author }
            }
            Self::Stop { reason } => Event::Cancelled { reason },
            Self::Pause { reason } => Event::Paused { reason },
            Self::Unpause => Event::Unpaused,
            Self::Tell { task, text } => Event::UserSaid { task, text, attachments: Vec::new() },
            Self::Ask { what } => Event::Requested { request: RequestId::NO_REPLY, what: *what },
        }
    }
}

/// Where a message is, as its sender sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailState {
    /// The receiver has not read it yet.
    Waiting,
    /// The receiver has handed it to its room, which has not confirmed it yet.
    Taken,
    /// Its file is deleted: the room has journalled it, or it was taken back.
    Gone,
    /// The receiver could make nothing of it, and put it aside: it will never take effect.
    PutAside,
}

impl ControlMessage {
    /// Returns a message with an id of its own.
    #[must_use]
    pub fn new(room: RoomId, word: ControlCommand) -> Self {
        Self { id: new_id(), room, word }
    }

    /// Writes it where the store's process finds it. It is durable when this returns.
    ///
    /// # Errors
    /// When it is too long, and what the operating system says.
    pub fn send(&self, store: &Path) -> Result<(), StoreError> {
        if !schema::path(store).is_file() {
            return Err(StoreError::Missing { folder: store.to_owned() });
        }
        let bytes = serde_json::to_vec(self).map_err(io::Error::other);
        bytes
            .and_then(|bytes| put(&store.join(FOLDER), self.id.as_str(), &bytes))
            .map_err(|error| failed(store, &error))
    }

    /// Returns the messages to this store's process that are not deleted yet, in the order in which
    /// they were made.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn pending(store: &Path) -> Result<Vec<Self>, StoreError> {
        Ok(files(store)?.iter().filter_map(|path| read(path).ok()).collect())
    }

    /// Takes back messages that the receiver has not read yet, and returns them.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn take_back(
        store: &Path,
        is_meant: impl Fn(&Self) -> bool,
    ) -> Result<Vec<Self>, StoreError> {
        let mut back = Vec::new();
        for path in files(store)?.into_iter().filter(|path| !is_taken(path)) {
            let Ok(mail) = read(&path) else { continue };
            if is_meant(&mail) && remove(&path).map_err(|error| failed(store, &error))? {
                back.push(mail);
            }
        }
        Ok(back)
    }

    /// Returns where this message is.
    #[must_use]
    pub fn state(&self, store: &Path) -> MailState {
        let [waiting, taken] = self.paths(store);
        // In this order: it goes from the first name to the second.
        if waiting.exists() {
            MailState::Waiting
        } else if taken.exists() {
            MailState::Taken
        } else if store.join(FOLDER).join(BAD).join(format!("{}.{WHOLE}", self.id)).exists() {
            MailState::PutAside
        } else {
            MailState::Gone
        }
    }

    /// Deletes this message, also when a receiver has it: for a sender whose receiver has ended.
    /// Whether the room journalled it says [`StoreReader::has_received`](super::Reader::has_received).
    ///
    /// # Errors
    /// What the operating system says.
    pub fn remove(&self, store: &Path) -> Result<(), StoreError> {
        self.paths(store)
            .iter()
            .try_for_each(|path| remove(path).map(drop))
            .map_err(|error| failed(store, &error))
    }

    fn paths(&self, store: &Path) -> [PathBuf; 2] {
        [WHOLE, TAKEN].map(|ending| store.join(FOLDER).join(format!("{}.{ending}", self.id)))
    }
}

/// A message that this process has, and whose file is there until [`delete`](Self::delete).
#[derive(Debug)]
pub(crate) struct ReceivedMail {
    pub(crate) mail: ControlMessage,
    path: PathBuf,
}

impl ReceivedMail {
    /// Deletes its file; to be called once the room's record of it is durable. A file that cannot
    /// be deleted, or that a power cut brings back, is read again, and the room ignores it.
    pub(crate) fn delete(&self) {
        kill_point!("before-control-deleted");
        let _ = fs::remove_file(&self.path);
        kill_point!("after-control-deleted");
    }
}

/// Takes the messages that are meant. `is_over` tells rooms that nobody will resume from others; it
/// is asked about old messages only. `is_received` is asked about those that were taken before: a
/// room that ended right afterwards may have journalled them.
pub(crate) fn receive(
    store: &Path,
    is_meant: &dyn Fn(&ControlMessage) -> bool,
    is_over: &dyn Fn(&RoomId) -> bool,
    is_received: &dyn Fn(&ControlMessage) -> bool,
) -> Result<Vec<ReceivedMail>, StoreError> {
    let mut received = Vec::new();
    for path in files(store)? {
        match read(&path) {
            Ok(mail) if !is_meant(&mail) => {
                if (is_old(&path) && is_over(&mail.room)) || (is_taken(&path) && is_received(&mail))
                {
                    // Else it is looked at again.
                    let _ = fs::remove_file(&path);
                }
            }
            // Renamed before it is handed on: from then on its sender cannot take it back and say
            // that nothing came of it.
            Ok(mail) => match take(&path) {
                Ok(path) => received.push(ReceivedMail { mail, path }),
                // Its sender took it back.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // Those before it are not to be lost to this look.
                Err(error) if received.is_empty() => return Err(failed(store, &error)),
                Err(_) => break,
            },
            Err(error) if is_no_message(&error) => put_aside(&store.join(FOLDER), &path),
            // It is gone, or cannot be read now: its sender waits, and takes it back.
            Err(_) => {}
        }
    }
    Ok(received)
}

fn take(path: &Path) -> io::Result<PathBuf> {
    let taken = path.with_extension(TAKEN);
    if !is_taken(path) {
        fs::rename(path, &taken)?;
    }
    Ok(taken)
}

fn is_taken(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == TAKEN)
}

/// Returns false if it was not there.
fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn failed(store: &Path, error: &io::Error) -> StoreError {
    StoreError::Other { folder: store.to_owned(), what: format!("its mail: {error}") }
}

/// Writes a file that is there whole or not at all, also after a power cut.
fn put(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() as u64 > MOST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a word of {} bytes is too long; {MOST} are taken", bytes.len()),
        ));
    }
    schema::make_folder(folder)?;
    // A draft has another ending, and is no message.
    durable_file::replace(&folder.join(format!("{name}.{WHOLE}")), bytes, &FileAccess::Private)
}

/// In order of time; no other message has it, of whichever process.
fn new_id() -> ControlId {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut random = [0; 8];
    let random = match getrandom::fill(&mut random) {
        Ok(()) => u64::from_ne_bytes(random),
        // It need not be secret, so the seed of the standard library's maps will do.
        Err(_) => RandomState::new().build_hasher().finish(),
    };
    ControlId::from(format!(
        "{:020}-{count:06}-{}-{random:016x}",
        SystemClock.now().0,
        std::process::id()
    ))
}

/// The files of whole messages, oldest first.
fn files(store: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match fs::read_dir(store.join(FOLDER)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(store, &error)),
    };
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut files: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == WHOLE || ending == TAKEN))
        .collect();
    files.sort();
    Ok(files)
}

/// As its name has it.
fn is_old(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let said = name.split('-').next().and_then(|said| said.parse::<u64>().ok());
    said.is_some_and(|said| SystemClock.now().0.saturating_sub(said) > DAY_MS)
}

fn read(path: &Path) -> io::Result<ControlMessage> {
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

/// The file was read, and holds no message.
fn is_no_message(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), FileTooLarge | InvalidData | InvalidInput | UnexpectedEof)
}

/// A file that holds no message is kept for the operator, and not looked at again.
fn put_aside(folder: &Path, path: &Path) {
    let bad = folder.join(BAD);
    let moved = schema::make_folder(&bad)
        .and_then(|()| path.file_name().map_or(Ok(()), |name| fs::rename(path, bad.join(name))));
    // Where it cannot be put aside it stays, and is tried again.
    let _ = moved;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop(room: &str) -> ControlMessage {
        ControlMessage::new(
            RoomId::from(room),
            ControlCommand::Stop { reason: "enough".to_owned() },
        )
    }

    /// A folder that a store could be in, and what was sent there.
    fn sent(rooms: &[&str]) -> (tempfile::TempDir, Vec<ControlMessage>) {
        let temp = tempfile::tempdir().unwrap();
        fs::write(schema::path(temp.path()), "").unwrap();
        let sent: Vec<ControlMessage> = rooms.iter().map(|room| stop(room)).collect();
        sent.iter().for_each(|mail| mail.send(temp.path()).unwrap());
        (temp, sent)
    }

    fn all(store: &Path) -> Vec<ControlMessage> {
        receive(store, &|_| true, &|_| false, &|_| false)
            .unwrap()
            .into_iter()
            .map(|received| received.mail)
            .collect()
    }

    #[test]
    fn a_message_is_received_until_it_is_deleted() {
        let (temp, sent) = sent(&["a", "b"]);
        assert_eq!(all(temp.path()), sent);
        // As after a crash: nothing was deleted, so all is there again.
        assert_eq!(all(temp.path()), sent);
        assert!(sent.iter().all(|mail| mail.state(temp.path()) == MailState::Taken));
        assert_eq!(
            ControlMessage::take_back(temp.path(), |_| true).unwrap(),
            [],
            "nobody takes back what a room may have"
        );
        assert_eq!(ControlMessage::pending(temp.path()).unwrap(), sent);
        let received =
            receive(temp.path(), &|mail| mail.room.as_str() == "a", &|_| false, &|_| false)
                .unwrap();
        received.iter().for_each(ReceivedMail::delete);
        assert_eq!(
            (sent[0].state(temp.path()), sent[1].state(temp.path())),
            (MailState::Gone, MailState::Taken)
        );
        assert_eq!(all(temp.path()), sent[1..]);
        sent[1].remove(temp.path()).unwrap();
        assert_eq!(all(temp.path()), []);
    }

    #[test]
    fn files_that_hold_no_message_are_put_aside() {
        let (temp, sent) = sent(&["a"]);
        let folder = temp.path().join(FOLDER);
        fs::write(folder.join("0-torn.json"), "{\"room\":").unwrap();
        fs::write(folder.join("0-deep.json"), "[".repeat(100_000)).unwrap();
        fs::write(folder.join("0-long.json"), vec![b' '; (1 << 20) + 1]).unwrap();
        fs::create_dir(folder.join("0-folder.json")).unwrap();
        fs::write(folder.join("9.part"), "half").unwrap();
        assert_eq!(all(temp.path()), sent);
        assert_eq!(fs::read_dir(folder.join(BAD)).unwrap().count(), 4);
    }

    #[test]
    fn old_messages_that_no_run_will_receive_are_deleted() {
        let (temp, _) = sent(&["over", "interrupted", "over"]);
        let look = || {
            receive(temp.path(), &|_| false, &|room| room.as_str() == "over", &|_| false)
                .unwrap()
                .len()
        };
        assert_eq!(look(), 0);
        let paths = files(temp.path()).unwrap();
        assert_eq!(paths.len(), 3, "what is new may be meant for what is about to begin");
        for (path, ending) in paths.iter().zip([WHOLE, WHOLE, TAKEN]) {
            let name = path.file_stem().unwrap().to_str().unwrap();
            let (said, rest) = name.split_once('-').unwrap();
            let said = said.parse::<u64>().unwrap() - DAY_MS - 1;
            fs::rename(path, path.with_file_name(format!("{said:020}-{rest}.{ending}"))).unwrap();
        }
        assert_eq!(look(), 0);
        let left: Vec<String> = ControlMessage::pending(temp.path())
            .unwrap()
            .iter()
            .map(|mail| mail.room.to_string())
            .collect();
        assert_eq!(left, ["interrupted"], "one that was interrupted can be resumed");
    }
}
