//! Moderation: a list of patterns, each of which blocks a text or replaces what matches in it. The
//! operator places it with `[[gates]]`. A rule that is wrong blocks every text, because a gate that
//! fails blocks.

use conclave_sdk::gate::{Gate, GateInput, Verdict, allow, block, modify};
use conclave_sdk::{Error, Result, config};
use regex_lite::{Regex, RegexBuilder};
use serde::Deserialize;

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
        verdict(&input.text, &settings)
    }
}

/// Applies the rules in their order. A later rule sees what an earlier one has replaced.
fn verdict(text: &str, settings: &Settings) -> Result<Verdict> {
    let mut changed = text.to_owned();
    for (index, rule) in settings.rules.iter().enumerate() {
        let pattern = compiled(&rule.pattern, settings.ignore_case)
            .map_err(|error| Error::other(format!("rules[{index}]: {error}")))?;
        match (&rule.reason, &rule.replace) {
            (Some(reason), None) if pattern.is_match(&changed) => return Ok(block(reason)),
            (Some(_), None) => {}
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
        let verdict = |text: &str| verdict(text, &rules).unwrap();
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
            let error = verdict("b", &rules).unwrap_err().to_string();
            assert!(error.contains("rules[0]"), "{error}");
        }
        let exact = Settings { ignore_case: false, ..settings(&[("Oban", Some("x"), None)]) };
        assert_eq!(verdict("oban", &exact), Ok(allow()));
    }
}
