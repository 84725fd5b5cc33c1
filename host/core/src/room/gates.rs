//! Gates: plugins that are asked before something counts, one after the other. Each may let it pass, change its text or block it; one that
//! fails or takes too long blocks (R-009 done right). Observers follow the run's notices and delay nothing.

use serde::{Deserialize, Serialize};

use super::Room;
use super::background::Delegating;
use super::delivery::Saying;
use crate::request::{Inbound, RequestId};

/// Something on its way through the gates, with all that is needed to go on with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Passing {
    Inbound { request: RequestId, inbound: Box<Inbound> },
    Delegation { delegating: Box<Delegating> },
    Delivery { saying: Box<Saying> },
}

impl Passing {
    /// What a gate may read and change.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Inbound { inbound, .. } => &inbound.text,
            Self::Delegation { delegating } => &delegating.delegation.task,
            Self::Delivery { saying } => &saying.speech.text,
        }
    }
}

/// What is on its way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Gating {}

impl Gating {
    /// Nothing to write down.
    pub(super) fn is_idle(&self) -> bool {
        *self == Self::default()
    }
}

impl Room {
    /// Sends it through the gates of its point; without any it has passed when this returns.
    pub(super) fn pass(&mut self, passing: Passing) {
        self.has_passed(passing);
    }

    fn has_passed(&mut self, passing: Passing) {
        match passing {
            Passing::Inbound { request, inbound } => self.inbound_passed(request, *inbound),
            Passing::Delegation { delegating } => self.delegation_passed(*delegating),
            Passing::Delivery { saying } => self.delivery_passed(*saying),
        }
    }
}
