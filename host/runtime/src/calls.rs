//! The port through which the driver calls plugins: one call, one answer. Sandboxes and native
//! plugins are behind it.

use std::path::Path;
use std::sync::Arc;

use conclave_core::protocol::call_log::{CallLog, LoggedRead};
use conclave_core::setup::plugin_query::{PluginQuery, PluginReply};
use conclave_core::setup::{PluginSetup, TaskSetup};
use conclave_core::types::action::Turn;
use conclave_core::types::completion::{Completion, ModelError, ModelRequest};
use conclave_core::types::delivery::{Decision, DeliveryView, Wake};
use conclave_core::types::denial::{Denial, DenialRecord};
use conclave_core::types::fault::{CallReport, Fault};
use conclave_core::types::ids::{CallId, Millis, PluginName, RoomId, TaskName};
use conclave_core::types::room_secret::RoomSecret;
use conclave_core::types::side_effect::{SideEffect, SideEffectAnswer};
use conclave_core::types::tool::{
    CallableTool, NestedAnswer, NestedCall, NestedError, ToolError, ToolOutcome,
};
use conclave_core::types::view::{AgentView, ConversationView};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::observe::subscribe::Level;
use crate::support::clock::BoxFuture;

/// The conditions of a call: its plugin, its room and the ports that it may use.
pub struct CallStart {
    /// The room that makes the call.
    pub room: RoomId,
    /// The secret from which the call's randomness is derived.
    pub secret: RoomSecret,
    /// The call, as the room's journal numbers it.
    pub call: CallId,
    /// The plugin that is called, by its name in the config.
    pub plugin: PluginName,
    /// The plugin's setup in this room. Its grants and limits are those of the call: a resumed room
    /// can have less than today's config grants. `None` if the config's own hold.
    pub setup: Option<Arc<PluginSetup>>,
    /// The time that the guest sees.
    pub now: Millis,
    /// The plugin's scratch as its last answered call left it; empty if it never set one.
    pub scratch: Arc<Vec<u8>>,
    /// The results of the call before a restart; empty for its first run.
    pub trace: Arc<CallLog>,
    /// The task of an agent, which may narrow its grants; `None` for tools and strategies.
    pub task: Option<(TaskName, Arc<TaskSetup>)>,
    /// The port that answers the call's model requests.
    pub models: Arc<dyn ModelPort>,
    /// The port that answers the nested calls of a tool.
    pub tools: Arc<dyn ToolPort>,
    /// The port that journals the call's side effects; [`NoEffects`] refuses them all.
    pub effects: Arc<dyn EffectPort>,
    /// The port that verifies a request to a channel; [`NoSignatures`] in every other call.
    pub signatures: Arc<dyn SignaturePort>,
    /// The receiver of the call's log, progress and denials.
    pub observer: Arc<dyn Observer>,
}

/// A function of a plugin, with its input.
#[derive(Clone, Debug)]
pub enum PluginCall {
    /// A step of an agent.
    Step {
        /// The view of the agent's task.
        view: AgentView,
    },
    /// The question to a responder whether it answers.
    Respond {
        /// The view of the responder's task.
        view: AgentView,
    },
    /// A tool of the plugin.
    Tool(ToolInput),
    /// A query to a plugin of another kind.
    Query {
        /// The query, whose kind names the exported interface.
        query: PluginQuery,
        /// The view of the calling task; `None` for kinds that read none.
        view: Option<AgentView>,
    },
    /// A wake-up of a delivery strategy.
    Decide {
        /// The reason for the wake-up, such as the end of a background task.
        wake: Wake,
        /// The strategy's snapshot of the room.
        view: DeliveryView,
    },
}

/// The input of a tool.
#[derive(Clone, Debug)]
pub struct ToolInput {
    /// The task of the calling agent.
    pub task: TaskName,
    /// The plugin of the calling agent.
    pub caller: PluginName,
    /// The name without the plugin's.
    pub tool: String,
    /// A JSON object, not yet checked against the tool's schema.
    pub arguments: Arc<Value>,
    /// The conversation around the call; `None` if the plugin may not read it.
    pub conversation: Option<ConversationView>,
    /// The tools that it may call; `None` if the plugin may call none.
    pub callable: Option<Arc<Vec<CallableTool>>>,
}

/// The function that a [`PluginCall`] calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// `step` of an agent.
    Step,
    /// `respond` of a responder.
    Respond,
    /// `call` of a plugin with tools.
    Tool,
    /// The function of a plugin of another kind that answers the query.
    Query,
    /// `decide` of a delivery strategy.
    Decide,
}

/// The answer to a call, and its usage and denials.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginAnswer {
    /// The output of the function that was called.
    pub output: PluginOutput,
    /// Empty if nothing was started.
    pub report: CallReport,
}

/// The output of a function, or why it has none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PluginOutput {
    /// The agent's turn.
    Step(Result<Turn, Fault>),
    /// `None` if the responder does not answer.
    Respond(Result<Option<Turn>, Fault>),
    /// The tool's outcome; an error is for the model to read.
    Tool(Result<ToolOutcome, ToolError>),
    /// The reply, of the query's kind.
    Query(Result<PluginReply, Fault>),
    /// The strategy's decisions, in order; the room checks them.
    Decide(Result<Vec<Decision>, Fault>),
}

impl PluginCall {
    /// The function that is called.
    #[must_use]
    pub fn kind(&self) -> CallKind {
        match self {
            Self::Step { .. } => CallKind::Step,
            Self::Respond { .. } => CallKind::Respond,
            Self::Tool(_) => CallKind::Tool,
            Self::Query { .. } => CallKind::Query,
            Self::Decide { .. } => CallKind::Decide,
        }
    }
}

impl CallKind {
    /// The output of a call of this kind that ended with a fault.
    #[must_use]
    pub fn failed(self, fault: Fault) -> PluginOutput {
        match self {
            Self::Step => PluginOutput::Step(Err(fault)),
            Self::Respond => PluginOutput::Respond(Err(fault)),
            Self::Tool => PluginOutput::Tool(Err(ToolError::Fault { fault })),
            Self::Query => PluginOutput::Query(Err(fault)),
            Self::Decide => PluginOutput::Decide(Err(fault)),
        }
    }
}

/// The answer to a call that started nothing.
impl From<PluginOutput> for PluginAnswer {
    fn from(output: PluginOutput) -> Self {
        Self { output, report: CallReport::default() }
    }
}

/// Answers the model requests of plugins.
pub trait ModelPort: Send + Sync + 'static {
    /// Sends a request. `ordinal` counts the requests of one call from 0. Dropping the future stops
    /// waiting. A request that the call's trace holds without an answer is only awaited, not sent
    /// again.
    fn ask(
        &self,
        call: CallId,
        ordinal: u32,
        request: ModelRequest,
    ) -> BoxFuture<'static, Result<Completion, ModelError>>;
}

/// Refuses every model request, for calls outside a room.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoModels;

impl ModelPort for NoModels {
    fn ask(
        &self,
        _: CallId,
        _: u32,
        _: ModelRequest,
    ) -> BoxFuture<'static, Result<Completion, ModelError>> {
        let message = "this call has no model".to_owned();
        Box::pin(std::future::ready(Err(ModelError::Other { message })))
    }
}

/// Runs the nested calls of tools.
pub trait ToolPort: Send + Sync + 'static {
    /// Requests calls, which run at the same time. `ordinal` counts the requests of one call from 0.
    /// Dropping the future stops waiting. A request that the call's trace holds without an answer is
    /// only awaited, and its calls are not made again.
    fn ask(
        &self,
        call: CallId,
        ordinal: u32,
        calls: Vec<NestedCall>,
    ) -> BoxFuture<'static, Vec<NestedAnswer>>;
}

/// Refuses every nested call, for calls outside a room.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTools;

impl ToolPort for NoTools {
    fn ask(
        &self,
        _: CallId,
        _: u32,
        calls: Vec<NestedCall>,
    ) -> BoxFuture<'static, Vec<NestedAnswer>> {
        Box::pin(std::future::ready(not_run(
            &calls,
            "this call has no agent whose tools it could use",
        )))
    }
}

/// The answers to calls that were not made.
pub(crate) fn not_run(calls: &[NestedCall], why: &str) -> Vec<NestedAnswer> {
    calls.iter().map(|_| Err(NestedError::Failed { message: why.to_owned() })).collect()
}

/// Journals the side effects of plugins, before they happen and before the plugin learns their
/// outcome.
pub trait EffectPort: Send + Sync + 'static {
    /// Journals a planned side effect and asks the room; it may only happen after `Ok`. `ordinal`
    /// counts the side effects of one call from 0.
    fn ask(
        &self,
        call: CallId,
        ordinal: u32,
        side_effect: SideEffect,
    ) -> BoxFuture<'static, Result<(), Denial>>;
    /// Journals the reads of a call, before it asks for anything that may depend on them.
    fn read(&self, call: CallId, reads: Vec<LoggedRead>) {
        let _ = (call, reads);
    }
    /// Whether the journal survives a power cut. If so, a side effect must be durable before its
    /// end is journalled.
    fn survives_power_cuts(&self) -> bool {
        true
    }
    /// The folder in which the run keeps its overlays of granted folders; `None` if the run is not
    /// stored.
    fn overlay_folder(&self) -> Option<&Path> {
        None
    }
    /// Journals the outcome; the plugin resumes afterwards.
    fn ended(&self, call: CallId, ordinal: u32, answer: SideEffectAnswer)
    -> BoxFuture<'static, ()>;
}

/// Refuses every side effect, for calls without a journal.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEffects;

impl EffectPort for NoEffects {
    fn ask(
        &self,
        _: CallId,
        _: u32,
        side_effect: SideEffect,
    ) -> BoxFuture<'static, Result<(), Denial>> {
        let denial = Denial {
            capability: side_effect.capability().as_str().to_owned(),
            target: side_effect.target().chars().take(256).collect(),
            detail: "this call may do nothing to the world".to_owned(),
        };
        Box::pin(std::future::ready(Err(denial)))
    }

    fn ended(&self, _: CallId, _: u32, _: SideEffectAnswer) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// How a request to a channel proves where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// An HMAC-SHA256 with the channel's secret over bytes that end with the request's body.
    HmacSha256 {
        /// The bytes that are signed.
        data: Vec<u8>,
        /// Their signature.
        signature: Vec<u8>,
    },
    /// The channel's secret itself.
    Token(String),
}

/// Verifies a request to a channel with a secret that its plugin does not read.
pub trait SignaturePort: Send + Sync + 'static {
    /// Whether a proof is valid.
    fn verify(&self, proof: &Proof) -> bool;
}

/// Finds no proof valid.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSignatures;

impl SignaturePort for NoSignatures {
    fn verify(&self, _: &Proof) -> bool {
        false
    }
}

/// Receives the log, progress and refusals of running plugins.
pub trait Observer: Send + Sync + 'static {
    /// Receives a log line of the plugin.
    fn log(&self, call: CallId, level: Level, message: &str);
    /// Receives progress in units of the plugin's own; `total` is `None` if it is unknown.
    fn progress(&self, call: CallId, completed: u64, total: Option<u64>, message: &str);
    /// Receives a denial, while the plugin's call is still running.
    fn denied(&self, call: CallId, record: &DenialRecord);
}

/// The plugins of a run.
pub trait Plugins: Send + Sync + 'static {
    /// Calls a plugin. Every call ends with an answer of its own kind, within the plugin's limits.
    /// Dropping the future stops the plugin.
    fn call(&self, start: CallStart, call: PluginCall) -> BoxFuture<'static, PluginAnswer>;

    /// Checks the arguments of a tool call without starting anything. The error explains the
    /// problem to the model. A tool without a schema accepts everything.
    fn check(
        &self,
        plugin: &PluginName,
        tool: &str,
        arguments: Value,
    ) -> BoxFuture<'static, Result<(), String>> {
        let _ = (plugin, tool, arguments);
        Box::pin(std::future::ready(Ok(())))
    }
}
