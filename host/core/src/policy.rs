//! Policy: which tool calls run, which are refused, and which an approver is asked about first. The operator's rules, first match wins;
//! without one, what the tool's plugin may do. Pure, and looked at after every grant has said yes. A rule never adds to a grant.

mod arguments;
mod derived;
mod leave;
mod odd;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::consult::Risk;
use crate::grant::ToolPattern;
use crate::ids::{PluginName, TaskName};
use crate::setup::{PluginSetup, Setup};

pub use arguments::{ArgumentPlace, ArgumentRule, Holds, Pattern};
pub use derived::{derived, reason};
pub use leave::{Leave, leave};
pub use odd::is_odd;

/// Characters of a pattern.
pub(crate) const PATTERN_MAX: usize = 4_096;
/// Patterns of one argument, and arguments of one rule.
pub(crate) const PATTERNS_MAX: usize = 64;

/// What a rule says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decide {
    /// The call runs.
    #[default]
    Allow,
    /// An approver is asked.
    Ask,
    /// The call is refused.
    Deny,
}

impl Decide {
    /// The word of the config.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// `[[policy]]` of the config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    pub tool: ToolPattern,
    /// The plugin that calls; none: whoever calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<PluginName>,
    /// All of them must hold; empty: whatever the arguments are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<ArgumentRule>,
    /// The rule holds only for calls without any argument that `arguments` does not name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only: bool,
    pub decide: Decide,
    /// How long an approver may take, in milliseconds; none: as long as the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// Where it stands, for people: `conclave.toml:49`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Rule {
    /// The rule is about this caller, tool and these arguments.
    fn holds(&self, caller: &PluginName, tool: &str, arguments: &Value) -> Holds {
        if !self.tool.covers(tool) || self.caller.as_ref().is_some_and(|name| name != caller) {
            return Holds::No;
        }
        if self.only && !self.names_all(arguments) {
            return Holds::No;
        }
        self.arguments.iter().map(|rule| rule.holds(arguments)).min().unwrap_or(Holds::Yes)
    }

    /// Returns whether `arguments` of the rule names every argument of the call.
    fn names_all(&self, arguments: &Value) -> bool {
        let names = |name: &String| self.arguments.iter().any(|rule| rule.at == ArgumentPlace::of_property(name));
        arguments.as_object().is_some_and(|fields| fields.keys().all(names))
    }

    /// Whatever the other is about this one, further up, decides.
    pub(crate) fn hides(&self, other: &Self) -> bool {
        let is_wider = |pattern: &ToolPattern| pattern.0 == other.tool.0 || (other.tool.0 != "*" && pattern.covers(&other.tool.0));
        let is_any = self.arguments.is_empty() && !self.only;
        is_wider(&self.tool) && (self.caller.is_none() || self.caller == other.caller) && is_any
    }
}

/// What holds for a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision<'a> {
    pub decide: Decide,
    pub why: Why<'a>,
}

/// What a decision comes from. Its text is for people: where the rule stands, or what the plugin may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why<'a> {
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

impl fmt::Display for Why<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { rule, .. } => out.write_str(&rule.source),
            Self::Grants { plugin, setup } => out.write_str(&reason(plugin, setup)),
            Self::Nothing => out.write_str("nothing is known of it"),
        }
    }
}

/// What holds for a call: for each who has a part in it (the agent that calls, a tool plugin whose answer wants it) the first rule that
/// matches, else what the tool's plugin may do; of those the strictest, so that nobody hides behind another's leave. Allocates nothing.
#[must_use]
pub fn decide<'a, 'b>(setup: &'a Setup, callers: impl IntoIterator<Item = &'b PluginName>, tool: &str, arguments: &Value) -> Decision<'a> {
    let otherwise = without_rule(setup, tool);
    let each = callers.into_iter().map(|caller| decide_for(&setup.policy, caller, tool, arguments, otherwise));
    each.reduce(stricter).unwrap_or(otherwise)
}

/// Returns the decision for a call that others delegated: [`decide`] for those who have a part in it, made stricter by the rules that name
/// one of the `delegators`. What a rule denies or asks about for a plugin it may not have done by another; what a rule allows it gives to
/// that plugin alone.
#[must_use]
pub fn decide_delegated<'a, 'b>(
    setup: &'a Setup,
    callers: impl IntoIterator<Item = &'b PluginName>,
    delegators: impl IntoIterator<Item = &'b PluginName>,
    tool: &str,
    arguments: &Value,
) -> Decision<'a> {
    let own = decide(setup, callers, tool, arguments);
    delegators.into_iter().filter_map(|delegator| decide_for_delegator(&setup.policy, delegator, tool, arguments)).fold(own, stricter)
}

/// The first rule that names the delegator and is about the call. A rule that may hold is taken for one that does, unless it allows.
fn decide_for_delegator<'a>(rules: &'a [Rule], delegator: &PluginName, tool: &str, arguments: &Value) -> Option<Decision<'a>> {
    let own = rules.iter().enumerate().filter(|(_, rule)| rule.caller.as_ref() == Some(delegator));
    let mut strictest: Option<Decision<'a>> = None;
    for (index, rule) in own {
        let decision = Decision { decide: rule.decide, why: Why::Rule { index, rule } };
        match rule.holds(delegator, tool, arguments) {
            Holds::No => {}
            Holds::Maybe if rule.decide == Decide::Allow => {}
            Holds::Maybe => strictest = Some(strictest.map_or(decision, |earlier| stricter(earlier, decision))),
            Holds::Yes => return Some(strictest.map_or(decision, |earlier| stricter(earlier, decision))),
        }
    }
    strictest
}

/// A rule of which it cannot be told whether it holds (an argument is written in a way that hides what it leads to) never allows, and
/// what comes after it can only be stricter.
fn decide_for<'a>(rules: &'a [Rule], caller: &PluginName, tool: &str, arguments: &Value, otherwise: Decision<'a>) -> Decision<'a> {
    let mut maybe: Option<Decision<'a>> = None;
    let and = |maybe: Option<Decision<'a>>, decision| maybe.map_or(decision, |maybe| stricter(maybe, decision));
    for (index, rule) in rules.iter().enumerate() {
        let decision = Decision { decide: rule.decide, why: Why::Rule { index, rule } };
        match rule.holds(caller, tool, arguments) {
            Holds::Yes => return and(maybe, decision),
            Holds::Maybe if rule.decide > Decide::Allow => maybe = Some(and(maybe, decision)),
            Holds::Maybe | Holds::No => {}
        }
    }
    and(maybe, otherwise)
}

/// The first of two that are alike.
fn stricter<'a>(first: Decision<'a>, second: Decision<'a>) -> Decision<'a> {
    if second.decide > first.decide { second } else { first }
}

fn without_rule<'a>(setup: &'a Setup, tool: &str) -> Decision<'a> {
    let plugin = tool.split_once('.').and_then(|(plugin, _)| setup.plugins.get_key_value(plugin));
    match plugin {
        Some((plugin, setup)) => Decision { decide: derived(setup), why: Why::Grants { plugin, setup } },
        None => Decision { decide: Decide::Ask, why: Why::Nothing },
    }
}

/// What makes the host ask an approver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalCause {
    /// A rule of the operator, by its index in the setup's policy.
    Rule(usize),
    /// No rule matches, and the tool's plugin may write, send or spend.
    Grants,
    /// `tasks.NAME.confirm` asks about this action, tool or risk.
    Confirm,
    /// A limit of the run is used up.
    Limit,
}

/// A delegation on the way to a call, as the question about the call shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegator {
    /// The task that delegated.
    pub task: TaskName,
    /// The plugin of that task's agent.
    pub plugin: PluginName,
    /// The beginning of what it asked for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub brief: String,
}

/// Bytes of a brief that a [`Delegator`] keeps.
pub const BRIEF_MAX: usize = 400;

/// What an approver is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    pub task: TaskName,
    /// The plugin that calls.
    pub caller: PluginName,
    /// The tool plugin whose answer wants this call; none when the caller wants it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<PluginName>,
    /// The delegations that led to the call, the first one first; empty when the caller's task is the run's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegators: Vec<Delegator>,
    /// `plugin.tool`, or the name of an action.
    pub tool: String,
    /// The plugin that carries the action out; none for a tool, whose name says it, and for an action of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<PluginName>,
    pub arguments: Value,
    /// Why somebody is asked, for people: where the rule stands, or what the tool's plugin may do.
    pub source: String,
    /// Everything that makes the host ask; at least one. One answer answers all of them.
    pub causes: Vec<ApprovalCause>,
    /// How long there is to decide, in milliseconds; none: as long as the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// How risky the task's analyzer says that it is (O-109); none: nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// Why it is so risky, in the analyzer's words, or why the analyzer said nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk_reason: Option<String>,
    /// Asked again: what is wrong with the arguments that the approver wrote; `arguments` are those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl ApprovalRequest {
    /// Returns the plugins that have a part in the call.
    pub fn callers(&self) -> impl Iterator<Item = &PluginName> {
        [&self.caller].into_iter().chain(&self.asked_by)
    }

    /// Returns what the operator's rules say of these arguments by now.
    #[must_use]
    pub fn decide<'a>(&self, setup: &'a Setup, arguments: &Value) -> Decision<'a> {
        let delegators = self.delegators.iter().map(|delegator| &delegator.plugin);
        decide_delegated(setup, self.callers(), delegators, &self.tool, arguments)
    }

    /// Returns the index of the rule that asks; none when no rule does.
    #[must_use]
    pub fn rule(&self) -> Option<usize> {
        self.causes.iter().find_map(|cause| match cause {
            ApprovalCause::Rule(index) => Some(*index),
            _ => None,
        })
    }

    /// Whether a rule that allows the call would answer the question: nothing asks but rules and grants.
    #[must_use]
    pub fn is_for_rules(&self) -> bool {
        self.causes.iter().all(|cause| matches!(cause, ApprovalCause::Rule(_) | ApprovalCause::Grants))
    }
}

/// Who answered an [`ApprovalRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalAuthor {
    /// A person, and where: `the terminal`, `another terminal`.
    Person { at: String },
    /// A person, by an earlier answer for the rest of the run.
    ForThisRun {
        at: String,
        /// When the earlier answer was given, in milliseconds since 1970.
        given_ms: u64,
    },
    /// A rule that was written into the config during the run.
    Rule {
        /// Where the rule stands: `conclave.toml:49`.
        source: String,
    },
    /// The program that embeds the host, by code of its own.
    #[default]
    Program,
    /// Nobody: the time was up, or nobody could be asked.
    Nobody,
}

impl fmt::Display for ApprovalAuthor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person { at } => write!(out, "a person at {at}"),
            Self::ForThisRun { at, .. } => write!(out, "an earlier answer for this run, by a person at {at}"),
            Self::Rule { source } => write!(out, "the rule at {source}"),
            Self::Program => out.write_str("the program"),
            Self::Nobody => out.write_str("nobody"),
        }
    }
}

/// What an approver says, and who it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalAnswer {
    pub approval: Approval,
    pub author: ApprovalAuthor,
}

/// An answer of the embedding program.
impl From<Approval> for ApprovalAnswer {
    fn from(approval: Approval) -> Self {
        Self { approval, author: ApprovalAuthor::Program }
    }
}

impl Approval {
    /// Returns the answer of this author.
    #[must_use]
    pub fn by(self, author: ApprovalAuthor) -> ApprovalAnswer {
        ApprovalAnswer { approval: self, author }
    }
}

/// What an approver says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "approval", rename_all = "kebab-case")]
pub enum Approval {
    /// It runs as it is.
    Approved,
    /// It runs with these arguments instead; they are checked like any, and no rule may deny them.
    Edited { arguments: Value },
    /// It does not run; the agent reads why.
    Refused { reason: String },
    /// It could not run with these arguments: the host says so, and nobody need be asked.
    Invalid { message: String },
}
