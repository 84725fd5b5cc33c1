//! An agent that replies as its settings specify, and answers as its own responder if they say so.

use conclave_script::{AgentSettings, Answer, Effect, Scope, Script, json_text};
use conclave_sdk::actions::Reply;
use conclave_sdk::{
    Agent, Error, Message, Responder, Result, Role, ToolCall, Turn, View, call, config, say,
    scratch,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

#[derive(Deserialize)]
struct Settings {
    /// JSON text.
    script: String,
}

struct Scripted;

impl Agent for Scripted {
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
}

impl Responder for Scripted {
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

conclave_sdk::export!(agent: Scripted, responder: Scripted, manifest: "manifests/script_agent.toml");
