//! The subject: the same component behind Conclave's public API, with admission, grants, limits and
//! the call's report.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use conclave_core::config::Config;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::history::History;
use conclave_core::types::ids::{PluginName, TaskName};
use conclave_core::types::limits::PluginLimits;
use conclave_core::types::message::{Message, Role};
use conclave_core::types::outcome::Status;
use conclave_core::types::view::{AgentView, Remaining};
use conclave_runtime::batch::{Batch, ItemEnd};
use conclave_runtime::plugin::Loader;
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber, Subscribers};
use conclave_runtime::{Follow, Host, HostOptions, Prepared, RunInput, RunOptions};
use serde_json::Value;

use crate::BenchError;
use crate::sandbox_calls::SandboxCalls;

/// A host with a task that calls a guest's tool once and answers with its result.
pub(crate) struct Hosted {
    host: Host,
    calls: SandboxCalls,
    echo: PluginName,
    arguments: Arc<Value>,
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
        Ok(Self {
            host,
            calls: SandboxCalls::new(prepared),
            echo: PluginName::from("echo"),
            arguments: Arc::new(arguments.clone()),
        })
    }

    /// Returns the host.
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the loaded config of its runs.
    pub(crate) fn prepared(&self) -> &Prepared {
        self.calls.prepared()
    }

    /// Makes a tool call in its own sandbox and returns the content of the outcome.
    pub(crate) async fn call_fresh(&self) -> Result<String, BenchError> {
        let answer = self.calls.tool(&self.echo, "run", &self.arguments, &Arc::default()).await?;
        Ok(answer.content)
    }

    /// Runs an agent's step in its own sandbox with a history of `messages` messages, and returns
    /// its message.
    pub(crate) async fn step(
        &self,
        agent: &'static str,
        view: AgentView,
    ) -> Result<String, BenchError> {
        self.calls.step(&PluginName::from(agent), view).await
    }

    /// Runs a whole task: the agent steps, the tool runs, the agent steps and finishes. Uses three
    /// sandboxes and stores nothing.
    pub(crate) async fn run_task(&self) -> Result<(), BenchError> {
        let run = self
            .prepared()
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
            self.prepared().batch((0..tasks).map(|_| "go"), RunOptions::default(), &batch).await;
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
            .prepared()
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
            .prepared()
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

/// Returns the folder of compiled code, beside a folder of components.
pub(crate) fn cache(components: &Path) -> PathBuf {
    components.with_file_name("bench-cache")
}

/// Loads the plugins of a config whose paths are relative to `folder`.
pub(crate) async fn loaded(
    host: &Host,
    folder: &Path,
    config: &str,
) -> Result<Prepared, BenchError> {
    let folder = std::path::absolute(folder)
        .map_err(|cause| BenchError::Component { path: folder.to_owned(), cause })?;
    let config = Config::parse("bench.toml", &folder.to_string_lossy(), config)
        .map_err(|problems| BenchError::Conclave(problems.to_string()))?;
    host.load(&config).await.map_err(|error| BenchError::Conclave(error.to_string()))
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
