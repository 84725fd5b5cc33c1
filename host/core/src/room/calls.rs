//! The pending calls of a room, and the calls that ended within the last event. Clients of the room
//! need not compare all calls after each event.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Purpose;
use crate::types::ids::CallId;

/// Pending calls with their purpose.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct PendingCalls {
    waiting: BTreeMap<CallId, Purpose>,
    /// Calls that ended since the current or last event began. Not part of the folded state.
    #[serde(skip)]
    ended: Vec<CallId>,
}

impl PartialEq for PendingCalls {
    fn eq(&self, other: &Self) -> bool {
        self.waiting == other.waiting
    }
}

impl PendingCalls {
    pub(super) fn insert(&mut self, call: CallId, purpose: Purpose) {
        self.waiting.insert(call, purpose);
    }

    pub(super) fn remove(&mut self, call: &CallId) -> Option<Purpose> {
        let purpose = self.waiting.remove(call)?;
        self.ended.push(*call);
        Some(purpose)
    }

    pub(super) fn get(&self, call: &CallId) -> Option<&Purpose> {
        self.waiting.get(call)
    }

    pub(super) fn get_mut(&mut self, call: &CallId) -> Option<&mut Purpose> {
        self.waiting.get_mut(call)
    }

    pub(super) fn contains_key(&self, call: &CallId) -> bool {
        self.waiting.contains_key(call)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the pending calls with their purpose, oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&CallId, &Purpose)> {
        self.waiting.iter()
    }

    /// Returns the ids of the pending calls, oldest first.
    pub(super) fn keys(&self) -> impl DoubleEndedIterator<Item = &CallId> {
        self.waiting.keys()
    }

    /// Returns the purposes of the pending calls, oldest first.
    pub(super) fn values(&self) -> impl DoubleEndedIterator<Item = &Purpose> {
        self.waiting.values()
    }

    /// Begins another event.
    pub(super) fn begin_event(&mut self) {
        self.ended.clear();
    }

    /// Returns the calls that ended since the last event began.
    pub(super) fn ended(&self) -> &[CallId] {
        &self.ended
    }
}
