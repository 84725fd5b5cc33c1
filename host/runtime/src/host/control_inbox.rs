//! Delivers control messages from other processes to the active rooms of this host. A message's
//! file is deleted once the room's record of it is durable. Polling and display belong to the
//! caller.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conclave_core::types::ids::ControlId;
use tokio::sync::watch;

use crate::host::Host;
use crate::storage::store::mail::{ReceivedMail, bell};
use crate::storage::store::{ControlCommand, ControlMessage, Store};

/// The receiver of a store's control messages.
#[derive(Clone)]
pub struct ControlInbox {
    store: Store,
    host: Arc<Host>,
    in_hand: InHand,
    /// Notified of messages that this process sends.
    sent: watch::Receiver<()>,
}

/// Messages that were delivered to a room and are not confirmed yet.
type InHand = Arc<Mutex<HashSet<ControlId>>>;

/// Keeps a message in the `InHand` set until it is dropped.
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
    /// Returns an inbox for the runs of this host in this store.
    #[must_use]
    pub fn new(store: &Store, host: &Arc<Host>) -> Self {
        let mut sent = bell::sent();
        // The messages that are there already.
        sent.mark_changed();
        Self { store: store.clone(), host: Arc::clone(host), in_hand: InHand::default(), sent }
    }

    /// Does the same as [`receive`](Self::receive) once this process has sent a message, and after
    /// this time at the latest, for the messages of others. The first call does it at once.
    pub async fn receive_next(&mut self, most: Duration, notify: impl Fn(&ControlMessage)) {
        // Marked as seen before the look, so that a message sent during it leads to another look.
        let _ = tokio::time::timeout(most, self.sent.changed()).await;
        self.receive(notify).await;
    }

    /// Polls once and delivers each message to its room; `notify` is called with each. Messages to
    /// rooms that are not active here stay in place. The exception is a stop: only this process
    /// could run that room, so the run was interrupted, and the stop ends it.
    ///
    /// Disk access happens on blocking threads. Returns when all messages are delivered, without
    /// waiting for their records.
    pub async fn receive(&self, notify: impl Fn(&ControlMessage)) {
        let (store, host, in_hand) =
            (self.store.clone(), Arc::clone(&self.host), Arc::clone(&self.in_hand));
        let look = move || {
            let is_here = |mail: &ControlMessage| {
                matches!(mail.word, ControlCommand::Stop { .. })
                    || host.handle(&mail.room).is_some()
            };
            let is_in_hand = |mail: &ControlMessage| lock(&in_hand).contains(&mail.id);
            store.mail_for(|mail| !is_in_hand(mail) && is_here(mail), |mail| !is_in_hand(mail))
        };
        // A message that cannot be read now is read at the next poll.
        let Ok(Ok(received)) = crate::support::blocking::spawn(look).await else { return };
        for received in received {
            self.hand_over(received, &notify);
        }
    }

    fn hand_over(&self, received: ReceivedMail, notify: &impl Fn(&ControlMessage)) {
        // Marked before the delivery, so that the next poll skips the message.
        lock(&self.in_hand).insert(received.mail.id.clone());
        let guard = MessageGuard(Arc::clone(&self.in_hand), received.mail.id.clone());
        let ControlMessage { room, word, .. } = &received.mail;
        let command = received.mail.clone().into_command();
        let delivered = self.host.handle(room).and_then(|handle| handle.deliver(command));
        if let Some(confirmed) = delivered {
            notify(&received.mail);
            tokio::spawn(async move {
                // Without a confirmation the room ended first. The message stays for the process
                // that resumes the room, or until its sender withdraws it.
                if confirmed.await.is_ok() {
                    let _ = crate::support::blocking::spawn(move || received.delete()).await;
                }
                drop(guard);
            });
        } else if matches!(word, ControlCommand::Stop { .. }) {
            let store = self.store.clone();
            crate::support::blocking::spawn(move || {
                end(&store, &received);
                drop(guard);
            });
        }
    }
}

/// Ends an interrupted run that no process has open. A run that is just beginning or ending here
/// keeps the message for the next poll.
fn end(store: &Store, received: &ReceivedMail) {
    let ControlMessage { room, word, .. } = &received.mail;
    if !matches!(word, ControlCommand::Stop { .. }) {
        return;
    }
    if store.give_up_for(&received.mail).is_ok() || !store.may_be_open(room) {
        received.delete();
    }
}
