//! An agent that replies as its settings specify, and answers as its own responder if they say so.

use conclave_script::{AgentSettings, Answer, Effect, Scope, Script, json_text};
use conclave_sdk::actions::Reply;
use conclave_sdk::bindings::agent::conclave::plugin::{actions, state};
use conclave_sdk::{
    Error, Message, Result, Role, ToolCall, Turn, View, call, config, say, scratch,
};
use contract::exports::conclave::plugin::{agent, responder};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

#[derive(Deserialize)]
struct Settings {
    /// JSON text.
    script: String,
}

struct Scripted;

impl Scripted {
    fn step(view: &View) -> Result<Turn> {
        let script: Script =
            part(settings()?.llm)?.ok_or_else(|| Error::other("this agent has no model"))?;
        let index = scratch::get::<u64>()?.unwrap_or_default();
        scratch::set(&(index + 1))?;
        let heard = view.history().next_back().map(newest).unwrap_or_default();
        let said = script.reply(&heard, index);
        let call = |call: conclave_script::Call| ToolCall {
            id: call.id,
            name: call.name,
            arguments: call.arguments.to_string(),
        };
        let tool_calls = said.calls.into_iter().map(call).collect();
        Ok(Turn::from(Reply {
            completion: None,
            content: said.text,
            tool_calls,
            recipient: None,
            attachments: Vec::new(),
        }))
    }

    fn respond(view: &View) -> Result<Option<Turn>> {
        let AgentSettings { native, no_tool, .. } = settings()?;
        let Some(pending) = view.pending() else { return Ok(None) };
        if let Some(effect) = part::<Effect>(native)? {
            return answer(effect.run(&Scope::of_content(&pending.content)));
        }
        match part::<Effect>(no_tool)? {
            Some(effect) if pending.sender == Role::Llm && pending.tool_calls.is_empty() => {
                answer(effect.run(&Scope::of_content(&pending.content)))
            }
            _ => Ok(None),
        }
    }
}

fn settings() -> Result<AgentSettings> {
    let settings: Settings = config::get()?;
    Ok(serde_json::from_str(&settings.script)?)
}

/// Reads a script or an effect, or `None` for null.
fn part<T: DeserializeOwned>(value: Value) -> Result<Option<T>> {
    Ok(serde_json::from_value(value)?)
}

/// Returns the content of the newest entry of a history; of several results of native calls the
/// last.
fn newest(message: Message) -> String {
    message.tool_results.into_iter().next_back().map_or(message.content, |result| result.content)
}

/// Returns a turn. A value that is more than text is attached to its text.
fn answer(answer: Answer) -> Result<Option<Turn>> {
    Ok(match answer {
        Answer::Nothing => None,
        Answer::Text(text) => Some(say(text)),
        Answer::Value(value) => Some(say(json_text(&value)).with_extra("value", value)),
        Answer::Call { name, arguments } => Some(call(name, arguments)),
        Answer::Error(text) => return Err(Error::Other(text)),
    })
}

/// The SDK exports agents without a responder.
#[allow(unsafe_code, reason = "generated: values cross the border of the component by address")]
mod contract {
    wit_bindgen::generate!({
        world: "responding-agent-plugin",
        path: "../../wit",
        generate_all,
        with: {
            "conclave:plugin/actions@0.1.0-draft": conclave_sdk::bindings::agent::conclave::plugin::actions,
            "conclave:plugin/state@0.1.0-draft": conclave_sdk::bindings::agent::conclave::plugin::state,
            "conclave:plugin/types@0.1.0-draft": conclave_sdk::bindings::imports::conclave::plugin::types,
            "conclave:plugin/log@0.1.0-draft": conclave_sdk::bindings::imports::conclave::plugin::log,
            "conclave:plugin/progress@0.1.0-draft": conclave_sdk::bindings::imports::conclave::plugin::progress,
            "conclave:plugin/config@0.1.0-draft": conclave_sdk::bindings::imports::conclave::plugin::config,
            "conclave:plugin/scratch@0.1.0-draft": conclave_sdk::bindings::imports::conclave::plugin::scratch,
            "conclave:plugin/blobs@0.1.0-draft": conclave_sdk::bindings::imports::conclave::plugin::blobs,
            "conclave:plugin/model@0.1.0-draft": conclave_sdk::bindings::imports::conclave::plugin::model,
            "conclave:plugin/files@0.1.0-draft": conclave_sdk::bindings::imports::conclave::plugin::files,
            "conclave:plugin/kv@0.1.0-draft": conclave_sdk::bindings::imports::conclave::plugin::kv,
        },
    });
    #[cfg(target_family = "wasm")]
    use super::Scripted;
    #[cfg(target_family = "wasm")]
    export!(Scripted with_types_in self);
}

impl agent::Guest for Scripted {
    fn step(state: &state::View) -> std::result::Result<actions::Turn, agent::AgentError> {
        Self::step(&View::new(state)).map(Into::into).map_err(failed)
    }
}

impl responder::Guest for Scripted {
    fn respond(
        state: &state::View,
    ) -> std::result::Result<Option<actions::Turn>, agent::AgentError> {
        Self::respond(&View::new(state)).map(|turn| turn.map(Into::into)).map_err(failed)
    }
}

fn failed(error: Error) -> agent::AgentError {
    agent::AgentError::Other(error.to_string())
}

// Native builds export nothing; this only mentions the type.
const _: std::marker::PhantomData<Scripted> = std::marker::PhantomData;
conclave_sdk::export!(manifest: "manifests/script_agent.toml");
