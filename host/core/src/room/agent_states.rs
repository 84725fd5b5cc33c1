//! The state of each task's agent (O-068), derived from the wait of its frame. Each change is
//! reported once (O-069). A room does not know a provider's rate limits, so no state is
//! `rate_limited`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::state::frame::Frame;
use super::state::frame_state::FrameWait;
use super::{Budgets, Pausing, Purpose, Room, RoomContext};
use crate::protocol::notice::Notice;
use crate::types::agent_state::AgentState;
use crate::types::ids::{CallId, FrameId, TaskName};
use crate::types::outcome::Status;

/// States by task; a task has at most one active frame.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct AgentStates(BTreeMap<TaskName, AgentState>);

/// The frames that wait for people, by what for.
struct FramesWaitingForPeople {
    confirmation: BTreeSet<FrameId>,
    user: BTreeSet<FrameId>,
    budget: BTreeSet<FrameId>,
}

impl Room {
    /// The state of a task's agent, or its last one; `None` if it was never active in this room, or
    /// if the config does not have it any more.
    #[must_use]
    pub fn agent_state(&self, task: &TaskName) -> Option<AgentState> {
        self.agent_states.agent_state(task)
    }

    /// Reports the states that changed in this event.
    pub(super) fn report_states(&mut self) {
        let waiting = self.budgets.frames_waiting_for_people(&self.cx);
        for frame in self.frames.values() {
            let (state, reason) = self.pausing.state_of(&self.cx, &self.budgets, frame, &waiting);
            self.agent_states.set_state(&mut self.cx, &frame.task, state, reason);
        }
        // Tasks that ended together with their callers.
        let is_at_work = |task: &TaskName| self.frames.values().any(|frame| frame.task == *task);
        let ended_tasks = self
            .agent_states
            .0
            .iter()
            .filter(|(task, state)| !is_over(**state) && !is_at_work(task));
        let ended_tasks: Vec<TaskName> = ended_tasks.map(|(task, _)| task.clone()).collect();
        for task in ended_tasks {
            self.agent_states.set_state(
                &mut self.cx,
                &task,
                AgentState::Stopped,
                Some("what it worked for is over".to_owned()),
            );
        }
    }
}

impl AgentStates {
    /// The state of a task's agent, or its last one; `None` if it was never active in this room, or
    /// if the config does not have it any more.
    pub(super) fn agent_state(&self, task: &TaskName) -> Option<AgentState> {
        self.0.get(task).copied()
    }

    /// Drops the states of tasks that the current setup does not have.
    pub(super) fn forget_removed_tasks(&mut self, cx: &RoomContext) {
        self.0.retain(|task, _| cx.setup.tasks.contains_key(task));
    }

    /// Sets the last state of an activation. It is reported at once, because the task may begin
    /// again within the same event.
    pub(super) fn state_at_end(
        &mut self,
        cx: &mut RoomContext,
        task: &TaskName,
        status: Status,
        reason: &str,
    ) {
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
        self.set_state(cx, task, state, Some(reason.to_owned()));
    }

    /// Sets and reports a state, unless it is unchanged (O-069).
    fn set_state(
        &mut self,
        cx: &mut RoomContext,
        task: &TaskName,
        state: AgentState,
        reason: Option<String>,
    ) {
        if self.0.get(task) == Some(&state) {
            return;
        }
        self.0.insert(task.clone(), state);
        cx.notify(Notice::AgentStateChanged { task: task.clone(), state, reason });
    }
}

impl Budgets {
    /// Collects the frames that wait for a person: to approve a call, to answer, or to grant more
    /// budget.
    fn frames_waiting_for_people(&self, cx: &RoomContext) -> FramesWaitingForPeople {
        let mut waiting = FramesWaitingForPeople {
            confirmation: BTreeSet::new(),
            user: BTreeSet::new(),
            budget: BTreeSet::new(),
        };
        for purpose in cx.calls.of_people() {
            match purpose {
                Purpose::Approval { frame, .. } => waiting.confirmation.insert(*frame),
                Purpose::User { frame } => waiting.user.insert(*frame),
                Purpose::HeldTool { frame, .. } => waiting.budget.insert(*frame),
                _ => false,
            };
        }
        let asker = |call: &CallId| cx.calls.get(call).and_then(Purpose::frame);
        waiting.budget.extend(self.held_requests.iter().filter_map(|request| asker(&request.call)));
        waiting
    }
}

impl Pausing {
    fn state_of(
        &self,
        cx: &RoomContext,
        budgets: &Budgets,
        frame: &Frame,
        waiting: &FramesWaitingForPeople,
    ) -> (AgentState, Option<String>) {
        if let Some(reason) = self.paused() {
            // O-122: a pause hides every other state.
            return (AgentState::Paused, Some(reason.to_owned()));
        }
        if waiting.user.contains(&frame.id) {
            return (AgentState::AwaitingUserInput, None);
        }
        if waiting.confirmation.contains(&frame.id) {
            return (AgentState::AwaitingUserConfirmation, None);
        }
        if frame.wait() == Some(&FrameWait::Budget) || waiting.budget.contains(&frame.id) {
            // O-077: an exhausted budget counts as a pause.
            let budget = budgets.top_up.and_then(|call| match cx.calls.get(&call)? {
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

#[cfg(test)]
mod tests {
    use super::super::fixture::context;
    use super::*;

    #[test]
    fn a_state_is_reported_once_and_its_reason_is_no_change() {
        let (mut states, mut cx) = (AgentStates::default(), context(""));
        let desk = TaskName::from("desk");
        assert_eq!(states.agent_state(&desk), None);
        let reports = [
            (AgentState::Running, None),
            (AgentState::Running, Some("again".to_owned())),
            (AgentState::Paused, Some("lunch".to_owned())),
        ]
        .map(|(state, reason)| {
            states.set_state(&mut cx, &desk, state, reason);
            cx.take_notices().len()
        });
        assert_eq!(reports, [1, 0, 1]);
        assert_eq!(states.agent_state(&desk), Some(AgentState::Paused));
    }

    #[test]
    fn a_task_that_begins_again_in_the_same_event_is_reported_as_over_before() {
        let (mut states, mut cx) = (AgentStates::default(), context(""));
        let desk = TaskName::from("desk");
        states.set_state(&mut cx, &desk, AgentState::Running, None);
        states.state_at_end(&mut cx, &desk, Status::MaxTurns, "limit");
        states.set_state(&mut cx, &desk, AgentState::Running, None);
        let reported: Vec<AgentState> = cx
            .take_notices()
            .into_iter()
            .map(|notice| match notice {
                Notice::AgentStateChanged { state, .. } => state,
                notice => panic!("{notice:?}"),
            })
            .collect();
        assert_eq!(reported, [AgentState::Running, AgentState::Error, AgentState::Running]);
    }

    #[test]
    fn a_pause_hides_a_question_and_a_question_hides_an_exhausted_budget() {
        let mut parts = super::super::fixture::Parts::new("");
        let id = parts.begin("desk", None);
        let mut pausing = Pausing::default();
        let mut states = Vec::new();
        let mut note = |parts: &super::super::fixture::Parts, pausing: &Pausing| {
            let waiting = parts.budgets.frames_waiting_for_people(&parts.cx);
            let frame = parts.frames.get(&id).unwrap();
            states.push(pausing.state_of(&parts.cx, &parts.budgets, frame, &waiting).0);
        };
        note(&parts, &pausing);
        parts.cx.next_call(Purpose::HeldTool {
            frame: id,
            slot: 0,
            consent: super::super::state::consent::Consent::NotYet,
        });
        note(&parts, &pausing);
        parts.cx.next_call(Purpose::Approval { frame: id, slot: 0 });
        note(&parts, &pausing);
        parts.cx.next_call(Purpose::User { frame: id });
        note(&parts, &pausing);
        pausing.pause(&mut parts.cx, "lunch");
        note(&parts, &pausing);
        assert_eq!(
            states,
            [
                AgentState::Running,
                AgentState::Paused,
                AgentState::AwaitingUserConfirmation,
                AgentState::AwaitingUserInput,
                AgentState::Paused,
            ]
        );
    }
}
