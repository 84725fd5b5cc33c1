//! Hands control messages from other processes to the rooms that this host has under way. A
//! message's file is deleted once the room's record of it is durable. Not how often somebody looks,
//! nor what people are shown of it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_core::types::ids::{ControlId, RoomId};

use crate::host::Host;
use crate::storage::store::mail::ReceivedMail;
use crate::storage::store::{ControlCommand, ControlMessage, RunState, Store, StoreReader};

/// The receiver of a store's [`ControlMessage`].
#[derive(Clone)]
pub struct ControlInbox {
    store: Store,
    host: Arc<Host>,
    in_hand: InHand,
}

/// Messages that were handed to a room which has not confirmed them.
type InHand = Arc<Mutex<HashSet<ControlId>>>;

/// A message is in hand for as long as this lives.
struct MessageGuard(InHand, ControlId);

impl Drop for MessageGuard {
    fn drop(&mut self) {
        lock(&self.0).remove(&self.1);
    }
}

fn lock(in_hand: &InHand) -> MutexGuard<'_, HashSet<ControlId>> {
    in_hand.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ControlInbox {
    /// Returns an inbox for the runs of this host that are kept in this store.
    #[must_use]
    pub fn new(store: &Store, host: &Arc<Host>) -> Self {
        Self { store: store.clone(), host: Arc::clone(host), in_hand: InHand::default() }
    }

    /// Looks once, and hands each message to its room; `notify` is called with each. Messages to
    /// rooms that are not under way here stay where they are, but for a stop: this process alone
    /// could have that run under way, so it was interrupted, and is ended.
    ///
    /// Disk work happens on other threads. Returns when all are handed over, and does not wait
    /// until they are journalled.
    pub async fn receive(&self, notify: impl Fn(&ControlMessage)) {
        let (store, host, in_hand) =
            (self.store.clone(), Arc::clone(&self.host), Arc::clone(&self.in_hand));
        let look = move || {
            let is_here = |mail: &ControlMessage| {
                matches!(mail.word, ControlCommand::Stop { .. })
                    || host.stopper(&mail.room).is_some()
            };
            let is_in_hand = |mail: &ControlMessage| lock(&in_hand).contains(&mail.id);
            store.mail_for(|mail| !is_in_hand(mail) && is_here(mail), |mail| !is_in_hand(mail))
        };
        // What cannot be read now is there at the next look.
        let Ok(Ok(received)) = tokio::task::spawn_blocking(look).await else { return };
        for received in received {
            self.hand_over(received, &notify);
        }
    }

    fn hand_over(&self, received: ReceivedMail, notify: &impl Fn(&ControlMessage)) {
        lock(&self.in_hand).insert(received.mail.id.clone());
        let held = MessageGuard(Arc::clone(&self.in_hand), received.mail.id.clone());
        let ControlMessage { id, room, word } = &received.mail;
        if let Some(confirmed) = self.host.deliver(room, id, word.to_event()) {
            notify(&received.mail);
            tokio::spawn(async move {
                // Without a confirmation the room was over first: the message stays for whoever
                // resumes it, or its sender takes it back.
                if confirmed.await.is_ok() {
                    let _ = tokio::task::spawn_blocking(move || received.delete()).await;
                }
                drop(held);
            });
        } else if matches!(word, ControlCommand::Stop { .. }) {
            let store = self.store.clone();
            tokio::task::spawn_blocking(move || {
                end(&store, &received);
                drop(held);
            });
        }
    }
}

/// Ends a run that no process has. It may be about to begin or to end here: then the message is for
/// the next look.
fn end(store: &Store, received: &ReceivedMail) {
    let ControlMessage { room, word, .. } = &received.mail;
    let ControlCommand::Stop { reason } = word else { return };
    if store.give_up(room, reason).is_ok() || !is_open(store, room) {
        received.delete();
    }
}

fn is_open(store: &Store, room: &RoomId) -> bool {
    // What cannot be read now may be open still.
    let Ok(rooms) = StoreReader::open(store.folder()).and_then(|reader| reader.rooms(room)) else {
        return true;
    };
    rooms.iter().any(|row| !matches!(row.standing, RunState::Ended(_)))
}
