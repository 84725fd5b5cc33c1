//! The request to an approver, and the answer with its author.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::ids::{PluginName, TaskName};
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
}

/// The limit of a brief in a [`Delegator`], in bytes.
pub const BRIEF_MAX: usize = 400;

/// A request to an approver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    pub task: TaskName,
    /// The calling plugin.
    pub caller: PluginName,
    /// The tool plugin whose answer requests this call; `None` if the caller requests it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<PluginName>,
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
    /// Returns the plugins that participate in the call.
    pub fn callers(&self) -> impl Iterator<Item = &PluginName> {
        [&self.caller].into_iter().chain(&self.asked_by)
    }

    /// Returns the index of the rule that asks; `None` if no rule does.
    #[must_use]
    pub fn rule(&self) -> Option<usize> {
        self.causes.iter().find_map(|cause| match cause {
            ApprovalCause::Rule(index) => Some(*index),
            _ => None,
        })
    }

    /// Returns whether a rule that allows the call would settle the request: only rules and grants
    /// ask.
    #[must_use]
    pub fn is_for_rules(&self) -> bool {
        self.causes
            .iter()
            .all(|cause| matches!(cause, ApprovalCause::Rule(_) | ApprovalCause::Grants))
    }
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
    /// Returns the answer with this author.
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
