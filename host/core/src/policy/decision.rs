//! Policy: which tool calls run, which are refused, and which an approver is asked about first. The
//! operator's rules, first match wins; without one, what the tool's plugin may do. Pure, and looked
//! at after every grant has said yes. A rule never adds to a grant.

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

/// What holds for a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyDecision<'a> {
    pub decide: Decide,
    pub why: DecisionSource<'a>,
}

/// What a decision comes from. Its text is for people: where the rule stands, or what the plugin
/// may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DecisionSource<'a> {
    Rule {
        /// In the setup's policy.
        index: usize,
        rule: &'a Rule,
    },
    /// No rule matches: what the tool's plugin may do decides.
    Grants { plugin: &'a PluginName, setup: &'a PluginSetup },
    /// No rule matches, and nobody knows the tool.
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

/// What holds for a call: for each who has a part in it (the agent that calls, a tool plugin whose
/// answer wants it) the first rule that matches, else what the tool's plugin may do; of those the
/// strictest, so that nobody hides behind another's leave. Allocates nothing.
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

/// Returns the decision for a call that others delegated: [`decide`] for those who have a part in
/// it, made stricter by the rules that name one of the `delegators`. What a rule denies or asks
/// about for a plugin it may not have done by another; what a rule allows it gives to that plugin
/// alone.
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

/// The first rule that names the delegator and is about the call. A rule that may hold is taken for
/// one that does, unless it allows.
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

/// A rule of which it cannot be told whether it holds (an argument is written in a way that hides
/// what it leads to) never allows, and what comes after it can only be stricter.
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

/// The first of two that are alike.
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
    /// Returns what the operator's rules say of these arguments by now.
    #[must_use]
    pub fn decide<'a>(&self, setup: &'a Setup, arguments: &Value) -> PolicyDecision<'a> {
        let delegators = self.delegators.iter().map(|delegator| &delegator.plugin);
        decide_delegated(setup, self.callers(), delegators, &self.tool, arguments)
    }
}
