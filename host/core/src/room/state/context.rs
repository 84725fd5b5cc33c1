//! The context that all parts of a room share: its setup, its clock, the pending calls and timers,
//! and the output of the current event.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::calls::{PendingCalls, Purpose, TimerPurpose};
use super::invariant::{Invariant, InvariantViolation};
use super::replayed_turns::ReplayedTurns;
use crate::protocol::effect::Effect;
use crate::protocol::event::RunOpening;
use crate::protocol::notice::Notice;
use crate::setup::Setup;
use crate::types::ids::{CallId, FrameId, Millis, PluginName, TaskName, TimerId};
use crate::types::limits::RunLimits;
use crate::types::outcome::Outcome;
use crate::types::room_secret::RoomSecret;

/// The phase of a room's life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) enum RoomPhase {
    /// Waits for `RoomOpened`.
    Unopened,
    /// The entry task is running.
    Running { root: FrameId },
    /// The entry task has ended; background work is still running.
    Draining { outcome: Arc<Outcome> },
    /// Nothing more will happen.
    Finished { outcome: Arc<Outcome> },
}

/// Counters that only grow. All ids of a room come from here, so a replay assigns the same ids.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct Counters {
    pub call: u64,
    pub frame: u32,
    pub message: u64,
    pub timer: u64,
    pub background: u32,
}

/// The shared state of a room's parts, and their output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct RoomContext {
    pub phase: RoomPhase,
    pub now: Millis,
    pub opened: Millis,
    /// The effective setup: that with which the run began, as the last resumption narrowed it.
    pub setup: Arc<Setup>,
    /// The setup with which the run began; `None` if it is the effective one.
    #[serde(default, rename = "begun", skip_serializing_if = "Option::is_none")]
    pub initial_setup: Option<Arc<Setup>>,
    /// The limits of the run before its first resumption under another config.
    #[serde(default, rename = "begun_limits", skip_serializing_if = "Option::is_none")]
    pub initial_limits: Option<Box<RunLimits>>,
    /// The plugins whose components were exchanged, and have answered no call well since.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unproven: BTreeSet<PluginName>,
    pub opening: RunOpening,
    /// `None` before the room is opened.
    #[serde(
        with = "crate::types::room_secret::in_state",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub secret: Option<RoomSecret>,
    pub calls: PendingCalls,
    #[serde(skip)]
    pub replayed: ReplayedTurns,
    pub timers: BTreeMap<TimerId, TimerPurpose>,
    pub counters: Counters,
    /// Consecutive steps without a turn, a tool call, a background task or a user's answer. The
    /// limit on it ends loops that use up no budget.
    #[serde(default)]
    pub idle_steps: u32,
    /// The invariant violation that ended the room, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub violation: Option<InvariantViolation>,
    /// The violation found in the current event; `None` between events.
    #[serde(skip)]
    pub new_violation: Option<InvariantViolation>,
    pub effects: VecDeque<Effect>,
    /// Calls of tools that wait for the scratch of their plugin, in the order of the calls.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub awaiting_scratch: VecDeque<Effect>,
    /// Notices for observers; not part of the folded state.
    #[serde(skip)]
    pub notices: VecDeque<Notice>,
}

impl Default for RoomContext {
    fn default() -> Self {
        Self {
            phase: RoomPhase::Unopened,
            now: Millis::default(),
            opened: Millis::default(),
            // A placeholder until `RoomOpened` brings the setup.
            setup: Arc::new(Setup::empty(TaskName::from(""))),
            initial_setup: None,
            initial_limits: None,
            unproven: BTreeSet::new(),
            opening: RunOpening::default(),
            secret: None,
            calls: PendingCalls::default(),
            replayed: ReplayedTurns::default(),
            timers: BTreeMap::new(),
            counters: Counters::default(),
            idle_steps: 0,
            violation: None,
            new_violation: None,
            effects: VecDeque::new(),
            awaiting_scratch: VecDeque::new(),
            notices: VecDeque::new(),
        }
    }
}

impl RoomContext {
    pub(in crate::room) fn next_call(&mut self, purpose: Purpose) -> CallId {
        let call = CallId(self.counters.call);
        self.counters.call += 1;
        // Progress is what a budget of the run limits: turns, tool calls and background tasks.
        // Approvals and checks are not, so a call that is always refused would go on for ever. Nor
        // are questions, which count when they are answered.
        if matches!(
            purpose,
            Purpose::Step { .. } | Purpose::Tool { .. } | Purpose::Background { .. }
        ) {
            self.idle_steps = 0;
        }
        self.calls.insert(call, purpose);
        call
    }

    pub(in crate::room) fn set_timer(&mut self, purpose: TimerPurpose, at: Millis) {
        let timer = TimerId(self.counters.timer);
        self.counters.timer += 1;
        self.timers.insert(timer, purpose);
        self.effects.push_back(Effect::SetTimer { timer, at });
    }

    pub(in crate::room) fn notify(&mut self, notice: Notice) {
        self.notices.push_back(notice);
    }

    /// The violation for which this room was ended, if any.
    pub(in crate::room) fn violation(&self) -> Option<InvariantViolation> {
        self.violation
    }

    /// Records a violation; the room ends after this event. The first violation of an event counts.
    pub(in crate::room) fn violated(
        &mut self,
        invariant: Invariant,
        frame: impl Into<Option<FrameId>>,
    ) {
        // A stop within this event may have removed all frames, so their state no longer matters.
        if invariant.is_of_frames() && !matches!(self.phase, RoomPhase::Running { .. }) {
            return;
        }
        self.new_violation.get_or_insert(InvariantViolation { invariant, frame: frame.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::QueryPurpose;
    use crate::room::fixture::context;
    use crate::types::ids::PluginName;

    #[test]
    fn only_calls_that_use_up_a_budget_are_progress() {
        let mut cx = context("");
        let frame = FrameId(0);
        let mut idle_after = |purpose: Purpose| {
            cx.idle_steps = 7;
            cx.next_call(purpose);
            cx.idle_steps
        };
        let plugin = PluginName::from("worker");
        let about = QueryPurpose::Condense;
        assert_eq!(idle_after(Purpose::User { frame }), 7);
        assert_eq!(idle_after(Purpose::Respond { frame }), 7);
        assert_eq!(idle_after(Purpose::Approval { frame, slot: 0 }), 7);
        assert_eq!(idle_after(Purpose::Gate { plugin: plugin.clone(), number: 0 }), 7);
        assert_eq!(idle_after(Purpose::QueryPlugin { frame, plugin: plugin.clone(), about }), 7);
        assert_eq!(idle_after(Purpose::Step { frame }), 0);
        assert_eq!(idle_after(Purpose::Tool { frame, slot: 0, plugin }), 0);
        assert_eq!(idle_after(Purpose::Background { id: "task-1".into() }), 0);
    }

    #[test]
    fn each_timer_is_set_under_a_number_of_its_own() {
        let mut cx = context("");
        let wall = |cx: &mut RoomContext, at| cx.set_timer(TimerPurpose::Wall, Millis(at));
        wall(&mut cx, 5);
        cx.timers.remove(&TimerId(0));
        wall(&mut cx, 6);
        let set = |timer, at| Effect::SetTimer { timer: TimerId(timer), at: Millis(at) };
        assert_eq!(cx.take_effects(), [set(0, 5), set(1, 6)]);
        assert_eq!(cx.timers, [(TimerId(1), TimerPurpose::Wall)].into());
    }
}
