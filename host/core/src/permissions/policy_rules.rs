//! The operator's rules about tool calls: which calls a rule covers, and what it decides.

mod arguments;
mod deceptive_path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::permissions::grant::ToolPattern;
use crate::types::ids::PluginName;

pub(crate) use arguments::exactly;
pub use arguments::{ArgumentPattern, ArgumentPlace, ArgumentRule, Holds};
pub use deceptive_path::is_odd;

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
    pub(crate) fn holds(&self, caller: &PluginName, tool: &str, arguments: &Value) -> Holds {
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
        let names = |name: &String| {
            self.arguments.iter().any(|rule| rule.at == ArgumentPlace::of_property(name))
        };
        arguments.as_object().is_some_and(|fields| fields.keys().all(names))
    }

    /// Whatever the other is about this one, further up, decides.
    pub(crate) fn hides(&self, other: &Self) -> bool {
        let is_wider = |pattern: &ToolPattern| {
            pattern.0 == other.tool.0 || (other.tool.0 != "*" && pattern.covers(&other.tool.0))
        };
        let is_any = self.arguments.is_empty() && !self.only;
        is_wider(&self.tool) && (self.caller.is_none() || self.caller == other.caller) && is_any
    }
}
