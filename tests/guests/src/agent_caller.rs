//! An agent that calls the tool named in its config and finishes with the result: it drives any
//! tool.

use conclave_sdk::{Agent, Result, Turn, View, call, config, finish};
use serde::Deserialize;

#[derive(Deserialize)]
struct Settings {
    /// `plugin.tool`.
    tool: String,
    /// An object.
    #[serde(default)]
    arguments: serde_json::Map<String, serde_json::Value>,
}

struct Caller;

impl Agent for Caller {
    fn step(view: &View) -> Result<Turn> {
        if let Some(output) = view.tool_outputs().into_iter().next() {
            return Ok(finish(output.content));
        }
        if view.iteration() > 0 {
            return Ok(finish(
                view.pending().map_or_else(|| "no result".into(), |message| message.content),
            ));
        }
        let settings: Settings = config::get()?;
        Ok(call(settings.tool, settings.arguments))
    }
}

conclave_sdk::export!(agent: Caller, manifest: "manifests/agent_caller.toml");
