//! An agent's history: a persistent vector of shared messages. A snapshot takes constant time, so a
//! step never copies the history. Not the log: a history is rewound, trimmed and condensed, the log
//! never.

use std::sync::Arc;

use rpds::VectorSync;
use serde::{Deserialize, Serialize};

use crate::types::message::Message;

/// Messages of one agent, oldest first. Cloning is cheap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct History(VectorSync<Arc<Message>>);

impl Default for History {
    fn default() -> Self {
        Self(VectorSync::new_sync())
    }
}

impl History {
    /// The number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The message at an index; `None` past the end.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Arc<Message>> {
        self.0.get(index)
    }

    /// The newest message.
    #[must_use]
    pub fn last(&self) -> Option<&Arc<Message>> {
        self.0.last()
    }

    /// All messages, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.0.iter()
    }

    /// All messages, newest first.
    pub fn iter_newest_first(&self) -> impl Iterator<Item = &Arc<Message>> {
        (0..self.0.len()).rev().filter_map(|index| self.0.get(index))
    }

    /// Replaces the message at an index; does nothing past the end.
    pub fn set(&mut self, index: usize, message: Arc<Message>) {
        self.0.set_mut(index, message);
    }

    /// Removes the messages from `start` on and returns them, oldest first.
    pub fn split_off(&mut self, start: usize) -> Vec<Arc<Message>> {
        let dropped: Vec<Arc<Message>> = self.0.iter().skip(start).cloned().collect();
        for _ in 0..dropped.len() {
            self.0.drop_last_mut();
        }
        dropped
    }

    /// Appends a message, unless it is the last one already (L-025).
    pub fn push(&mut self, message: &Arc<Message>) {
        if self.last().is_none_or(|last| last.seq != message.seq) {
            self.0.push_back_mut(Arc::clone(message));
        }
    }
}
