//! Rings when this process sends or deletes a message, for those in it who wait for that. Messages
//! of other processes are found by a look from time to time, so a ring only saves the wait for the
//! next one: one bell for all stores is enough.

use std::sync::{Condvar, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

static SENT: LazyLock<watch::Sender<()>> = LazyLock::new(|| watch::Sender::new(()));
static DELETED: (Mutex<u64>, Condvar) = (Mutex::new(0), Condvar::new());

pub(super) fn ring_sent() {
    SENT.send_replace(());
}

/// A receiver that is notified of messages that this process sends.
pub(crate) fn sent() -> watch::Receiver<()> {
    SENT.subscribe()
}

pub(super) fn ring_deleted() {
    *DELETED.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    DELETED.1.notify_all();
}

/// The number of messages that this process has deleted.
pub(crate) fn deletions() -> u64 {
    *DELETED.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until this process has deleted more messages than these, or for this time.
pub(crate) fn wait_for_deletion(before: u64, most: Duration) {
    let count = DELETED.0.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = DELETED.1.wait_timeout_while(count, most, |count| *count == before);
}
