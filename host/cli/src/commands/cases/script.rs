//! A script for a delivery strategy: the room is the core's, and each decision is made by the
//! component in a sandbox of its own.

use std::path::Path;
use std::sync::Arc;

use conclave_core::permissions::manifest::Manifest;
use conclave_core::types::capability::Capability;
use conclave_core::types::ids::{CallId, PluginName};
use conclave_core::types::room_secret::RoomSecret;
use conclave_harness::{Answer, Question, Script, play as play_script};
use conclave_runtime::Prepared;
use conclave_runtime::calls::{
    CallStart, NoEffects, NoModels, NoSignatures, NoTools, Observer, PluginCall, PluginOutput,
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
/// If the component is no strategy, or the channels of the script, its settings or grants do not
/// fit it.
pub(super) async fn play(
    script: &Script,
    case: &Case,
    (found, beside): (&LocatedComponent, &Path),
    seen: &Arc<expectation::Recorder>,
    output: OutputArgs,
) -> Result<Value, CliError> {
    let host = call::host(Some(Arc::new(MemoryKv::default())))?;
    let follow = setup::follow(output.result_only());
    let args = (&case.call_of(found), beside);
    let (plugin, prepared) = call::strategy(&host, found, args, &follow).await?;
    check_channels(script, &found.inspection.manifest)?;
    let mut strategy = Strategy {
        prepared,
        plugin,
        reported: Arc::clone(seen) as Arc<dyn Observer>,
        unreported: Arc::new(expectation::Recorder::default()),
        calls: 0,
        runtime: Handle::current(),
    };
    let script = script.clone();
    // The script waits for each decision, which the loop of this thread must not.
    let playing = tokio::task::spawn_blocking(move || {
        play_script(&script, &mut |question| strategy.decide(question))
    });
    let report = playing.await.map_err(|error| CliError::internal(error.to_string()))?;
    let broken = report.check_but(&case.but).err();
    let broken = broken.iter().flat_map(|broken| broken.breaches()).map(ToString::to_string);
    Ok(json!({ "broken": broken.collect::<Vec<_>>() }))
}

/// Checks that the manifest asks for channels if the script has any. In a run the strategy would
/// have none, whatever its grants are.
fn check_channels(script: &Script, manifest: &Manifest) -> Result<(), CliError> {
    if script.has_channels() && manifest.ask(Capability::Channels).is_none() {
        let what = format!("the script has channels, and {} does not ask for any", manifest.name);
        let hint =
            "write [asks.channels] in its conclave-plugin.toml, or a script without channels";
        return Err(CliError::plugin(what).hint(hint));
    }
    Ok(())
}

/// A strategy that is called outside a run.
struct Strategy {
    prepared: Prepared,
    plugin: PluginName,
    /// Observes the calls that the report describes.
    reported: Arc<dyn Observer>,
    unreported: Arc<dyn Observer>,
    calls: u64,
    runtime: Handle,
}

impl Strategy {
    fn decide(&mut self, question: Question<'_>) -> Answer {
        let Question { wake, view, scratch, is_reported } = question;
        let observer = if is_reported { &self.reported } else { &self.unreported };
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
            signatures: Arc::new(NoSignatures),
            observer: Arc::clone(observer),
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

#[cfg(test)]
mod tests {
    use conclave_core::permissions::manifest::{CONTRACT, FORMAT};

    use super::*;

    #[test]
    fn channels_are_for_a_strategy_that_asks_for_them() {
        let manifest = |asks: Value| -> Manifest {
            serde_json::from_value(json!({
                "format": FORMAT, "name": "quiet", "version": "0.1.0", "contract": CONTRACT,
                "asks": asks,
            }))
            .unwrap()
        };
        let script = |channels: &str| {
            Script::from_json(&format!(r#"{{ "channels": [{channels}], "script": [] }}"#)).unwrap()
        };
        let (asks, phone) = (json!({ "channels": {} }), r#"{ "id": "phone", "kind": "voice" }"#);
        check_channels(&script(phone), &manifest(asks)).unwrap();
        check_channels(&script(""), &manifest(json!({}))).unwrap();
        let error = check_channels(&script(phone), &manifest(json!({}))).unwrap_err();
        assert!(error.to_string().contains("quiet does not ask for any"), "{error}");
    }
}
