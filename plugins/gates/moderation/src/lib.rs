//! Moderation: a list of patterns, each of which blocks a text or replaces what matches in it. The
//! operator places it with `[[gates]]`. A rule that is wrong blocks every text, because a gate that
//! fails blocks.

use conclave_sdk::gate::{Gate, GateInput, Verdict, allow, block, modify};
use conclave_sdk::{Error, Result, config};
use regex_lite::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::Value;

/// The `config` table of this plugin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default = "usually")]
    ignore_case: bool,
}

fn usually() -> bool {
    true
}

/// A pattern with its effect on a text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    pattern: String,
    /// Blocks the text, with this reason for its sender.
    #[serde(default)]
    reason: Option<String>,
    /// Stands in place of each match; `$1` is the first group.
    #[serde(default)]
    replace: Option<String>,
}

struct Moderation;

impl Gate for Moderation {
    fn check(input: &GateInput) -> Result<Verdict> {
        let settings: Settings = config::get()?;
        let facts: Value = serde_json::from_str(&input.metadata).unwrap_or_default();
        verdict(&input.text, &facts, &settings)
    }
}

/// Facts that pass beside a text, and that the host drops if the text changes.
const DROPPED: [&str; 3] = ["value", "tool_calls", "tool_results"];
/// Facts that pass beside a text in any case.
const KEPT: [&str; 4] = ["inputs", "reason", "next_phase", "channel_escalation"];

/// Applies the rules in their order. A later rule sees what an earlier one has replaced. What passes
/// beside the text cannot be changed, so a match there blocks.
fn verdict(text: &str, facts: &Value, settings: &Settings) -> Result<Verdict> {
    let mut changed = text.to_owned();
    let (mut value, mut beside) = (Vec::new(), Vec::new());
    DROPPED.iter().for_each(|key| texts_in(&facts[*key], &mut value));
    KEPT.iter().for_each(|key| texts_in(&facts[*key], &mut beside));
    // The host changes inputs that repeat the text.
    beside.retain(|other| *other != text);
    for (index, rule) in settings.rules.iter().enumerate() {
        let pattern = compiled(&rule.pattern, settings.ignore_case)
            .map_err(|error| Error::other(format!("rules[{index}]: {error}")))?;
        let matches = |texts: &[String]| texts.iter().any(|text| pattern.is_match(text));
        match (&rule.reason, &rule.replace) {
            (Some(reason), None)
                if pattern.is_match(&changed) || matches(&value) || matches(&beside) =>
            {
                return Ok(block(reason));
            }
            (Some(_), None) => {}
            // A text that changes loses its value, its calls and their results.
            (None, Some(_))
                if matches(&beside) || matches(&value) && !pattern.is_match(&changed) =>
            {
                return Ok(block(format!(
                    "rules[{index}] matches a value beside the text, which cannot be replaced"
                )));
            }
            (None, Some(replacement)) => {
                changed = pattern.replace_all(&changed, replacement.as_str()).into_owned();
            }
            _ => {
                let what = format!("rules[{index}] needs one of `reason` and `replace`");
                return Err(Error::other(what));
            }
        }
    }
    Ok(if changed == text { allow() } else { modify(changed) })
}

/// Collects the texts in a JSON value, with the names of its fields and its numbers.
fn texts_in(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| texts_in(item, texts)),
        Value::Object(fields) => {
            for (key, value) in fields {
                texts.push(key.clone());
                texts_in(value, texts);
            }
        }
        Value::Number(number) => texts.push(number.to_string()),
        Value::Null | Value::Bool(_) => {}
    }
}

fn compiled(pattern: &str, ignore_case: bool) -> Result<Regex, String> {
    if pattern.is_empty() {
        return Err("its pattern is empty, and would match every text".to_owned());
    }
    let built = RegexBuilder::new(pattern).case_insensitive(ignore_case).build();
    built.map_err(|error| format!("the pattern is wrong: {error}"))
}

conclave_sdk::export!(gate: Moderation);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(rules: &[(&str, Option<&str>, Option<&str>)]) -> Settings {
        let rule = |(pattern, reason, replace): &(&str, Option<&str>, Option<&str>)| Rule {
            pattern: (*pattern).to_owned(),
            reason: reason.map(str::to_owned),
            replace: replace.map(str::to_owned),
        };
        Settings { rules: rules.iter().map(rule).collect(), ignore_case: true }
    }

    #[test]
    fn rules_are_applied_in_their_order() {
        let rules = settings(&[
            (r"\b(\d{4})[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}\b", None, Some("$1 …")),
            ("password", Some("no passwords here"), None),
        ]);
        let verdict = |text: &str| verdict(text, &Value::Null, &rules).unwrap();
        assert_eq!(verdict("Good morning."), allow());
        assert_eq!(verdict("Card 1234 5678 1234 5678, please."), modify("Card 1234 …, please."));
        assert_eq!(verdict("My PASSWORD is 1234567812345678"), block("no passwords here"));
    }

    #[test]
    fn a_wrong_rule_fails_and_so_blocks() {
        for rules in [
            settings(&[("(", Some("x"), None)]),
            settings(&[("", Some("x"), None)]),
            settings(&[("a", None, None)]),
            settings(&[("a", Some("x"), Some("y"))]),
        ] {
            let error = verdict("b", &Value::Null, &rules).unwrap_err().to_string();
            assert!(error.contains("rules[0]"), "{error}");
        }
        let exact = Settings { ignore_case: false, ..settings(&[("Oban", Some("x"), None)]) };
        assert_eq!(verdict("oban", &Value::Null, &exact), Ok(allow()));
    }

    #[test]
    fn a_value_beside_the_text_is_checked_too() {
        let rules = settings(&[(r"\d{4}", None, Some("…")), ("secret", Some("no secrets"), None)]);
        let verdict = |text: &str, facts: Value| verdict(text, &facts, &rules).unwrap();
        let blocked = block("rules[0] matches a value beside the text, which cannot be replaced");
        assert_eq!(verdict("done", json!({ "value": { "pin": 1234 } })), blocked);
        assert_eq!(verdict("1234", json!({ "value": { "pin": 1234 } })), modify("…"));
        assert_eq!(verdict("done", json!({ "value": { "secret": true } })), block("no secrets"));
        let calls = json!({ "tool_calls": [{ "name": "send", "arguments": { "to": "secret" } }] });
        assert_eq!(verdict("done", calls), block("no secrets"));
        let handoff = json!({ "reason": "a secret" });
        assert_eq!(verdict("done", handoff), block("no secrets"));
        // A call is no copy of the text that the host would change.
        let repeats =
            json!({ "tool_calls": [{ "name": "send", "arguments": { "to": "secret" } }] });
        assert_eq!(verdict("secret", repeats), block("no secrets"));
        // The host puts the changed text there too.
        let inputs = json!({ "inputs": { "task": "call 1234" }, "sender": "secret" });
        assert_eq!(verdict("call 1234", inputs), modify("call …"));
    }
}
