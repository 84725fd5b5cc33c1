//! `tools` of a task: names and patterns of plugins' tools, tools of the host, and tables with
//! options. Existence and grants of the tools are checked when the config is assembled.

use std::collections::{BTreeMap, BTreeSet};

use toml::de::DeValue;

use super::grants::names_of;
use super::keys::TASK_TOOL;
use super::names::check_alias;
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::references::References;
use super::{ORCHESTRATION_TOOLS, PluginConfig, ToolEntry, ToolsEntry};
use crate::permissions::grants::ToolPattern;
use crate::types::host_tool::HostTool;
use crate::types::ids::{PluginName, TaskName};
use crate::types::wording::{code, did_you_mean, string, suggest};

/// The limit of suggested tools for one word.
const PROPOSED: usize = 3;

/// The other parts of the config that a task's list needs.
pub(super) struct Around<'a> {
    pub(super) as_langroid: bool,
    pub(super) plugins: &'a BTreeMap<PluginName, PluginConfig>,
    pub(super) agent: Option<&'a PluginName>,
}

impl Around<'_> {
    /// The likely meaning of one word: all tools of the plugin of that name, else a granted tool of
    /// that name. The tools of a plugin are unknown here.
    fn meant(&self, word: &str) -> String {
        if self.plugins.contains_key(word) {
            return format!("for all tools of a plugin write {}", string(&format!("{word}.*")));
        }
        let agent = self.agent.and_then(|agent| self.plugins.get(agent));
        let granted = agent
            .and_then(|agent| agent.grants.tools.as_ref())
            .map(|grant| grant.names.as_slice())
            .unwrap_or_default();
        let exact_pattern = |pattern: &ToolPattern| {
            pattern.0.split_once('.').filter(|(_, tool)| *tool == word).map(|_| pattern.0.clone())
        };
        let part = |pattern: &ToolPattern| {
            pattern.0.strip_suffix(".*").map(|plugin| format!("{plugin}.{word}"))
        };
        let exact_names: BTreeSet<String> = granted.iter().filter_map(exact_pattern).collect();
        let names = if exact_names.is_empty() {
            granted.iter().filter_map(part).take(PROPOSED).collect()
        } else {
            exact_names
        };
        if names.is_empty() {
            return format!(
                "write the plugin too, as in {}; for all tools of a plugin write {}",
                string(&format!("search.{word}")),
                string("search.*")
            );
        }
        let names: Vec<String> = names.iter().take(PROPOSED).map(|name| string(name)).collect();
        format!("write the plugin too: {}", names.join(" or "))
    }
}

/// Reads the entries of the list. An empty one leaves no plugin's tools at all.
pub(super) fn read(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'_>,
    around: &Around<'_>,
) -> Option<Vec<ToolEntry>> {
    let mut entries = Vec::new();
    let mut seen = BTreeSet::new();
    for item in item.list(reader)? {
        let Some((entry, place)) = entry(reader, references, &item, around) else { continue };
        // one tool for each worker.
        if !seen.insert((entry.tool.clone(), entry.agent.clone())) {
            place.reject(
                reader,
                ProblemCode::Duplicate,
                &format!("names {} a second time", code(entry.tool.as_str())),
                "leave it out".to_owned(),
            );
            continue;
        }
        check_offer(reader, &place, &entry);
        entries.push(entry);
    }
    Some(entries)
}

/// Reads an entry, with the position of its tool's name.
fn entry<'a>(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'a>,
    around: &Around<'_>,
) -> Option<(ToolEntry, SpannedValue<'a>)> {
    match item.value {
        DeValue::String(text) => {
            Some((listed(reader, references, item, text, around)?, item.clone()))
        }
        DeValue::Table(_) => long(reader, references, item, around),
        _ => {
            item.expected(reader, "a tool's name or a table");
            None
        }
    }
}

/// Reads a tool listed by its name only.
fn listed(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'_>,
    text: &str,
    around: &Around<'_>,
) -> Option<ToolEntry> {
    if let Some(tool) =
        HostTool::ALL.into_iter().find(|tool| tool.as_str() == text || tool.langroid_name() == text)
    {
        let mut entry = ToolEntry::new(ToolsEntry::Host(tool));
        // With Langroid's defaults it has that name in any case.
        entry.alias = (!around.as_langroid && tool.as_str() != text).then(|| text.to_owned());
        return Some(entry);
    }
    if ToolPattern::is_well_formed(text) {
        references.add_pattern(item, text);
        return Some(ToolEntry::new(ToolsEntry::Plugins(ToolPattern(text.to_owned()))));
    }
    let near = did_you_mean(text, ORCHESTRATION_TOOLS);
    let help = near.or_else(|| {
        let is_word = super::check_task_name(text).is_ok();
        is_word.then(|| around.meant(text))
    });
    item.wrong(
        reader,
        &format!(
            "must be `plugin.tool`, `plugin.*`, `*` or a tool of the host, not {}",
            code(text)
        ),
        help,
    );
    None
}

/// Reads a table with options of one tool.
fn long<'a>(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'a>,
    around: &Around<'_>,
) -> Option<(ToolEntry, SpannedValue<'a>)> {
    let table = item.table(reader, TASK_TOOL)?;
    let tool_item = table.require(reader, "tool").and_then(|item| {
        let text = item.string(reader)?;
        Some((listed(reader, references, &item, text, around)?, item))
    });
    let mut entry = tool_item.as_ref().map_or_else(
        || ToolEntry::new(ToolsEntry::Host(HostTool::RecipientMessage)),
        |(entry, _)| entry.clone(),
    );
    if let Some(alias) = table.get("as").and_then(|item| alias(reader, &item)) {
        entry.alias = Some(alias);
    }
    table.set(reader, "use", &mut entry.offered);
    table.set(reader, "handle", &mut entry.handled);
    table.set(reader, "final", &mut entry.is_final);
    entry.title = table.get("title").and_then(|item| title(reader, &item));
    table.set(reader, "result_tokens", &mut entry.result_tokens);
    table.set(reader, "retained_tokens", &mut entry.retained_tokens);
    recipients(reader, references, &table, &mut entry);
    worker(reader, references, &table, &mut entry);
    let (_, place) = tool_item?;
    if let ToolsEntry::Plugins(pattern) = &entry.tool
        && pattern.0.ends_with('*')
    {
        place.wrong(
            reader,
            &format!("must be one tool, not {}", code(&pattern.0)),
            "write the table for each tool".to_owned(),
        );
    }
    if let Some(item) =
        table.get("final").filter(|_| entry.is_final && matches!(entry.tool, ToolsEntry::Host(_)))
    {
        item.reject(
            reader,
            ProblemCode::Conflict,
            "is for tools of plugins",
            "leave it out: `final_result` and the others do what their names say".to_owned(),
        );
    }
    Some((entry, place))
}

fn alias(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<String> {
    let alias = item.string(reader)?;
    if let Err(error) = check_alias(alias) {
        item.wrong(reader, &format!("cannot be {}: it {error}", code(alias)), None);
        return None;
    }
    Some(alias.to_owned())
}

fn title(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<String> {
    let title = item.string(reader)?;
    if title.trim().is_empty() || title.chars().any(crate::types::text::is_deceptive) {
        item.wrong(reader, "is empty, or has an invisible character in it", None);
    }
    Some(title.to_owned())
}

/// Reads the worker of a `delegate_task`, and whether it waits.
fn worker(
    reader: &mut ConfigReader,
    references: &mut References,
    table: &Table<'_>,
    entry: &mut ToolEntry,
) {
    let (agent, wait) = (table.get("task"), table.get("wait"));
    for item in
        agent.iter().chain(&wait).filter(|_| entry.tool != ToolsEntry::Host(HostTool::DelegateTask))
    {
        let what = format!("{} is for `delegate_task`", code(&item.name));
        reader.error(ProblemCode::Conflict, &item.key_span, what, "leave it out".to_owned());
    }
    table.set(reader, "wait", &mut entry.wait);
    let Some(item) = agent else { return };
    let Some(name) = item.string(reader) else { return };
    references.add_task(&item, name);
    entry.agent = Some(TaskName::from(name));
    if entry.alias.is_none() {
        let help = format!(
            "write `as = {}` beside it",
            string(&format!("ask_{}", name.replace('-', "_")))
        );
        item.reject(
            reader,
            ProblemCode::MissingKey,
            "makes a tool for one worker, which needs a name of its own",
            help,
        );
    }
}

/// Reads the recipients of a `recipient_message` (L-148).
fn recipients(
    reader: &mut ConfigReader,
    references: &mut References,
    table: &Table<'_>,
    entry: &mut ToolEntry,
) {
    let (list, default) = (table.get("recipients"), table.get("default_recipient"));
    for item in list
        .iter()
        .chain(&default)
        .filter(|_| entry.tool != ToolsEntry::Host(HostTool::RecipientMessage))
    {
        let what = format!("{} is for `recipient_message`", code(&item.name));
        reader.error(ProblemCode::Conflict, &item.key_span, what, "leave it out".to_owned());
    }
    let names = list.as_ref().and_then(|item| names_of(reader, item, false)).unwrap_or_default();
    names.iter().for_each(|(item, name)| references.add_recipient(item, name));
    entry.recipients = names.into_iter().map(|(_, name)| name.to_owned()).collect();
    if let Some(item) = list.filter(SpannedValue::is_empty_list) {
        item.wrong(reader, "is an empty list, so a call could name no recipient", None);
    }
    let Some((item, name)) = default.and_then(|item| item.string(reader).map(|name| (item, name)))
    else {
        return;
    };
    if !entry.recipients.is_empty() && !entry.recipients.iter().any(|other| other == name) {
        let help = suggest(name, &entry.recipients, "recipients here");
        item.reject(
            reader,
            ProblemCode::UnknownRecipient,
            &format!("is {}, which is not among `recipients`", code(name)),
            help,
        );
    } else if entry.recipients.is_empty() {
        references.add_recipient(&item, name);
    }
    entry.default_recipient = Some(name.to_owned());
}

/// Reports tools only for handlers that are offered to a model (L-141, L-143, L-147).
fn check_offer(reader: &mut ConfigReader, place: &SpannedValue<'_>, entry: &ToolEntry) {
    let ToolsEntry::Host(tool) = entry.tool else { return };
    if !entry.offered || !tool.is_for_handlers() {
        return;
    }
    let help = match tool {
        HostTool::FinalResult => {
            "write `final = true` in the table of a plugin's tool: a call of that is then the final result"
        }
        HostTool::AgentDone => "write `done`, or leave it out",
        HostTool::AgentSend => "write `send`, or leave it out",
        _ => "leave it out",
    };
    let what = format!("{} offers {} to the agent", code(&place.name), code(tool.as_str()));
    let why = "a model may not ask for it, only a tool in its result";
    let problem = reader.source.problem(ProblemCode::InvalidValue, &place.span, what);
    reader.problems.push(problem.because(why).help(help));
}
