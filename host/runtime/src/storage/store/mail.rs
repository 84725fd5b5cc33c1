//! Control messages from other processes to the host that has a run open. The receiver journals a
//! message first and deletes it afterwards. A crash in between delivers it again, and the room
//! ignores the repeated id. A message to a run that no process has open waits until the run is
//! resumed.

pub(crate) mod bell;
mod folder;
#[cfg(feature = "postgres")]
mod tables;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use conclave_core::protocol::control::{ControlCommand, SentCommand};
use conclave_core::types::ids::{CallId, ControlId, Principal, RoomId};
use serde::{Deserialize, Serialize};

use super::StoreError;
#[cfg(feature = "postgres")]
use super::{Store, StoreAddress, sql::Sql};
use crate::support::clock::{Clock, SystemClock};
use crate::support::fail_points::kill_point;

pub(crate) use folder::receive;
#[cfg(feature = "postgres")]
pub(super) use tables::{delete, delete_undeliverable, take, to_runs_of};

/// The maximum size of a message in bytes.
const WORD_BYTES: u64 = 1 << 20;
/// The age in milliseconds at which a message without a receiving run is deleted.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
/// The beginning of the id of a message under a key.
const KEY: &str = "key-";

/// A message to the process that has a run open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControlMessage {
    /// The unique id, which the room journals with the message. A repeated id has no effect.
    pub id: ControlId,
    /// The id by which the message is ordered, if it is another: one that begins with its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<ControlId>,
    /// The recipient.
    pub room: RoomId,
    /// The person at a server who sends it; `None` for a command of a terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
    /// The command for the recipient.
    pub word: ControlCommand,
}

/// The state of a message, as its sender sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailState {
    /// The receiver has not read it yet.
    Waiting,
    /// The receiver has passed it to its room, which has not confirmed it yet.
    Taken,
    /// Its file is deleted: the room has journalled it, or it was withdrawn.
    Gone,
    /// The receiver could not parse it and set it aside; it will never take effect.
    PutAside,
}

/// What became of a decision that was to be sent.
#[derive(Clone, Debug, PartialEq)]
pub enum DecisionSent {
    /// The run takes it when it next looks.
    Sent,
    /// Another decision about the call is on its way. Nothing was sent.
    Rival(Box<ControlMessage>),
    /// The call does not wait any more. Nothing was sent.
    Decided,
}

impl ControlMessage {
    /// Returns a message with a new id.
    #[must_use]
    pub fn new(room: RoomId, word: ControlCommand) -> Self {
        Self { id: new_id(), order: None, room, by: None, word }
    }

    /// Returns the message with an id that is always the same for this key, so that it takes effect
    /// once, however often it is sent. It is ordered by its time all the same.
    #[must_use]
    pub fn under_key(self, key: &str) -> Self {
        let order = self.order.unwrap_or(self.id);
        Self { id: ControlId::from(format!("{KEY}{key}")), order: Some(order), ..self }
    }

    /// The id that decides about the order of messages.
    fn order(&self) -> &ControlId {
        self.order.as_ref().unwrap_or(&self.id)
    }

    /// The message as its room records it.
    #[must_use]
    pub fn into_command(self) -> SentCommand {
        SentCommand { id: self.id, by: self.by, word: self.word }
    }
}

/// The control messages of a store that are not deleted yet.
#[derive(Clone, Copy)]
pub struct Mail<'a>(MailPlace<'a>);

#[derive(Clone, Copy)]
enum MailPlace<'a> {
    Folder(&'a Path),
    #[cfg(feature = "postgres")]
    Tables(&'a dyn Sql, &'a StoreAddress),
}

/// Calls the same function of the place in which the messages are.
macro_rules! in_place {
    ($mail:expr, $function:ident ( $($argument:expr),* )) => {
        match $mail.0 {
            MailPlace::Folder(store) => folder::$function(store $(, $argument)*),
            #[cfg(feature = "postgres")]
            MailPlace::Tables(tables, store) => {
                tables::$function(tables $(, $argument)*).map_err(|error| error.of(store))
            }
        }
    };
}

impl<'a> Mail<'a> {
    /// The messages of the store in a folder.
    #[must_use]
    pub fn in_folder(store: &'a Path) -> Self {
        Self(MailPlace::Folder(store))
    }

    #[cfg(feature = "postgres")]
    pub(super) fn in_tables(tables: &'a dyn Sql, store: &'a StoreAddress) -> Self {
        Self(MailPlace::Tables(tables, store))
    }

    /// Sends a message. It is durable when this returns.
    ///
    /// # Errors
    /// `UnknownRoom` if the store is a database without this room. Fails when the message is too
    /// long, or with an error of the operating system or the store.
    pub fn send(self, message: &ControlMessage) -> Result<(), StoreError> {
        let sent = in_place!(self, send(message));
        bell::ring_sent();
        sent
    }

    /// Sends a decision about a pending call, or the answer to a question, unless another one is on
    /// its way or has been recorded. `is_pending` returns whether the call still waits for a
    /// decision. Of several processes that decide at once, one sends, and the others get its
    /// decision.
    ///
    /// # Errors
    /// As [`send`](Self::send), and with the error of `is_pending`.
    pub fn send_decision(
        self,
        message: &ControlMessage,
        is_pending: impl FnOnce() -> Result<bool, StoreError>,
    ) -> Result<DecisionSent, StoreError> {
        let sent = self.send_unless_rival(message, is_pending);
        bell::ring_sent();
        sent
    }

    fn send_unless_rival(
        self,
        message: &ControlMessage,
        is_pending: impl FnOnce() -> Result<bool, StoreError>,
    ) -> Result<DecisionSent, StoreError> {
        match self.0 {
            MailPlace::Folder(store) => folder::send_decision(store, message, is_pending),
            #[cfg(feature = "postgres")]
            MailPlace::Tables(tables, store) => {
                let of_store = |error: super::sql::SqlError| error.of(store);
                if let Some(rival) = tables::send_unless_rival(tables, message).map_err(of_store)? {
                    return Ok(DecisionSent::Rival(Box::new(rival)));
                }
                // In this order: a receiver records a decision before it deletes the message.
                if is_pending()? {
                    return Ok(DecisionSent::Sent);
                }
                let is_back = tables::withdraw(tables, message).map_err(of_store)?;
                Ok(if is_back { DecisionSent::Decided } else { DecisionSent::Sent })
            }
        }
    }

    /// Returns the messages in the order in which they were sent.
    ///
    /// # Errors
    /// Fails with an error of the operating system or the store.
    pub fn pending(self) -> Result<Vec<ControlMessage>, StoreError> {
        in_place!(self, pending())
    }

    /// Returns the messages to the rooms of a run in the order in which they were sent.
    ///
    /// # Errors
    /// Fails with an error of the operating system or the store.
    pub fn of_run(self, run: &RoomId) -> Result<Vec<ControlMessage>, StoreError> {
        in_place!(self, of_run(run))
    }

    /// Returns the messages that settle calls in the order in which they were sent.
    ///
    /// # Errors
    /// Fails with an error of the operating system or the store.
    pub fn decisions(self) -> Result<Vec<ControlMessage>, StoreError> {
        in_place!(self, decisions())
    }

    /// Returns the message that settles a call of a room, if one is on its way.
    ///
    /// # Errors
    /// Fails with an error of the operating system or the store.
    pub fn decision(
        self,
        room: &RoomId,
        call: CallId,
    ) -> Result<Option<ControlMessage>, StoreError> {
        in_place!(self, decision(room, call))
    }

    /// Withdraws a message unless a receiver has taken it. Returns whether it was withdrawn.
    ///
    /// # Errors
    /// Fails with an error of the operating system or the store.
    pub fn withdraw(self, message: &ControlMessage) -> Result<bool, StoreError> {
        in_place!(self, withdraw(message))
    }

    /// Returns the state of a message.
    ///
    /// # Errors
    /// Fails with an error of the store.
    pub fn state(self, message: &ControlMessage) -> Result<MailState, StoreError> {
        in_place!(self, state(message))
    }

    /// Deletes a message, even if a receiver has taken it; for senders whose receiver has ended.
    /// [`StoreReader::has_received`](super::StoreReader::has_received) returns whether the room
    /// journalled it.
    ///
    /// # Errors
    /// Fails with an error of the operating system or the store.
    pub fn remove(self, message: &ControlMessage) -> Result<(), StoreError> {
        in_place!(self, remove(message))
    }
}

/// A message that this process has taken; it remains until [`delete`](Self::delete).
pub(crate) struct ReceivedMail {
    pub(crate) mail: ControlMessage,
    place: ReceivedPlace,
}

enum ReceivedPlace {
    File(PathBuf),
    #[cfg(feature = "postgres")]
    Row(Store),
}

impl ReceivedMail {
    #[cfg(feature = "postgres")]
    pub(super) fn of_row(mail: ControlMessage, store: Store) -> Self {
        Self { mail, place: ReceivedPlace::Row(store) }
    }

    /// Deletes the message; called once the room's record of it is durable. If it cannot be
    /// deleted, or a power cut restores it, it is read again, and the room ignores it.
    pub(crate) fn delete(&self) {
        kill_point!("before-control-deleted");
        match &self.place {
            ReceivedPlace::File(path) => drop(std::fs::remove_file(path)),
            #[cfg(feature = "postgres")]
            ReceivedPlace::Row(store) => store.delete_mail(&self.mail.id),
        }
        bell::ring_deleted();
        kill_point!("after-control-deleted");
    }
}

/// A new id. Ids are ordered by time, and unique across processes.
fn new_id() -> ControlId {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut random = [0; 8];
    let random = match getrandom::fill(&mut random) {
        Ok(()) => u64::from_ne_bytes(random),
        // The id need not be secret, so the seed of the standard library's maps is enough.
        Err(_) => RandomState::new().build_hasher().finish(),
    };
    // Padded, so that the order of the file names is that of the times.
    ControlId::from(format!(
        "{:020}-{count:06}-{}-{random:016x}",
        SystemClock.now().0,
        std::process::id()
    ))
}
