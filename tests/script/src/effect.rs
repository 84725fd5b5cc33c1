//! Effects of handlers: the closed set of effects, and their answers.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::condition::Condition;
use crate::template::Scope;

/// A tool with arguments.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Named {
    pub name: String,
    #[serde(default)]
    pub args: Map<String, Value>,
}

/// The effect of a handler.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Effect {
    Text {
        text: String,
        #[serde(default = "once")]
        times: usize,
    },
    Empty,
    Nothing,
    Value {
        #[serde(default)]
        value: Value,
    },
    Done {
        #[serde(default)]
        content: Value,
    },
    AgentDone {
        content: Option<Value>,
        #[serde(default)]
        tools: Vec<Named>,
    },
    Result {
        #[serde(default)]
        fields: Map<String, Value>,
    },
    FinalResult {
        #[serde(default)]
        fields: Map<String, Value>,
    },
    Call {
        tool: Named,
    },
    Pass,
    DonePass,
    Forward {
        to: String,
    },
    Send {
        to: String,
        #[serde(default)]
        content: Value,
    },
    AgentSend {
        to: String,
        #[serde(default)]
        content: Value,
        #[serde(default)]
        tools: Vec<Named>,
    },
    Error {
        text: String,
    },
    When {
        cases: Vec<Case>,
        #[serde(rename = "else")]
        otherwise: Option<Box<Effect>>,
    },
}

/// One case of `when`.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    when: Condition,
    then: Effect,
}

/// The answer of a handler.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Nothing,
    Text(String),
    /// Any JSON value except text and null.
    Value(Value),
    /// A call of another tool, of an agent or of the host under the reference's name.
    Call {
        name: String,
        arguments: Value,
    },
    /// The handler failed.
    Error(String),
}

fn once() -> usize {
    1
}

impl Effect {
    /// Returns the answer of the effect.
    #[must_use]
    pub fn run(&self, scope: &Scope) -> Answer {
        let call = |name: &str, arguments: Value| Answer::Call { name: name.to_owned(), arguments };
        match self {
            Self::Text { text, times } => Answer::Text(scope.fill_text(text).repeat(*times)),
            Self::Empty => Answer::Text(String::new()),
            Self::Nothing => Answer::Nothing,
            Self::Value { value } => match scope.fill_value(value) {
                Value::Null => Answer::Nothing,
                Value::String(text) => Answer::Text(text),
                value => Answer::Value(value),
            },
            Self::Done { content } => call("done_tool", json!({ "content": text(scope, content) })),
            Self::AgentDone { content, tools } => {
                let mut arguments = Map::new();
                if let Some(content) = content {
                    arguments.insert("content".to_owned(), scope.fill_value(content));
                }
                if !tools.is_empty() {
                    arguments.insert("tools".to_owned(), attached(scope, tools));
                }
                call("agent_done_tool", Value::Object(arguments))
            }
            Self::Result { fields } => {
                call("result_tool", Value::Object(scope.fill_fields(fields)))
            }
            Self::FinalResult { fields } => {
                call("final_result_tool", Value::Object(scope.fill_fields(fields)))
            }
            Self::Call { tool } => call(&tool.name, Value::Object(scope.fill_fields(&tool.args))),
            Self::Pass => call("pass_tool", json!({})),
            Self::DonePass => call("done_pass_tool", json!({})),
            Self::Forward { to } => call("forward_tool", json!({ "agent": scope.fill_text(to) })),
            Self::Send { to, content } => call(
                "send_tool",
                json!({ "to": scope.fill_text(to), "content": text(scope, content) }),
            ),
            Self::AgentSend { to, content, tools } => call(
                "agent_send_tool",
                json!({ "to": scope.fill_text(to), "content": text(scope, content), "tools": attached(scope, tools) }),
            ),
            Self::Error { text } => Answer::Error(scope.fill_text(text)),
            Self::When { cases, otherwise } => {
                let met = cases.iter().find(|case| case.when.holds(scope)).map(|case| &case.then);
                met.or(otherwise.as_deref()).map_or(Answer::Nothing, |effect| effect.run(scope))
            }
        }
    }
}

fn text(scope: &Scope, content: &Value) -> String {
    crate::text_of(&scope.fill_value(content))
}

/// Returns the tools in the form of the host's calls.
fn attached(scope: &Scope, tools: &[Named]) -> Value {
    let attached = |tool: &Named| json!({ "id": "", "name": tool.name, "arguments": scope.fill_fields(&tool.args) });
    tools.iter().map(attached).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(effect: &Value, arguments: Value) -> Answer {
        let effect: Effect = serde_json::from_value(effect.clone()).expect("it is an effect");
        effect.run(&Scope::of_arguments(arguments.as_object().cloned().unwrap_or_default()))
    }

    #[test]
    fn every_effect_has_its_answer() {
        let call = |name: &str, arguments: Value| Answer::Call { name: name.to_owned(), arguments };
        let x = json!({ "x": 4 });
        let cases = [
            (json!({ "do": "text", "text": "a{x}", "times": 2 }), Answer::Text("a4a4".to_owned())),
            (json!({ "do": "empty" }), Answer::Text(String::new())),
            (json!({ "do": "nothing" }), Answer::Nothing),
            (json!({ "do": "value", "value": ["{x}"] }), Answer::Value(json!([4]))),
            (
                json!({ "do": "done", "content": "{x}" }),
                call("done_tool", json!({ "content": "4" })),
            ),
            (
                json!({ "do": "agent_done", "content": "{x}" }),
                call("agent_done_tool", json!({ "content": 4 })),
            ),
            (
                json!({ "do": "agent_done", "tools": [{ "name": "b", "args": { "y": "{x+1}" } }] }),
                call(
                    "agent_done_tool",
                    json!({ "tools": [{ "id": "", "name": "b", "arguments": { "y": 5 } }] }),
                ),
            ),
            (
                json!({ "do": "final_result", "fields": { "a": "{x}" } }),
                call("final_result_tool", json!({ "a": 4 })),
            ),
            (
                json!({ "do": "call", "tool": { "name": "b", "args": { "y": "{x}" } } }),
                call("b", json!({ "y": 4 })),
            ),
            (json!({ "do": "forward", "to": "C" }), call("forward_tool", json!({ "agent": "C" }))),
            (json!({ "do": "error", "text": "no {x}" }), Answer::Error("no 4".to_owned())),
            (
                json!({ "do": "when", "cases": [{ "when": { "arg": "x", "eq": 3 }, "then": { "do": "empty" } }], "else": { "do": "pass" } }),
                call("pass_tool", json!({})),
            ),
            (json!({ "do": "when", "cases": [] }), Answer::Nothing),
        ];
        for (effect, expected) in cases {
            assert_eq!(run(&effect, x.clone()), expected, "{effect}");
        }
    }
}
