//! The calls that wait for an answer. Besides, which of them ended in the course of an event, so
//! that whoever follows the room need not look at all of them after each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Purpose;
use crate::types::ids::CallId;

/// Calls that wait for an answer, and what each is for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct PendingCalls {
    waiting: BTreeMap<CallId, Purpose>,
    /// Ended since the event that is being taken, or was taken last, began. Not part of what a fold
    /// must give back.
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

    /// Oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&CallId, &Purpose)> {
        self.waiting.iter()
    }

    /// Oldest first.
    pub(super) fn keys(&self) -> impl DoubleEndedIterator<Item = &CallId> {
        self.waiting.keys()
    }

    /// Oldest first.
    pub(super) fn values(&self) -> impl DoubleEndedIterator<Item = &Purpose> {
        self.waiting.values()
    }

    /// Another event is about to be taken.
    pub(super) fn begin_event(&mut self) {
        self.ended.clear();
    }

    /// Those that ended since the last event began.
    pub(super) fn ended(&self) -> &[CallId] {
        &self.ended
    }
}
