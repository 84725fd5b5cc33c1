//! The narrowest rules that would let a call through which somebody was asked about: what `[a] always` writes, and what whoever runs
//! without a terminal is told. Makes them as text; writes nothing.

use std::fmt::Write as _;

use serde_json::Value;

use super::arguments::exactly;
use super::{ApprovalRequest, ArgumentPlace, ArgumentRule, Decide, Pattern, Rule, Why, decide};
use crate::config_edit::quoted;
use crate::grant::ToolPattern;
use crate::setup::Setup;

/// Rules that let a call through, and their place.
#[derive(Clone, Debug, PartialEq)]
pub struct Leave {
    /// One for each who has a part in the call and has no leave yet.
    pub rules: Vec<Rule>,
    /// The rule that they must stand before, counted from 0; none: behind all.
    pub before: Option<usize>,
}

impl Leave {
    /// As they stand in a config.
    #[must_use]
    pub fn to_toml(&self) -> String {
        self.rules.iter().map(Rule::to_toml).collect::<Vec<_>>().join("\n")
    }
}

/// The rules that would allow this call: of this tool, by those who wanted it, with these arguments or any. None when no such rule can.
#[must_use]
pub fn leave(setup: &Setup, request: &ApprovalRequest, exact: bool) -> Option<Leave> {
    let arguments = if exact { all_exactly(&request.arguments)? } else { Vec::new() };
    let mut leave = Leave { rules: Vec::new(), before: None };
    for caller in request.callers() {
        let decision = decide(setup, [caller], &request.tool, &request.arguments);
        if decision.decide == Decide::Allow {
            continue;
        }
        if let Why::Rule { index, .. } = decision.why {
            leave.before = Some(leave.before.map_or(index, |before| before.min(index)));
        }
        leave.rules.push(Rule {
            tool: ToolPattern(request.tool.clone()),
            caller: Some(caller.clone()),
            arguments: arguments.clone(),
            decide: Decide::Allow,
            expires_ms: None,
            source: String::new(),
        });
    }
    let mut with = setup.clone();
    let at = leave.before.unwrap_or(with.policy.len());
    with.policy.splice(at..at, leave.rules.iter().cloned());
    let decided = decide(&with, request.callers(), &request.tool, &request.arguments);
    (decided.decide == Decide::Allow && !leave.rules.is_empty()).then_some(leave)
}

/// Each property as it is.
fn all_exactly(arguments: &Value) -> Option<Vec<ArgumentRule>> {
    let fields = arguments.as_object().filter(|fields| !fields.is_empty())?;
    let rule =
        |(name, value): (&String, &Value)| Some(ArgumentRule { at: ArgumentPlace::of_property(name), patterns: vec![exactly(value)?] });
    fields.iter().map(rule).collect()
}

impl Rule {
    /// As it stands in a config, with the header.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = format!("[[policy]]\ntool = {}\n", quoted(&self.tool.0));
        if let Some(caller) = &self.caller {
            let _ = writeln!(text, "caller = {}", quoted(caller.as_str()));
        }
        if !self.arguments.is_empty() {
            let each: Vec<String> = self.arguments.iter().map(argument).collect();
            let _ = writeln!(text, "arguments = {{ {} }}", each.join(", "));
        }
        let _ = writeln!(text, "decide = {}", quoted(self.decide.as_str()));
        text
    }
}

fn argument(rule: &ArgumentRule) -> String {
    let at = &rule.at.0;
    let is_bare = !at.is_empty() && at.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    let at = if is_bare { at.clone() } else { quoted(at) };
    match rule.patterns.as_slice() {
        [only] => format!("{at} = {}", pattern(only)),
        several => format!("{at} = [{}]", several.iter().map(pattern).collect::<Vec<_>>().join(", ")),
    }
}

fn pattern(pattern: &Pattern) -> String {
    quoted(&pattern.0)
}
