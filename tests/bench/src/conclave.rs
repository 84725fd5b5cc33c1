//! The subject: the same component behind Conclave's public surface, with admission, grants, limits and the call's report.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conclave_core::config::Config;
use conclave_core::grant::DenialRecord;
use conclave_core::ids::{CallId, Millis, PluginName, RoomId, TaskName};
use conclave_core::model::{Completion, ModelError, ModelRequest};
use conclave_core::outcome::Status;
use conclave_runtime::calls::{CallStart, ModelPort, Observer, ToolStart};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::subscribe::Level;
use conclave_runtime::{Follow, Host, HostOptions, Prepared, RunOptions};
use serde_json::Value;

use crate::BenchError;

/// A host with a task that calls the tool of a guest once and answers with what it gave.
pub(crate) struct Hosted {
    prepared: Prepared,
    start: Parts,
    arguments: Value,
    calls: AtomicU64,
}

/// What every call begins with, shared between them as a room does.
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
        let folder = std::path::absolute(guests).map_err(|cause| BenchError::Component { path: guests.to_owned(), cause })?;
        let text = config(arguments);
        let config =
            Config::parse("bench.toml", &folder.to_string_lossy(), &text).map_err(|problems| BenchError::Conclave(problems.to_string()))?;
        let host = Host::new(HostOptions::default()).map_err(|error| BenchError::Conclave(error.to_string()))?;
        let follow: Follow = Arc::new(|_| {});
        let prepared = host.prepare(&config, &follow).await.map_err(|error| BenchError::Conclave(error.to_string()))?;
        let start = Parts {
            room: RoomId::from("bench"),
            plugin: PluginName::from("echo"),
            caller: PluginName::from("caller"),
            task: TaskName::from("main"),
            scratch: Arc::default(),
            nobody: Arc::new(Nobody),
        };
        Ok(Self { prepared, start, arguments: arguments.clone(), calls: AtomicU64::new(1) })
    }

    /// One tool call in a sandbox of its own: the content of the outcome.
    pub(crate) async fn call_fresh(&self) -> Result<String, BenchError> {
        let start = CallStart {
            room: self.start.room.clone(),
            call: CallId(self.calls.fetch_add(1, Ordering::Relaxed)),
            plugin: self.start.plugin.clone(),
            now: Millis(0),
            scratch: Arc::clone(&self.start.scratch),
            models: Arc::clone(&self.start.nobody) as Arc<dyn ModelPort>,
            observer: Arc::clone(&self.start.nobody) as Arc<dyn Observer>,
        };
        let tool = ToolStart {
            task: self.start.task.clone(),
            caller: self.start.caller.clone(),
            tool: "run".to_owned(),
            arguments: self.arguments.clone(),
        };
        match self.prepared.calls().call_tool(start, tool).await.0 {
            Ok(outcome) => Ok(outcome.content.unwrap_or_default()),
            Err(error) => Err(BenchError::Answer(error.to_text("echo.run"))),
        }
    }

    /// A whole task: the agent steps, the tool runs, the agent steps and finishes. Three sandboxes, nothing durable.
    pub(crate) async fn run_task(&self) -> Result<(), BenchError> {
        let run =
            self.prepared.start(Some("go".to_owned()), RunOptions::default()).map_err(|error| BenchError::Conclave(error.to_string()))?;
        let outcome = run.outcome().await.map_err(|error| BenchError::Conclave(error.to_string()))?;
        if outcome.status == Status::Done { Ok(()) } else { Err(BenchError::Answer(format!("{outcome:?}"))) }
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
[tasks.main]
agent = "caller"
"#
    )
}

/// Nobody follows, and there is no model.
struct Nobody;

impl ModelPort for Nobody {
    fn ask(&self, _: CallId, _: u32, _: ModelRequest) -> BoxFuture<'static, Result<Completion, ModelError>> {
        Box::pin(std::future::ready(Err(ModelError::Other { message: "there is no model here".to_owned() })))
    }
}

impl Observer for Nobody {
    fn log(&self, _: CallId, _: Level, _: &str) {}
    fn progress(&self, _: CallId, _: u64, _: Option<u64>, _: &str) {}
    fn denied(&self, _: CallId, _: &DenialRecord) {}
}
