//! Crash recovery with calls in progress: a second host resumes from the journal of the first
//! (C-318).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::journal::recovery::INTERRUPTED;
use conclave_core::types::ids::RoomId;
use conclave_runtime::config::Config;
use conclave_runtime::native::{Plugin, Tool};
use conclave_runtime::{Host, HostOptions, Prepared, RunInput, RunOptions};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::Runner;
use crate::case_store::CaseStore;
use crate::toml_text::{string, value};

/// The room id, which is also the name of its journal.
const ROOM: &str = "crash";

/// Tools of the embedding program. Their effects cannot be undone, so none may happen twice.
struct World {
    /// The number of executions of each tool.
    executed: Mutex<BTreeMap<String, usize>>,
    /// Notified each time a tool begins.
    begun: Notify,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { executed: Mutex::default(), begun: Notify::new() })
    }

    fn executed(&self) -> Vec<String> {
        self.executed.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Returns a plugin with these tools, none of which ever answers.
    fn plugin(self: &Arc<Self>, names: &[String]) -> Plugin {
        let tool = |name: &String| {
            let (world, of) = (Arc::clone(self), name.clone());
            Tool::new(name, "Changes the world.", json!({ "type": "object" }), move |_| {
                *world
                    .executed
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .entry(of.clone())
                    .or_default() += 1;
                world.begun.notify_one();
                std::future::pending::<Result<String, conclave_runtime::native::Failure>>()
            })
        };
        Plugin::tools("world", names.iter().map(tool))
    }

    /// Creates a host with these tools, as a separate process would.
    async fn host(self: &Arc<Self>, runner: &Runner, names: &[String]) -> Result<Prepared, String> {
        let options = HostOptions {
            cache: runner.cache.clone(),
            native: vec![self.plugin(names)],
            ..HostOptions::default()
        };
        let host = Host::new(options).map_err(|error| error.to_string())?;
        let text = config(&runner.folder, names)?;
        let config = Config::parse("conclave.toml", "/", &text)
            .map_err(|problems| format!("the config is refused:\n{problems}"))?;
        host.load(&config).await.map_err(|error| format!("the config does not fit:\n{error}"))
    }
}

/// Returns the config of an agent that makes all calls at once and reports their results.
fn config(guests: &Path, names: &[String]) -> Result<String, String> {
    let calls: Vec<Value> = names.iter().map(|name| json!([format!("world.{name}"), {}])).collect();
    let script = value(&json!({ "script": [{ "calls": calls }] })).ok_or("a script holds null")?;
    let agent = string(&guests.join("acting_agent.wasm").to_string_lossy());
    Ok(format!(
        "entry = \"main\"\n[plugins.agent]\nsource = {agent}\nconfig = {script}\ngrants.tools = [\"world.*\"]\n\
         [plugins.world]\nsource = \"native:world\"\n[[policy]]\ntool = \"*\"\ndecide = \"allow\"\n[tasks.main]\nagent = \"agent\"\n"
    ))
}

fn options(store: &CaseStore) -> RunOptions {
    RunOptions {
        ids: Arc::new(RoomId::from(ROOM)),
        journals: store.journals(),
        ..RunOptions::default()
    }
}

/// Stops a host with these calls in progress. Returns what a second host reports and does with the
/// journal of that moment.
pub(super) async fn play(runner: &Runner, names: Vec<String>) -> Result<Value, String> {
    let (first, room) = (CaseStore::new()?, RoomId::from(ROOM));
    let before = World::new();
    let mut session = before
        .host(runner, &names)
        .await?
        .session(options(&first))
        .map_err(|error| error.to_string())?;
    let crash = async {
        while before.executed().len() < names.len() {
            before.begun.notified().await;
        }
        // The journal as a killed process leaves it: no record is added after this.
        first.after_kill(&room).await
    };
    let second = tokio::select! {
        ended = session.run(RunInput::from("go")) => return Err(format!("it ended before the host was gone: {ended:?}")),
        second = crash => second?,
    };
    drop(session);

    let after = World::new();
    let prepared = after.host(runner, &names).await?;
    let mut session =
        prepared.reopen(&room, options(&second)).await.map_err(|error| error.to_string())?;
    if !session.is_cut_off() {
        return Err("the journal holds nothing that was cut off".to_owned());
    }
    let outcome = session.resume().await.map_err(|error| error.to_string())?;
    let told = outcome
        .value
        .clone()
        .or_else(|| serde_json::from_str(outcome.content.as_deref()?).ok())
        .unwrap_or_default();
    Ok(
        json!({ "errors_after_restart": interrupted(&told), "re_executed": after.executed(), "outcome": told }),
    )
}

/// Returns the calls that were reported to the agent as interrupted.
fn interrupted(told: &Value) -> Vec<String> {
    let steps = told["steps"].as_array().into_iter().flatten();
    let observations = steps
        .flat_map(|step| step["since"].as_array().into_iter().flatten())
        .map(|past| &past["observation"]);
    let cut_off = observations
        .filter(|seen| seen["content"].as_str().is_some_and(|text| text.contains(INTERRUPTED)));
    let name = |seen: &Value| {
        seen["tool"].as_str().map(|tool| tool.trim_start_matches("world.").to_owned())
    };
    cut_off.filter_map(name).collect()
}
