//! The index of a policy's rules. It only leaves out rules that cannot hold for a call;
//! [`Rule::holds`] decides about the others.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Rule;
use super::arguments::{ArgumentPattern, ArgumentPlace, ArgumentRule, NumberKey, PatternKey};
use super::call_arguments::{CallArguments, ExaminedText, TextTarget};
use super::glob::pieces;
use super::prefix_table::PrefixTable;
use crate::types::ids::PluginName;

/// Rules by caller, tool, and the value of an argument. Lists of rules are
/// ascending indices in the policy.
#[derive(Debug, Default)]
pub(super) struct RuleIndex {
    any_caller: RulesByTool,
    by_caller: BTreeMap<PluginName, RulesByTool>,
}

impl RuleIndex {
    pub(super) fn of(rules: &[Rule]) -> Self {
        let mut grouped: BTreeMap<_, Vec<NumberedRule<'_>>> = BTreeMap::new();
        for (index, rule) in rules.iter().enumerate() {
            let group = (rule.caller.as_ref(), ToolKey::of(rule));
            grouped.entry(group).or_default().push(NumberedRule { index, rule });
        }
        let mut by_tool: BTreeMap<Option<&PluginName>, RuleGroups> = BTreeMap::new();
        for ((caller, tools), rules) in grouped {
            let groups = by_tool.entry(caller).or_default();
            match tools {
                ToolKey::Name(name) => groups.by_name.insert(name, RuleGroup::of(&rules)),
                ToolKey::Prefix(prefix) => groups.by_prefix.insert(prefix, RuleGroup::of(&rules)),
            };
        }
        let any_caller = by_tool.remove(&None).unwrap_or_default().into();
        let by_caller = by_tool
            .into_iter()
            .filter_map(|(caller, groups)| Some((caller?.clone(), groups.into())))
            .collect();
        Self { any_caller, by_caller }
    }

    /// Passes lists of rules for any caller. Together they contain each such rule that holds or may
    /// hold for the call.
    pub(super) fn for_any_caller(
        &self,
        tool: &str,
        arguments: &CallArguments<'_>,
        visit: &mut impl FnMut(&[usize]),
    ) {
        self.any_caller.visit(tool, arguments, visit);
    }

    /// Passes lists of the rules that name the caller, like [`Self::for_any_caller`].
    pub(super) fn naming(
        &self,
        caller: &PluginName,
        tool: &str,
        arguments: &CallArguments<'_>,
        visit: &mut impl FnMut(&[usize]),
    ) {
        if let Some(rules) = self.by_caller.get(caller) {
            rules.visit(tool, arguments, visit);
        }
    }
}

/// What a tool's name must have in common with the pattern of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ToolKey {
    Name(String),
    /// The characters before the first star; none for `*`.
    Prefix(String),
}

impl ToolKey {
    fn of(rule: &Rule) -> Self {
        let mut pieces = pieces(&rule.tool.0).into_iter();
        let first = pieces.next().unwrap_or_default();
        if pieces.next().is_some() { Self::Prefix(first) } else { Self::Name(first) }
    }
}

#[derive(Debug)]
struct NumberedRule<'a> {
    index: usize,
    rule: &'a Rule,
}

/// The groups of [`RulesByTool`] while it is built.
#[derive(Debug, Default)]
struct RuleGroups {
    by_name: BTreeMap<String, RuleGroup>,
    by_prefix: BTreeMap<String, RuleGroup>,
}

/// Rules by the pattern of their tool.
#[derive(Debug)]
struct RulesByTool {
    by_name: BTreeMap<String, RuleGroup>,
    /// The rules with a star, by the characters before it; none for `*`.
    by_prefix: PrefixTable<RuleGroup>,
}

impl RulesByTool {
    fn visit(&self, tool: &str, arguments: &CallArguments<'_>, visit: &mut impl FnMut(&[usize])) {
        for group in self.by_name.get(tool).into_iter().chain(self.by_prefix.prefixes_of("", tool))
        {
            group.visit(arguments, visit);
        }
    }
}

impl From<RuleGroups> for RulesByTool {
    fn from(groups: RuleGroups) -> Self {
        Self { by_name: groups.by_name, by_prefix: groups.by_prefix.into() }
    }
}

impl Default for RulesByTool {
    fn default() -> Self {
        RuleGroups::default().into()
    }
}

/// Rules with the same key for tools.
#[derive(Debug)]
struct RuleGroup {
    by_place: Vec<RulesByValue>,
    /// The rules without an argument to find them by.
    others: Vec<usize>,
}

impl RuleGroup {
    fn of(rules: &[NumberedRule<'_>]) -> Self {
        let mut frequencies = BTreeMap::new();
        for argument in rules.iter().flat_map(|each| indexable(each.rule)) {
            for key in argument.keys {
                *frequencies.entry((argument.at, key)).or_insert(0_usize) += 1;
            }
        }
        // The argument that distinguishes the rule best: of rules for the same `root` and different
        // files, a call should meet one, not all.
        let frequency = |argument: &IndexableArgument<'_>| {
            let of_key = |key: &PatternKey| frequencies.get(&(argument.at, key.clone())).copied();
            argument.keys.iter().filter_map(of_key).max()
        };
        let mut by_place: BTreeMap<&ArgumentPlace, ValueLists> = BTreeMap::new();
        let mut others = Vec::new();
        for NumberedRule { index, rule } in rules {
            match indexable(rule).min_by_key(frequency) {
                Some(argument) => by_place.entry(argument.at).or_default().add(*index, argument),
                None => others.push(*index),
            }
        }
        let by_place = by_place.into_iter().map(|(at, lists)| lists.at(at)).collect();
        Self { by_place, others }
    }

    fn visit(&self, arguments: &CallArguments<'_>, visit: &mut impl FnMut(&[usize])) {
        for rules in &self.by_place {
            rules.visit(arguments, visit);
        }
        visit(&self.others);
    }
}

/// An argument of a rule by which the rule can be found.
#[derive(Debug)]
struct IndexableArgument<'a> {
    at: &'a ArgumentPlace,
    /// The keys of all its patterns, without duplicates.
    keys: Vec<PatternKey>,
    /// Whether one of its patterns may match the JSON of a value other than a text.
    may_be_json: bool,
}

/// The arguments by which the rule can be found: those with a key for each pattern.
fn indexable(rule: &Rule) -> impl Iterator<Item = IndexableArgument<'_>> {
    rule.arguments.iter().filter_map(|ArgumentRule { at, patterns }| {
        let mut keys: Vec<PatternKey> =
            patterns.iter().map(ArgumentPattern::key).collect::<Option<_>>()?;
        keys.sort_unstable();
        keys.dedup();
        let may_be_json = patterns.iter().any(ArgumentPattern::may_be_json);
        Some(IndexableArgument { at, keys, may_be_json })
    })
}

/// The lists of [`RulesByValue`] while it is built.
#[derive(Debug, Default)]
struct ValueLists {
    by_prefix: BTreeMap<String, Vec<usize>>,
    by_number: BTreeMap<NumberKey, Vec<usize>>,
    by_json: Vec<usize>,
}

impl ValueLists {
    fn add(&mut self, index: usize, argument: IndexableArgument<'_>) {
        for key in argument.keys {
            match key {
                PatternKey::Prefix(prefix) => self.by_prefix.entry(prefix).or_default().push(index),
                PatternKey::Number(number) => self.by_number.entry(number).or_default().push(index),
            }
        }
        if argument.may_be_json {
            self.by_json.push(index);
        }
    }

    fn at(self, at: &ArgumentPlace) -> RulesByValue {
        let Self { by_prefix, by_number, by_json } = self;
        RulesByValue { at: at.clone(), by_prefix: by_prefix.into(), by_number, by_json }
    }
}

/// Rules with a condition on the same argument, by the keys of its patterns.
#[derive(Debug)]
struct RulesByValue {
    at: ArgumentPlace,
    by_prefix: PrefixTable<Vec<usize>>,
    by_number: BTreeMap<NumberKey, Vec<usize>>,
    /// The rules of which a pattern may match the JSON of a value other than a text.
    by_json: Vec<usize>,
}

impl RulesByValue {
    fn visit(&self, arguments: &CallArguments<'_>, visit: &mut impl FnMut(&[usize])) {
        let Some(value) = self.at.find(arguments.value) else { return };
        match value {
            Value::String(text) => {
                arguments.examine(text, |examined| self.visit_text(examined, visit));
            }
            _ => visit(&self.by_json),
        }
        if !self.by_number.is_empty()
            && let Some(rules) = NumberKey::of(value).and_then(|key| self.by_number.get(&key))
        {
            visit(rules);
        }
    }

    /// A pattern is compared with the text, and with the text's target as a path and as a folder.
    /// If the text is relative, a pattern that begins at the root is also compared without its
    /// slash, so here each of them is looked up with a slash in front too.
    fn visit_text(&self, examined: &ExaminedText<'_>, visit: &mut impl FnMut(&[usize])) {
        // The prefixes of the target's path are among those of its folder.
        let target = examined.target().map(TextTarget::folder);
        for text in [Some(examined.text), target].into_iter().flatten() {
            self.by_prefix.prefixes_of("", text).for_each(|rules| visit(rules));
            if examined.is_relative() {
                self.by_prefix.prefixes_of("/", text).for_each(|rules| visit(rules));
            }
        }
    }
}
