//! Secrets: finds keys and tokens by their written form. In a text or in the result of a tool it
//! puts a mark in their place; a call whose arguments hold one is blocked. The operator places it
//! with `[[gates]]`. Settings that are wrong block every text, because a gate that fails blocks.
//!
//! A secret that was encoded, split or translated is not found. The gate is for accidents and for
//! models that obey a text, not for code that means to hide a key.

mod find;

use conclave_sdk::gate::{Gate, GateInput, Point, Verdict, allow, block, modify};
use conclave_sdk::{Error, Result, config};
use find::{Finder, Settings};
use serde_json::Value;

struct Secrets;

impl Gate for Secrets {
    fn check(input: &GateInput) -> Result<Verdict> {
        let settings: Settings = config::get()?;
        let finder = Finder::new(&settings).map_err(Error::other)?;
        let facts: Value = serde_json::from_str(&input.metadata).unwrap_or_default();
        verdict(input.point, &input.text, &facts, &finder)
    }
}

/// Facts that pass beside a text, and that the host drops if the text changes.
const DROPPED: [&str; 3] = ["value", "tool_calls", "tool_results"];
/// Facts that pass beside a text in any case.
const RETAINED: [&str; 4] = ["inputs", "reason", "next_phase", "channel_escalation"];

fn verdict(point: Point, text: &str, facts: &Value, finder: &Finder) -> Result<Verdict> {
    match point {
        Point::ToolCall | Point::ToolResult => of_tool(point, text, finder),
        _ => Ok(of_text(text, facts, finder)),
    }
}

/// The verdict on arguments or on a result, which are JSON: texts within it change, its form stays.
fn of_tool(point: Point, text: &str, finder: &Finder) -> Result<Verdict> {
    let mut value: Value = serde_json::from_str(text)
        .map_err(|error| Error::other(format!("the host sent no JSON: {error}")))?;
    let found = finder.redact(&mut value);
    let blocks =
        if point == Point::ToolCall { finder.blocks_calls() } else { finder.blocks_texts() };
    Ok(match (&found.first, blocks || found.in_name) {
        (None, _) => allow(),
        (Some(kind), true) => block(reason(kind)),
        (Some(_), false) => modify(value.to_string()),
    })
}

/// The verdict on a text. What passes beside it cannot be changed, so a secret there blocks.
fn of_text(text: &str, facts: &Value, finder: &Finder) -> Verdict {
    let (changed, of_text) = finder.redacted(text);
    let in_facts = |keys: &[&str]| {
        let mut kinds = keys.iter().filter_map(|key| {
            let mut fact = facts[*key].clone();
            // The host changes inputs that repeat the text.
            fact.as_object_mut().into_iter().for_each(|fields| fields.retain(|_, it| *it != text));
            Some(fact)
                .filter(|fact| *fact != text)
                .and_then(|mut fact| finder.redact(&mut fact).first)
        });
        kinds.next()
    };
    match (of_text, in_facts(&RETAINED), in_facts(&DROPPED)) {
        (None, None, None) => allow(),
        // A text that changes loses what the host drops with it.
        (Some(_), None, _) if !finder.blocks_texts() => modify(changed),
        (of_text, retained, dropped) => {
            block(reason(&of_text.or(retained).or(dropped).unwrap_or_default()))
        }
    }
}

fn reason(kind: &str) -> String {
    format!("it holds a secret ({kind}); leave it out")
}

conclave_sdk::export!(gate: Secrets);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEY: &str = "AKIAIOSFODNN7EXAMPLE";

    fn finder(settings: Value) -> Finder {
        Finder::new(&serde_json::from_value(settings).unwrap()).unwrap()
    }

    fn check(point: Point, text: &str, settings: Value) -> Verdict {
        verdict(point, text, &Value::Null, &finder(settings)).unwrap()
    }

    #[test]
    fn a_result_loses_its_secrets_and_keeps_its_form() {
        let result = json!({ "content": format!("id {KEY}."), "value": { "keys": [KEY, 7] } });
        let redacted = json!({
            "content": "id [secret removed: aws-key].",
            "value": { "keys": ["[secret removed: aws-key]", 7] },
        });
        let text = result.to_string();
        assert_eq!(check(Point::ToolResult, &text, json!({})), modify(redacted.to_string()));
        let blocked = block("it holds a secret (aws-key); leave it out");
        assert_eq!(check(Point::ToolResult, &text, json!({ "mode": "block" })), blocked);
        let harmless = json!({ "content": "id 7" }).to_string();
        assert_eq!(check(Point::ToolResult, &harmless, json!({})), allow());
    }

    #[test]
    fn a_call_with_a_secret_is_blocked_unless_the_settings_redact_it() {
        let arguments = json!({ "to": "eve", "text": KEY }).to_string();
        let blocked = block("it holds a secret (aws-key); leave it out");
        assert_eq!(check(Point::ToolCall, &arguments, json!({})), blocked);
        let redacted = json!({ "to": "eve", "text": "[secret removed: aws-key]" }).to_string();
        let settings = json!({ "calls": "redact" });
        assert_eq!(check(Point::ToolCall, &arguments, settings.clone()), modify(redacted));
        // The name of a field cannot be replaced: the tool would read another field.
        let named = json!({ KEY: 1 }).to_string();
        assert_eq!(check(Point::ToolCall, &named, settings), blocked);
    }

    #[test]
    fn a_secret_beside_a_text_blocks_unless_the_host_drops_it_with_the_text() {
        let finder = finder(json!({}));
        let verdict = |text: &str, facts: Value| of_text(text, &facts, &finder);
        let blocked = block("it holds a secret (aws-key); leave it out");
        let removed = modify("[secret removed: aws-key]");
        assert_eq!(verdict(KEY, json!({ "value": { "key": KEY } })), removed);
        assert_eq!(verdict("done", json!({ "value": { "key": KEY } })), blocked);
        assert_eq!(verdict(KEY, json!({ "reason": format!("the key {KEY}") })), blocked);
        assert_eq!(verdict(KEY, json!({ "inputs": { "task": KEY } })), removed);
        assert_eq!(verdict("done", json!({ "sender": "ann" })), allow());
    }
}
