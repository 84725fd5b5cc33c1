//! The narrowest rules that would allow a call that needed approval. `[a] always` writes them, and
//! a run without a terminal prints them. Produces text only; writes no file.

use std::fmt::Write as _;

use serde_json::Value;

use crate::permissions::grants::ToolPattern;
use crate::permissions::policy_rules::exactly;
use crate::permissions::policy_rules::{
    ArgumentPattern, ArgumentPlace, ArgumentRule, CallArguments, Decide, Holds, PATTERNS_MAX, Rule,
};
use crate::policy::decision::{DecisionSource, decide};
use crate::setup::Setup;
use crate::types::approval::ApprovalRequest;
use crate::types::wording::quoted;

/// Rules that allow a call, and their position.
#[derive(Clone, Debug, PartialEq)]
pub struct Permit {
    /// One rule for each participant in the call that is not allowed yet.
    pub rules: Vec<Rule>,
    /// The index of the rule that they must precede; `None` to append them.
    pub before: Option<usize>,
}

impl Permit {
    /// The rules as a config writes them.
    #[must_use]
    pub fn to_toml(&self) -> String {
        self.rules.iter().map(Rule::to_toml).collect::<Vec<_>>().join("\n")
    }
}

/// The rules that would allow this call: of this tool, by its participants, with exactly these
/// arguments or with any. `None` if no rule can allow it, or if such rules would hide a later one
/// that denies.
#[must_use]
pub fn leave(setup: &Setup, request: &ApprovalRequest, exact: bool) -> Option<Permit> {
    if !request.is_for_rules() || !is_tool_of_plugin(&request.tool) {
        return None;
    }
    let arguments = if exact { all_exactly(&request.arguments)? } else { Vec::new() };
    let mut leave = Permit { rules: Vec::new(), before: None };
    for caller in request.callers() {
        let decision = decide(setup, [caller], &request.tool, &request.arguments);
        if decision.decide == Decide::Allow {
            continue;
        }
        if let DecisionSource::Rule { index, .. } = decision.why {
            leave.before = Some(leave.before.map_or(index, |before| before.min(index)));
        }
        leave.rules.push(Rule {
            tool: ToolPattern(request.tool.clone()),
            caller: Some(caller.clone()),
            arguments: arguments.clone(),
            only: exact,
            decide: Decide::Allow,
            expires_ms: None,
            source: String::new(),
        });
    }
    let at = leave.before.unwrap_or(setup.policy.len());
    let arguments = exact.then(|| CallArguments::new(&request.arguments));
    let hides = |rule| hides_a_deny(&setup.policy[at..], rule, arguments.as_ref());
    if leave.rules.iter().any(hides) {
        return None;
    }
    let policy = setup.policy.with_rules_at(at, leave.rules.iter().cloned());
    let with = Setup { policy, ..setup.clone() };
    // Confirm by the real decision: an earlier rule may still deny or ask.
    let decided = request.decide(&with, &request.arguments);
    (decided.decide == Decide::Allow && !leave.rules.is_empty()).then_some(leave)
}

/// Whether one of these rules denies a call that the new rule in front of them would allow.
/// `arguments` are the only ones that the new rule matches; `None` if it matches any.
fn hides_a_deny(later: &[Rule], new: &Rule, arguments: Option<&CallArguments<'_>>) -> bool {
    for rule in later {
        let is_about =
            rule.covers(&new.tool.0) && (rule.caller.is_none() || rule.caller == new.caller);
        // The new rule matches exactly these arguments, so a rule that does not match them is about
        // other calls.
        let is_of_others = || match (&new.caller, arguments) {
            (Some(caller), Some(arguments)) => {
                rule.holds(caller, &new.tool.0, arguments) == Holds::No
            }
            _ => false,
        };
        if !is_about || is_of_others() {
            continue;
        }
        if rule.decide == Decide::Deny {
            return true;
        }
        if rule.arguments.is_empty() && !rule.only {
            return false;
        }
    }
    false
}

/// Whether rules can be about the tool. Actions and tools of the host have no plugin in their name,
/// and the config accepts no pattern for them.
fn is_tool_of_plugin(tool: &str) -> bool {
    tool.contains('.')
}

/// A rule for each property with its exact value; `None` if a config cannot express one.
fn all_exactly(arguments: &Value) -> Option<Vec<ArgumentRule>> {
    let fields = arguments.as_object().filter(|fields| fields.len() <= PATTERNS_MAX)?;
    let rule = |(name, value): (&String, &Value)| {
        Some(ArgumentRule { at: ArgumentPlace::of_property(name), patterns: vec![exactly(value)?] })
    };
    fields.iter().map(rule).collect()
}

impl Rule {
    /// The rule as a config writes it, with its header.
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
        if self.only {
            text.push_str("exact_arguments = true\n");
        }
        let _ = writeln!(text, "decide = {}", quoted(self.decide.as_str()));
        text
    }
}

fn argument(rule: &ArgumentRule) -> String {
    let at = &rule.at.0;
    match rule.patterns.as_slice() {
        // A list means "one of several", and a table is not allowed.
        [ArgumentPattern(only)] if !only.is_array() && !only.is_object() => {
            format!("{} = {}", key(at), value(only))
        }
        several => format!(
            "{} = [{}]",
            key(at),
            several.iter().map(|ArgumentPattern(each)| value(each)).collect::<Vec<_>>().join(", ")
        ),
    }
}

fn key(name: &str) -> String {
    let is_bare =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    if is_bare { name.to_owned() } else { quoted(name) }
}

fn value(of: &Value) -> String {
    match of {
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(value).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, of)| format!("{} = {}", key(name), value(of))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

impl Rule {
    /// The rule's conditions besides tool and caller, for people:
    /// `path is "/notes/public/*"`; empty if there are none.
    #[must_use]
    pub fn shown_arguments(&self) -> String {
        let one = |rule: &ArgumentRule| {
            let patterns: Vec<String> =
                rule.patterns.iter().map(|ArgumentPattern(each)| value(each)).collect();
            format!("{} is {}", rule.at.0, patterns.join(" or "))
        };
        let conditions = self.arguments.iter().map(one).collect::<Vec<_>>().join(" and ");
        match (self.only, conditions.is_empty()) {
            (false, _) => conditions,
            (true, true) => "without arguments".to_owned(),
            (true, false) => conditions + " and nothing else",
        }
    }
}
