//! The events of a room: nothing else changes it. Names are in the past tense. A failure in the
//! world outside is an event, not an error.

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
use crate::types::message::{Blob, Message, Role, ToolCall};
use crate::types::request::{RequestId, RoomRequest};
use crate::types::room_secret::RoomSecret;
use crate::types::side_effect::{SideEffect, SideEffectAnswer};
use crate::types::tool::{NestedCall, ToolError, ToolOutcome};
use crate::types::usage::Spent;
use crate::types::usage::UsedByPlugin;

/// The version of the rules by which a room folds its events. It changes whenever the same events
/// would lead to another state, and whenever names in records change, because a field under its old
/// name would be read as absent.
pub const RULES: u32 = 15;
/// The first version of the rules whose records have the names of today. Records of before would be
/// read wrongly: a field under its old name counts as absent.
pub const READABLE_RULES: u32 = 10;

pub use crate::types::ids::Principal;

/// An event with its sequence number and time in the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The sequence number, from 0, without gaps.
    pub seq: u64,
    pub at: Millis,
    pub principal: Principal,
    pub rules: u32,
    /// The epoch of the host that wrote the record; 0 in a store that only one host can open. A
    /// record of an older epoch than one before it is void (`journal/ownership.rs`).
    #[serde(default, skip_serializing_if = "is_first_epoch")]
    pub epoch: u64,
    #[serde(flatten)]
    pub event: Event,
}

impl Record {
    /// The record without the room's secret, as it may leave the host.
    #[must_use]
    pub fn without_secret(self: Arc<Self>) -> Arc<Self> {
        let Event::RoomOpened { setup, opening, .. } = &self.event else { return self };
        let (setup, opening) = (Arc::clone(setup), opening.clone());
        let event = Event::RoomOpened { setup, opening, secret: RoomSecret::WITHHELD };
        let Self { seq, at, rules, epoch, .. } = *self;
        Arc::new(Self { seq, at, rules, epoch, principal: self.principal.clone(), event })
    }
}

/// The first message of a run, and the run's options (L-050a).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunOpening {
    pub room: RoomId,
    /// The task that gets the message.
    pub entry: TaskName,
    /// The text of the message; `None` if the task starts from its system message alone (L-051c).
    pub content: Option<String>,
    /// Attachments of the message; the host stores them under these names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Blob>,
    /// The recipient of the message. The run ends at once if that is not the entry task (L-050d).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipient: Option<String>,
    /// The sender's role, instead of the user's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<Role>,
    /// Tool calls that the opener attached to the message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolCall>,
    /// The limit of steps of the entry task, instead of its own (L-050f).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// The number of steps of the entry task after which the run is killed. Used to debug a run
    /// step by step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill_after: Option<u32>,
    /// The type of the result, instead of the task's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returns: Option<ReturnType>,
    /// Recorded turns that replace the entry agent's first steps, for the replay of a run (O-119).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replay: Vec<Turn>,
    /// The only responder of the entry task that is asked, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_call: Option<RoleCall>,
    /// A JSON object for the agent's `inputs`.
    pub inputs: Value,
    /// The limits of the whole room: those of the run, or the part that a parent reserved for it.
    pub limits: RunLimits,
    /// The time at which the run's wall time is over; `None` if it has no limit.
    pub deadline: Option<Millis>,
    /// The number of rooms above this one.
    pub depth: u32,
    /// The channel on which the user is asked.
    pub channel: ChannelId,
    /// Whether the room is persistent. Such a room stays open while no task runs and accepts
    /// channel input until it is closed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub persistent: bool,
    /// The channels of a child room, as its parent shared them; `None` for the channels of the
    /// setup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bindings: Option<BTreeMap<ChannelId, Binding>>,
    /// The number of re-prompts for the result, which the entry task must return with
    /// `submit_result`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_retries: Option<u32>,
    /// The JSON Schema of the `data` of that result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_schema: Option<Value>,
    /// Facts about the room, such as its opener and purpose: a JSON object, or null.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub metadata: Value,
    /// The number of automatic answers that led to this room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chain_depth: u32,
    /// The delegations that led to this room, the outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegators: Vec<Delegator>,
    /// The usage of the rooms above when this one opened. A grant for the whole run does not start
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
            role_call: None,
            inputs: Value::Null,
            limits: RunLimits::default(),
            deadline: None,
            depth: 0,
            channel: ChannelId::from(""),
            persistent: false,
            bindings: None,
            structured_retries: None,
            result_schema: None,
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

fn is_first_epoch(epoch: &u64) -> bool {
    *epoch == 0
}

/// A single question to one responder, without a task loop. The reference calls this an agent's
/// responder (L-021, L-022).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleCall {
    pub role: Role,
    /// The sender of the message.
    pub sender: Role,
    /// Whether the message came from outside (L-170).
    #[serde(default)]
    pub untrusted: bool,
    /// Whether its tool calls come from an agent (L-005).
    #[serde(default)]
    pub from_agent: bool,
    /// The number of times the responder is asked, each time with its own last answer; 1 for a
    /// single answer.
    pub times: u32,
}

/// A change to an agent's history from outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum HistoryChange {
    /// Drops the messages from `start` to the end (L-181).
    Clear { start: usize },
    /// Drops the messages from `start`, and those in other histories that they caused (L-150).
    Prune { start: usize },
    /// Replaces all messages with these, which get new numbers (L-183).
    Import { messages: Vec<Message> },
}

/// An event of a room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The first event of a room; it occurs only once.
    RoomOpened {
        setup: Arc<Setup>,
        opening: RunOpening,
        /// The room's secret, drawn by the host. Only journals hold it; every other writer of the
        /// event leaves it out.
        #[serde(skip_serializing)]
        secret: RoomSecret,
    },
    /// Another run began in the same room after the previous one ended. Histories, scratch and
    /// links stay.
    RunStarted {
        /// The new setup; `None` to keep the current one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        setup: Option<Arc<Setup>>,
        opening: RunOpening,
    },
    /// A history was changed between two runs.
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
    /// An agent's `respond` ended; `None` if it gave no answer.
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
    /// A plugin replied to a query: memories, a risk, a condensation or a gate's verdict.
    PluginQueried {
        call: CallId,
        answer: Result<PluginReply, Fault>,
        report: CallReport,
    },
    StrategyDecided {
        call: CallId,
        answer: Result<Vec<Decision>, Fault>,
        report: CallReport,
    },
    /// The user answered, or no user was present.
    UserAnswered {
        call: CallId,
        text: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Blob>,
        /// Whether the user was not asked, because the channel lets the agent first read what the
        /// host holds for it (L-029).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        passed: bool,
    },
    /// A plugin requested a completion while it ran.
    ModelAsked {
        call: CallId,
        ordinal: u32,
        request: ModelRequest,
    },
    ModelAnswered {
        call: CallId,
        ordinal: u32,
        answer: Result<Completion, ModelError>,
        /// Diagnostics for the operator; they do not change the room.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trouble: Option<ModelDiagnostic>,
        /// Whether a user saw text of the answer before it failed. No other model is asked then.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        was_shown: bool,
    },
    /// The only request under way got no answer, because its model was not available. The run was
    /// left, and the request is repeated when it is resumed.
    ModelUnavailable {
        call: CallId,
        ordinal: u32,
        /// The server concerned and a remedy; never contains a key.
        reason: String,
    },
    /// A tool requested calls of other tools while it ran. Each becomes a call of its own.
    ToolsAsked {
        call: CallId,
        /// The number of the request within its call, from 0.
        ordinal: u32,
        calls: Vec<NestedCall>,
    },
    /// A plugin requested a side effect while it ran. Nothing leaves the host before the room
    /// permits it.
    SideEffectAsked {
        call: CallId,
        /// The number of the side effect within its call, from 0.
        ordinal: u32,
        side_effect: SideEffect,
    },
    /// A side effect ended. The plugin gets the result after this record is durable.
    SideEffectEnded {
        call: CallId,
        ordinal: u32,
        answer: SideEffectAnswer,
    },
    /// Values that a call read and that may differ later, in the order of the reads. The record is
    /// durable before any consequence of the reads leaves the host. Does not change the room.
    ReadsRecorded {
        call: CallId,
        reads: Vec<LoggedRead>,
    },
    /// An import refused a request while a call ran. For the operator; does not change the room.
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
        /// The SHA-256 of the arguments that the approver saw. If the call has others, the room
        /// rejects the decision. `None` for one that is about the call as it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments_sha256: Option<String>,
    },
    /// A channel accepted a text, or gave a reason for refusing it.
    Sent {
        call: CallId,
        failure: Option<String>,
        /// Whether the channel may have accepted it all the same: the failure says that no answer
        /// came.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unknown: bool,
    },
    BackgroundEnded {
        call: CallId,
        ended: EndedTask,
        spent: Spent,
        /// The usage of the task, with that of the rooms above when its room opened.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        used: UsedByPlugin,
    },
    /// A request reached the room from outside.
    Requested {
        request: RequestId,
        what: RoomRequest,
    },
    TimerFired {
        timer: TimerId,
    },
    /// The host resumed the room after an interruption. Pending work is started again; interrupted
    /// calls run again from their call logs.
    Resumed {
        /// Milliseconds in which no host ran; they count against no time limit.
        down_ms: u64,
        /// Whether the time is exact. Otherwise it counts from the last record before, and is an
        /// upper bound.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_exact: bool,
        /// The effective setup from here on: that with which the run began, as far as the config
        /// of this resumption still allows it. `None` if it is the one in force.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        setup: Option<Arc<Setup>>,
    },
    /// A host took the room over, as the first record of its epoch. The store writes it in the
    /// transaction that gives the room to the host, and never as a room's first record. For
    /// readers of the journal; does not change the room, not even its time, so the downtime before
    /// it counts from the last record of the host before.
    Owned {
        /// The name of the host, as `conclave workers` lists it.
        host: String,
        /// One more than the highest epoch before; the epoch of this record too, in whose JSON
        /// both have a name.
        #[serde(rename = "new_epoch")]
        epoch: u64,
    },
    /// A component was rebuilt during development, and later calls use the new one. For readers of
    /// the journal; does not change the room.
    PluginReplaced {
        plugin: PluginName,
        /// The digest of the new component, in lower-case hexadecimal.
        sha256: String,
    },
    /// The entry task's current turn was stopped. An interactive task asks its user next, any other
    /// ends.
    TurnStopped {
        reason: String,
    },
    /// The run was paused: work under way continues to its end, and no new work begins (O-122).
    Paused {
        reason: String,
    },
    /// The run was resumed after a pause.
    Unpaused,
    /// A user sent a text while the run was busy; the agent reads it in its next step (O-053).
    UserMessageSent {
        /// The task that reads the text; `None` for the entry task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskName>,
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Blob>,
    },
    /// One task was stopped, at any depth of the run. Its caller continues with the last valid
    /// answer.
    TaskKilled {
        task: TaskName,
        reason: String,
    },
    /// The run was stopped.
    Cancelled {
        reason: String,
    },
    /// A control message arrived from another process. It takes effect once, however often it
    /// arrives. Its file is deleted only after this record is durable, so a host that crashed
    /// before that reads it again.
    ControlReceived {
        id: ControlId,
        /// The person at a server who sent it; `None` for a command of a terminal or a program.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Principal>,
        /// The event in the message. A nested `ControlReceived` has no effect.
        message: Box<Event>,
    },
}

impl Event {
    /// The event that a control message carries, or the event itself.
    #[must_use]
    pub fn effective(&self) -> &Self {
        if let Self::ControlReceived { message, .. } = self { message } else { self }
    }

    /// The person at a server who sent the event; `None` if nobody did, or the operator of the
    /// machine.
    #[must_use]
    pub fn sender(&self) -> Option<&Principal> {
        if let Self::ControlReceived { by, .. } = self { by.as_ref() } else { None }
    }

    /// The call that the event settles for a person; `None` if it is no decision or answer.
    #[must_use]
    pub fn settled_call(&self) -> Option<CallId> {
        match self.effective() {
            Self::Decided { call, .. } | Self::UserAnswered { call, .. } => Some(*call),
            _ => None,
        }
    }

    /// The plugin's call that the event ends, and its fault; `None` for other events.
    #[must_use]
    pub fn plugin_end(&self) -> Option<(CallId, Option<&Fault>)> {
        match self.effective() {
            Self::AgentStepped { call, answer, .. } => Some((*call, answer.as_ref().err())),
            Self::AgentResponded { call, answer, .. } => Some((*call, answer.as_ref().err())),
            Self::PluginQueried { call, answer, .. } => Some((*call, answer.as_ref().err())),
            Self::StrategyDecided { call, answer, .. } => Some((*call, answer.as_ref().err())),
            Self::ToolAnswered { call, answer: Err(ToolError::Fault { fault }), .. } => {
                Some((*call, Some(fault)))
            }
            Self::ToolAnswered { call, .. } => Some((*call, None)),
            _ => None,
        }
    }

    /// The setup that a room has from this event on; `None` if the event changes none.
    #[must_use]
    pub fn setup(&self) -> Option<&Arc<Setup>> {
        match self {
            Self::RoomOpened { setup, .. } => Some(setup),
            Self::RunStarted { setup, .. } | Self::Resumed { setup, .. } => setup.as_ref(),
            _ => None,
        }
    }
}
