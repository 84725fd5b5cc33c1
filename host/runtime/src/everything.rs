//! All runs that a host has under way, so that one word stops them. It holds no run alive.

use std::sync::{Mutex, PoisonError};

use conclave_core::event::Event;
use tokio::sync::mpsc::{UnboundedSender, WeakUnboundedSender};

/// Where the events of runs go in.
#[derive(Debug, Default)]
pub(crate) struct Everything(Mutex<Vec<WeakUnboundedSender<Event>>>);

impl Everything {
    pub(crate) fn add(&self, run: &UnboundedSender<Event>) {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() == runs.capacity() {
            // Before it grows: those that are over have no receiver any more.
            runs.retain(|run| run.upgrade().is_some_and(|run| !run.is_closed()));
        }
        runs.push(run.downgrade());
    }

    /// Stops what goes on; gives how many were told.
    pub(crate) fn stop(&self, reason: &str) -> usize {
        let runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told = runs.iter().filter_map(WeakUnboundedSender::upgrade);
        told.filter(|run| run.send(Event::Cancelled { reason: reason.to_owned() }).is_ok()).count()
    }
}
