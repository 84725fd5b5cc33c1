//! The detectors of 2024, over pairs of an action and what answered it (O-098…O-101, O-104, O-105).

use serde_json::Value;

use super::alike;
use crate::control::fingerprint::{Fingerprint, fingerprint};

pub use super::alike::LoopKind;

/// Whose numbers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairRules {
    /// The same four times.
    Pairs2024_06,
    /// The same three times.
    Pairs2024_07,
}

/// A pair of a history, as far as a detector looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    action: Fingerprint,
    result: Fingerprint,
    is_error: bool,
    is_from_user: bool,
}

impl Pair {
    /// Of an action and an observation in the form of rule O-003.
    #[must_use]
    pub fn of(action: &Value, observation: &Value) -> Self {
        let name = alike::action_name(action);
        // The number of a background command is no part of what was done.
        let of_action = if name == Some("kill") { fingerprint(&("kill", alike::arg(action, "thought"))) } else { alike::whole(action) };
        Self {
            action: of_action,
            result: alike::result(observation),
            is_error: alike::observation_name(observation) == Some("error"),
            is_from_user: name == Some("message") && alike::is_from_user(action),
        }
    }

    fn is_same_as(&self, other: &Self) -> bool {
        (self.action, self.result) == (other.action, other.result)
    }
}

/// How a history is stuck at its end; none: it is not. What the user said is left out, not a reset (C-086).
pub fn find<'a>(rules: PairRules, history: impl DoubleEndedIterator<Item = &'a Pair>) -> Option<LoopKind> {
    let newest: Vec<&Pair> = history.rev().filter(|pair| !pair.is_from_user).take(6).collect();
    let repeats = match rules {
        PairRules::Pairs2024_06 => 4,
        PairRules::Pairs2024_07 => 3,
    };
    let all = |count: usize, is: &dyn Fn(&Pair) -> bool| newest.get(..count).is_some_and(|newest| newest.iter().all(|pair| is(pair)));
    let last = newest.first()?;
    let takes_turns = || newest.len() == 6 && newest.iter().zip(newest.iter().skip(2)).all(|(pair, before)| pair.is_same_as(before));
    if all(repeats, &|pair| pair.is_same_as(last)) {
        Some(LoopKind::ActionObservation)
    } else if all(4, &|pair| pair.action == last.action && pair.is_error) {
        Some(LoopKind::ActionError)
    } else if takes_turns() {
        Some(LoopKind::Pattern)
    } else {
        None
    }
}
