//! Scripts for models and users. A script sees a text and the number of the call.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::condition::Condition;
use crate::template::Scope;
use crate::text::{integer, text_of};

/// The source of replies.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Script {
    Const {
        reply: Value,
    },
    /// Afterwards repeats the last reply, or starts again.
    Seq {
        replies: Vec<Value>,
        #[serde(default)]
        cycle: bool,
    },
    Map {
        map: BTreeMap<String, Value>,
        #[serde(default)]
        default: Value,
    },
    Rules {
        rules: Vec<Rule>,
        #[serde(default)]
        default: Value,
    },
    Echo {
        #[serde(default)]
        prefix: String,
        #[serde(default)]
        suffix: String,
    },
    Inc {
        #[serde(default = "one")]
        by: i64,
    },
    Counter {
        #[serde(default)]
        start: i64,
    },
    Loop {
        lead: u64,
        cycle: u64,
    },
}

/// One rule of `rules`.
#[derive(Clone, Debug, Deserialize)]
pub struct Rule {
    when: Condition,
    reply: Value,
}

/// A native tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub id: String,
    pub name: String,
    pub arguments: Value,
}

/// A reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// `None` if there is no text at all.
    pub text: Option<String>,
    pub calls: Vec<Call>,
}

fn one() -> i64 {
    1
}

impl Script {
    /// Returns the reply to `text` as call number `index`, from 0.
    #[must_use]
    pub fn reply(&self, text: &str, index: u64) -> Reply {
        match self {
            Self::Const { reply } => read(reply, text),
            Self::Seq { replies, cycle } => {
                let last = replies.len().saturating_sub(1);
                let index = usize::try_from(index).unwrap_or(usize::MAX);
                let index = if *cycle && last < index {
                    index % replies.len().max(1)
                } else {
                    index.min(last)
                };
                replies.get(index).map_or_else(|| said(String::new()), |reply| read(reply, text))
            }
            Self::Map { map, default } => read(map.get(text).unwrap_or(default), text),
            Self::Rules { rules, default } => {
                let scope = Scope::of_content(text);
                let rule = rules.iter().find(|rule| rule.when.holds(&scope));
                read(rule.map_or(default, |rule| &rule.reply), text)
            }
            Self::Echo { prefix, suffix } => said(format!("{prefix}{text}{suffix}")),
            Self::Inc { by } => said(integer(text).map_or_else(String::new, |number| {
                number.saturating_add(i128::from(*by)).to_string()
            })),
            Self::Counter { start } => {
                said(i128::from(*start).saturating_add(i128::from(index)).to_string())
            }
            Self::Loop { lead, cycle } => said(match index < *lead {
                true => (u128::from(index) * 1000 + 100).to_string(),
                false => index.checked_rem(*cycle).unwrap_or_default().to_string(),
            }),
        }
    }
}

fn said(text: String) -> Reply {
    Reply { text: Some(text), calls: Vec::new() }
}

/// Reads a template, or `{calls: [{id, name, args}], text?}`.
fn read(reply: &Value, content: &str) -> Reply {
    let scope = Scope::of_content(content);
    let Value::Object(fields) = reply else { return said(scope.fill_text(&text_of(reply))) };
    let word = |call: &Value, key: &str| {
        call.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let call = |call: &Value| Call {
        id: word(call, "id"),
        name: word(call, "name"),
        arguments: call
            .get("args")
            .and_then(Value::as_object)
            .map_or_else(|| json!({}), |args: &Map<_, _>| scope.fill_fields(args).into()),
    };
    let calls =
        fields.get("calls").and_then(Value::as_array).into_iter().flatten().map(call).collect();
    Reply { text: fields.get("text").map(|text| scope.fill_text(&text_of(text))), calls }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(script: Value, texts: &[&str]) -> Vec<String> {
        let script: Script = serde_json::from_value(script).expect("it is a script");
        texts
            .iter()
            .zip(0..)
            .map(|(text, index)| script.reply(text, index).text.unwrap_or_default())
            .collect()
    }

    #[test]
    fn every_kind_answers() {
        let cases = [
            (json!({ "kind": "const", "reply": "a {content}" }), ["a 1", "a x", "a 1"]),
            (json!({ "kind": "seq", "replies": ["a", "b"] }), ["a", "b", "b"]),
            (json!({ "kind": "seq", "replies": ["a", "b"], "cycle": true }), ["a", "b", "a"]),
            (json!({ "kind": "seq", "replies": [] }), ["", "", ""]),
            (json!({ "kind": "map", "map": { "x": "y" } }), ["", "y", ""]),
            (
                json!({ "kind": "rules", "rules": [{ "when": { "int": true }, "reply": "{n+1}" }], "default": "zz" }),
                ["2", "zz", "2"],
            ),
            (
                json!({ "kind": "echo", "prefix": "<", "suffix": "{n}" }),
                ["<1{n}", "<x{n}", "<1{n}"],
            ),
            (json!({ "kind": "inc", "by": 2 }), ["3", "", "3"]),
            (json!({ "kind": "counter", "start": 5 }), ["5", "6", "7"]),
            (json!({ "kind": "loop", "lead": 1, "cycle": 2 }), ["100", "1", "0"]),
        ];
        for (script, expected) in cases {
            assert_eq!(replies(script.clone(), &["1", "x", "1"]), expected, "{script}");
        }
    }

    #[test]
    fn native_calls_have_filled_arguments_and_text_only_when_given() {
        let script = json!({ "kind": "const", "reply": { "calls": [{ "id": "c1", "name": "sum", "args": { "x": "{n}" } }] } });
        let script: Script = serde_json::from_value(script).expect("it is a script");
        let calls = vec![Call {
            id: "c1".to_owned(),
            name: "sum".to_owned(),
            arguments: json!({ "x": 3 }),
        }];
        assert_eq!(script.reply("3", 0), Reply { text: None, calls });
    }
}
