//! The operator's rules about tool calls: the calls that a rule covers, and its decision.

mod arguments;
mod call_arguments;
mod deceptive_path;
mod policy;
mod prefix_table;
mod rule_index;

use serde::{Deserialize, Serialize};

use crate::permissions::grant::ToolPattern;
use crate::types::ids::PluginName;

pub(crate) use arguments::exactly;
pub use arguments::{ArgumentPattern, ArgumentPlace, ArgumentRule, Holds};
pub(crate) use call_arguments::CallArguments;
pub use deceptive_path::is_odd;
pub use policy::Policy;

/// The limit of a pattern in characters.
pub(crate) const PATTERN_MAX: usize = 4_096;

/// The limit of patterns for one argument, and of arguments in one rule.
pub(crate) const PATTERNS_MAX: usize = 64;

/// The decision of a rule.
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
    /// Returns the word of the config.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// One `[[policy]]` of the config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    pub tool: ToolPattern,
    /// The calling plugin; `None` for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<PluginName>,
    /// The conditions on arguments, all of which must hold; empty for any arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<ArgumentRule>,
    /// Whether the rule holds only for calls without further arguments than those in `arguments`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only: bool,
    pub decide: Decide,
    /// The approver's time limit in milliseconds; `None` for the rest of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// The position of the rule, for people: `conclave.toml:49`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Rule {
    /// Returns whether the rule matches this caller, tool and these arguments.
    pub(crate) fn holds(
        &self,
        caller: &PluginName,
        tool: &str,
        arguments: &CallArguments<'_>,
    ) -> Holds {
        if !self.tool.covers(tool) || self.caller.as_ref().is_some_and(|name| name != caller) {
            return Holds::No;
        }
        if self.only && !self.names_all(arguments) {
            return Holds::No;
        }
        self.arguments.iter().map(|rule| rule.holds(arguments)).min().unwrap_or(Holds::Yes)
    }

    /// Returns whether `arguments` of the rule names every argument of the call.
    fn names_all(&self, arguments: &CallArguments<'_>) -> bool {
        let names = |name: &String| {
            self.arguments.iter().any(|rule| rule.at == ArgumentPlace::of_property(name))
        };
        arguments.value.as_object().is_some_and(|fields| fields.keys().all(names))
    }

    /// Returns whether this rule, standing first, matches every call that the other one matches.
    pub(crate) fn hides(&self, other: &Self) -> bool {
        let is_wider = |pattern: &ToolPattern| {
            pattern.0 == other.tool.0 || (other.tool.0 != "*" && pattern.covers(&other.tool.0))
        };
        let is_any = self.arguments.is_empty() && !self.only;
        is_wider(&self.tool) && (self.caller.is_none() || self.caller == other.caller) && is_any
    }
}
