//! An acting agent: each step is an action, an executor carries it out, and the agent reads the
//! observation. All steps are in one run, to expose costs that grow with the history.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use conclave_core::config::Config;
use conclave_core::protocol::event::Event;
use conclave_core::types::plan::Plan;
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber, Subscribers};
use conclave_runtime::{Host, RunInput, RunOptions};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::BenchError;

/// Without loop detection and limits, because the agent repeats one action.
const CONFIG: &str = r#"
entry = "main"
[plugins.agent]
source = "acting_agent.wasm"
grants.tools = ["terminal.*"]
config = { script = [{ action = "run", args = { command = "echo hi" } }], repeat = true, report = false }
[plugins.terminal]
source = "stub_terminal.wasm"
[[policy]]
tool = "*"
decide = "allow"
[tasks.main]
agent = "agent"
action_plugins = ["terminal"]
stuck_detection = false
loop_detection = { cycle_len = 0 }
[limits.run]
turns = 100_000
task_turns = 100_000
tool_calls = 100_000
history = "4 GiB"
cpu = "1 h"
wall = "1 h"
"#;

/// Returns the times of so many steps of one run, each with the executor's answer before it.
pub(crate) async fn steps(
    host: &Host,
    guests: &Path,
    steps: usize,
) -> Result<Vec<Duration>, BenchError> {
    let folder = std::path::absolute(guests)
        .map_err(|cause| BenchError::Component { path: guests.to_owned(), cause })?;
    let config = Config::parse("acting.toml", &folder.to_string_lossy(), CONFIG);
    let config = config.map_err(|problems| BenchError::Conclave(problems.to_string()))?;
    let prepared =
        host.load(&config).await.map_err(|error| BenchError::Conclave(error.to_string()))?;
    let ends = Arc::new(Ends { at: Mutex::default(), wanted: steps + 1, all: Notify::new() });
    let options = RunOptions {
        subscribers: Subscribers::new([Arc::clone(&ends) as Arc<dyn Subscriber>]),
        ..RunOptions::default()
    };
    let mut session =
        prepared.session(options).map_err(|error| BenchError::Conclave(error.to_string()))?;
    // The run never ends by itself.
    tokio::select! {
        ended = session.run(RunInput::from("go")) => return Err(BenchError::Answer(format!("{ended:?}"))),
        () = ends.all.notified() => {}
    }
    let at = ends.at.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(at.windows(2).map(|pair| pair[1].duration_since(pair[0])).collect())
}

/// The end time of each step of the agent.
struct Ends {
    at: Mutex<Vec<Instant>>,
    wanted: usize,
    all: Notify,
}

impl Subscriber for Ends {
    fn on(&self, happening: &Published) {
        if let RunEvent::Recorded { record } = &happening.what
            && matches!(record.event, Event::AgentStepped { .. })
        {
            let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
            at.push(Instant::now());
            if at.len() == self.wanted {
                self.all.notify_one();
            }
        }
    }
}

/// Returns a plan of so many tasks, a hundred to a goal.
pub(crate) fn plan(tasks: usize) -> Result<Plan, BenchError> {
    let mut plan = Plan::default();
    let mut left = tasks;
    while left > 0 {
        let below = (left - 1).min(99);
        let subtasks: Vec<Value> =
            (0..below).map(|at| json!({ "goal": format!("light lamp {at}") })).collect();
        let added = plan.add("", "light the lamps", &json!(subtasks));
        added.map_err(|error| BenchError::Answer(error.to_string()))?;
        left -= below + 1;
    }
    Ok(plan)
}
