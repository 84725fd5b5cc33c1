//! The state of an activation, and the transitions between its states. A transition consumes a
//! state and gives the next one, so a step cannot leave it half done. One that may not follow gives
//! the state back; the room then ends by an invariant.
#![expect(
    clippy::result_large_err,
    reason = "a refused transition gives the state back; a box would be an allocation per step"
)]

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::closing::Closing;
use super::responder::Responder;
use super::rounds::ToolRound;
use crate::types::ids::{CallId, FrameId};
use crate::types::message::Message;

/// The state of an activation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::room) enum FrameState {
    /// No gate was asked about its first message yet.
    Entering,
    /// Gates check its first message, or the summary of its handoff.
    Checked,
    /// Between two steps.
    #[default]
    Idle,
    /// A step asks its responders in turn.
    Asking(Attempt),
    /// A judge or gates decide on its result.
    Closing(Box<Closing>),
}

/// The next state, or the unchanged one if the transition may not follow it.
pub(in crate::room) type Transition = Result<FrameState, FrameState>;

impl FrameState {
    /// Whether the step loop has to leave the activation alone until its state changes.
    pub(in crate::room) fn is_held(&self) -> bool {
        matches!(self, Self::Entering | Self::Checked | Self::Closing(_))
    }

    /// Whether an event has to come before the step loop can go on.
    pub(in crate::room) fn waits(&self) -> bool {
        match self {
            Self::Asking(attempt) => !matches!(attempt.wait, FrameWait::Next | FrameWait::Ready(_)),
            state => state.is_held(),
        }
    }

    /// Gates are asked about its first message, or about the summary of its handoff.
    pub(in crate::room) fn check(self) -> Transition {
        match self {
            Self::Entering | Self::Idle => Ok(Self::Checked),
            state => Err(state),
        }
    }

    /// The gates let it go on, or there was nothing for them to check.
    pub(in crate::room) fn release(self) -> Transition {
        match self {
            Self::Entering | Self::Checked => Ok(Self::Idle),
            state => Err(state),
        }
    }

    /// A step begins, or continues with its next responder.
    pub(in crate::room) fn ask(self, attempt: Attempt) -> Transition {
        match self {
            Self::Idle => Ok(Self::Asking(attempt)),
            state => Err(state),
        }
    }

    /// The step waits for something else.
    pub(in crate::room) fn wait(self, wait: FrameWait) -> Transition {
        match self {
            Self::Asking(attempt) => Ok(Self::Asking(Attempt { wait, ..attempt })),
            state => Err(state),
        }
    }

    /// The step has its answer, from `responder` if not from the one that it asked.
    pub(in crate::room) fn answer(
        self,
        responder: Option<Responder>,
        message: Option<Arc<Message>>,
    ) -> Transition {
        let Self::Asking(mut attempt) = self else { return Err(self) };
        if let Some(responder) = responder {
            attempt.responder = responder;
        }
        Self::Asking(attempt).wait(FrameWait::Ready(message))
    }

    /// The step asks the responder again that had to wait.
    pub(in crate::room) fn ask_again(self) -> Transition {
        let Self::Asking(mut attempt) = self else { return Err(self) };
        // In front, because its turn was only put off.
        attempt.rest.insert(0, attempt.responder.clone());
        Self::Asking(attempt).wait(FrameWait::Next)
    }

    /// The activation ends once a judge and gates have decided on its result. A stop may come in
    /// any state, also in this one.
    pub(in crate::room) fn close(self, closing: Closing) -> Self {
        drop(self);
        Self::Closing(Box::new(closing))
    }
}

/// Responders in the order in which they are tried. A task without sub-tasks has at most three.
pub(in crate::room) type Responders = SmallVec<[Responder; 3]>;

/// A step in progress: the current responder, and those to try next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct Attempt {
    pub responder: Responder,
    pub rest: Responders,
    pub wait: FrameWait,
    /// The last answer that said only DO-NOT-KNOW (L-058).
    pub do_not_know: Option<(Responder, Arc<Message>)>,
}

/// The event that a step waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) enum FrameWait {
    /// Nothing: the next responder is to be tried.
    Next,
    /// The answer to a call of a plugin, a model or the user.
    Call(CallId),
    /// The result of a sub-task.
    Subtask(FrameId),
    /// The tool calls of a message.
    Tools(ToolRound),
    /// More budget; then the responder is asked.
    Budget,
    /// A judge's ruling on an answer.
    Judge(Box<RuledAnswer>),
    /// The gates of its question to the user.
    Gates,
    /// The responder's answer; `None` if it had nothing to say.
    Ready(Option<Arc<Message>>),
}

/// An answer that a judge is asked about, with the host's ruling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct RuledAnswer {
    pub message: Arc<Message>,
    pub valid: bool,
    /// Whether the answer ends the task by itself (L-081).
    pub ends: bool,
    /// Whether it ends the task by any rule.
    #[serde(rename = "done")]
    pub is_done: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::state::closing::FrameEnd;
    use crate::types::message::Role;
    use crate::types::outcome::Status;

    #[test]
    fn a_transition_that_may_not_follow_gives_the_state_back() {
        let attempt = || Attempt {
            responder: Responder::Llm,
            rest: Responders::new(),
            wait: FrameWait::Budget,
            do_not_know: None,
        };
        let closing = Closing {
            ending: FrameEnd::new(Status::Done, "it is done"),
            result: Message::new(0, Role::Llm, "desk"),
            passed: Vec::new(),
        };
        let states = [
            FrameState::Entering,
            FrameState::Checked,
            FrameState::Idle,
            FrameState::Asking(attempt()),
            FrameState::Closing(Box::new(closing)),
        ];
        let may_follow = |transition: &dyn Fn(FrameState) -> Transition| {
            states.clone().map(|state| match transition(state.clone()) {
                Ok(_) => true,
                Err(unchanged) => {
                    assert_eq!(unchanged, state);
                    false
                }
            })
        };
        let (yes, no) = (true, false);
        assert_eq!(may_follow(&FrameState::check), [yes, no, yes, no, no]);
        assert_eq!(may_follow(&FrameState::release), [yes, yes, no, no, no]);
        assert_eq!(may_follow(&|state| state.ask(attempt())), [no, no, yes, no, no]);
        assert_eq!(may_follow(&|state| state.wait(FrameWait::Next)), [no, no, no, yes, no]);
        assert_eq!(may_follow(&|state| state.answer(None, None)), [no, no, no, yes, no]);
        assert_eq!(may_follow(&FrameState::ask_again), [no, no, no, yes, no]);
    }
}
