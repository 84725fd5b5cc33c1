//! A model that answers from a file: for tests, demos, and agents that are to run without a key.

use std::sync::Mutex;
use std::sync::PoisonError;

use conclave_core::message::ToolCall;
use conclave_core::model::{Completion, ModelError, Prompt, Stop, Usage};
use serde::Deserialize;
use serde_json::Value;

use super::ModelClient;
use crate::clock::BoxFuture;

/// Replies from a script. The first rule whose `when` occurs in the newest piece of the prompt answers; else the next of `replies`,
/// in order; when they are used up, the last again.
#[derive(Debug)]
pub struct Scripted {
    script: Script,
    next: Mutex<usize>,
}

/// A script that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error(
        "the script is not JSON as expected: {0}. It holds an object with `replies` (a list) or `rules` (a list of {{\"when\", \"reply\"}})."
    )]
    Malformed(#[from] serde_json::Error),
    #[error("the script has neither `replies` nor `rules`: there is nothing to answer with")]
    Empty,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    replies: Vec<Reply>,
    /// What every answer reports, so that budgets can be tried without a model.
    #[serde(default)]
    usage: ScriptUsage,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    when: String,
    reply: Reply,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Reply {
    Text(String),
    Calls {
        #[serde(default)]
        text: Option<String>,
        calls: Vec<Call>,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    #[serde(default)]
    id: String,
    name: String,
    #[serde(default = "empty_object")]
    args: Value,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptUsage {
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
}

fn empty_object() -> Value {
    Value::Object(serde_json::Map::new())
}

impl Scripted {
    /// Reads a script.
    ///
    /// # Errors
    /// `Malformed` when it is not JSON of the expected shape, `Empty` when it has nothing to answer with.
    pub fn parse(json: &str) -> Result<Self, ScriptError> {
        let script: Script = serde_json::from_str(json)?;
        if script.rules.is_empty() && script.replies.is_empty() {
            return Err(ScriptError::Empty);
        }
        Ok(Self { script, next: Mutex::new(0) })
    }

    fn answer(&self, prompt: &Prompt) -> Completion {
        let text = prompt.last_text();
        let ruled = self.script.rules.iter().find(|rule| text.contains(&rule.when)).map(|rule| &rule.reply);
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let index = *next;
        *next += 1;
        let last = self.script.replies.len().saturating_sub(1);
        let reply = ruled.or_else(|| self.script.replies.get(index.min(last)));
        let (content, calls): (Option<String>, &[Call]) = match reply {
            Some(Reply::Text(text)) => (Some(text.clone()), &[]),
            Some(Reply::Calls { text, calls }) => (text.clone(), calls),
            None => (None, &[]),
        };
        let tool_calls: Vec<ToolCall> =
            calls.iter().map(|call| ToolCall { id: call.id.clone(), name: call.name.clone(), arguments: call.args.clone() }).collect();
        let ScriptUsage { input_tokens, output_tokens } = self.script.usage;
        Completion {
            id: format!("scripted-{index}"),
            content,
            reasoning: None,
            stop: if tool_calls.is_empty() { Stop::End } else { Stop::ToolCalls },
            tool_calls,
            usage: Usage { input_tokens, cached_input_tokens: 0, output_tokens, cost_micro_usd: None },
            model: "scripted".to_owned(),
        }
    }
}

impl ModelClient for Scripted {
    fn complete(&self, prompt: Prompt) -> BoxFuture<'static, Result<Completion, ModelError>> {
        Box::pin(std::future::ready(Ok(self.answer(&prompt))))
    }
}
