//! The request to an approver, its id, and the answer with its author.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::types::ids::{CallId, PluginName, RoomId, TaskName};
use crate::types::risk::Risk;

/// The cause of a request to an approver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalCause {
    /// A rule of the operator, by its index in the setup's policy.
    Rule(usize),
    /// No rule matches, and the tool's plugin may write, send or spend.
    Grants,
    /// `tasks.NAME.confirm` covers this action, tool or risk.
    Confirm,
    /// A limit of the run is used up.
    Limit,
}

/// A delegation that led to a call, as the request shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegator {
    /// The task that delegated.
    pub task: TaskName,
    /// The plugin of that task's agent.
    pub plugin: PluginName,
    /// The beginning of the delegation's brief.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub brief: String,
    /// The tools that led to the delegation, in order; empty if the agent delegated by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub led_by: Vec<PluginName>,
}

/// A task that asks a person, or that delegated to one that does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    pub task: TaskName,
    /// The plugin of the task's agent.
    pub agent: PluginName,
}

/// A plugin with a part in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Participant<'a> {
    /// The agent of a task that delegated.
    Delegator(&'a Delegator),
    /// A tool that led to the delegation of the agent before it.
    DelegatingTool(&'a PluginName),
    /// The agent that makes the call, or the tools that led to it within the agent's task.
    Caller(&'a PluginName),
}

impl<'a> Participant<'a> {
    #[must_use]
    pub fn plugin(&self) -> &'a PluginName {
        match self {
            Self::Delegator(delegator) => &delegator.plugin,
            Self::DelegatingTool(plugin) | Self::Caller(plugin) => plugin,
        }
    }
}

/// The participants in a call, in the order in which they led to it.
pub(crate) fn participants<'a>(
    delegators: &'a [Delegator],
    caller: &'a PluginName,
    led_by: &'a [PluginName],
) -> impl Iterator<Item = Participant<'a>> + Clone {
    let of_delegation = |delegator: &'a Delegator| {
        let tools = delegator.led_by.iter().map(Participant::DelegatingTool);
        [Participant::Delegator(delegator)].into_iter().chain(tools)
    };
    let callers = [caller].into_iter().chain(led_by).map(Participant::Caller);
    delegators.iter().flat_map(of_delegation).chain(callers)
}

/// The limit of a brief in a [`Delegator`], in bytes.
pub const BRIEF_MAX: usize = 400;

/// A request to an approver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    pub task: TaskName,
    /// The calling plugin.
    pub caller: PluginName,
    /// The plugins that led to the call within the caller's task, in order: tools whose answers
    /// or running calls requested it. The last one requests it. Empty if the caller makes the call
    /// itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub led_by: Vec<PluginName>,
    /// The delegations that led to the call, the outermost first; empty if the call belongs to the
    /// run's own task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegators: Vec<Delegator>,
    /// `plugin.tool`, or the name of an action.
    pub tool: String,
    /// The plugin that carries the action out. `None` for a tool, whose name contains it, and for
    /// an action of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<PluginName>,
    pub arguments: Value,
    /// The reason for asking, for people: the position of the rule, or the grants of the tool's
    /// plugin.
    pub source: String,
    /// Every cause for asking, at least one. One answer settles all of them.
    pub causes: Vec<ApprovalCause>,
    /// The time to decide, in milliseconds; `None` for the rest of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// The risk rated by the task's analyzer (O-109); `None` if there is no rating.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// The analyzer's reason for its rating, or the reason for a missing rating.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk_reason: Option<String>,
    /// The error in the arguments of the approver's previous answer; `arguments` then holds those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl ApprovalRequest {
    /// The plugins that have a part in the call, in the order in which they led to it:
    /// each delegating agent with the tools that led to its delegation, then the caller, then the
    /// tools that led to the call. Decisions, questions, answers and the audit are about all of
    /// them.
    pub fn participants(&self) -> impl Iterator<Item = Participant<'_>> + Clone {
        participants(&self.delegators, &self.caller, &self.led_by)
    }

    /// The plugins whose own rules must allow the call: the caller and the tools that led to the
    /// call within its task.
    pub fn callers(&self) -> impl Iterator<Item = &PluginName> {
        [&self.caller].into_iter().chain(&self.led_by)
    }

    /// Returns who led to the call besides its caller, the nearest first, for people: `, requested
    /// by relay for evil, delegated by driver`; empty if the caller makes it itself.
    #[must_use]
    pub fn origin(&self) -> String {
        let mut text = led_by(", requested by", &self.led_by);
        for delegator in self.delegators.iter().rev() {
            text += &format!(", delegated by {}", delegator.plugin);
            text += &led_by(" at the request of", &delegator.led_by);
        }
        text
    }

    /// The plugin that carries the call out; `None` for an action of the host.
    #[must_use]
    pub fn performer(&self) -> Option<PluginName> {
        let of_tool = || self.tool.split_once('.').map(|(plugin, _)| PluginName::from(plugin));
        self.executor.clone().or_else(of_tool)
    }

    /// The index of the rule that asks; `None` if no rule does.
    #[must_use]
    pub fn rule(&self) -> Option<usize> {
        self.causes.iter().find_map(|cause| match cause {
            ApprovalCause::Rule(index) => Some(*index),
            _ => None,
        })
    }

    /// Whether a rule that allows the call would settle the request: only rules and grants ask.
    #[must_use]
    pub fn is_for_rules(&self) -> bool {
        self.causes
            .iter()
            .all(|cause| matches!(cause, ApprovalCause::Rule(_) | ApprovalCause::Grants))
    }
}

/// The last plugin of a chain behind these words, then those that led to its request, for people:
/// `, requested by relay for evil`; empty for an empty chain.
#[must_use]
pub fn led_by(words: &str, plugins: &[PluginName]) -> String {
    let mut nearest = plugins.iter().rev();
    let Some(last) = nearest.next() else { return String::new() };
    let others: Vec<String> = nearest.map(|plugin| format!(" for {plugin}")).collect();
    format!("{words} {last}{}", others.concat())
}

/// The author of an answer to an [`ApprovalRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalAuthor {
    /// A person, and the place: `the terminal`, `another terminal`.
    Person { at: String },
    /// A person, by an earlier answer for the rest of the run.
    ForThisRun {
        at: String,
        /// The time of the earlier answer, in milliseconds since 1970.
        given_ms: u64,
    },
    /// A rule that was written into the config during the run.
    Rule {
        /// The position of the rule: `conclave.toml:49`.
        source: String,
    },
    /// The program that embeds the host.
    #[default]
    Program,
    /// No author: the time was up, or no approver was available.
    Nobody,
}

impl fmt::Display for ApprovalAuthor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person { at } => write!(out, "a person at {at}"),
            Self::ForThisRun { at, .. } => {
                write!(out, "an earlier answer for this run, by a person at {at}")
            }
            Self::Rule { source } => write!(out, "the rule at {source}"),
            Self::Program => out.write_str("the program"),
            Self::Nobody => out.write_str("nobody"),
        }
    }
}

/// The SHA-256 of arguments in their canonical form, in hexadecimal digits. That form is their JSON
/// without spaces, with the keys of each object in order.
#[must_use]
pub fn arguments_sha256(arguments: &Value) -> String {
    // Without serde_json's `preserve_order`, an object is a sorted map.
    let digest = Sha256::digest(arguments.to_string());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The reason why a room rejects a decision about a call. The call stays open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "fault", rename_all = "kebab-case")]
pub enum DecisionFault {
    /// The decision is about other arguments than those with which the call would run.
    #[error(
        "it is about other arguments (SHA-256 {decided}) than those of the call (SHA-256 {current})"
    )]
    OtherArguments {
        /// The SHA-256 of the arguments that the decision names.
        decided: String,
        /// The SHA-256 of the arguments of the call.
        current: String,
    },
    /// The decision cannot be read, such as an amount that is no number.
    #[error("{problem}")]
    Invalid {
        /// The reason.
        problem: String,
    },
}

impl DecisionFault {
    /// Compares the arguments that a decision names with those of the call. A decision that names
    /// none is about the call as it is.
    ///
    /// # Errors
    /// `OtherArguments`.
    pub(crate) fn check(decided: Option<&str>, arguments: &Value) -> Result<(), Self> {
        let Some(decided) = decided else { return Ok(()) };
        let current = arguments_sha256(arguments);
        if decided == current {
            return Ok(());
        }
        Err(Self::OtherArguments { decided: decided.to_owned(), current })
    }

    /// The stable code for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::OtherArguments { .. } => "other_arguments",
            Self::Invalid { .. } => "invalid_decision",
        }
    }
}

/// An approver's answer with its author.
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
    /// The answer with this author.
    #[must_use]
    pub fn by(self, author: ApprovalAuthor) -> ApprovalAnswer {
        ApprovalAnswer { approval: self, author }
    }
}

/// An approver's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "approval", rename_all = "kebab-case")]
pub enum Approval {
    /// The call runs unchanged.
    Approved,
    /// The call runs with these arguments instead. They are checked like any others, and no rule
    /// may deny them.
    Edited { arguments: Value },
    /// The call does not run; the agent reads the reason.
    Refused { reason: String },
    /// The call could not run with these arguments. The host rejects it without asking an approver.
    Invalid { message: String },
}

/// The id of a pending approval or question, as people type it: `3f2a91c0:c7`, and
/// `3f2a91c0/1:c7` in a child room. The store resolves an id to its call.
#[must_use]
pub fn approval_id(room: &RoomId, call: CallId) -> String {
    format!("{room}:{call}")
}

/// Splits an id into the room as written, which may be only its run's first digits, and the call.
/// `None` if the text does not have that form.
#[must_use]
pub fn parse_approval_id(text: &str) -> Option<(&str, CallId)> {
    let (room, call) = text.rsplit_once(':').filter(|(room, _)| !room.is_empty())?;
    let digits = call.strip_prefix('c')?;
    // A sign would parse as a part of the number.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    Some((room, CallId(digits.parse().ok().filter(|_| is_number)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatted_id_parses_to_the_same_call() {
        for room in ["3f2a91c0", "3f2a91c0/1", "3f2a91c0.4/2", "aa-batch-3"] {
            let id = approval_id(&RoomId::from(room), CallId(7));
            assert_eq!(parse_approval_id(&id), Some((room, CallId(7))), "{id}");
        }
    }

    #[test]
    fn another_text_is_no_id() {
        for text in [
            "",
            ":",
            "3f2a",
            "3f2a:7",
            "3f2a:c",
            "3f2a:c+7",
            "3f2a:c-1",
            ":c7",
            "3f2a:c99999999999999999999",
            "3f2a:c7x",
        ] {
            assert_eq!(parse_approval_id(text), None, "{text}");
        }
    }
}
