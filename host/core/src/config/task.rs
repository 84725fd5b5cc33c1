//! `[tasks.NAME]`: the agent of a task, its sub-tasks, and its end. Its tools are read in
//! `task_tools`, rules with tables of their own in `task_rules`.

use std::collections::{BTreeMap, BTreeSet};

use super::grants::{names_in_order, names_of};
use super::keys::TASK;
use super::limits::count32;
use super::names::{check_task_name, proposed_task_name};
use super::problem::Span;
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::references::References;
use super::{
    Compat, PluginConfig, TaskConfig, acting, background, is_reserved_task, narrow, task_rules,
    task_tools,
};
use crate::setup::{AgentSeat, NoTool, TaskSetup, is_user};
use crate::types::completion::ToolFormat;
use crate::types::delegation::HandBack;
use crate::types::ids::{PluginName, TaskName};
use crate::types::message::Entity;
use crate::types::task_options::Overflow;
use crate::types::wording::{code, string, suggest};

/// The maximum of stalled steps: each costs the host time, and more of them add no information.
const MOST_STALLED_STEPS: u64 = 1_000;
/// The maximum of bytes per token: no tokenizer has longer tokens for ordinary text.
const MOST_BYTES_PER_TOKEN: u64 = 64;

pub(crate) fn read_all(
    reader: &mut ConfigReader,
    references: &mut References,
    root: &Table<'_>,
    plugins: &BTreeMap<PluginName, PluginConfig>,
    folder: &str,
) -> BTreeMap<TaskName, TaskConfig> {
    let mut tasks = BTreeMap::new();
    let mut lowered: BTreeMap<String, (&str, Span)> = BTreeMap::new();
    let compat = compat(reader, root).unwrap_or_default();
    for (name, span, table) in root.named(reader, "tasks", TASK) {
        check_name(reader, name, &span);
        if let Some((other, earlier)) =
            lowered.insert(name.to_ascii_lowercase(), (name, span.clone()))
        {
            // L-063
            let what = format!(
                "the tasks {} and {} differ in case only, which addresses ignore",
                code(other),
                code(name)
            );
            let second = if earlier.start > span.start { &earlier } else { &span };
            reader.error(
                ProblemCode::Duplicate,
                second,
                what,
                "give one of them another name".to_owned(),
            );
        }
        let table = table.checked(reader);
        tasks.insert(
            TaskName::from(name),
            read(reader, references, &table, compat, (plugins, folder)),
        );
    }
    tasks
}

fn check_name(reader: &mut ConfigReader, name: &str, span: &Span) {
    if is_reserved_task(name) {
        let what = format!(
            "{} cannot be the name of a task: an agent that addresses it would mean a seat or a tool of the host",
            code(name)
        );
        reader.error(ProblemCode::InvalidName, span, what, format!("write `[tasks.{name}-task]`"));
    } else if let Err(error) = check_task_name(name) {
        let help = proposed_task_name(name).map(|name| format!("write `[tasks.{name}]`"));
        reader.error(
            ProblemCode::InvalidName,
            span,
            format!("{} cannot be the name of a task: it {error}", string(name)),
            help,
        );
    }
}

/// Reads one task (L-040).
fn read(
    reader: &mut ConfigReader,
    references: &mut References,
    table: &Table<'_>,
    compat: Compat,
    (plugins, folder): (&BTreeMap<PluginName, PluginConfig>, &str),
) -> TaskConfig {
    let compat = self::compat(reader, table).unwrap_or(compat);
    let usual = TaskSetup::default();
    let agent =
        table.require(reader, "agent").and_then(|item| plugin_name(reader, references, &item));
    let subtasks = subtasks(reader, references, table);
    let interactive = flag(reader, table, "interactive", usual.interactive);
    let around = task_tools::Around { compat, plugins, agent: agent.as_ref() };
    TaskConfig {
        compat,
        tools: table
            .get("tools")
            .and_then(|item| task_tools::read(reader, references, &item, &around)),
        // A missing agent was reported, so this config is refused.
        agent: agent.unwrap_or_else(|| PluginName::from("")),
        description: text(reader, table, "description").unwrap_or_default(),
        system: text(reader, table, "system").unwrap_or_default().into(),
        user_message: text(reader, table, "user_message").filter(|text| !text.is_empty()),
        force: text(reader, table, "force"),
        deliver: table.get("deliver").and_then(|item| plugin_name(reader, references, &item)),
        hand_back: table.get("hand_back").and_then(|item| hand_back(reader, &item)),
        handoff: handoff(reader, references, table),
        background: background::rules(reader, references, table),
        deadline_ms: background::deadline(reader, table),
        on_close: background::on_close(reader, table),
        structured: background::structured(reader, table),
        budget: background::budget(reader, table),
        only_user_quits_root: flag(
            reader,
            table,
            "only_user_quits_root",
            usual.only_user_quits_root,
        ),
        default_human_response: text(reader, table, "default_human_response"),
        turns: turns(reader, table),
        max_stalled_steps: whole32(reader, table, "max_stalled_steps", MOST_STALLED_STEPS)
            .unwrap_or(usual.max_stalled_steps),
        restart: flag(reader, table, "restart", usual.restart),
        restart_as_subtask: flag(reader, table, "restart_as_subtask", usual.restart_as_subtask),
        erase_substeps: flag(reader, table, "erase_substeps", usual.erase_substeps),
        done_if_response: entities(reader, table, "done_if_response").unwrap_or_default(),
        done_if_no_response: entities(reader, table, "done_if_no_response").unwrap_or_default(),
        done_if_tool: flag(reader, table, "done_if_tool", usual.done_if_tool),
        done_sequences: task_rules::sequences(reader, table),
        returns: table.get("returns").and_then(|item| task_rules::returns(reader, &item)),
        no_tool: no_tool(reader, table, compat, subtasks.is_empty() && !interactive),
        agent_seat: table
            .get("agent_seat")
            .and_then(|item| agent_seat(reader, &item))
            .unwrap_or_default(),
        seats: seats(reader, table, &subtasks).unwrap_or(usual.seats),
        allow_null_result: flag(reader, table, "allow_null_result", usual.allow_null_result),
        tool_format: table
            .get("tool_format")
            .and_then(|item| tool_format(reader, &item))
            .unwrap_or(usual.tool_format),
        allow_multiple_tools: flag(
            reader,
            table,
            "allow_multiple_tools",
            usual.allow_multiple_tools,
        ),
        respond_tools_only: flag(reader, table, "respond_tools_only", usual.respond_tools_only),
        allow_subtask_multi_tools: flag(
            reader,
            table,
            "allow_subtask_multi_tools",
            usual.allow_subtask_multi_tools,
        ),
        overflow: table
            .get("overflow")
            .and_then(|item| overflow(reader, &item))
            .unwrap_or_default(),
        bytes_per_token: whole32(reader, table, "bytes_per_token", MOST_BYTES_PER_TOKEN)
            .unwrap_or(usual.bytes_per_token),
        narrow: table
            .get("narrow")
            .map(|item| narrow::read(reader, references, &item))
            .unwrap_or_default(),
        loops: task_rules::loops(reader, table),
        executors: acting::executors(reader, references, table),
        action_timeout_ms: acting::action_timeout(reader, table),
        memory: acting::memory(reader, references, table),
        confirm: acting::confirm(reader, references, table),
        condense: acting::condense(reader, references, table),
        stuck: acting::stuck(reader, table, compat),
        micro_file: acting::micro(reader, table, folder),
        // `take_micro` and `take_knowledge` fill these fields: parsing reads no files.
        micro: None,
        knowledge_files: acting::knowledge(reader, table, folder),
        knowledge: Vec::new(),
        wanted_tools: Vec::new(),
        text: task_rules::words(reader, table, compat),
        subtasks,
        interactive,
    }
}

/// Returns the system whose defaults apply, if the table names one.
fn compat(reader: &mut ConfigReader, table: &Table<'_>) -> Option<Compat> {
    table.get("compat")?.choice(reader).map(|_| Compat::Langroid)
}

fn plugin_name(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'_>,
) -> Option<PluginName> {
    let name = item.string(reader)?;
    references.add_plugin(item, name);
    Some(PluginName::from(name))
}

/// `handoff`: tasks, or the user.
fn handoff(
    reader: &mut ConfigReader,
    references: &mut References,
    table: &Table<'_>,
) -> Option<Vec<String>> {
    let names = table.get("handoff").and_then(|item| names_in_order(reader, &item))?;
    names
        .iter()
        .filter(|(_, name)| !is_user(name))
        .for_each(|(item, name)| references.add_task(item, name));
    Some(names.into_iter().map(|(_, name)| name.to_owned()).collect())
}

fn subtasks(
    reader: &mut ConfigReader,
    references: &mut References,
    table: &Table<'_>,
) -> Vec<TaskName> {
    let names =
        table.get("subtasks").and_then(|item| names_in_order(reader, &item)).unwrap_or_default();
    names.iter().for_each(|(item, name)| references.add_task(item, name));
    names.into_iter().map(|(_, name)| TaskName::from(name)).collect()
}

/// Returns the limit of steps: as written, or one round (L-043).
fn turns(reader: &mut ConfigReader, table: &Table<'_>) -> Option<u32> {
    let written = table.get("turns");
    let single = table.get("single_round").filter(|item| item.boolean(reader) == Some(true));
    let delegate = table.get("llm_delegate").filter(|item| item.boolean(reader) == Some(true));
    if let (Some(item), Some(_)) = (&single, &written) {
        item.reject(
            reader,
            ProblemCode::Conflict,
            "and `turns` both say how many steps there are",
            "leave one of them out".to_owned(),
        );
    }
    if let (Some(item), None) = (&delegate, &single) {
        let help = "write `single_round = true` beside it, or leave it out";
        let what = "`llm_delegate` does nothing without `single_round`";
        let problem = reader.source.problem(ProblemCode::NoEffect, &item.key_span, what);
        reader.problems.push(problem.help(help).as_warning());
    }
    let turns = written.and_then(|item| count32(reader, &item));
    turns.or(single.map(|_| if delegate.is_some() { 2 } else { 1 }))
}

fn whole32(reader: &mut ConfigReader, table: &Table<'_>, name: &str, most: u64) -> Option<u32> {
    let item = table.get(name)?;
    item.count(reader, most).and_then(|count| u32::try_from(count).ok())
}

fn seats(
    reader: &mut ConfigReader,
    table: &Table<'_>,
    subtasks: &[TaskName],
) -> Option<BTreeSet<Entity>> {
    let seats = entities(reader, table, "seats")?;
    let item = table.get("seats").filter(|item| item.is_empty_list() && subtasks.is_empty());
    if let Some(item) = item {
        item.wrong(
            reader,
            "is an empty list, and there are no sub-tasks: nobody could answer",
            None,
        );
    }
    Some(seats)
}

fn entities(reader: &mut ConfigReader, table: &Table<'_>, name: &str) -> Option<BTreeSet<Entity>> {
    let known = [Entity::Llm, Entity::Agent, Entity::User];
    let names = table.get(name).and_then(|item| names_of(reader, &item, false))?;
    let mut entities = BTreeSet::new();
    for (item, name) in names {
        match known.into_iter().find(|entity| entity.as_str() == name) {
            Some(entity) => drop(entities.insert(entity)),
            None => item.wrong(
                reader,
                &format!("cannot be {}", code(name)),
                suggest(name, &known.map(Entity::as_str), "seats"),
            ),
        }
    }
    Some(entities)
}

/// Returns the treatment of a message without a call. By default, it is the result of a task
/// without sub-tasks and user.
fn no_tool(reader: &mut ConfigReader, table: &Table<'_>, compat: Compat, is_alone: bool) -> NoTool {
    let usual = if is_alone && compat == Compat::Conclave { NoTool::Done } else { NoTool::Nothing };
    table
        .get("handle_llm_no_tool")
        .and_then(|item| task_rules::no_tool(reader, &item))
        .unwrap_or(usual)
}

fn agent_seat(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<AgentSeat> {
    match item.choice(reader)? {
        "host" => Some(AgentSeat::Host),
        "component" => Some(AgentSeat::Component),
        _ => Some(AgentSeat::HostThenComponent),
    }
}

fn tool_format(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<ToolFormat> {
    match item.choice(reader)? {
        "json" => Some(ToolFormat::Json),
        "xml" => Some(ToolFormat::Xml),
        "off" => Some(ToolFormat::Off),
        _ => Some(ToolFormat::Native),
    }
}

fn hand_back(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<HandBack> {
    match item.choice(reader)? {
        "post" => Some(HandBack::Post),
        _ => Some(HandBack::Relay),
    }
}

fn overflow(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<Overflow> {
    match item.choice(reader)? {
        "drop-turns" => Some(Overflow::DropTurns),
        _ => Some(Overflow::Truncate),
    }
}

fn text(reader: &mut ConfigReader, table: &Table<'_>, name: &str) -> Option<String> {
    table.get(name).and_then(|item| item.string(reader)).map(str::to_owned)
}

/// Reads a boolean, with the default `usual`.
pub(super) fn flag(reader: &mut ConfigReader, table: &Table<'_>, name: &str, usual: bool) -> bool {
    table.get(name).and_then(|item| item.boolean(reader)).unwrap_or(usual)
}
