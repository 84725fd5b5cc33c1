//! The control messages that a room has received: each takes effect once. A message is delivered
//! again when the host stopped after it journalled the message and before it deleted the message's
//! file.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::types::ids::ControlId;

/// Number of ids that are remembered. Only a message whose file still exists can arrive again. It
/// would take this many other messages to forget an undeletable one, and a persistent room needs a
/// bound.
const REMEMBERED: usize = 1_024;

/// The newest ids, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct ReceivedControls(VecDeque<ControlId>);

impl ReceivedControls {
    pub(super) fn contains(&self, id: &ControlId) -> bool {
        self.0.contains(id)
    }

    /// Adds an id. Returns false if it was there already.
    pub(super) fn insert(&mut self, id: ControlId) -> bool {
        if self.contains(&id) {
            return false;
        }
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(id);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_new_once_and_the_oldest_is_forgotten_at_the_bound() {
        let id = |number: usize| ControlId::from(format!("c{number}"));
        let mut received = ReceivedControls::default();
        for number in 0..REMEMBERED {
            assert!(received.insert(id(number)) && !received.insert(id(number)), "{number}");
        }
        assert!(!received.insert(id(0)), "all are remembered");
        assert!(received.insert(id(REMEMBERED)));
        assert_eq!(received.0.len(), REMEMBERED);
        assert!(!received.contains(&id(0)) && received.contains(&id(1)));
    }
}
