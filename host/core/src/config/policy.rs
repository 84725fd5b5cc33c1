//! `[[policy]]`: the tool calls that run, are denied, or wait for an approval.

use toml::de::DeValue;

use super::json;
use super::keys::POLICY;
use super::mcp::is_direct_caller;
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::references::References;
use super::{ORCHESTRATION_TOOLS, names};
use crate::permissions::grants::ToolPattern;
use crate::permissions::policy_rules::{
    ArgumentPattern, ArgumentPlace, ArgumentRule, Decide, PATTERN_MAX, PATTERNS_MAX, Policy, Rule,
};
use crate::types::ids::PluginName;
use crate::types::wording::{code, string};

pub(crate) fn read_all(
    reader: &mut ConfigReader,
    references: &mut References,
    root: &Table<'_>,
) -> Policy {
    let entries = root.get("policy").and_then(|item| item.list(reader)).unwrap_or_default();
    entries.iter().filter_map(|entry| rule(reader, references, entry)).collect()
}

fn rule(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'_>,
) -> Option<Rule> {
    let table = item.table(reader, POLICY)?;
    let tool = table.require(reader, "tool").and_then(|item| {
        let text = item.string(reader)?;
        tool_pattern(reader, references, &item, (text, "rules"))
    });
    let caller = table.get("caller").and_then(|item| {
        let name = item.string(reader)?;
        if !is_direct_caller(name) {
            references.add_plugin(&item, name);
        }
        Some(PluginName::from(name))
    });
    let arguments = table.get("arguments").map(|item| arguments(reader, &item));
    let only = table.get("exact_arguments").map(|item| item.read::<bool>(reader));
    let decide = table.require(reader, "decide").and_then(|item| item.read::<Decide>(reader));
    let expires = table.get("expires");
    if let Some(item) =
        expires.as_ref().filter(|_| decide.is_some_and(|decide| decide != Decide::Ask))
    {
        item.reject(
            reader,
            ProblemCode::Conflict,
            "is for rules that ask",
            "leave it out".to_owned(),
        );
    }
    let expires_ms = expires.and_then(|item| item.read(reader));
    let (line, _) = reader.source.position(table.span.start);
    let source = format!("{}:{line}", reader.source.name());
    // A rule without its unreadable parts would match more calls than the operator intended.
    let (arguments, only) = (arguments.unwrap_or(Some(Vec::new()))?, only.unwrap_or(Some(false))?);
    Some(Rule { tool: tool?, caller, arguments, only, decide: decide?, expires_ms, source })
}

/// Reads a pattern of tools. `readers` are the rules or the gates that are about tools.
pub(super) fn tool_pattern(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'_>,
    (text, readers): (&str, &str),
) -> Option<ToolPattern> {
    let Some(problem) = Rule::tool_problem(text) else {
        references.add_pattern(item, text);
        return Some(ToolPattern(text.to_owned()));
    };
    let what = if ORCHESTRATION_TOOLS.contains(&text) {
        format!("names {}, a tool of the host; {readers} are about tools of plugins", code(text))
    } else {
        format!("{problem}: {}", code(text))
    };
    let help = if names::check_name(text).is_ok() && !ORCHESTRATION_TOOLS.contains(&text) {
        format!("for all tools of a plugin write {}", string(&format!("{text}.*")))
    } else {
        r#"write one tool, `"notes.save"`, or `*` for any text: `"notes.list_*"`, `"*.delete*"`"#
            .to_owned()
    };
    item.wrong(reader, &what, help);
    None
}

/// Reads the conditions on arguments; `None` after a problem.
fn arguments(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<Vec<ArgumentRule>> {
    let entries = item.entries(reader, "a table of arguments and patterns")?;
    if entries.is_empty() || entries.len() > PATTERNS_MAX {
        item.reject(
            reader,
            ProblemCode::OutOfRange,
            &format!("must hold 1 to {PATTERNS_MAX} arguments"),
            "leave it out for any arguments".to_owned(),
        );
        return None;
    }
    let mut rules = Some(Vec::new());
    for (key, value) in entries {
        let name: &str = key.get_ref();
        if let Some(problem) = ArgumentPlace::problem(name) {
            let what = format!("{} in {} {problem}", code(name), code(&item.name));
            reader.error(
                ProblemCode::InvalidName,
                &key.span(),
                what,
                r#"write a name, or a pointer such as `"/user/id"`"#.to_owned(),
            );
            rules = None;
            continue;
        }
        match (patterns_of(reader, &item.below(key, value)), rules.as_mut()) {
            (Some(patterns), Some(rules)) => {
                rules.push(ArgumentRule { at: ArgumentPlace(name.to_owned()), patterns })
            }
            _ => rules = None,
        }
    }
    rules
}

fn patterns_of(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<Vec<ArgumentPattern>> {
    if matches!(item.value, DeValue::Table(_) | DeValue::Datetime(_)) {
        // A table is not searched for patterns.
        item.expected(reader, "a pattern in quotes, a value, or a list of such");
        return None;
    }
    let DeValue::Array(_) = item.value else { return Some(vec![pattern(reader, item)?]) };
    let entries = item.list(reader)?;
    if entries.is_empty() || entries.len() > PATTERNS_MAX {
        item.reject(
            reader,
            ProblemCode::OutOfRange,
            &format!("must hold 1 to {PATTERNS_MAX} patterns"),
            "one of them must match".to_owned(),
        );
        return None;
    }
    // Read all entries, so that every problem is reported.
    let patterns: Vec<Option<ArgumentPattern>> =
        entries.iter().map(|item| pattern(reader, item)).collect();
    patterns.into_iter().collect()
}

fn pattern(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<ArgumentPattern> {
    let pattern = json::pattern(reader, item);
    if pattern.as_str().is_some_and(|text| text.chars().count() > PATTERN_MAX) {
        item.reject(
            reader,
            ProblemCode::OutOfRange,
            &format!("is longer than {PATTERN_MAX} characters"),
            "put a `*` where it may differ".to_owned(),
        );
        return None;
    }
    Some(ArgumentPattern(pattern))
}
