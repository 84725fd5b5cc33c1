//! A script for a delivery strategy: the room is the core's, and each decision is made by the
//! component in a sandbox of its own.

use std::path::Path;
use std::sync::Arc;

use conclave_core::types::delivery::{DeliveryView, Wake};
use conclave_core::types::ids::{CallId, PluginName};
use conclave_core::types::room_secret::RoomSecret;
use conclave_harness::{Answer, Script, play as play_script};
use conclave_runtime::Prepared;
use conclave_runtime::calls::{
    CallStart, NoEffects, NoModels, NoTools, Observer, PluginCall, PluginOutput,
};
use conclave_runtime::kv::MemoryKv;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::{Case, expectation};
use crate::args::OutputArgs;
use crate::commands::call;
use crate::program::error::CliError;
use crate::state::setup;
use crate::state::source::LocatedComponent;

/// Plays the script to the strategy. Returns the guarantees that it broke.
///
/// # Errors
/// If the component is no strategy, or its settings or grants do not fit it.
pub(super) async fn play(
    script: &Script,
    case: &Case,
    (found, beside): (&LocatedComponent, &Path),
    seen: &Arc<expectation::Recorder>,
    output: OutputArgs,
) -> Result<Value, CliError> {
    let host = call::host(Some(Arc::new(MemoryKv::default())))?;
    let follow = setup::follow(output.quiet || output.json);
    let args = (&case.call_of(found), beside);
    let (plugin, prepared) = call::strategy(&host, found, args, &follow).await?;
    let observer = Arc::clone(seen) as Arc<dyn Observer>;
    let mut strategy =
        Strategy { prepared, plugin, observer, calls: 0, runtime: Handle::current() };
    let script = script.clone();
    // The script waits for each decision, which the loop of this thread must not.
    let playing = tokio::task::spawn_blocking(move || {
        play_script(&script, &mut |wake, view, scratch| strategy.decide(wake, view, scratch))
    });
    let report = playing.await.map_err(|error| CliError::internal(error.to_string()))?;
    let broken = report.check_but(&case.but).err();
    Ok(json!({ "broken": broken.map(|broken| broken.to_string()) }))
}

/// A strategy that is called outside a run.
struct Strategy {
    prepared: Prepared,
    plugin: PluginName,
    observer: Arc<dyn Observer>,
    calls: u64,
    runtime: Handle,
}

impl Strategy {
    fn decide(&mut self, wake: &Wake, view: &DeliveryView, scratch: &[u8]) -> Answer {
        // Its randomness is derived from the number, so a strategy that uses it answers otherwise
        // when it is asked again.
        self.calls += 1;
        let start = CallStart {
            room: view.room.clone(),
            secret: RoomSecret::WITHHELD,
            call: CallId(self.calls),
            plugin: self.plugin.clone(),
            setup: None,
            now: view.now,
            scratch: Arc::new(scratch.to_vec()),
            trace: Arc::default(),
            task: None,
            models: Arc::new(NoModels),
            tools: Arc::new(NoTools),
            effects: Arc::new(NoEffects),
            observer: Arc::clone(&self.observer),
        };
        let call = PluginCall::Decide { wake: wake.clone(), view: view.clone() };
        let answer = self.runtime.block_on(self.prepared.calls().call(start, call));
        let decisions = match answer.output {
            PluginOutput::Decide(decisions) => decisions.map_err(|fault| fault.message),
            _ => Err("its answer is none of a strategy".to_owned()),
        };
        let scratch = answer.report.scratch.unwrap_or_else(|| scratch.to_vec());
        Answer { decisions, scratch }
    }
}
