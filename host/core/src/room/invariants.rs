//! Invariants: states that no order of events can lead to. Code that meets one reports it here. The
//! room then ends with an internal error and a stable code, where it would otherwise wait without
//! end. Violations follow from events alone, so a replay ends in the same way.
//!
//! Input that may come from outside at any time is no violation. An answer to an abandoned call, a
//! late timer or an unknown number changes nothing.

use std::sync::Arc;

use super::state::invariant::InvariantViolation;
use super::{Room, RoomContext, RoomPhase, RunControl};
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::types::ids::CallId;
use crate::types::outcome::{Outcome, Status};
use crate::types::usage::Spent;

impl Room {
    /// The violation for which this room was ended, if any.
    #[must_use]
    pub fn violation(&self) -> Option<InvariantViolation> {
        self.cx.violation()
    }
}

impl RoomContext {
    /// Ends a further run in a broken room at once, for the same reason. Returns whether the room
    /// is broken.
    pub(super) fn end_if_broken(&mut self) -> bool {
        let Some(violation) = self.violation else { return false };
        let outcome = Arc::new(Outcome::new(Status::InternalError, violation.to_string()));
        self.effects.push_back(Effect::Finish { outcome: Arc::clone(&outcome) });
        self.phase = RoomPhase::Finished { outcome };
        true
    }
}

impl RunControl<'_> {
    /// Ends the room after an event in which an invariant did not hold.
    pub(super) fn end_if_violated(&mut self) {
        let Some(violation) = self.cx.new_violation.take() else { return };
        let is_first = self.cx.violation.is_none();
        // Later violations end the room with the code of the first one.
        let violation = *self.cx.violation.get_or_insert(violation);
        let reason = violation.to_string();
        if is_first {
            self.cx.notify(Notice::InvariantViolated {
                code: violation.invariant.as_str().to_owned(),
                reason: reason.clone(),
            });
            self.stop(Status::InternalError, &reason);
        }
        // The stop itself may have met the broken state and left work behind. Everything is
        // dropped, because nothing in such a room can be waited for.
        self.cx.new_violation = None;
        self.frames.clear();
        self.frames.runnable.clear();
        let calls: Vec<CallId> = self.cx.calls.keys().copied().collect();
        calls.into_iter().for_each(|call| self.plugin_calls().abandon(call));
        self.background.tasks.clear();
        self.budgets.reserved = Spent::default();
        self.cx.timers.clear();
        self.cx.phase =
            RoomPhase::Draining { outcome: Arc::new(Outcome::new(Status::InternalError, reason)) };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Purpose, QueryPurpose};
    use super::*;
    use crate::protocol::event::Event;
    use crate::room::state::frame::Frame;
    use crate::room::state::frame_state::{Attempt, FrameWait, Responders};
    use crate::room::state::invariant::Invariant;
    use crate::room::state::responder::Responder;
    use crate::room::state::rounds::{Slot, ToolRound};
    use crate::setup::plugin_query::{GateVerdict, PluginReply, Verdict};
    use crate::setup::{Setup, TaskSetup};
    use crate::types::action::{Action, Turn};
    use crate::types::approval::{Approval, ApprovalAuthor};
    use crate::types::delivery::EndedTask;
    use crate::types::fault::{CallReport, Fault, FaultKind};
    use crate::types::ids::{FrameId, Millis, TaskName};
    use crate::types::message::{Message, Role, ToolCall};
    use crate::types::risk::Risk;
    use crate::types::tool::ToolOutcome;

    const CALL: CallId = CallId(3);
    const OTHER: CallId = CallId(7);

    fn tool(frame: FrameId) -> Purpose {
        Purpose::Tool { frame, slot: 0, plugin: "box".into() }
    }

    /// A room whose task waits for one thing while a call for another is in flight.
    fn room(wait: FrameWait, purpose: impl FnOnce(FrameId) -> Purpose) -> (Room, FrameId) {
        let mut room = Room::default();
        let task = Arc::new(TaskSetup::default());
        room.cx.setup = Arc::new(Setup {
            tasks: BTreeMap::from([("desk".into(), task)]),
            ..Setup::clone(&room.cx.setup)
        });
        room.cx.opening.entry = TaskName::from("desk");
        let id = room.dialogue().new_frame(&"desk".into(), None, Arc::default());
        room.cx.phase = RoomPhase::Running { root: id };
        room.cx.calls.insert(CALL, purpose(id));
        let attempt =
            Attempt { responder: Responder::Llm, rest: Responders::new(), wait, do_not_know: None };
        room.frames.ask(&mut room.cx, id, attempt);
        (room, id)
    }

    fn answered() -> Event {
        Event::ToolAnswered {
            call: CALL,
            answer: Ok(ToolOutcome::default()),
            report: CallReport::default(),
        }
    }

    fn stepped() -> Event {
        let action = Action::Finish { outputs: serde_json::Value::Null };
        let turn =
            Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() };
        Event::AgentStepped { call: CALL, answer: Ok(turn), report: CallReport::default() }
    }

    fn round(slots: usize) -> FrameWait {
        let call = ToolCall::new("box.a", serde_json::json!({}));
        let message = Arc::new(Message::new(0, Role::Llm, "desk"));
        FrameWait::Tools(ToolRound::new(
            (0..slots).map(|_| Slot::new(call.clone())).collect(),
            message,
        ))
    }

    fn assert_ends(name: &str, mut room: Room, event: Event, expected: Invariant) {
        room.handle(event.clone(), Millis(1));
        let outcome = room.outcome().unwrap_or_else(|| panic!("{name}: the room waits for ever"));
        assert_eq!(outcome.status, Status::InternalError, "{name}: {}", outcome.reason);
        assert!(outcome.reason.contains(expected.as_str()), "{name}: {}", outcome.reason);
        assert_eq!(room.violation().map(|violation| violation.invariant), Some(expected), "{name}");
        let notices: Vec<Notice> = std::iter::from_fn(|| room.poll_notice()).collect();
        let reports = notices.iter().filter(|notice| matches!(notice, Notice::InvariantViolated { code, .. } if code == expected.as_str()));
        assert_eq!(reports.count(), 1, "{name}: {notices:?}");
        let effects: Vec<Effect> = std::iter::from_fn(|| room.poll_effect()).collect();
        assert!(matches!(effects.last(), Some(Effect::Finish { .. })), "{name}: {effects:?}");
        assert_eq!(room.calls_in_flight().count(), 0, "{name}");
        // Another run is refused with the same status, and a late answer changes nothing.
        let before = room.clone();
        room.handle(event, Millis(2));
        assert_eq!(room.outcome(), before.outcome(), "{name}");
        let opening = room.cx.opening.clone();
        room.handle(Event::RunStarted { setup: None, opening }, Millis(3));
        assert_eq!(
            room.outcome().map(|outcome| outcome.status),
            Some(Status::InternalError),
            "{name}"
        );
    }

    #[test]
    fn an_answer_to_something_else_leaves_the_wait_as_it_is() {
        for wait in
            [FrameWait::Call(OTHER), FrameWait::Budget, FrameWait::Subtask(FrameId(9)), round(0)]
        {
            let (mut room, id) = room(wait.clone(), tool);
            room.tool_answered(CALL, Ok(ToolOutcome::default()), CallReport::default());
            let wait_after = room.frames.get(&id).and_then(Frame::wait).cloned();
            assert_eq!(wait_after, Some(wait));
        }
        let (mut room, id) = room(FrameWait::Call(OTHER), |frame| Purpose::Step { frame });
        let Event::AgentStepped { answer, .. } = stepped() else { panic!("it is a step") };
        room.step_loop().agent_stepped(id, CALL, answer);
        let wait_after = room.frames.get(&id).and_then(Frame::wait).cloned();
        assert_eq!(wait_after, Some(FrameWait::Call(OTHER)));
    }

    #[test]
    fn a_room_that_contradicts_itself_ends_with_a_code_and_does_not_hang() {
        let risk = |frame| Purpose::QueryPlugin {
            frame,
            plugin: "guard".into(),
            about: QueryPurpose::Risk { slot: 0 },
        };
        let advice =
            || PluginReply::Risk { verdict: Verdict { risk: Risk::Low, reason: String::new() } };
        let assessed = || Event::PluginQueried {
            call: CALL,
            answer: Ok(advice()),
            report: CallReport::default(),
        };
        let approved = || Event::Decided {
            call: CALL,
            approval: Approval::Approved,
            author: ApprovalAuthor::Program,
            arguments_sha256: None,
        };
        let user_answer = || Event::UserAnswered {
            call: CALL,
            text: Some("yes".to_owned()),
            attachments: Vec::new(),
            passed: false,
        };
        let waiting = |wait: FrameWait, purpose: fn(FrameId) -> Purpose| room(wait, purpose).0;
        assert_ends(
            "a tool's answer, and no round",
            waiting(FrameWait::Call(OTHER), tool),
            answered(),
            Invariant::RoundWaits,
        );
        assert_ends(
            "a tool's answer, and no slot",
            waiting(round(0), tool),
            answered(),
            Invariant::SlotExists,
        );
        assert_ends(
            "a step, and none waits",
            waiting(FrameWait::Budget, |frame| Purpose::Step { frame }),
            stepped(),
            Invariant::StepWaits,
        );
        assert_ends(
            "a user, and none waits",
            waiting(FrameWait::Budget, |frame| Purpose::User { frame }),
            user_answer(),
            Invariant::StepWaits,
        );
        assert_ends(
            "an approval, and no round",
            waiting(FrameWait::Budget, |frame| Purpose::Approval { frame, slot: 0 }),
            approved(),
            Invariant::RoundWaits,
        );
        assert_ends(
            "a risk, and no round",
            waiting(FrameWait::Budget, risk),
            assessed(),
            Invariant::RoundWaits,
        );
        let (mut empty_room, _) = room(FrameWait::Call(CALL), |frame| Purpose::Step { frame });
        empty_room.frames.clear();
        assert_ends("a step of a task that is gone", empty_room, stepped(), Invariant::StepWaits);
        let (mut half, id) = room(round(1), tool);
        half.frames.get_mut(&id).expect("it is there").leave_setup();
        assert_ends("a task that is not in the setup", half, answered(), Invariant::FrameExists);
        let (mut half, id) = room(FrameWait::Call(CALL), |frame| Purpose::Step { frame });
        half.frames.get_mut(&id).expect("it is there").leave_setup();
        let failed = Event::AgentStepped {
            call: CALL,
            answer: Err(Fault::new(FaultKind::Trap, "it failed")),
            report: CallReport::default(),
        };
        assert_ends("a failed step of no task", half, failed, Invariant::FrameExists);
        let ended = EndedTask::from_outcome(&Outcome::new(Status::Kill, "stopped"));
        let ended = Event::BackgroundEnded {
            call: CALL,
            ended,
            spent: Spent::default(),
            used: BTreeMap::new(),
        };
        let unknown =
            waiting(FrameWait::Call(OTHER), |_| Purpose::Background { id: "task-1".into() });
        assert_ends("the end of a task that is not known", unknown, ended, Invariant::TaskKnown);
        for (name, verdict) in [
            ("a gate let pass what is not known", GateVerdict::Allow),
            ("a gate changed what is not known", GateVerdict::Modify { text: "x".to_owned() }),
            ("a gate blocked what is not known", GateVerdict::Block { reason: String::new() }),
        ] {
            let gated = waiting(FrameWait::Call(OTHER), |_| Purpose::Gate {
                plugin: "guard".into(),
                number: 9,
            });
            let advice = Ok(PluginReply::Gate { verdict });
            let event =
                Event::PluginQueried { call: CALL, answer: advice, report: CallReport::default() };
            assert_ends(name, gated, event, Invariant::GateKnown);
        }
    }

    #[test]
    fn a_turn_of_a_task_that_is_gone_cannot_be_stopped() {
        let (mut empty_room, _) = room(FrameWait::Call(CALL), |frame| Purpose::Step { frame });
        empty_room.frames.clear();
        assert_ends(
            "a turn without a task",
            empty_room,
            Event::TurnStopped { reason: "enough".to_owned() },
            Invariant::FrameExists,
        );
    }

    #[test]
    fn a_room_that_was_ended_is_written_down_as_such() {
        let (mut room, _) = room(FrameWait::Budget, tool);
        room.handle(answered(), Millis(1));
        while room.poll_effect().is_some() || room.poll_notice().is_some() {}
        let written = serde_json::to_value(&room).expect("a room is serialisable");
        assert_eq!(serde_json::from_value::<Room>(written).expect("it reads"), room);
    }
}
