//! The pending calls and timers of a room with their purpose, and the calls that ended within the
//! last event. Clients of the room need not compare all calls after each event.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize, Serializer};

use super::acting::JobCall;
use super::consent::Consent;
use super::gated::GatedMessage;
use crate::policy::budget::LimitIncrease;
use crate::types::ids::{BackgroundId, CallId, ChannelId, FrameId, Millis, PluginName, TaskName};

/// The purpose of a pending call, which routes its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) enum Purpose {
    Step {
        frame: FrameId,
    },
    Respond {
        frame: FrameId,
    },
    Tool {
        frame: FrameId,
        slot: usize,
        plugin: PluginName,
    },
    /// A tool call that awaits an approver.
    Approval {
        frame: FrameId,
        slot: usize,
    },
    /// A tool call that awaits more budget. It has no answer of its own.
    HeldTool {
        frame: FrameId,
        slot: usize,
        #[serde(rename = "asked")]
        consent: Consent,
    },
    /// A request for more budget.
    TopUp {
        top_up: Box<LimitIncrease>,
    },
    /// A question to the user.
    User {
        frame: FrameId,
    },
    /// A query to a plugin other than a step or a tool call.
    QueryPlugin {
        frame: FrameId,
        plugin: PluginName,
        about: QueryPurpose,
    },
    /// A gate's check of an item in transit.
    Gate {
        plugin: PluginName,
        /// The number of the item in transit.
        number: u64,
    },
    /// A batch of events for an observer.
    Observer {
        plugin: PluginName,
    },
    /// A query to an executor about a background command, outside a round of tool calls.
    Job {
        task: TaskName,
        plugin: PluginName,
        about: JobCall,
    },
    Background {
        id: BackgroundId,
    },
    /// The post of a room message on a channel.
    Post {
        channel: ChannelId,
        key: String,
    },
    Strategy {
        strategy: PluginName,
    },
    Send {
        gated: Box<GatedMessage>,
    },
}

/// The subject of a query to a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::room) enum QueryPurpose {
    /// Memories for the recall action in this slot.
    Memories { slot: usize },
    /// The risk of the action or the call in this slot.
    Risk { slot: usize },
    /// A shorter history for the frame, before its next step.
    Condense,
    /// A judge's ruling on the answer that the frame waits with.
    Rule,
    /// A judge's decision on the frame's result.
    Conclude,
    /// A simulated user's answer to the frame's question.
    AnswerAsUser,
}

impl Purpose {
    /// Whether the call waits for the user, an approver, or more budget.
    fn is_of_people(&self) -> bool {
        matches!(self, Self::Approval { .. } | Self::User { .. } | Self::HeldTool { .. })
    }

    pub(in crate::room) fn frame(&self) -> Option<FrameId> {
        match self {
            Self::Step { frame }
            | Self::Respond { frame }
            | Self::Tool { frame, .. }
            | Self::Approval { frame, .. }
            | Self::HeldTool { frame, .. }
            | Self::User { frame }
            | Self::QueryPlugin { frame, .. } => Some(*frame),
            Self::Gate { .. }
            | Self::Observer { .. }
            | Self::Job { .. }
            | Self::TopUp { .. }
            | Self::Background { .. }
            | Self::Post { .. }
            | Self::Strategy { .. }
            | Self::Send { .. } => None,
        }
    }
}

/// The purpose of a timer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) enum TimerPurpose {
    /// The run's wall time is over.
    Wall,
    /// The time for an approval is over.
    Approval { call: CallId },
    /// A call has been pending for its maximum time.
    Pending { call: CallId, after_ms: u64 },
    /// The output of a background command is due to be polled.
    Poll { frame: FrameId, command_id: i64 },
    /// The time for a gate's answer is over.
    Gate { call: CallId },
    /// The time for an observer's call is over.
    Observer { call: CallId },
    /// The pause after an observer's failed call is over.
    ObserverPause,
    /// A strategy's own timer.
    Delivery { strategy: PluginName, at: Millis },
}

/// Pending calls with their purpose.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "BTreeMap<CallId, Purpose>")]
pub(in crate::room) struct PendingCalls {
    waiting: BTreeMap<CallId, Purpose>,
    /// Those that wait for people. They are read after each event, and a room may have thousands of
    /// others.
    of_people: BTreeSet<CallId>,
    /// Calls that ended since the current or last event began. Not part of the folded state.
    ended: Vec<CallId>,
}

impl From<BTreeMap<CallId, Purpose>> for PendingCalls {
    fn from(waiting: BTreeMap<CallId, Purpose>) -> Self {
        let of_people = waiting.iter().filter(|(_, purpose)| purpose.is_of_people());
        Self { of_people: of_people.map(|(call, _)| *call).collect(), waiting, ended: Vec::new() }
    }
}

impl Serialize for PendingCalls {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.waiting.serialize(serializer)
    }
}

impl PartialEq for PendingCalls {
    fn eq(&self, other: &Self) -> bool {
        // The index follows from these, and the ended calls are no part of the state.
        self.waiting == other.waiting
    }
}

impl PendingCalls {
    pub(in crate::room) fn insert(&mut self, call: CallId, purpose: Purpose) {
        if purpose.is_of_people() {
            self.of_people.insert(call);
        }
        self.waiting.insert(call, purpose);
    }

    pub(in crate::room) fn remove(&mut self, call: &CallId) -> Option<Purpose> {
        let purpose = self.waiting.remove(call)?;
        if purpose.is_of_people() {
            self.of_people.remove(call);
        }
        self.ended.push(*call);
        Some(purpose)
    }

    pub(in crate::room) fn get(&self, call: &CallId) -> Option<&Purpose> {
        self.waiting.get(call)
    }

    /// Returns the request for more budget that waits for its answer.
    pub(in crate::room) fn top_up_mut(&mut self, call: &CallId) -> Option<&mut LimitIncrease> {
        match self.waiting.get_mut(call)? {
            Purpose::TopUp { top_up } => Some(top_up),
            _ => None,
        }
    }

    pub(in crate::room) fn contains_key(&self, call: &CallId) -> bool {
        self.waiting.contains_key(call)
    }

    pub(in crate::room) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The pending calls with their purpose, oldest first.
    pub(in crate::room) fn iter(&self) -> impl DoubleEndedIterator<Item = (&CallId, &Purpose)> {
        self.waiting.iter()
    }

    /// The ids of the pending calls, oldest first.
    pub(in crate::room) fn keys(&self) -> impl DoubleEndedIterator<Item = &CallId> {
        self.waiting.keys()
    }

    /// The purposes of the pending calls that wait for people, oldest first.
    pub(in crate::room) fn of_people(&self) -> impl Iterator<Item = &Purpose> {
        self.of_people.iter().filter_map(|call| self.waiting.get(call))
    }

    /// The purposes of the pending calls, oldest first.
    pub(in crate::room) fn values(&self) -> impl DoubleEndedIterator<Item = &Purpose> {
        self.waiting.values()
    }

    /// Begins another event.
    pub(in crate::room) fn begin_event(&mut self) {
        self.ended.clear();
    }

    /// The calls that ended since the last event began.
    pub(in crate::room) fn ended(&self) -> &[CallId] {
        &self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_ends_once_and_is_listed_until_the_next_event() {
        let mut calls = PendingCalls::default();
        for call in [1, 2] {
            calls.insert(CallId(call), Purpose::User { frame: FrameId(0) });
        }
        assert!(calls.remove(&CallId(2)).is_some() && calls.remove(&CallId(2)).is_none());
        assert!(calls.remove(&CallId(1)).is_some() && calls.is_empty());
        assert_eq!(calls.ended(), [CallId(2), CallId(1)], "in the order of their ends");
        calls.begin_event();
        assert!(calls.ended().is_empty());
    }

    #[test]
    fn calls_that_wait_for_people_are_found_among_others_and_after_a_snapshot() {
        let (frame, slot) = (FrameId(0), 0);
        let mut calls = PendingCalls::default();
        for (call, purpose) in [
            Purpose::Step { frame },
            Purpose::User { frame },
            Purpose::Approval { frame, slot },
            Purpose::HeldTool { frame, slot, consent: Consent::NotYet },
        ]
        .into_iter()
        .enumerate()
        {
            calls.insert(CallId(call as u64), purpose);
        }
        calls.remove(&CallId(2));
        let snapshot = serde_json::to_string(&calls).unwrap();
        let restored: PendingCalls = serde_json::from_str(&snapshot).unwrap();
        for calls in [&calls, &restored] {
            let held_tool = Purpose::HeldTool { frame, slot, consent: Consent::NotYet };
            assert!(calls.of_people().eq([&Purpose::User { frame }, &held_tool]));
        }
        assert_eq!(calls, restored);
    }
}
