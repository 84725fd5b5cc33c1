//! All rules of the operator, with the index by which a decision finds them.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Rule;
use super::call_arguments::CallArguments;
use super::rule_index::RuleIndex;
use crate::types::ids::PluginName;

/// The operator's rules, in the order in which they are tried. In JSON a list. The
/// index is built when the list is read, and clones share it.
#[derive(Clone, Default)]
pub struct Policy {
    rules: Arc<[Rule]>,
    index: Arc<RuleIndex>,
}

impl Policy {
    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The policy with further rules in front of the rule at `index`, or at the end if there is no
    /// such rule.
    #[must_use]
    pub fn with_rules_at(&self, index: usize, rules: impl IntoIterator<Item = Rule>) -> Self {
        let (before, after) = self.rules.split_at(index.min(self.rules.len()));
        before.iter().cloned().chain(rules).chain(after.iter().cloned()).collect()
    }

    /// Passes lists of rules that may hold for a call, as ascending indices. Together they contain
    /// each rule that holds or may hold; a rule can be in several lists.
    pub(crate) fn candidates(
        &self,
        caller: &PluginName,
        tool: &str,
        arguments: &CallArguments<'_>,
        mut visit: impl FnMut(&[usize]),
    ) {
        self.index.for_any_caller(tool, arguments, &mut visit);
        self.index.naming(caller, tool, arguments, &mut visit);
    }

    /// Passes the lists of [`Self::candidates`] that name the caller.
    pub(crate) fn candidates_naming(
        &self,
        caller: &PluginName,
        tool: &str,
        arguments: &CallArguments<'_>,
        mut visit: impl FnMut(&[usize]),
    ) {
        self.index.naming(caller, tool, arguments, &mut visit);
    }
}

impl Deref for Policy {
    type Target = [Rule];

    fn deref(&self) -> &[Rule] {
        &self.rules
    }
}

impl From<Vec<Rule>> for Policy {
    fn from(rules: Vec<Rule>) -> Self {
        let index = Arc::new(RuleIndex::of(&rules));
        Self { rules: rules.into(), index }
    }
}

impl FromIterator<Rule> for Policy {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        Vec::from_iter(rules).into()
    }
}

impl<'a> IntoIterator for &'a Policy {
    type Item = &'a Rule;
    type IntoIter = std::slice::Iter<'a, Rule>;

    fn into_iter(self) -> Self::IntoIter {
        self.rules.iter()
    }
}

// The index follows from the rules, so it is neither compared nor shown nor written.
impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.fmt(out)
    }
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        <[Rule]>::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn folder(number: usize) -> Value {
        let path = json!([format!("/folder{number}/*")]);
        json!({
            "tool": "notes.save",
            "arguments": [{ "at": "root", "patterns": ["/"] }, { "at": "path", "patterns": path }],
            "decide": "deny",
        })
    }

    fn policy(rules: impl IntoIterator<Item = Value>) -> Policy {
        serde_json::from_value(rules.into_iter().collect()).expect("these are rules")
    }

    #[test]
    fn a_policy_is_written_compared_and_shown_as_its_rules() {
        let json: Value = (0..3).map(folder).collect();
        let policy = policy((0..3).map(folder));
        assert_eq!(serde_json::to_value(&policy).expect("it is JSON"), json);
        assert_eq!(format!("{policy:?}"), format!("{:?}", policy.to_vec()));
        assert_eq!(policy, policy.to_vec().into());
        assert_ne!(policy, policy.iter().skip(1).cloned().collect());
        assert_eq!(Policy::default(), Policy::from(Vec::new()));
    }

    #[test]
    fn rules_are_inserted_before_the_rule_at_an_index_or_at_the_end() {
        let all = policy((0..3).map(folder));
        let (first, last) = (policy([folder(0)]), policy([folder(2)]));
        assert_eq!(policy([folder(1), folder(2)]).with_rules_at(0, first.to_vec()), all);
        assert_eq!(policy([folder(0), folder(1)]).with_rules_at(9, last.to_vec()), all);
    }

    #[test]
    fn few_of_many_rules_are_candidates() {
        let numbers = (0..500).map(|number| {
            json!({
                "tool": "notes.save",
                "arguments": [{ "at": "id", "patterns": [number] }],
                "decide": "deny",
            })
        });
        let policy = policy((0..500).map(folder).chain(numbers));
        let candidates = |tool: &str, arguments: Value| {
            let mut found: Vec<usize> = Vec::new();
            let arguments = CallArguments::new(&arguments);
            policy.candidates(&"a".into(), tool, &arguments, |rules| found.extend(rules));
            found
        };
        let none: [usize; 0] = [];
        let save = |arguments| candidates("notes.save", arguments);
        assert_eq!(save(json!({ "root": "/", "path": "/folder42/x" })), [42]);
        assert_eq!(save(json!({ "root": "/", "path": "folder42/x" })), [42]);
        assert_eq!(save(json!({ "root": "/", "path": "/x/../folder42" })), [42]);
        assert_eq!(save(json!({ "id": 7 })), [507]);
        assert_eq!(save(json!({ "id": " 7.0" })), [507]);
        assert_eq!(save(json!({ "root": "/", "path": 42, "id": true })), none);
        assert_eq!(save(json!({ "root": "/" })), none);
        assert_eq!(candidates("notes.list", json!({ "id": 7 })), none);
    }
}
