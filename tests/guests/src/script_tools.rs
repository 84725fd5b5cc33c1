//! Tools that its settings describe, each with an effect for each agent that calls it.

use conclave_script::{Answer, Effect, Scope, ToolsSettings, json_text};
use conclave_sdk::{Call, Error, Outcome, Result, ToolSpec, Toolset, config};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Settings {
    /// JSON text.
    script: String,
}

struct Scripted;

impl Toolset for Scripted {
    fn list() -> Result<Vec<ToolSpec>> {
        let listed = settings()?.tools.into_iter();
        Ok(listed
            .map(|tool| ToolSpec::new(tool.name, tool.description, tool.input_schema.to_string()))
            .collect())
    }

    fn call(name: &str, arguments: Value, call: &Call) -> Result<Outcome> {
        let tool = settings()?.tools.into_iter().find(|tool| tool.name == name);
        let mut tool = tool.ok_or_else(|| Error::other(format!("there is no tool {name}")))?;
        let Some(effect) = tool.effects.remove(&call.caller) else { return Ok(Outcome::nothing()) };
        let effect: Option<Effect> = serde_json::from_value(effect)?;
        let scope = Scope::of_arguments(arguments.as_object().cloned().unwrap_or_default());
        match effect.map_or(Answer::Nothing, |effect| effect.run(&scope)) {
            Answer::Nothing => Ok(Outcome::nothing()),
            Answer::Text(text) => Ok(Outcome::text(text)),
            Answer::Value(value) => Outcome::text(json_text(&value)).with_value(&value),
            Answer::Call { name, arguments } => Ok(Outcome::nothing().then(name, arguments)),
            Answer::Error(text) => Err(Error::Other(text)),
        }
    }
}

fn settings() -> Result<ToolsSettings> {
    let settings: Settings = config::get()?;
    Ok(serde_json::from_str(&settings.script)?)
}

conclave_sdk::export!(toolset: Scripted, manifest: "manifests/script_tools.toml");
