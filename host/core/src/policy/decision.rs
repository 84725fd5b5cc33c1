//! Policy: which tool calls run, which are denied, and which need an approver first. The operator's
//! rules decide, first match wins. Without a match, the grants of the tool's plugin decide. Policy
//! is pure, comes after every grant, and never adds to one.

mod derived;

#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::Value;

use crate::permissions::policy_rules::Decide;
use crate::permissions::policy_rules::Holds;
use crate::permissions::policy_rules::Rule;
use crate::setup::{PluginSetup, Setup};
use crate::types::approval::ApprovalRequest;
use crate::types::ids::PluginName;

pub use derived::{derived, reason};

/// A decision about a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyDecision<'a> {
    pub decide: Decide,
    pub why: DecisionSource<'a>,
}

/// The origin of a decision. Its text is for people: the position of the rule, or the grants of the
/// plugin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DecisionSource<'a> {
    Rule {
        /// The index in the setup's policy.
        index: usize,
        rule: &'a Rule,
    },
    /// No rule matches, so the grants of the tool's plugin decide.
    Grants { plugin: &'a PluginName, setup: &'a PluginSetup },
    /// No rule matches, and the tool is unknown.
    Nothing,
}

impl fmt::Display for DecisionSource<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { rule, .. } => out.write_str(&rule.source),
            Self::Grants { plugin, setup } => out.write_str(&reason(plugin, setup)),
            Self::Nothing => out.write_str("nothing is known of it"),
        }
    }
}

/// Returns the decision about a call. Each participant (the calling agent, a tool plugin whose
/// answer requests the call) gets the first rule that matches, else the decision by the grants of
/// the tool's plugin. The strictest wins, so that no participant borrows the permissions of
/// another. Allocates nothing.
#[must_use]
pub fn decide<'a, 'b>(
    setup: &'a Setup,
    callers: impl IntoIterator<Item = &'b PluginName>,
    tool: &str,
    arguments: &Value,
) -> PolicyDecision<'a> {
    let otherwise = without_rule(setup, tool);
    let each = callers
        .into_iter()
        .map(|caller| decide_for(&setup.policy, caller, tool, arguments, otherwise));
    each.reduce(stricter).unwrap_or(otherwise)
}

/// Returns the decision for a delegated call: [`decide`] for its participants, made stricter by the
/// rules that name one of the `delegators`. A plugin cannot escape a rule that denies or asks by
/// delegating to another. A rule that allows counts for its own plugin only.
#[must_use]
pub fn decide_delegated<'a, 'b>(
    setup: &'a Setup,
    callers: impl IntoIterator<Item = &'b PluginName>,
    delegators: impl IntoIterator<Item = &'b PluginName>,
    tool: &str,
    arguments: &Value,
) -> PolicyDecision<'a> {
    let own = decide(setup, callers, tool, arguments);
    delegators
        .into_iter()
        .filter_map(|delegator| decide_for_delegator(&setup.policy, delegator, tool, arguments))
        .fold(own, stricter)
}

/// Returns the first rule that names the delegator and is about the call. A rule that may match
/// counts as a match, unless it allows.
fn decide_for_delegator<'a>(
    rules: &'a [Rule],
    delegator: &PluginName,
    tool: &str,
    arguments: &Value,
) -> Option<PolicyDecision<'a>> {
    let own = rules.iter().enumerate().filter(|(_, rule)| rule.caller.as_ref() == Some(delegator));
    let mut strictest: Option<PolicyDecision<'a>> = None;
    for (index, rule) in own {
        let decision =
            PolicyDecision { decide: rule.decide, why: DecisionSource::Rule { index, rule } };
        match rule.holds(delegator, tool, arguments) {
            Holds::No => {}
            Holds::Maybe if rule.decide == Decide::Allow => {}
            Holds::Maybe => {
                strictest = Some(strictest.map_or(decision, |earlier| stricter(earlier, decision)))
            }
            Holds::Yes => {
                return Some(strictest.map_or(decision, |earlier| stricter(earlier, decision)));
            }
        }
    }
    strictest
}

/// Returns the decision for one participant. A rule may be undecidable, if an argument is written
/// in a way that hides its target. Such a rule never allows, and later rules can only make the
/// decision stricter.
fn decide_for<'a>(
    rules: &'a [Rule],
    caller: &PluginName,
    tool: &str,
    arguments: &Value,
    otherwise: PolicyDecision<'a>,
) -> PolicyDecision<'a> {
    let mut maybe: Option<PolicyDecision<'a>> = None;
    let and = |maybe: Option<PolicyDecision<'a>>, decision| {
        maybe.map_or(decision, |maybe| stricter(maybe, decision))
    };
    for (index, rule) in rules.iter().enumerate() {
        let decision =
            PolicyDecision { decide: rule.decide, why: DecisionSource::Rule { index, rule } };
        match rule.holds(caller, tool, arguments) {
            Holds::Yes => return and(maybe, decision),
            Holds::Maybe if rule.decide > Decide::Allow => maybe = Some(and(maybe, decision)),
            Holds::Maybe | Holds::No => {}
        }
    }
    and(maybe, otherwise)
}

/// Returns the stricter of two decisions, the first if they are equal.
fn stricter<'a>(first: PolicyDecision<'a>, second: PolicyDecision<'a>) -> PolicyDecision<'a> {
    if second.decide > first.decide { second } else { first }
}

fn without_rule<'a>(setup: &'a Setup, tool: &str) -> PolicyDecision<'a> {
    let plugin = tool.split_once('.').and_then(|(plugin, _)| setup.plugins.get_key_value(plugin));
    match plugin {
        Some((plugin, setup)) => {
            PolicyDecision { decide: derived(setup), why: DecisionSource::Grants { plugin, setup } }
        }
        None => PolicyDecision { decide: Decide::Ask, why: DecisionSource::Nothing },
    }
}

impl ApprovalRequest {
    /// Returns the decision of the operator's current rules for these arguments.
    #[must_use]
    pub fn decide<'a>(&self, setup: &'a Setup, arguments: &Value) -> PolicyDecision<'a> {
        let delegators = self.delegators.iter().map(|delegator| &delegator.plugin);
        decide_delegated(setup, self.callers(), delegators, &self.tool, arguments)
    }
}
