//! The confirmation of 2025-11: which actions wait, and what is published when somebody has answered (O-109, O-110).

use conclave_trajectory::{Action, Confirmation, SecurityRisk};

use super::Controller;
use crate::consult::Risk;
use crate::control::agent_state::AgentState;
use crate::control::confirm::v0_asks;

impl Controller {
    pub(super) fn waits_for_consent(&self, action: &Action) -> bool {
        let risk = match action.security_risk() {
            Some(SecurityRisk::Low) => Some(Risk::Low),
            Some(SecurityRisk::Medium) => Some(Risk::Medium),
            Some(SecurityRisk::High) => Some(Risk::High),
            Some(SecurityRisk::Unknown) | None => None,
        };
        self.options.confirmation && v0_asks(action.kind(), risk, self.options.has_analyzer)
    }

    /// The action as it was, without its thought and with the answer, under a new id.
    pub(super) fn publish_again(&mut self, at: usize, state: AgentState) {
        let Some(pending) = self.seats[at].pending.clone() else { return };
        let mut event = pending.as_ref().clone();
        let confirmed = state == AgentState::UserConfirmed;
        if let conclave_trajectory::Body::Action(action) = &mut event.body {
            forget_thought(action);
            mark(action, if confirmed { Confirmation::Confirmed } else { Confirmation::Rejected });
        }
        self.publish_pending(at, event);
    }
}

/// Only two kinds have a place for it, and the others lose it (O-110).
pub(super) fn mark(action: &mut Action, confirmation: Confirmation) {
    match action {
        Action::Run(run) => run.confirmation_state = confirmation,
        Action::RunIpython(run) => run.confirmation_state = confirmation,
        _ => {}
    }
}

fn forget_thought(action: &mut Action) {
    match action {
        Action::Run(it) => it.thought.clear(),
        Action::RunIpython(it) => it.thought.clear(),
        Action::BrowseInteractive(it) => it.thought.clear(),
        Action::Edit(it) => it.thought.clear(),
        Action::Read(it) => it.thought.clear(),
        _ => {}
    }
}
