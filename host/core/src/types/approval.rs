//! The question that an approver is asked, and the answer with its author.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::ids::{PluginName, TaskName};
use crate::types::risk::Risk;

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
    /// The delegations that led to the call, the first one first; empty when the caller's task is
    /// the run's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegators: Vec<Delegator>,
    /// `plugin.tool`, or the name of an action.
    pub tool: String,
    /// The plugin that carries the action out; none for a tool, whose name says it, and for an
    /// action of the host.
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
    /// Asked again: what is wrong with the arguments that the approver wrote; `arguments` are
    /// those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl ApprovalRequest {
    /// Returns the plugins that have a part in the call.
    pub fn callers(&self) -> impl Iterator<Item = &PluginName> {
        [&self.caller].into_iter().chain(&self.asked_by)
    }

    /// Returns the index of the rule that asks; none when no rule does.
    #[must_use]
    pub fn rule(&self) -> Option<usize> {
        self.causes.iter().find_map(|cause| match cause {
            ApprovalCause::Rule(index) => Some(*index),
            _ => None,
        })
    }

    /// Whether a rule that allows the call would answer the question: nothing asks but rules and
    /// grants.
    #[must_use]
    pub fn is_for_rules(&self) -> bool {
        self.causes
            .iter()
            .all(|cause| matches!(cause, ApprovalCause::Rule(_) | ApprovalCause::Grants))
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
            Self::ForThisRun { at, .. } => {
                write!(out, "an earlier answer for this run, by a person at {at}")
            }
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
