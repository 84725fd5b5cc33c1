//! Calls into plugins, as the driver asks for them. Components are one source; tests and embedders
//! can put in their own.

use std::sync::Arc;

use conclave_core::protocol::call_log::{CallLog, LoggedRead};
use conclave_core::setup::TaskSetup;
use conclave_core::setup::plugin_query::{PluginQuery, PluginReply};
use conclave_core::types::action::Turn;
use conclave_core::types::completion::{Completion, ModelError, ModelRequest};
use conclave_core::types::delivery::{Decision, DeliveryView, Wake};
use conclave_core::types::denial::{Denial, DenialRecord};
use conclave_core::types::fault::{CallReport, Fault};
use conclave_core::types::ids::{CallId, Millis, PluginName, RoomId, TaskName};
use conclave_core::types::room_secret::RoomSecret;
use conclave_core::types::side_effect::{SideEffect, SideEffectAnswer};
use conclave_core::types::tool::{ToolError, ToolOutcome};
use conclave_core::types::view::AgentView;
use serde_json::Value;

use crate::observe::subscribe::Level;
use crate::support::clock::BoxFuture;

/// What every call starts with.
pub struct CallStart {
    pub room: RoomId,
    /// What the call's randomness is derived from.
    pub secret: RoomSecret,
    pub call: CallId,
    pub plugin: PluginName,
    /// The time that the guest sees.
    pub now: Millis,
    pub scratch: Arc<Vec<u8>>,
    /// What the call was told before the host stopped; empty when it is run for the first time.
    pub trace: Arc<CallLog>,
    /// The task that an agent works on, which may leave less of its grants; none for tools and
    /// strategies.
    pub task: Option<(TaskName, Arc<TaskSetup>)>,
    pub models: Arc<dyn ModelPort>,
    pub effects: Arc<dyn EffectPort>,
    pub observer: Arc<dyn Observer>,
}

/// What a tool call starts with besides.
pub struct ToolStart {
    pub task: TaskName,
    /// The plugin of the agent that called.
    pub caller: PluginName,
    /// Without the plugin's name.
    pub tool: String,
    pub arguments: Value,
}

/// Where a plugin's model requests go.
pub trait ModelPort: Send + Sync + 'static {
    /// `ordinal` counts the requests of one call from 0. Dropping the future gives up waiting. One
    /// that the call's trace holds without an answer is only waited for.
    fn ask(
        &self,
        call: CallId,
        ordinal: u32,
        request: ModelRequest,
    ) -> BoxFuture<'static, Result<Completion, ModelError>>;
}

/// Where a plugin's side effects are kept before they happen and before it learns of them.
pub trait EffectPort: Send + Sync + 'static {
    /// Keeps what is about to be done, and asks the room; nothing may be done before it says yes.
    /// `ordinal` counts those of one call from 0.
    fn ask(
        &self,
        call: CallId,
        ordinal: u32,
        side_effect: SideEffect,
    ) -> BoxFuture<'static, Result<(), Denial>>;
    /// Keeps what a call has read, before anything that may have come of it is asked for.
    fn read(&self, call: CallId, reads: Vec<LoggedRead>) {
        let _ = (call, reads);
    }
    /// Whether what is kept survives a power cut. Then what was done must survive it too before its
    /// end is kept.
    fn survives_power_cuts(&self) -> bool {
        true
    }
    /// Keeps how it went; the plugin goes on after that.
    fn ended(&self, call: CallId, ordinal: u32, answer: SideEffectAnswer)
    -> BoxFuture<'static, ()>;
}

/// Nothing is kept, so nothing may be done.
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

/// Who wants to know what a plugin does while it runs.
pub trait Observer: Send + Sync + 'static {
    fn log(&self, call: CallId, level: Level, message: &str);
    fn progress(&self, call: CallId, done: u64, total: Option<u64>, message: &str);
    fn denied(&self, call: CallId, record: &DenialRecord);
}

/// The plugins of a run. Every call ends, within the plugin's limits, with an answer; dropping the
/// future stops the guest.
pub trait Plugins: Send + Sync + 'static {
    fn step(
        &self,
        start: CallStart,
        view: AgentView,
    ) -> BoxFuture<'static, (Result<Turn, Fault>, CallReport)>;
    fn respond(
        &self,
        start: CallStart,
        view: AgentView,
    ) -> BoxFuture<'static, (Result<Option<Turn>, Fault>, CallReport)>;
    fn call_tool(
        &self,
        start: CallStart,
        tool: ToolStart,
    ) -> BoxFuture<'static, (Result<ToolOutcome, ToolError>, CallReport)>;
    /// Memories, a risk, what a history may forget. `view` is what the agent sees.
    fn consult(
        &self,
        start: CallStart,
        question: PluginQuery,
        view: Option<AgentView>,
    ) -> BoxFuture<'static, (Result<PluginReply, Fault>, CallReport)>;
    fn decide(
        &self,
        start: CallStart,
        wake: Wake,
        view: DeliveryView,
    ) -> BoxFuture<'static, (Result<Vec<Decision>, Fault>, CallReport)>;
    /// Whether a tool of the plugin could be called with these arguments; else why not, for the
    /// model. Nothing is started. Without a schema to hold them against, every call could run.
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
