//! The subject: the same component behind Conclave's public API, with admission, grants, limits and
//! the call's report.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use conclave_core::config::Config;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::action::Action;
use conclave_core::types::completion::{
    Completion, ModelError, ModelRequest, StopReason, TokenUsage,
};
use conclave_core::types::denial::DenialRecord;
use conclave_core::types::history::History;
use conclave_core::types::ids::{CallId, Millis, PluginName, RoomId, TaskName};
use conclave_core::types::limits::PluginLimits;
use conclave_core::types::message::{Message, Role};
use conclave_core::types::outcome::Status;
use conclave_core::types::room_secret::RoomSecret;
use conclave_core::types::view::{AgentView, Remaining};
use conclave_runtime::batch::{Batch, ItemEnd};
use conclave_runtime::calls::{
    CallStart, ModelPort, NoEffects, NoTools, Observer, PluginCall, PluginOutput, ToolInput,
};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::plugin::Loader;
use conclave_runtime::subscribe::{Level, Published, RunEvent, Subscriber, Subscribers};
use conclave_runtime::{Follow, Host, HostOptions, Prepared, RunInput, RunOptions};
use serde_json::Value;

use crate::BenchError;

/// A host with a task that calls a guest's tool once and answers with its result.
pub(crate) struct Hosted {
    host: Host,
    prepared: Prepared,
    start: Parts,
    arguments: Arc<Value>,
    calls: AtomicU64,
}

/// The inputs of every call, shared as in a room.
struct Parts {
    room: RoomId,
    plugin: PluginName,
    caller: PluginName,
    task: TaskName,
    scratch: Arc<Vec<u8>>,
    nobody: Arc<Nobody>,
}

impl Hosted {
    pub(crate) async fn prepare(guests: &Path, arguments: &Value) -> Result<Self, BenchError> {
        let folder = std::path::absolute(guests)
            .map_err(|cause| BenchError::Component { path: guests.to_owned(), cause })?;
        let replies = folder.join("bench-replies.json");
        fs::write(&replies, "{ \"replies\": [\"x\"] }")
            .map_err(|cause| BenchError::Write { path: replies.clone(), cause })?;
        let text = config(arguments);
        let config = Config::parse("bench.toml", &folder.to_string_lossy(), &text)
            .map_err(|problems| BenchError::Conclave(problems.to_string()))?;
        let host = Host::new(HostOptions::default())
            .map_err(|error| BenchError::Conclave(error.to_string()))?;
        let follow: Follow = Arc::new(|_| {});
        let prepared = host
            .prepare(&config, &follow)
            .await
            .map_err(|error| BenchError::Conclave(error.to_string()))?;
        let start = Parts {
            room: RoomId::from("bench"),
            plugin: PluginName::from("echo"),
            caller: PluginName::from("caller"),
            task: TaskName::from("main"),
            scratch: Arc::default(),
            nobody: Arc::new(Nobody),
        };
        Ok(Self {
            host,
            prepared,
            start,
            arguments: Arc::new(arguments.clone()),
            calls: AtomicU64::new(1),
        })
    }

    /// Returns the host.
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the loaded config of its runs.
    pub(crate) fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    /// Makes a tool call in its own sandbox and returns the content of the outcome.
    pub(crate) async fn call_fresh(&self) -> Result<String, BenchError> {
        let start = self.start(&self.start.plugin);
        let tool = ToolInput {
            task: self.start.task.clone(),
            caller: self.start.caller.clone(),
            tool: "run".to_owned(),
            arguments: Arc::clone(&self.arguments),
            conversation: None,
            callable: None,
        };
        match self.prepared.calls().call(start, PluginCall::Tool(tool)).await.output {
            PluginOutput::Tool(Ok(outcome)) => Ok(outcome.content.unwrap_or_default()),
            PluginOutput::Tool(Err(error)) => Err(BenchError::Answer(error.to_text("echo.run"))),
            other => Err(BenchError::Answer(format!("{other:?}"))),
        }
    }

    /// Runs an agent's step in its own sandbox with a history of `messages` messages, and returns
    /// its message.
    pub(crate) async fn step(
        &self,
        agent: &'static str,
        view: AgentView,
    ) -> Result<String, BenchError> {
        let start = self.start(&PluginName::from(agent));
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

    fn start(&self, plugin: &PluginName) -> CallStart {
        CallStart {
            room: self.start.room.clone(),
            secret: RoomSecret::new([7; RoomSecret::LENGTH]),
            call: CallId(self.calls.fetch_add(1, Ordering::Relaxed)),
            plugin: plugin.clone(),
            now: Millis(0),
            scratch: Arc::clone(&self.start.scratch),
            trace: Arc::default(),
            task: None,
            models: Arc::clone(&self.start.nobody) as Arc<dyn ModelPort>,
            tools: Arc::new(NoTools),
            effects: Arc::new(NoEffects),
            observer: Arc::clone(&self.start.nobody) as Arc<dyn Observer>,
        }
    }

    /// Runs a whole task: the agent steps, the tool runs, the agent steps and finishes. Uses three
    /// sandboxes and stores nothing.
    pub(crate) async fn run_task(&self) -> Result<(), BenchError> {
        let run = self
            .prepared
            .start(Some("go".to_owned()), RunOptions::default())
            .map_err(|error| BenchError::Conclave(error.to_string()))?;
        let outcome =
            run.outcome().await.map_err(|error| BenchError::Conclave(error.to_string()))?;
        if outcome.status == Status::Done {
            Ok(())
        } else {
            Err(BenchError::Answer(format!("{outcome:?}")))
        }
    }

    /// Runs the same task `tasks` times, four at once.
    pub(crate) async fn run_batch(&self, tasks: u32) -> Result<(), BenchError> {
        let batch = Batch { concurrency: 4, ..Batch::default() };
        let done =
            self.prepared.batch((0..tasks).map(|_| "go"), RunOptions::default(), &batch).await;
        let is_done = |item: &ItemEnd<_, _>| matches!(item, ItemEnd::Value(_));
        match done.items.iter().find(|item| !is_done(item)) {
            None if done.items.len() == tasks as usize => Ok(()),
            other => Err(BenchError::Answer(format!("{other:?}"))),
        }
    }

    /// Returns the time of each pair of the 10 000 steps of one run: an agent's step and the host's
    /// answer to it.
    pub(crate) async fn run_steps(&self) -> Result<Vec<Duration>, BenchError> {
        let ends = Arc::new(Ends::default());
        let options = RunOptions {
            subscribers: Subscribers::new([Arc::clone(&ends) as Arc<dyn Subscriber>]),
            ..RunOptions::default()
        };
        let mut session = self
            .prepared
            .session(options)
            .map_err(|error| BenchError::Conclave(error.to_string()))?;
        let ask = RunInput { entry: Some(TaskName::from("talk")), ..RunInput::from("go") };
        let outcome =
            session.run(ask).await.map_err(|error| BenchError::Conclave(error.to_string()))?;
        if outcome.status != Status::FixedTurns {
            return Err(BenchError::Answer(format!("{outcome:?}")));
        }
        let ends = ends.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(ends.windows(2).map(|pair| pair[1].duration_since(pair[0])).collect())
    }

    /// Runs so many steps, half of which are the host's answers, with these subscribers.
    pub(crate) async fn talk(&self, turns: u32, to: Subscribers) -> Result<(), BenchError> {
        let options = RunOptions { subscribers: to, ..RunOptions::default() };
        let mut session = self
            .prepared
            .session(options)
            .map_err(|error| BenchError::Conclave(error.to_string()))?;
        let entry = Some(TaskName::from("talk"));
        let ask = RunInput { entry, turns: Some(turns), ..RunInput::from("go") };
        let outcome =
            session.run(ask).await.map_err(|error| BenchError::Conclave(error.to_string()))?;
        match outcome.status {
            Status::FixedTurns => Ok(()),
            _ => Err(BenchError::Answer(format!("{outcome:?}"))),
        }
    }
}

/// The end time of each step.
#[derive(Default)]
struct Ends(Mutex<Vec<Instant>>);

impl Subscriber for Ends {
    fn on(&self, happening: &Published) {
        // Only the agent's steps count; each time includes the host's answer before it.
        if let RunEvent::Notice { notice: Notice::StepEnded { by, .. } } = &happening.what
            && by == "llm"
        {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        }
    }
}

fn config(arguments: &Value) -> String {
    let text = arguments.get("text").and_then(Value::as_str).unwrap_or_default();
    format!(
        r#"
entry = "main"
[plugins.caller]
source = "agent_caller.wasm"
grants.tools = ["echo.*"]
config = {{ tool = "echo.run", arguments = {{ text = "{text}" }} }}
[plugins.echo]
source = "echo.wasm"
[plugins.agent]
source = "agent_echo.wasm"
[plugins.talker]
source = "agent_loop.wasm"
[plugins.chat]
source = "../stock/chat.wasm"
grants.model = ["default"]
[models.default]
kind = "scripted"
replies = "bench-replies.json"
[tasks.talk]
agent = "talker"
turns = 10_000
on_no_tool_call = {{ nudge = "go on" }}
[limits.run]
turns = 200_000
[tasks.step]
agent = "agent"
[tasks.chat]
agent = "chat"
[tasks.main]
agent = "caller"
"#
    )
}

/// Returns a view with a history of `messages` messages, as a room would create it.
pub(crate) fn view(messages: u64) -> AgentView {
    let mut history = History::default();
    for seq in 0..messages {
        history.push(&Arc::new(message(seq)));
    }
    AgentView {
        task: TaskName::from("step"),
        inputs: Arc::new(serde_json::json!({})),
        pending: history.last().cloned(),
        history,
        since: Arc::default(),
        latest_user_message: None,
        plan: Arc::default(),
        outputs: Arc::default(),
        spent: conclave_core::types::usage::Spent::default(),
        level: 0,
        last_error: None,
        tools: Arc::default(),
        peers: Arc::default(),
        remaining: Remaining::default(),
        iteration: 0,
    }
}

fn message(seq: u64) -> Message {
    Message {
        content: Some(crate::rows::QUESTION.to_owned()),
        ..Message::new(seq, Role::User, "terminal")
    }
}

/// Loads the component of the guest `echo` as a run does: hash, manifest, code, list of tools.
pub(crate) async fn load(loader: &Loader, wasm: &[u8]) -> Result<(), BenchError> {
    let loaded =
        loader.load(wasm.to_vec(), &PluginLimits::default(), &serde_json::json!({}), || {}).await;
    loaded.map(drop).map_err(|error| BenchError::Conclave(error.to_string()))
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
