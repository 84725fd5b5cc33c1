//! Control messages that wait until their room has journalled them, by id. A room that nobody runs
//! takes none.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use conclave_core::types::ids::ControlId;
use tokio::sync::oneshot;

/// Control messages that were handed to a room.
#[derive(Debug, Default)]
pub(crate) struct Controls(Mutex<PendingControl>);

#[derive(Debug, Default)]
struct PendingControl {
    /// A run goes on, or is about to.
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

    /// Returns the receiver of the confirmation; `None` if no run goes on. The receiver fails when
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

    /// Takes out the sender of a message's confirmation; `None` if nobody waits for it any more.
    pub(crate) fn take(&self, id: &ControlId) -> Option<oneshot::Sender<()>> {
        self.lock().by_id.remove(id)
    }

    /// Those that were not journalled are not confirmed.
    pub(crate) fn close(&self) {
        let mut pending = self.lock();
        pending.is_open = false;
        pending.by_id.clear();
    }
}
