//! What the agent of each task is doing, in the words of rule O-068: derived from what its frame
//! waits for, and told once for each real change (O-069). A room knows nothing of a provider's rate
//! limits, so no state says `rate_limited`.

use std::collections::{BTreeMap, BTreeSet};

use super::frame::{Frame, FrameWait};
use super::{Purpose, Room};
use crate::protocol::notice::Notice;
use crate::types::agent_state::AgentState;
use crate::types::ids::{CallId, FrameId, TaskName};
use crate::types::outcome::Status;

/// By task: a task is at work once at a time.
pub(super) type AgentStates = BTreeMap<TaskName, AgentState>;

/// Who waits for people, found once for all frames.
struct AwaitedPeople {
    confirmation: BTreeSet<FrameId>,
    user: BTreeSet<FrameId>,
    more: BTreeSet<FrameId>,
}

impl Room {
    /// What the agent of a task is doing, or how it ended; none: it has not been at work in this
    /// room.
    #[must_use]
    pub fn agent_state(&self, task: &TaskName) -> Option<AgentState> {
        self.agent_states.get(task).copied()
    }

    /// Tells what has become another state since the event before.
    pub(super) fn report_states(&mut self) {
        let waiting = self.who_waits();
        let now: Vec<_> = self
            .frames
            .values()
            .map(|frame| (frame.task.clone(), self.state_of(frame, &waiting)))
            .collect();
        // Their callers ended, and they with them.
        let is_at_work = |task: &TaskName| now.iter().any(|(at_work, _)| at_work == task);
        let left =
            self.agent_states.iter().filter(|(task, state)| !is_over(**state) && !is_at_work(task));
        let left: Vec<TaskName> = left.map(|(task, _)| task.clone()).collect();
        for (task, (state, reason)) in now {
            self.set_state(&task, state, reason);
        }
        for task in left {
            self.set_state(
                &task,
                AgentState::Stopped,
                Some("what it worked for is over".to_owned()),
            );
        }
    }

    /// The activation is over: its last state, told at once, for the task may begin anew within the
    /// same event.
    pub(super) fn state_at_end(&mut self, task: &TaskName, status: Status, reason: &str) {
        let state = match status {
            Status::Done | Status::FixedTurns | Status::UserQuit => AgentState::Finished,
            Status::Rejected => AgentState::Rejected,
            Status::Kill | Status::Timeout | Status::NotAddressed => AgentState::Stopped,
            Status::MaxTurns
            | Status::MaxCost
            | Status::MaxTokens
            | Status::MaxCalls
            | Status::MaxCpu
            | Status::MaxHistory
            | Status::Stalled
            | Status::InfLoop
            | Status::Error
            | Status::InternalError => AgentState::Error,
        };
        self.set_state(task, state, Some(reason.to_owned()));
    }

    /// O-069: the same state again is nothing.
    fn set_state(&mut self, task: &TaskName, state: AgentState, reason: Option<String>) {
        if self.agent_states.get(task) == Some(&state) {
            return;
        }
        self.agent_states.insert(task.clone(), state);
        self.tell(Notice::AgentStateChanged { task: task.clone(), state, reason });
    }

    fn who_waits(&self) -> AwaitedPeople {
        let mut waiting = AwaitedPeople {
            confirmation: BTreeSet::new(),
            user: BTreeSet::new(),
            more: BTreeSet::new(),
        };
        for purpose in self.calls.values() {
            match purpose {
                Purpose::Approval { frame, .. } => waiting.confirmation.insert(*frame),
                Purpose::User { frame } => waiting.user.insert(*frame),
                Purpose::HeldTool { frame, .. } => waiting.more.insert(*frame),
                _ => false,
            };
        }
        let asker = |call: &CallId| self.calls.get(call).and_then(Purpose::frame);
        waiting.more.extend(self.held.iter().filter_map(|held| asker(&held.call)));
        waiting
    }

    fn state_of(&self, frame: &Frame, waiting: &AwaitedPeople) -> (AgentState, Option<String>) {
        if let Some(reason) = self.paused() {
            // O-122
            return (AgentState::Paused, Some(reason.to_owned()));
        }
        if waiting.user.contains(&frame.id) {
            return (AgentState::AwaitingUserInput, None);
        }
        if waiting.confirmation.contains(&frame.id) {
            return (AgentState::AwaitingUserConfirmation, None);
        }
        let waits_for_more =
            frame.attempt.as_ref().is_some_and(|attempt| attempt.wait == FrameWait::More);
        if waits_for_more || waiting.more.contains(&frame.id) {
            // O-077
            let budget = self.top_up.and_then(|call| match self.calls.get(&call)? {
                Purpose::TopUp { top_up } => Some(top_up.budget.key()),
                _ => None,
            });
            return (
                AgentState::Paused,
                budget.map(|key| format!("{key} is used up, and more was asked for")),
            );
        }
        (AgentState::Running, None)
    }
}

fn is_over(state: AgentState) -> bool {
    state.is_over() || state == AgentState::Stopped
}
