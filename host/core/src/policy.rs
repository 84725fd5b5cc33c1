//! Policy: which tool calls run, which are refused, and which an approver is asked about first. The operator's rules, first match wins;
//! pure, and looked at after every grant has said yes. A rule never adds to a grant.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::grant::ToolPattern;
use crate::ids::{PluginName, TaskName};

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
    pub decide: Decide,
    /// How long an approver may take, in milliseconds; none: as long as the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// Where it stands, for people: `conclave.toml:49`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// The rule that holds for a call; none: nobody is asked. Each who has a part in the call (the agent that calls, a tool plugin whose answer
/// wants it) is held against the first rule that matches; the strictest of them counts, so that nobody hides behind another's leave.
#[must_use]
pub fn rule_for<'a, 'b>(rules: &'a [Rule], callers: impl IntoIterator<Item = &'b PluginName>, tool: &str) -> Option<&'a Rule> {
    let first =
        |caller: &PluginName| rules.iter().find(|rule| rule.tool.covers(tool) && rule.caller.as_ref().is_none_or(|name| name == caller));
    callers.into_iter().filter_map(first).max_by_key(|rule| rule.decide)
}

/// What an approver is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    pub task: TaskName,
    /// The plugin that calls.
    pub caller: PluginName,
    /// The tool plugin whose answer wants this call; none when the caller wants it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<PluginName>,
    /// `plugin.tool`.
    pub tool: String,
    pub arguments: Value,
    /// The rule that asks, for people.
    pub source: String,
}

/// What an approver says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "approval", rename_all = "kebab-case")]
pub enum Approval {
    /// It runs as it is.
    Approved,
    /// It runs with these arguments instead; they are checked like any.
    Edited { arguments: Value },
    /// It does not run; the agent reads why.
    Refused { reason: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(tool: &str, caller: Option<&str>, decide: Decide) -> Rule {
        Rule { tool: ToolPattern(tool.to_owned()), caller: caller.map(PluginName::from), decide, expires_ms: None, source: String::new() }
    }

    #[test]
    fn the_first_rule_that_matches_wins() {
        let rules =
            [rule("notes.save", Some("librarian"), Decide::Allow), rule("notes.*", None, Decide::Ask), rule("*", None, Decide::Deny)];
        let decided = |caller: &str, tool: &str| rule_for(&rules, [&caller.into()], tool).map(|rule| rule.decide);
        assert_eq!(decided("librarian", "notes.save"), Some(Decide::Allow));
        assert_eq!(decided("stranger", "notes.save"), Some(Decide::Ask));
        assert_eq!(decided("librarian", "notes.list"), Some(Decide::Ask));
        assert_eq!(decided("librarian", "search.find"), Some(Decide::Deny));
        assert_eq!(rule_for(&rules[..2], [&"librarian".into()], "search.find"), None);
        let both: [PluginName; 2] = ["librarian".into(), "stranger".into()];
        assert_eq!(rule_for(&rules, both.iter(), "notes.save").map(|rule| rule.decide), Some(Decide::Ask), "the strictest counts");
    }
}
