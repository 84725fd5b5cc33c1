//! Calls of tools and agents, each in a fresh sandbox and without a room: what the call itself
//! costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conclave_core::types::action::Action;
use conclave_core::types::completion::{
    Completion, ModelError, ModelRequest, StopReason, TokenUsage,
};
use conclave_core::types::denial::DenialRecord;
use conclave_core::types::ids::{CallId, Millis, PluginName, RoomId, TaskName};
use conclave_core::types::room_secret::RoomSecret;
use conclave_core::types::view::AgentView;
use conclave_runtime::Prepared;
use conclave_runtime::calls::{
    CallStart, ModelPort, NoEffects, NoSignatures, NoTools, Observer, PluginCall, PluginOutput,
    ToolInput,
};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::subscribe::Level;
use serde_json::Value;

use crate::BenchError;

/// Makes calls. What all of them share is shared as in a room.
pub(crate) struct SandboxCalls {
    prepared: Prepared,
    room: RoomId,
    caller: PluginName,
    task: TaskName,
    nobody: Arc<Nobody>,
    next: AtomicU64,
}

/// The end of a tool call that succeeded.
pub(crate) struct ToolAnswer {
    pub(crate) content: String,
    /// The peak of all memories of the sandbox, in bytes.
    pub(crate) memory: u64,
    /// The scratch after the call; `None` if the call did not set it.
    pub(crate) scratch: Option<Vec<u8>>,
}

impl SandboxCalls {
    pub(crate) fn new(prepared: Prepared) -> Self {
        Self {
            prepared,
            room: RoomId::from("bench"),
            caller: PluginName::from("caller"),
            task: TaskName::from("main"),
            nobody: Arc::new(Nobody),
            next: AtomicU64::new(1),
        }
    }

    /// Returns the loaded config of the plugins.
    pub(crate) fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    /// Calls a tool that has this scratch.
    pub(crate) async fn tool(
        &self,
        plugin: &PluginName,
        tool: &str,
        arguments: &Arc<Value>,
        scratch: &Arc<Vec<u8>>,
    ) -> Result<ToolAnswer, BenchError> {
        let input = ToolInput {
            task: self.task.clone(),
            caller: self.caller.clone(),
            tool: tool.to_owned(),
            arguments: Arc::clone(arguments),
            conversation: None,
            callable: None,
        };
        let start = self.start(plugin, scratch);
        let answer = self.prepared.calls().call(start, PluginCall::Tool(input)).await;
        match answer.output {
            PluginOutput::Tool(Ok(outcome)) => Ok(ToolAnswer {
                content: outcome.content.unwrap_or_default(),
                memory: answer.report.memory,
                scratch: answer.report.scratch,
            }),
            PluginOutput::Tool(Err(error)) => Err(BenchError::Answer(error.to_text(tool))),
            other => Err(BenchError::Answer(format!("{other:?}"))),
        }
    }

    /// Runs an agent's step and returns its message.
    pub(crate) async fn step(
        &self,
        agent: &PluginName,
        view: AgentView,
    ) -> Result<String, BenchError> {
        let start = self.start(agent, &Arc::default());
        match self.prepared.calls().call(start, PluginCall::Step { view }).await.output {
            PluginOutput::Step(Ok(turn)) => match turn.action {
                Action::Finish { outputs } => Ok(outputs.to_string()),
                Action::Reply(reply) => Ok(reply.content.unwrap_or_default()),
                other => Err(BenchError::Answer(format!("{other:?}"))),
            },
            PluginOutput::Step(Err(fault)) => Err(BenchError::Answer(fault.message)),
            other => Err(BenchError::Answer(format!("{other:?}"))),
        }
    }

    fn start(&self, plugin: &PluginName, scratch: &Arc<Vec<u8>>) -> CallStart {
        CallStart {
            room: self.room.clone(),
            secret: RoomSecret::new([7; RoomSecret::LENGTH]),
            call: CallId(self.next.fetch_add(1, Ordering::Relaxed)),
            plugin: plugin.clone(),
            setup: None,
            now: Millis(0),
            scratch: Arc::clone(scratch),
            trace: Arc::default(),
            task: None,
            models: Arc::clone(&self.nobody) as Arc<dyn ModelPort>,
            tools: Arc::new(NoTools),
            effects: Arc::new(NoEffects),
            signatures: Arc::new(NoSignatures),
            observer: Arc::clone(&self.nobody) as Arc<dyn Observer>,
        }
    }
}

/// The clients of a run without subscribers. The model answers at once and always alike.
struct Nobody;

impl ModelPort for Nobody {
    fn ask(
        &self,
        _: CallId,
        _: u32,
        _: ModelRequest,
    ) -> BoxFuture<'static, Result<Completion, ModelError>> {
        let completion = Completion {
            id: "1".to_owned(),
            content: Some(crate::rows::QUESTION.to_owned()),
            reasoning: None,
            tool_calls: Vec::new(),
            stop: StopReason::End,
            usage: TokenUsage::default(),
            model: "bench".to_owned(),
        };
        Box::pin(std::future::ready(Ok(completion)))
    }
}

impl Observer for Nobody {
    fn log(&self, _: CallId, _: Level, _: &str) {}
    fn progress(&self, _: CallId, _: u64, _: Option<u64>, _: &str) {}
    fn denied(&self, _: CallId, _: &DenialRecord) {}
}
