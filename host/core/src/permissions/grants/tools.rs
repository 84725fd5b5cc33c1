//! `tools`: calls of tools of other plugins, by the grant alone; the toolbox of the task and the
//! policy are checked elsewhere.

use std::borrow::Borrow;

use serde::{Deserialize, Serialize};

use super::texts::{list_with, run_limits};
use super::{AccessRequest, Capability, Destination, Grant, GrantTexts, Layer, Refused, Rights};
use crate::permissions::overlap::{overlap, smaller};

/// The grant of tools that an agent may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolsGrant {
    pub names: Vec<ToolPattern>,
    /// The limit of calls in the whole run.
    pub calls: Option<u64>,
}

/// A pattern of tools: `plugin.tool`, `plugin.*` or `*`. Those of rules, in which a `*` may stand
/// anywhere, are matched by [`Rule::covers`](crate::permissions::policy_rules::Rule::covers).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolPattern(pub String);

impl Borrow<str> for ToolPattern {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl ToolPattern {
    /// Whether the pattern covers this `plugin.tool`.
    #[must_use]
    pub fn covers(&self, tool: &str) -> bool {
        match self.covered() {
            CoveredTools::One(name) => name == tool,
            CoveredTools::WithPrefix(prefix) => tool.starts_with(prefix),
            CoveredTools::None => false,
        }
    }

    /// The tools that the pattern covers.
    fn covered(&self) -> CoveredTools<'_> {
        match self.0.strip_suffix('*') {
            Some(prefix) if prefix.is_empty() || prefix.ends_with('.') => {
                CoveredTools::WithPrefix(prefix)
            }
            Some(_) => CoveredTools::None,
            None => CoveredTools::One(&self.0),
        }
    }

    /// Whether the text has the form of a pattern.
    #[must_use]
    pub fn is_well_formed(text: &str) -> bool {
        let word = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        };
        text == "*"
            || text
                .split_once('.')
                .is_some_and(|(plugin, tool)| word(plugin) && (tool == "*" || word(tool)))
    }

    /// The pattern of the tools that both cover; `None` if there are none. Of two patterns that
    /// share a tool, one covers all tools of the other.
    fn overlap(&self, other: &Self) -> Option<Self> {
        let has = |outer: &Self, inner: &Self| match (outer.covered(), inner.covered()) {
            (CoveredTools::WithPrefix(outer), CoveredTools::WithPrefix(inner)) => {
                inner.starts_with(outer)
            }
            (_, CoveredTools::One(name)) => outer.covers(name),
            _ => false,
        };
        [(self, other), (other, self)]
            .into_iter()
            .find(|(outer, inner)| has(outer, inner))
            .map(|(_, inner)| inner.clone())
    }
}

/// The tools that a pattern covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CoveredTools<'a> {
    One(&'a str),
    /// All tools whose names begin with this; the prefix of `*` is empty.
    WithPrefix(&'a str),
    /// None, because the pattern is malformed.
    None,
}

impl Rights<'_> {
    /// Allows a tool, `plugin.tool`, by the grant alone; the toolbox of the task and the policy are
    /// checked elsewhere.
    ///
    /// # Errors
    /// As [`may_use_model`](Self::may_use_model).
    pub fn may_call(&self, tool: &str) -> Result<(), Refused> {
        let granted = self.grants.tools.as_ref().map_or(&[][..], |grant| &grant.names);
        let smallest = || {
            let list = list_with(granted, tool);
            // A plain list in place of the table would drop its limit.
            let value = match self.grants.tools.as_ref().and_then(|grant| grant.calls) {
                Some(calls) => format!("{{ names = {list}, calls = {calls} }}"),
                None => list,
            };
            Some(self.line(Capability::Tools, value))
        };
        self.require(Capability::Tools, tool, smallest)?;
        if granted.iter().any(|pattern| pattern.covers(tool)) {
            return Ok(());
        }
        let reason = format!("plugins.{}.grants.tools does not cover it", self.plugin);
        Err(self.refuse(Capability::Tools, tool, Layer::Config, &reason, smallest()))
    }
}

impl Grant for ToolsGrant {
    fn decide(request: &AccessRequest<'_>) -> Result<(), Refused> {
        request.rights.may_call(request.target)
    }

    fn narrowed_by(&self, today: &Self) -> Option<Self> {
        let both = Self {
            names: overlap(&self.names, &today.names, ToolPattern::overlap),
            calls: smaller(self.calls, today.calls),
        };
        Some(both).filter(|grant| !grant.names.is_empty())
    }

    fn needs_approval(&self) -> bool {
        // Each call that a tool's answer requests is checked against the rules itself.
        false
    }

    fn destinations(&self) -> Vec<Destination<'_>> {
        Vec::new()
    }

    fn texts(&self, request: &AccessRequest<'_>) -> GrantTexts {
        GrantTexts {
            entry: self.names.iter().position(|pattern| pattern.covers(request.target)),
            bounds: run_limits([(self.calls, "calls")]),
            ..GrantTexts::of_names(&self.names, |_| false)
        }
    }
}
