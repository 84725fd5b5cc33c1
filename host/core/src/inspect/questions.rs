//! The questions of a run to people, by a fold of a room's records: calls that wait for an approval,
//! limits that wait for an increase, and tasks that wait for the answer of their user. Terminals, a
//! server and its page list and decide what this fold finds.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::inspect::permission_summary::rights_of;
use crate::journal::ownership::OneHistory;
use crate::policy::roles::{Action, Role};
use crate::protocol::control::{ControlCommand, SentCommand};
use crate::protocol::effect::Effect;
use crate::protocol::event::{Event, Record};
use crate::protocol::notice::Notice;
use crate::room::{Room, askers};
use crate::setup::{PluginSetup, Setup};
use crate::types::approval::{
    Approval, ApprovalAuthor, ApprovalRequest, Asker, DecisionFault, approval_id, arguments_sha256,
};
use crate::types::ids::{CallId, ChannelId, ControlId, Millis, PluginName, RoomId};

/// A question of a run to a person.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Question {
    /// The id as people type it: `3f2a91c0:c7`.
    pub id: String,
    pub run: RoomId,
    /// The room that waits.
    pub room: RoomId,
    pub call: CallId,
    /// Who asks through whom: the tasks from the run's own to the one that asks.
    pub chain: Vec<Asker>,
    #[serde(flatten)]
    pub kind: QuestionKind,
    /// The roles that may answer it at a server; `user` stands for the person who started the run.
    pub may_answer: Vec<Role>,
    pub since: Millis,
    /// The time to decide, in milliseconds; it pauses while no process has the run. `None` for the
    /// rest of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    #[serde(flatten)]
    pub state: QuestionState,
}

/// What a question is about.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum QuestionKind {
    /// A call waits for an approval.
    Approval(ApprovalSubject),
    /// A limit of the run waits for an increase.
    TopUp(ApprovalSubject),
    /// A task waits for the answer of its user, as a free text.
    Ask { question: String, channel: ChannelId },
}

/// What an approver decides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApprovalSubject {
    pub request: Box<ApprovalRequest>,
    /// The SHA-256 of the arguments in canonical form. A decision that names it counts only for
    /// these arguments.
    pub arguments_sha256: String,
    /// What the plugin that carries the call out may do, such as `read docs/`; empty if it can only
    /// compute, or if the host carries it out.
    pub effects: Vec<String>,
    /// The setup in force, by which the reasons are explained.
    #[serde(skip)]
    pub setup: Arc<Setup>,
}

/// Where a question stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum QuestionState {
    /// It waits for a person.
    Open,
    /// A person decided; the run has not received that yet.
    OnItsWay { settlement: Settlement },
    /// The run has the decision or the answer.
    Settled { settlement: Settlement },
    /// Nobody decided in time.
    Expired { at: Millis },
    /// The run does not ask any more: it ended, or asks again under another id.
    Withdrawn { at: Millis },
}

/// A decision about a call, or the answer to a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Settlement {
    pub decision: DecisionWord,
    /// Who decided, for display; `None` while the decision of a terminal is on its way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When the run received it; `None` while it is on its way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Millis>,
    /// The control message that carried it; `None` if the program of the run decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<ControlId>,
}

/// The kind of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecisionWord {
    Approved,
    Refused,
    Answered,
}

impl DecisionWord {
    /// The word in a sentence.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Refused => "refused",
            Self::Answered => "answered",
        }
    }

    /// The word for a command that settles a call; `None` for another command.
    #[must_use]
    pub fn of_command(command: &ControlCommand) -> Option<Self> {
        match command {
            ControlCommand::Decide { approval, .. } => Some(approval.into()),
            ControlCommand::Answer { .. } => Some(Self::Answered),
            _ => None,
        }
    }
}

impl From<&Approval> for DecisionWord {
    fn from(approval: &Approval) -> Self {
        match approval {
            Approval::Approved | Approval::Edited { .. } => Self::Approved,
            Approval::Refused { .. } | Approval::Invalid { .. } => Self::Refused,
        }
    }
}

impl Question {
    /// Whether it waits for a person, and no decision is on its way.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == QuestionState::Open
    }

    /// What an approver decides; `None` for a question of a task to its user.
    #[must_use]
    pub fn subject(&self) -> Option<&ApprovalSubject> {
        match &self.kind {
            QuestionKind::Approval(subject) | QuestionKind::TopUp(subject) => Some(subject),
            QuestionKind::Ask { .. } => None,
        }
    }

    /// The decision or answer that the run has; `None` if it has none.
    #[must_use]
    pub fn settlement(&self) -> Option<&Settlement> {
        match &self.state {
            QuestionState::Settled { settlement } => Some(settlement),
            _ => None,
        }
    }

    /// The request to the approver; `None` for a question of a task to its user.
    #[must_use]
    pub fn into_request(self) -> Option<Box<ApprovalRequest>> {
        match self.kind {
            QuestionKind::Approval(subject) | QuestionKind::TopUp(subject) => Some(subject.request),
            QuestionKind::Ask { .. } => None,
        }
    }

    /// The action of a person who settles it, for [`may`](crate::policy::roles::may).
    #[must_use]
    pub fn action(&self) -> Action {
        self.kind.action()
    }

    /// Marks that this command about the call waits in the mail of the run.
    pub fn mark_on_its_way(&mut self, SentCommand { id, by, word }: SentCommand) {
        if let (true, Some(decision)) = (self.is_open(), DecisionWord::of_command(&word)) {
            let by = by.map(|by| format!("a person at the server ({})", by.0));
            let settlement = Settlement { decision, by, at: None, message: Some(id) };
            self.state = QuestionState::OnItsWay { settlement };
        }
    }
}

impl QuestionKind {
    fn of_effect(effect: Effect, setup: &Arc<Setup>) -> Option<(CallId, Self)> {
        Some(match effect {
            Effect::AskApproval { call, request } => {
                (call, Self::Approval(ApprovalSubject::new(request, setup)))
            }
            Effect::AskTopUp { call, top_up } => {
                (call, Self::TopUp(ApprovalSubject::new(top_up.as_approval(), setup)))
            }
            Effect::AskUser { call, channel, prompt, .. } => {
                (call, Self::Ask { question: prompt, channel })
            }
            _ => return None,
        })
    }

    fn action(&self) -> Action {
        match self {
            Self::Approval(_) | Self::TopUp(_) => Action::Decide,
            Self::Ask { .. } => Action::Say,
        }
    }
}

impl ApprovalSubject {
    fn new(request: ApprovalRequest, setup: &Arc<Setup>) -> Self {
        let effects = request.performer().map(|plugin| rights_of(setup, &plugin));
        Self {
            arguments_sha256: arguments_sha256(&request.arguments),
            effects: effects.unwrap_or_default(),
            request: Box::new(request),
            setup: Arc::clone(setup),
        }
    }
}

impl ApprovalSubject {
    /// The plugin that carries the call out, with its setup; `None` if the host does.
    #[must_use]
    pub fn performer(&self) -> Option<(&PluginName, &PluginSetup)> {
        let (name, plugin) = self.setup.plugins.get_key_value(&self.request.performer()?)?;
        Some((name, plugin))
    }
}

/// A fold of a room's records to its questions.
#[derive(Debug, Default)]
pub struct QuestionFold {
    room: Room,
    /// The epochs of the records, which decide whether a further one counts.
    history: OneHistory,
    questions: BTreeMap<CallId, Question>,
    faults: BTreeMap<ControlId, DecisionFault>,
}

impl QuestionFold {
    /// Folds the next record.
    pub fn take(&mut self, record: Record) {
        if !self.history.counts(record.epoch) {
            return;
        }
        let message = match &record.event {
            Event::ControlReceived { id, .. } => Some(id.clone()),
            _ => None,
        };
        let is_answer = record.event.settled_call().is_some();
        let is_timer = matches!(record.event, Event::TimerFired { .. });
        let answered = match record.event.effective() {
            Event::UserAnswered { call, .. } if self.room.is_in_flight(*call) => Some(*call),
            _ => None,
        };
        let sender = record.event.sender().map(|by| format!("a person at the server ({})", by.0));
        self.room.handle(record.event, record.at);
        let settled = |decision, by: String| {
            let settlement = Settlement {
                decision,
                by: Some(by),
                at: Some(record.at),
                message: message.clone(),
            };
            QuestionState::Settled { settlement }
        };
        if let Some(call) = answered {
            let by = sender.unwrap_or_else(|| "its user".to_owned());
            self.set(call, settled(DecisionWord::Answered, by));
        }
        while let Some(notice) = self.room.poll_notice() {
            match notice {
                // The room's own timer: it stood still while no process had the run.
                Notice::ApprovalGiven { call, author: ApprovalAuthor::Nobody, .. } if is_timer => {
                    self.set(call, QuestionState::Expired { at: record.at });
                }
                // The room itself refused it, without a decision.
                Notice::ApprovalGiven { author: ApprovalAuthor::Nobody, .. } if !is_answer => {}
                Notice::ApprovalGiven { call, approval, author } => {
                    self.set(call, settled((&approval).into(), author.to_string()));
                }
                Notice::ToppedUp { call, more, author, .. } => {
                    let word =
                        if more.is_some() { DecisionWord::Approved } else { DecisionWord::Refused };
                    self.set(call, settled(word, author.to_string()));
                }
                // An amount that does not fit is no decision.
                Notice::TopUpAsked { top_up, .. } => {
                    let fault = top_up.problem.map(|problem| DecisionFault::Invalid { problem });
                    self.faults.extend(message.clone().zip(fault));
                }
                Notice::DecisionRejected { fault, .. } => {
                    self.faults.extend(message.clone().map(|message| (message, fault)));
                }
                _ => {}
            }
        }
        self.take_effects(record.at);
        self.withdraw(record.at);
    }

    fn set(&mut self, call: CallId, state: QuestionState) {
        if let Some(question) = self.questions.get_mut(&call) {
            question.state = state;
        }
    }

    fn take_effects(&mut self, at: Millis) {
        while let Some(effect) = self.room.poll_effect() {
            let Some((call, kind)) = QuestionKind::of_effect(effect, self.room.setup()) else {
                continue;
            };
            // After a resumption the room asks the same question again.
            if self.questions.get(&call).is_some_and(Question::is_open) {
                continue;
            }
            let room = self.room.id().clone();
            let expires_ms = match &kind {
                QuestionKind::Approval(subject) => subject.request.expires_ms,
                QuestionKind::TopUp(_) | QuestionKind::Ask { .. } => None,
            };
            let question = Question {
                id: approval_id(&room, call),
                run: room.run(),
                chain: askers(&self.room, call),
                may_answer: Role::that_may(kind.action()),
                state: QuestionState::Open,
                since: at,
                room,
                call,
                kind,
                expires_ms,
            };
            self.questions.insert(call, question);
        }
    }

    /// Withdraws the questions whose calls ended without a decision.
    fn withdraw(&mut self, at: Millis) {
        let is_closed =
            |question: &&mut Question| question.is_open() && !self.room.is_in_flight(question.call);
        for question in self.questions.values_mut().filter(is_closed) {
            question.state = QuestionState::Withdrawn { at };
        }
    }

    /// All questions of the room, the oldest first.
    pub fn all(&self) -> impl Iterator<Item = &Question> {
        self.questions.values()
    }

    /// The question of a call; `None` if the room never asked one under it.
    #[must_use]
    pub fn of_call(&self, call: CallId) -> Option<&Question> {
        self.questions.get(&call)
    }

    /// The reason why the room rejected the decision of this message; `None` if it did not.
    #[must_use]
    pub fn fault_of(&self, message: &ControlId) -> Option<&DecisionFault> {
        self.faults.get(message)
    }
}

impl Extend<Record> for QuestionFold {
    fn extend<I: IntoIterator<Item = Record>>(&mut self, records: I) {
        records.into_iter().for_each(|record| self.take(record));
    }
}
