//! Finds the calls of a log without a result: pending ones, or those lost when the host stopped
//! (O-112).

use std::collections::BTreeSet;

use crate::sdk::SdkEvent;

/// The part of an event that matters for pairing calls and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairingStep<'a> {
    /// A call: the ids of its event and of the call, and whether its arguments were valid.
    Action {
        /// The id of the event.
        id: &'a str,
        /// The id of the call.
        call: &'a str,
        /// Whether it can be executed.
        executable: bool,
    },
    /// A result or a refusal of the action with that id.
    Answer {
        /// The id of the action.
        action: &'a str,
    },
    /// An error of the agent about the call with that id.
    Error {
        /// The id of the call.
        call: &'a str,
    },
    /// Any other event.
    Other,
}

impl<'a> PairingStep<'a> {
    /// The pairing step of an SDK event.
    fn of(event: &'a SdkEvent) -> PairingStep<'a> {
        let text = |key| event.text(key).unwrap_or_default();
        match event.kind {
            "ActionEvent" => PairingStep::Action {
                id: event.id.as_deref().unwrap_or_default(),
                call: text("tool_call_id"),
                executable: event.payload.contains_key("action"),
            },
            "ObservationEvent" | "UserRejectObservation" => {
                PairingStep::Answer { action: text("action_id") }
            }
            "AgentErrorEvent" => PairingStep::Error { call: text("tool_call_id") },
            _ => PairingStep::Other,
        }
    }
}

/// The positions of the calls without a later answer by action id or error by call id, in log
/// order. An invalid call is never pending.
fn unmatched(steps: &[PairingStep<'_>]) -> Vec<usize> {
    let mut answered = BTreeSet::new();
    let mut failed = BTreeSet::new();
    let mut pending = Vec::new();
    for (at, step) in steps.iter().enumerate().rev() {
        match step {
            PairingStep::Answer { action } => {
                answered.insert(*action);
            }
            PairingStep::Error { call } => {
                failed.insert(*call);
            }
            PairingStep::Action { id, call, executable }
                if *executable && !answered.contains(id) && !failed.contains(call) =>
            {
                pending.push(at)
            }
            PairingStep::Action { .. } | PairingStep::Other => {}
        }
    }
    pending.reverse();
    pending
}

/// The calls of an SDK log that have no result.
pub fn unmatched_events(events: &[SdkEvent]) -> Vec<&SdkEvent> {
    let steps: Vec<PairingStep<'_>> = events.iter().map(PairingStep::of).collect();
    unmatched(&steps).into_iter().map(|at| &events[at]).collect()
}
