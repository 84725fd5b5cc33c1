//! Messages in a store's folder: one file each, written atomically.
//!
//! A file is named `ID.json` until the receiver passes it to a room, then `ID.taken` until it is
//! deleted. Its sender can withdraw it only before that.

use std::fs::{self, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use conclave_core::types::ids::{CallId, ControlId, RoomId};

use super::{
    ControlMessage, DAY_MS, DecisionSent, KEY, MailState, ReceivedMail, ReceivedPlace, WORD_BYTES,
};
use crate::storage::store::{StoreError, schema};
use crate::support::clock::{Clock, SystemClock};
use crate::support::durable_file::{self, FileAccess, open_own};

/// The folder of the messages in the store's folder.
const FOLDER: &str = "mail";
/// The subfolder for files that hold no valid message.
const BAD: &str = "bad";
/// The extension of a complete message.
const WHOLE: &str = "json";
/// The extension of a message that the receiver has taken.
const TAKEN: &str = "taken";
/// The file whose lock a process holds while it sends a decision.
const DECISIONS: &str = "decisions.lock";
/// The time that a decision waits for another one to be sent.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval between two tries to get the lock.
const PAUSE: Duration = Duration::from_millis(10);

/// Writes the message to the store's folder. It is durable when this returns.
///
/// # Errors
/// Fails when the message is too long, or with an error of the operating system.
pub(super) fn send(store: &Path, message: &ControlMessage) -> Result<(), StoreError> {
    // Otherwise the message would make a folder where no store is.
    if !schema::path(store).is_file() {
        return Err(StoreError::Missing { store: store.into() });
    }
    let bytes = serde_json::to_vec(message).map_err(io::Error::other);
    bytes
        .and_then(|bytes| put(&store.join(FOLDER), message.id.as_str(), &bytes))
        .map_err(|error| failed(store, &error))
}

/// Sends a decision about a pending call, or the answer to a question, unless another one is on
/// its way or has been recorded. `is_pending` returns whether the call still waits for a
/// decision. Of several processes that decide at once, one sends, and the others get its
/// decision.
///
/// # Errors
/// As [`send`](Self::send), and with the error of `is_pending`.
pub(super) fn send_decision(
    store: &Path,
    message: &ControlMessage,
    is_pending: impl FnOnce() -> Result<bool, StoreError>,
) -> Result<DecisionSent, StoreError> {
    let Some(call) = message.word.settles() else {
        return send(store, message).map(|()| DecisionSent::Sent);
    };
    if !schema::path(store).is_file() {
        return Err(StoreError::Missing { store: store.into() });
    }
    // Held until the message is there: the look and the message are one step for others. The
    // lock ends with the file, also when the process is killed.
    let _lock =
        lock_decisions(&store.join(FOLDER), PATIENCE).map_err(|error| failed(store, &error))?;
    if let Some(rival) = decision(store, &message.room, call)? {
        return Ok(DecisionSent::Rival(Box::new(rival)));
    }
    // In this order: a receiver records a decision before it deletes the message.
    if !is_pending()? {
        return Ok(DecisionSent::Decided);
    }
    send(store, message).map(|()| DecisionSent::Sent)
}

/// Returns the messages of this store that are not deleted yet, in the order in which they were sent.
///
/// # Errors
/// Fails with an error of the operating system.
pub(super) fn pending(store: &Path) -> Result<Vec<ControlMessage>, StoreError> {
    Ok(files(store)?.into_iter().filter_map(|(_, message)| message.ok()).collect())
}

/// Returns the messages to the rooms of a run. A file does not have its room in its name, so all
/// are read; they are few, because their processes are on this machine.
pub(super) fn of_run(store: &Path, run: &RoomId) -> Result<Vec<ControlMessage>, StoreError> {
    pending_where(store, |mail| mail.room.run() == *run)
}

/// Returns the messages that settle calls.
pub(super) fn decisions(store: &Path) -> Result<Vec<ControlMessage>, StoreError> {
    pending_where(store, |mail| mail.word.settles().is_some())
}

/// Returns the message that settles a call of a room.
pub(super) fn decision(
    store: &Path,
    room: &RoomId,
    call: CallId,
) -> Result<Option<ControlMessage>, StoreError> {
    let is_meant = |mail: &ControlMessage| mail.room == *room && mail.word.settles() == Some(call);
    Ok(pending_where(store, is_meant)?.into_iter().next())
}

fn pending_where(
    store: &Path,
    is_meant: impl Fn(&ControlMessage) -> bool,
) -> Result<Vec<ControlMessage>, StoreError> {
    let mut messages = pending(store)?;
    messages.retain(is_meant);
    Ok(messages)
}

/// Deletes a message unless a receiver has taken it. Returns whether it was deleted.
pub(super) fn withdraw(store: &Path, message: &ControlMessage) -> Result<bool, StoreError> {
    let [waiting, _] = paths(store, message);
    // A receiver that takes it meanwhile renames the file, and the removal finds none.
    remove_file(&waiting).map_err(|error| failed(store, &error))
}

/// Returns the state of a message.
pub(super) fn state(store: &Path, message: &ControlMessage) -> Result<MailState, StoreError> {
    let [waiting, received] = paths(store, message);
    // The order matters: a receiver renames the first file to the second.
    Ok(if waiting.exists() {
        MailState::Waiting
    } else if received.exists() {
        MailState::Taken
    } else if store.join(FOLDER).join(BAD).join(format!("{}.{WHOLE}", message.id)).exists() {
        MailState::PutAside
    } else {
        MailState::Gone
    })
}

/// Deletes a message, even if a receiver has taken it.
pub(super) fn remove(store: &Path, message: &ControlMessage) -> Result<(), StoreError> {
    paths(store, message)
        .iter()
        .try_for_each(|path| remove_file(path).map(drop))
        .map_err(|error| failed(store, &error))
}

fn paths(store: &Path, message: &ControlMessage) -> [PathBuf; 2] {
    [WHOLE, TAKEN].map(|ending| store.join(FOLDER).join(format!("{}.{ending}", message.id)))
}

/// Takes the messages that `is_meant` accepts. `is_over` returns whether a room will never be
/// resumed; it is called for old messages only. `is_received` is called for messages taken before,
/// because a room that ended right afterwards may have journalled them.
pub(crate) fn receive(
    store: &Path,
    is_meant: &dyn Fn(&ControlMessage) -> bool,
    is_over: &dyn Fn(&RoomId) -> bool,
    is_received: &dyn Fn(&ControlMessage) -> bool,
) -> Result<Vec<ReceivedMail>, StoreError> {
    let mut received = Vec::new();
    for (path, message) in files(store)? {
        match message {
            Ok(mail) if !is_meant(&mail) => {
                let is_late = is_old(&path, &mail) && is_over(&mail.room);
                if is_late || (is_taken(&path) && is_received(&mail)) {
                    // If this fails, the next poll tries again.
                    let _ = fs::remove_file(&path);
                }
            }
            // Renamed before the delivery: from then on its sender cannot withdraw it and assume
            // that it had no effect.
            Ok(mail) => match take(&path) {
                Ok(path) => {
                    let place = ReceivedPlace::File(path);
                    received.push(ReceivedMail { mail, place });
                }
                // Its sender withdrew it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // Messages taken before the failure must not be lost with it.
                Err(error) if received.is_empty() => return Err(failed(store, &error)),
                Err(_) => break,
            },
            Err(error) if is_no_message(&error) => put_aside(&store.join(FOLDER), &path),
            // The file is gone or cannot be read now; its sender times out and withdraws it.
            Err(_) => {}
        }
    }
    Ok(received)
}

fn take(path: &Path) -> io::Result<PathBuf> {
    let received = path.with_extension(TAKEN);
    if !is_taken(path) {
        fs::rename(path, &received)?;
    }
    Ok(received)
}

fn is_taken(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == TAKEN)
}

/// Deletes a file; returns false if it does not exist.
fn remove_file(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Waits until no other process sends a decision.
fn lock_decisions(folder: &Path, patience: Duration) -> io::Result<fs::File> {
    schema::make_folder(folder)?;
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(folder.join(DECISIONS))?;
    // A process that was stopped in the middle holds the lock until it ends.
    let until = Instant::now() + patience;
    while let Err(error) = file.try_lock() {
        match error {
            TryLockError::Error(error) => return Err(error),
            TryLockError::WouldBlock if Instant::now() < until => std::thread::sleep(PAUSE),
            TryLockError::WouldBlock => {
                let what = "another process is sending a decision and does not get on";
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
        }
    }
    Ok(file)
}

fn failed(store: &Path, error: &io::Error) -> StoreError {
    StoreError::Other { store: store.into(), what: format!("its mail: {error}") }
}

/// Writes a file atomically; it survives a power cut.
fn put(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() as u64 > WORD_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a word of {} bytes is too long; {WORD_BYTES} are taken", bytes.len()),
        ));
    }
    schema::make_folder(folder)?;
    // A draft has another extension and is no message.
    durable_file::replace(&folder.join(format!("{name}.{WHOLE}")), bytes, &FileAccess::Private)
}

/// Returns the files of complete messages, each with its message: the oldest first, and those that
/// cannot be read last.
fn files(store: &Path) -> Result<Vec<(PathBuf, io::Result<ControlMessage>)>, StoreError> {
    let entries = match fs::read_dir(store.join(FOLDER)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(store, &error)),
    };
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut files: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == WHOLE || ending == TAKEN))
        .map(|path| {
            let message = read(&path);
            (path, message)
        })
        .collect();
    let order = |(path, message): &(PathBuf, io::Result<ControlMessage>)| match message {
        Ok(message) => (false, Some(order(path, message))),
        Err(_) => (true, None),
    };
    files.sort_by_cached_key(order);
    Ok(files)
}

/// The id that decides about the order of messages. That of one under a key says nothing about its
/// time, and older hosts wrote no other: then it is the time of its file.
fn order(path: &Path, message: &ControlMessage) -> ControlId {
    let order = message.order();
    if !order.as_str().starts_with(KEY) {
        return order.clone();
    }
    let written = fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let since = written.and_then(|written| written.duration_since(UNIX_EPOCH).ok());
    ControlId::from(format!("{:020}-", since.unwrap_or_default().as_millis()))
}

/// Whether the message was sent more than a day ago.
fn is_old(path: &Path, message: &ControlMessage) -> bool {
    let order = order(path, message);
    let sent_at = order.as_str().split('-').next();
    let sent_at = sent_at.and_then(|part| part.parse::<u64>().ok());
    sent_at.is_some_and(|sent_at| SystemClock.now().0.saturating_sub(sent_at) > DAY_MS)
}

fn read(path: &Path) -> io::Result<ControlMessage> {
    let mut bytes = Vec::new();
    // One byte more than permitted shows that the message is too long.
    open_own(path)?.take(WORD_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > WORD_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(serde_json::from_slice(&bytes)?)
}

/// Whether the error means that the file was read and holds no valid message.
fn is_no_message(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, InvalidData, UnexpectedEof};
    matches!(error.kind(), FileTooLarge | InvalidData | UnexpectedEof)
}

/// Moves an invalid file away, where the operator can inspect it and no poll reads it.
fn put_aside(folder: &Path, path: &Path) {
    let bad = folder.join(BAD);
    let moved = schema::make_folder(&bad)
        .and_then(|()| path.file_name().map_or(Ok(()), |name| fs::rename(path, bad.join(name))));
    // If the move fails, the file stays and the next poll tries again.
    let _ = moved;
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use conclave_core::protocol::control::ControlCommand;
    use conclave_core::types::approval::Approval;

    use super::*;

    fn stop(room: &str) -> ControlMessage {
        ControlMessage::new(
            RoomId::from(room),
            ControlCommand::Stop { reason: "enough".to_owned() },
        )
    }

    /// A folder with an empty store, and the messages sent to it.
    fn sent(rooms: &[&str]) -> (tempfile::TempDir, Vec<ControlMessage>) {
        let temp = tempfile::tempdir().unwrap();
        fs::write(schema::path(temp.path()), "").unwrap();
        let sent: Vec<ControlMessage> = rooms.iter().map(|room| stop(room)).collect();
        sent.iter().for_each(|mail| send(temp.path(), mail).unwrap());
        (temp, sent)
    }

    fn all(store: &Path) -> Vec<ControlMessage> {
        receive(store, &|_| true, &|_| false, &|_| false)
            .unwrap()
            .into_iter()
            .map(|received| received.mail)
            .collect()
    }

    fn decision(store: &Path, approval: Approval) -> DecisionSent {
        let word = ControlCommand::Decide { call: CallId(7), approval, arguments_sha256: None };
        let mail = ControlMessage::new(RoomId::from("a"), word);
        send_decision(store, &mail, || Ok(true)).unwrap()
    }

    #[test]
    fn a_process_that_stands_while_it_decides_holds_up_nobody_for_ever() {
        let temp = tempfile::tempdir().unwrap();
        let lock = lock_decisions(temp.path(), Duration::ZERO).unwrap();
        let error = lock_decisions(temp.path(), Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(lock);
        lock_decisions(temp.path(), Duration::ZERO).unwrap();
    }

    #[test]
    fn of_decisions_at_once_one_is_sent_and_the_others_learn_which() {
        let (temp, _) = sent(&[]);
        for _ in 0..20 {
            let results: Vec<DecisionSent> = std::thread::scope(|scope| {
                let refused = || Approval::Refused { reason: "no".to_owned() };
                let deciders: Vec<_> = (0..8)
                    .map(|nth| if nth % 2 == 0 { Approval::Approved } else { refused() })
                    .map(|approval| scope.spawn(|| decision(temp.path(), approval)))
                    .collect();
                deciders.into_iter().map(|decider| decider.join().unwrap()).collect()
            });
            let received = all(temp.path());
            assert_eq!(received.len(), 1, "{received:?}");
            let sent = results.iter().filter(|result| **result == DecisionSent::Sent).count();
            assert_eq!(sent, 1, "{results:?}");
            let rivals = results.iter().filter_map(|result| match result {
                DecisionSent::Rival(mail) => Some(&**mail),
                _ => None,
            });
            assert!(rivals.clone().count() == 7 && rivals.into_iter().all(|it| *it == received[0]));
            remove(temp.path(), &received[0]).unwrap();
        }
    }

    #[test]
    fn a_decision_about_a_decided_call_is_not_sent() {
        let (temp, _) = sent(&[]);
        let word = ControlCommand::Decide {
            call: CallId(7),
            approval: Approval::Approved,
            arguments_sha256: None,
        };
        let mail = ControlMessage::new(RoomId::from("a"), word);
        assert_eq!(send_decision(temp.path(), &mail, || Ok(false)).unwrap(), DecisionSent::Decided);
        assert_eq!(pending(temp.path()).unwrap(), []);
    }

    #[test]
    fn a_message_is_received_until_it_is_deleted() {
        let (temp, sent) = sent(&["a", "b"]);
        assert_eq!(all(temp.path()), sent);
        // As after a crash: nothing was deleted, so all messages are received again.
        assert_eq!(all(temp.path()), sent);
        assert!(sent.iter().all(|mail| state(temp.path(), mail).unwrap() == MailState::Taken));
        for mail in &sent {
            assert!(!withdraw(temp.path(), mail).unwrap(), "a room may have it");
        }
        assert_eq!(pending(temp.path()).unwrap(), sent);
        let received =
            receive(temp.path(), &|mail| mail.room.as_str() == "a", &|_| false, &|_| false)
                .unwrap();
        received.iter().for_each(ReceivedMail::delete);
        assert_eq!(
            (state(temp.path(), &sent[0]).unwrap(), state(temp.path(), &sent[1]).unwrap()),
            (MailState::Gone, MailState::Taken)
        );
        assert_eq!(all(temp.path()), sent[1..]);
        remove(temp.path(), &sent[1]).unwrap();
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
    fn a_message_under_a_key_without_an_order_has_the_time_of_its_file() {
        let (temp, sent) = sent(&["second"]);
        let first = ControlMessage { order: None, ..stop("first").under_key("1") };
        send(temp.path(), &first).unwrap();
        let [file, _] = paths(temp.path(), &first);
        let file = fs::File::options().write(true).open(file).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
        assert_eq!(pending(temp.path()).unwrap(), [first.clone(), sent[0].clone()]);
        file.set_modified(SystemTime::now() - Duration::from_secs(25 * 3_600)).unwrap();
        receive(temp.path(), &|_| false, &|_| true, &|_| false).unwrap();
        assert_eq!(pending(temp.path()).unwrap(), sent);
    }

    #[test]
    fn old_messages_that_no_run_will_receive_are_deleted() {
        let (temp, _) = sent(&["over", "interrupted", "over"]);
        send(temp.path(), &stop("over").under_key("1")).unwrap();
        let look = || {
            receive(temp.path(), &|_| false, &|room| room.as_str() == "over", &|_| false)
                .unwrap()
                .len()
        };
        assert_eq!(look(), 0);
        let all = files(temp.path()).unwrap();
        assert_eq!(all.len(), 4, "what is new may be meant for what is about to begin");
        for ((path, message), ending) in all.into_iter().zip([WHOLE, WHOLE, TAKEN, WHOLE]) {
            let mut message = message.unwrap();
            let (sent_at, rest) = message.order().as_str().split_once('-').unwrap();
            let sent_at = sent_at.parse::<u64>().unwrap() - DAY_MS - 1;
            let earlier = ControlId::from(format!("{sent_at:020}-{rest}"));
            match &mut message.order {
                Some(order) => *order = earlier,
                None => message.id = earlier,
            }
            fs::remove_file(&path).unwrap();
            let [waiting, received] = paths(temp.path(), &message);
            let path = if ending == TAKEN { received } else { waiting };
            fs::write(path, serde_json::to_vec(&message).unwrap()).unwrap();
        }
        assert_eq!(look(), 0);
        let waiting: Vec<String> =
            pending(temp.path()).unwrap().iter().map(|mail| mail.room.to_string()).collect();
        assert_eq!(waiting, ["interrupted"], "one that was interrupted can be resumed");
    }
}
