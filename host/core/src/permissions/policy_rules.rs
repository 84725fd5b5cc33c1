//! The operator's rules about tool calls: the calls that a rule covers, and its decision.

mod arguments;
mod call_arguments;
mod deceptive_path;
pub(crate) mod glob;
mod policy;
mod prefix_table;
mod rule_index;

use serde::{Deserialize, Serialize};

use crate::permissions::grants::ToolPattern;
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

/// One `[[policy]]` of the config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// The tools, as [`Self::covers`] reads them: a `*` may stand anywhere.
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
    /// Whether the rule's pattern covers this `plugin.tool`. Unlike [`ToolPattern::covers`],
    /// which is for grants, a `*` stands for any text, as in the patterns of arguments.
    #[must_use]
    pub fn covers(&self, tool: &str) -> bool {
        glob::covers(&self.tool.0, tool)
    }

    /// The error in a text for a rule's tools; `None` if it can cover a `plugin.tool`.
    #[must_use]
    pub fn tool_problem(text: &str) -> Option<&'static str> {
        let is_known = |c: char| c.is_ascii_alphanumeric() || "-_.*".contains(c);
        if !text.chars().all(is_known) {
            return Some("has characters that no tool has in its name");
        }
        match text.split_once('.') {
            None if text.contains('*') => None,
            None => Some("names no tool of a plugin"),
            Some((plugin, tool)) if plugin.is_empty() || tool.is_empty() || tool.contains('.') => {
                Some("is not `plugin.tool`")
            }
            Some(_) => None,
        }
    }

    /// Whether the rule matches this caller, tool and these arguments.
    pub(crate) fn holds(
        &self,
        caller: &PluginName,
        tool: &str,
        arguments: &CallArguments<'_>,
    ) -> Holds {
        if !self.covers(tool) || self.caller.as_ref().is_some_and(|name| name != caller) {
            return Holds::No;
        }
        if self.only && !self.names_all(arguments) {
            return Holds::No;
        }
        self.arguments.iter().map(|rule| rule.holds(arguments)).min().unwrap_or(Holds::Yes)
    }

    /// Whether `arguments` of the rule names every argument of the call.
    fn names_all(&self, arguments: &CallArguments<'_>) -> bool {
        let names = |name: &String| {
            self.arguments.iter().any(|rule| rule.at == ArgumentPlace::of_property(name))
        };
        arguments.value.as_object().is_some_and(|fields| fields.keys().all(names))
    }

    /// Whether this rule, standing first, matches every call that the other one matches.
    pub(crate) fn hides(&self, other: &Self) -> bool {
        // Only a star covers a star, so what covers the pattern covers all that the pattern covers.
        let is_wider = self.covers(&other.tool.0);
        let is_any = self.arguments.is_empty() && !self.only;
        is_wider && (self.caller.is_none() || self.caller == other.caller) && is_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(tool: &str) -> Rule {
        Rule {
            tool: ToolPattern(tool.to_owned()),
            caller: None,
            arguments: Vec::new(),
            only: false,
            decide: Decide::Deny,
            expires_ms: None,
            source: String::new(),
        }
    }

    #[test]
    fn a_star_stands_anywhere_in_the_tools_of_a_rule_and_not_of_a_grant() {
        let tools = ["files.list_a", "files.list", "notes.delete_all", "files2.list_a"];
        for (pattern, covered) in [
            ("files.list_a", vec!["files.list_a"]),
            ("files.list*", vec!["files.list_a", "files.list"]),
            ("files.*_a", vec!["files.list_a"]),
            ("*.list_*", vec!["files.list_a", "files2.list_a"]),
            ("*delete*", vec!["notes.delete_all"]),
            ("files.*", vec!["files.list_a", "files.list"]),
            ("*", tools.to_vec()),
        ] {
            let rule = rule(pattern);
            assert_eq!(Rule::tool_problem(pattern), None, "{pattern}");
            let found: Vec<&str> = tools.into_iter().filter(|tool| rule.covers(tool)).collect();
            assert_eq!(found, covered, "{pattern}");
            // The index, by which a decision finds the rule, leaves none out.
            let policy = Policy::from(vec![rule]);
            for tool in tools {
                let mut candidates = 0;
                let arguments = serde_json::json!({});
                let arguments = CallArguments::new(&arguments);
                policy.candidates(&"a".into(), tool, &arguments, |rules| candidates += rules.len());
                assert!(candidates == 1 || !covered.contains(&tool), "{pattern} {tool}");
            }
        }
        for pattern in ["files.list*", "files.*_a", "*.list_*", "*delete*"] {
            let grant = ToolPattern(pattern.to_owned());
            assert!(!ToolPattern::is_well_formed(pattern), "{pattern}");
            assert!(!tools.into_iter().any(|tool| grant.covers(tool)), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_that_can_cover_no_tool_has_a_problem() {
        for text in ["", "search", ".find", "search.", "a.b.c", "a*.b.c", "a b.c", "a/*", r"a.\*"] {
            assert!(Rule::tool_problem(text).is_some(), "{text}");
        }
    }

    #[test]
    fn a_rule_is_hidden_by_a_pattern_that_covers_all_of_its_tools() {
        let hides = |first: &str, second: &str| rule(first).hides(&rule(second));
        for (first, second) in
            [("*", "*"), ("a.*", "a.list_*"), ("a.l*", "a.l*_x"), ("*.b", "a*.b"), ("a.b", "a.b")]
        {
            assert!(hides(first, second), "{first} {second}");
        }
        for (first, second) in
            [("a.list_*", "a.*"), ("a.*", "*"), ("a*.b", "*.b"), ("a.*x", "a.x*"), ("a.b", "a.*")]
        {
            assert!(!hides(first, second), "{first} {second}");
        }
    }
}
