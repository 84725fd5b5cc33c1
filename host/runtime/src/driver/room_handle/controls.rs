//! Control messages that wait until their room has journalled them, by id. A room without an active
//! run accepts none.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use conclave_core::types::ids::ControlId;
use tokio::sync::oneshot;

/// The control messages that were passed to a room.
#[derive(Debug, Default)]
pub(crate) struct Controls(Mutex<PendingControl>);

#[derive(Debug, Default)]
struct PendingControl {
    /// Whether a run is active or about to be.
    is_open: bool,
    by_id: HashMap<ControlId, oneshot::Sender<()>>,
}

impl Controls {
    fn lock(&self) -> MutexGuard<'_, PendingControl> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open(&self) {
        self.lock().is_open = true;
    }

    /// Returns the receiver of the confirmation; `None` if no run is active. The receiver fails if
    /// the room ends first.
    #[cfg_attr(
        not(feature = "sqlite"),
        expect(dead_code, reason = "messages come through a store")
    )]
    pub(crate) fn enter(&self, id: &ControlId) -> Option<oneshot::Receiver<()>> {
        let mut pending = self.lock();
        if !pending.is_open {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        pending.by_id.insert(id.clone(), sender);
        Some(receiver)
    }

    /// Removes and returns the sender of a message's confirmation; `None` if there is none.
    pub(crate) fn take(&self, id: &ControlId) -> Option<oneshot::Sender<()>> {
        self.lock().by_id.remove(id)
    }

    /// Drops the senders of messages that were not journalled, which leaves them unconfirmed.
    pub(crate) fn close(&self) {
        let mut pending = self.lock();
        pending.is_open = false;
        pending.by_id.clear();
    }
}
