//! Which calls of a log have no result yet, so that they are pending, or lost when the host died
//! (O-112).

use std::collections::BTreeSet;

use crate::sdk::SdkEvent;

/// What matters of an event for finding calls without result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairingStep<'a> {
    /// A call: its event's id, the call's id, and whether its arguments were understood.
    Action {
        /// The event's id.
        id: &'a str,
        /// The call's id.
        call: &'a str,
        /// Whether it can be executed.
        executable: bool,
    },
    /// A result or a refusal of the action with that id.
    Answer {
        /// The action's id.
        action: &'a str,
    },
    /// An error of the agent about the call with that id.
    Error {
        /// The call's id.
        call: &'a str,
    },
    /// Anything else.
    Other,
}

impl<'a> PairingStep<'a> {
    /// What matters of an SDK event.
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

/// The places of the calls without a later answer by action id or error by call id, in log order; a
/// call not understood is never pending.
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

/// The calls of a log of the SDK that have no result.
pub fn unmatched_events(events: &[SdkEvent]) -> Vec<&SdkEvent> {
    let steps: Vec<PairingStep<'_>> = events.iter().map(PairingStep::of).collect();
    unmatched(&steps).into_iter().map(|at| &events[at]).collect()
}
