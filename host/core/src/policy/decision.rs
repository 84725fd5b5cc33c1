//! Policy: which tool calls run, which are denied, and which need an approver first. The operator's
//! rules decide, first match wins. Without a match, the grants of the tool's plugin decide. Policy
//! is pure, comes after every grant, and never adds to one.

mod derived;

#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::Value;

use crate::permissions::policy_rules::{CallArguments, Decide, Holds, Policy, Rule};
use crate::setup::{PluginSetup, Setup};
use crate::types::approval::{ApprovalRequest, Participant};
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
        /// The index in the setup's policy, and behind its end in the policy of the last
        /// resumption.
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

/// The decision about a call. Each participant (the calling agent, a tool plugin whose answer
/// requests the call) gets the first rule that matches, else the decision by the grants of the
/// tool's plugin. The strictest wins, so that no participant borrows the permissions of another.
/// Allocates only if an argument hides its target, or is found by a JSON pointer.
#[must_use]
pub fn decide<'a, 'b>(
    setup: &'a Setup,
    callers: impl IntoIterator<Item = &'b PluginName>,
    tool: &str,
    arguments: &Value,
) -> PolicyDecision<'a> {
    decide_for_all(setup, callers, tool, &CallArguments::new(arguments))
}

/// The decision for all that have a part in a call: [`decide`] for its callers, made stricter by
/// the rules that name a plugin from before a delegation. A plugin cannot escape a rule that denies
/// or asks by letting another one call. A rule that allows counts for its own plugin only.
#[must_use]
pub fn decide_for_participants<'a, 'b>(
    setup: &'a Setup,
    participants: impl Iterator<Item = Participant<'b>> + Clone,
    tool: &str,
    arguments: &Value,
) -> PolicyDecision<'a> {
    let arguments = CallArguments::new(arguments);
    let callers = participants.clone().filter_map(|participant| match participant {
        Participant::Caller(plugin) => Some(plugin),
        Participant::Delegator(_) | Participant::DelegatingTool(_) => None,
    });
    let own = decide_for_all(setup, callers, tool, &arguments);
    let above: Vec<_> =
        participants.filter(|participant| !matches!(participant, Participant::Caller(_))).collect();
    setup
        .policies()
        .flat_map(|policy| above.iter().map(move |it| (policy, it.plugin())))
        .filter_map(|(policy, plugin)| decide_for_delegator(policy, plugin, tool, &arguments))
        .fold(own, stricter)
}

fn decide_for_all<'a, 'b>(
    setup: &'a Setup,
    callers: impl IntoIterator<Item = &'b PluginName>,
    tool: &str,
    arguments: &CallArguments<'_>,
) -> PolicyDecision<'a> {
    let otherwise = without_rule(setup, tool);
    let of_caller = |caller| {
        let each = setup.policies();
        each.map(|policy| decide_for(policy, caller, tool, arguments, otherwise)).reduce(stricter)
    };
    callers.into_iter().filter_map(of_caller).reduce(stricter).unwrap_or(otherwise)
}

/// The decision of the rules that name the delegator; `None` if none is about the call. A rule that
/// may match counts as a match, unless it allows.
fn decide_for_delegator<'a>(
    (policy, before): (&'a Policy, usize),
    delegator: &PluginName,
    tool: &str,
    arguments: &CallArguments<'_>,
) -> Option<PolicyDecision<'a>> {
    let mut matches = FirstMatches::default();
    policy.candidates_naming(delegator, tool, arguments, |indices| {
        matches.add(policy, indices, |rule| rule.holds(delegator, tool, arguments));
    });
    matches.strictest(before)
}

/// The decision for one participant. A rule may be undecidable, if an argument is written in a way
/// that hides its target. Such a rule never allows, and later rules can only make the decision
/// stricter.
fn decide_for<'a>(
    (policy, before): (&'a Policy, usize),
    caller: &PluginName,
    tool: &str,
    arguments: &CallArguments<'_>,
    otherwise: PolicyDecision<'a>,
) -> PolicyDecision<'a> {
    let mut matches = FirstMatches::default();
    policy.candidates(caller, tool, arguments, |indices| {
        matches.add(policy, indices, |rule| rule.holds(caller, tool, arguments));
    });
    match matches.strictest(before) {
        Some(decision) if matches.certain.is_some() => decision,
        Some(decision) => stricter(decision, otherwise),
        None => otherwise,
    }
}

/// The rules that decide about a call, from candidates in any order: the first rule that holds, and
/// the first before it that may hold.
#[derive(Debug, Default)]
struct FirstMatches<'a> {
    certain: Option<RuleMatch<'a>>,
    /// The first rule that may hold and asks. No later one matters: it would be no stricter.
    may_ask: Option<RuleMatch<'a>>,
    may_deny: Option<RuleMatch<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct RuleMatch<'a> {
    index: usize,
    rule: &'a Rule,
}

impl<'a> FirstMatches<'a> {
    /// Adds the rules with these ascending indices.
    fn add(&mut self, policy: &'a Policy, indices: &[usize], holds: impl Fn(&Rule) -> Holds) {
        for &index in indices {
            if self.certain.is_some_and(|certain| certain.index <= index) {
                return;
            }
            let Some(rule) = policy.get(index) else { return };
            let first = match (holds(rule), rule.decide) {
                (Holds::No, _) | (Holds::Maybe, Decide::Allow) => continue,
                (Holds::Maybe, Decide::Ask) => &mut self.may_ask,
                (Holds::Maybe, Decide::Deny) => &mut self.may_deny,
                (Holds::Yes, _) => &mut self.certain,
            };
            if first.is_none_or(|first| index < first.index) {
                *first = Some(RuleMatch { index, rule });
            }
        }
    }

    /// The strictest decision, of equal ones the first. `before` is the number of rules in front of
    /// this policy's.
    fn strictest(&self, before: usize) -> Option<PolicyDecision<'a>> {
        let is_first =
            |may: &RuleMatch<'_>| self.certain.is_none_or(|certain| may.index < certain.index);
        // In this order the first of equal decisions stands first.
        [self.may_deny.filter(is_first), self.may_ask.filter(is_first), self.certain]
            .into_iter()
            .flatten()
            .map(|RuleMatch { index, rule }| PolicyDecision {
                decide: rule.decide,
                why: DecisionSource::Rule { index: before + index, rule },
            })
            .reduce(stricter)
    }
}

/// The stricter of two decisions, the first if they are equal.
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
    /// The decision of the operator's current rules for these arguments.
    #[must_use]
    pub fn decide<'a>(&self, setup: &'a Setup, arguments: &Value) -> PolicyDecision<'a> {
        decide_for_participants(setup, self.participants(), &self.tool, arguments)
    }
}
