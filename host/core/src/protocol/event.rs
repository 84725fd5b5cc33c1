//! What happened: the only thing that changes a room. Names in the past tense. A bad outcome in the
//! world is an event, not an error.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::protocol::call_log::LoggedRead;
use crate::setup::plugin_query::PluginReply;
use crate::setup::{ReturnType, Setup};
use crate::types::action::Turn;
use crate::types::approval::{Approval, ApprovalAuthor, Delegator};
use crate::types::channel::Binding;
use crate::types::completion::{Completion, ModelDiagnostic, ModelError, ModelRequest};
use crate::types::delivery::{Decision, EndedTask};
use crate::types::denial::DenialRecord;
use crate::types::fault::{CallReport, Fault};
use crate::types::ids::{
    CallId, ChannelId, ControlId, Millis, PluginName, RoomId, TaskName, TimerId,
};
use crate::types::limits::RunLimits;
use crate::types::message::{Blob, Entity, Message, ToolCall};
use crate::types::request::{RequestId, RoomRequest};
use crate::types::room_secret::RoomSecret;
use crate::types::side_effect::{SideEffect, SideEffectAnswer};
use crate::types::tool::{ToolError, ToolOutcome};
use crate::types::usage::Spent;
use crate::types::usage::UsedByPlugin;

/// The version of the rules that a room folds its events by. It changes whenever the same events
/// would lead elsewhere.
pub const RULES: u32 = 9;

/// Whom an event is for: the person or service on whose behalf the room runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Principal(pub Arc<str>);

/// An event with what the journal stamps on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// From 0, without gaps.
    pub seq: u64,
    pub at: Millis,
    pub principal: Principal,
    pub rules: u32,
    #[serde(flatten)]
    pub event: Event,
}

impl Record {
    /// The record as it may leave the host: without the room's secret.
    #[must_use]
    pub fn without_secret(self: Arc<Self>) -> Arc<Self> {
        let Event::RoomOpened { setup, opening, .. } = &self.event else { return self };
        let (setup, opening) = (Arc::clone(setup), opening.clone());
        let event = Event::RoomOpened { setup, opening, secret: RoomSecret::WITHHELD };
        let Self { seq, at, rules, .. } = *self;
        Arc::new(Self { seq, at, rules, principal: self.principal.clone(), event })
    }
}

/// The first message of a run, and what holds for it (L-050a).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunOpening {
    pub room: RoomId,
    /// The task that gets the message.
    pub entry: TaskName,
    /// None: the task starts from its system message alone (L-051c).
    pub content: Option<String>,
    /// What goes with the message; kept by the host under these names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Blob>,
    /// Whom the message is for; the run is over at once when it is not the entry task (L-050d).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipient: Option<String>,
    /// The seat that the message is taken to come from, instead of the user's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<Entity>,
    /// Calls that come with the message, from whoever opened the room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolCall>,
    /// Steps of the entry task, instead of its own number (L-050f).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// The run is killed once its entry task has made so many steps: for whoever looks into a run
    /// step by step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill_after: Option<u32>,
    /// What the result is to be, instead of what the task says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returns: Option<ReturnType>,
    /// Turns that are taken in the place of the entry agent's first steps: a run that is played
    /// again (O-119).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replay: Vec<Turn>,
    /// Only this seat of the entry task is asked, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<SeatCall>,
    /// A JSON object for the agent's `inputs`.
    pub inputs: Value,
    /// What the whole room may use: the run's limits, or what a parent set aside.
    pub limits: RunLimits,
    /// When the run's wall time is over; none: never.
    pub deadline: Option<Millis>,
    /// How many rooms are above this one.
    pub depth: u32,
    /// The channel on which the user is asked.
    pub channel: ChannelId,
    /// The room stays open when nobody is at work in it, and takes what comes in on its channels,
    /// until it is closed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold: bool,
    /// The channels of a child room: what its parent shared. None: those of the setup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bindings: Option<BTreeMap<ChannelId, Binding>>,
    /// The entry task must hand its result in with `submit_result`, and is asked again so often
    ///
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<u32>,
    /// What is known of the room: who opened it and what for; a JSON object, null when there is
    /// nothing.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub metadata: Value,
    /// How many automatic answers led here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chain_depth: u32,
    /// The delegations that led to this room, the first one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegators: Vec<Delegator>,
    /// What the rooms above had used when this one opened: a grant for the whole run does not start
    /// anew in a child room.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub used: UsedByPlugin,
}

impl Default for RunOpening {
    fn default() -> Self {
        Self {
            room: RoomId::from(""),
            entry: TaskName::from(""),
            content: None,
            attachments: Vec::new(),
            recipient: None,
            sender: None,
            tools: Vec::new(),
            turns: None,
            kill_after: None,
            returns: None,
            replay: Vec::new(),
            seat: None,
            inputs: Value::Null,
            limits: RunLimits::default(),
            deadline: None,
            depth: 0,
            channel: ChannelId::from(""),
            hold: false,
            bindings: None,
            structured: None,
            metadata: Value::Null,
            chain_depth: 0,
            delegators: Vec::new(),
            used: UsedByPlugin::new(),
        }
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// One seat asked for one answer, without a loop around it: what the reference calls an agent's
/// responder (L-021, L-022).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeatCall {
    pub seat: Entity,
    /// Who the message is taken to come from.
    pub sender: Entity,
    /// It came from outside (L-170).
    #[serde(default)]
    pub untrusted: bool,
    /// Its calls come from an agent (L-005).
    #[serde(default)]
    pub from_agent: bool,
    /// Answers to answers: how often the seat is asked, each time with what it said last; 1 for
    /// once.
    pub times: u32,
}

/// A change of an agent's history from outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum HistoryChange {
    /// Drops messages `start` to the end (L-181).
    Clear { start: usize },
    /// Drops them and what followed from them in other histories (L-150).
    Prune { start: usize },
    /// Puts these in the place of all; their numbers are given anew (L-183).
    Import { messages: Vec<Message> },
}

/// What happened in a room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The first event, and only the first.
    RoomOpened {
        setup: Arc<Setup>,
        opening: RunOpening,
        /// Drawn by the host. Only journals have it: whoever else writes the event leaves it out.
        #[serde(skip_serializing)]
        secret: RoomSecret,
    },
    /// Another run in the same room, after the one before it is over: histories, scratch and links
    /// stay.
    RunStarted {
        /// None: as before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        setup: Option<Arc<Setup>>,
        opening: RunOpening,
    },
    /// Between two runs.
    HistoryChanged {
        task: TaskName,
        change: HistoryChange,
    },
    /// An agent's `step` ended.
    AgentStepped {
        call: CallId,
        answer: Result<Turn, Fault>,
        report: CallReport,
    },
    /// An agent's `respond` ended; none: no answer.
    AgentResponded {
        call: CallId,
        answer: Result<Option<Turn>, Fault>,
        report: CallReport,
    },
    ToolAnswered {
        call: CallId,
        answer: Result<ToolOutcome, ToolError>,
        report: CallReport,
    },
    /// A plugin said what it was asked: memories, a risk, what a history may forget.
    Consulted {
        call: CallId,
        answer: Result<PluginReply, Fault>,
        report: CallReport,
    },
    StrategyDecided {
        call: CallId,
        answer: Result<Vec<Decision>, Fault>,
        report: CallReport,
    },
    /// Somebody typed something, or nobody was there.
    UserAnswered {
        call: CallId,
        text: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Blob>,
        /// Nobody was asked: the channel let the agent read first what the host has for it (L-029).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        passed: bool,
    },
    /// A plugin asked for a completion while it ran.
    ModelAsked {
        call: CallId,
        ordinal: u32,
        request: ModelRequest,
    },
    ModelAnswered {
        call: CallId,
        ordinal: u32,
        answer: Result<Completion, ModelError>,
        /// For the operator; changes nothing in the room.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trouble: Option<ModelDiagnostic>,
    },
    /// A plugin is about to do something to the world while it runs. Nothing leaves before the room
    /// says yes.
    SideEffectAsked {
        call: CallId,
        /// Counts those of one call from 0.
        ordinal: u32,
        side_effect: SideEffect,
    },
    /// How it went; the plugin learns it after this was kept.
    SideEffectEnded {
        call: CallId,
        ordinal: u32,
        answer: SideEffectAnswer,
    },
    /// What a call has read that may read otherwise later, in the order in which it read. Kept
    /// before whatever may have come of it leaves; changes nothing in the room.
    ReadsKept {
        call: CallId,
        reads: Vec<LoggedRead>,
    },
    /// An import refused something while a call ran. For the operator; changes nothing in the room.
    Refused {
        call: CallId,
        plugin: PluginName,
        record: DenialRecord,
    },
    /// An approver decided about a tool call.
    Decided {
        call: CallId,
        approval: Approval,
        #[serde(default)]
        author: ApprovalAuthor,
    },
    /// A channel took a speech, or says why it did not.
    Spoken {
        call: CallId,
        failure: Option<String>,
    },
    BackgroundEnded {
        call: CallId,
        ended: EndedTask,
        spent: Spent,
        /// Together with what the rooms above had used when it opened.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        used: UsedByPlugin,
    },
    /// Somebody outside asked something of the room.
    Requested {
        request: RequestId,
        what: RoomRequest,
    },
    TimerFired {
        timer: TimerId,
    },
    /// The host went on with the room after it had stopped in the middle. What it waits for is
    /// started again; calls that were cut off are run again from what they were told before.
    Resumed {
        /// Milliseconds in which no host ran, which count against no limit of time.
        down_ms: u64,
    },
    /// An author rebuilt a component, and calls from here on go to the new one. For whoever reads
    /// the journal; changes nothing in the room.
    PluginReplaced {
        plugin: PluginName,
        /// Lower-case hexadecimal, of the new component.
        sha256: String,
    },
    /// Somebody stopped what the entry task is doing now; an interactive one turns to its user, any
    /// other ends.
    TurnStopped {
        reason: String,
    },
    /// Somebody paused the run: what is under way goes on to its end, nothing new begins (O-122).
    Paused {
        reason: String,
    },
    /// Somebody lets it go on.
    Unpaused,
    /// Somebody said something while the run was at work; the agent reads it in its next step
    /// (O-053).
    UserSaid {
        /// None: the entry task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskName>,
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Blob>,
    },
    /// Somebody stopped one task, wherever in the run it is at work; its caller goes on with what
    /// it had.
    TaskKilled {
        task: TaskName,
        reason: String,
    },
    /// Somebody stopped the run.
    Cancelled {
        reason: String,
    },
    /// Another process sent a control message. It takes effect once, however often it arrives: its
    /// file is deleted only after this record is durable, so a host that crashed in between reads
    /// it again.
    ControlReceived {
        id: ControlId,
        /// What the message says. Another `ControlReceived` in here has no effect.
        message: Box<Event>,
    },
}

impl Event {
    /// Returns the event that a control message carries, or the event itself.
    #[must_use]
    pub fn effective(&self) -> &Self {
        if let Self::ControlReceived { message, .. } = self { message } else { self }
    }
}
