//! `[tasks.NAME]`: who works, with what, who comes next, and when it ends.

use std::collections::{BTreeMap, BTreeSet};

use toml::de::DeValue;

use super::grants::{names_of, patterns};
use super::limits::count32;
use super::problem::Span;
use super::reader::{Item, Reader, Table};
use super::references::References;
use super::wording::{code, suggest};
use super::{TaskConfig, is_reserved_task, plugin};
use crate::grant::ToolPattern;
use crate::ids::{PluginName, TaskName};
use crate::message::Entity;
use crate::setup::{AgentSeat, NoTool};

/// L-040: steps without a valid answer before a task ends as stalled, when the config gives no number.
const MAX_STALLED_STEPS: u32 = 5;

pub(crate) fn read_all(reader: &mut Reader, references: &mut References, root: &Table<'_>) -> BTreeMap<TaskName, TaskConfig> {
    let mut tasks = BTreeMap::new();
    for (name, span, table) in root.named(reader, "tasks", "tasks.NAME") {
        check_name(reader, name, &span);
        let table = table.checked(reader);
        tasks.insert(TaskName::from(name), read(reader, references, &table));
    }
    tasks
}

/// More stalled steps in a row tell nothing new, and each costs the host time.
const MOST_STALLED_STEPS: u64 = 1_000;

fn stalled_steps(reader: &mut Reader, table: &Table<'_>) -> Option<u32> {
    let item = table.get("max_stalled_steps")?;
    item.count(reader, MOST_STALLED_STEPS).and_then(|count| u32::try_from(count).ok())
}

fn check_name(reader: &mut Reader, name: &str, span: &Span) {
    if is_reserved_task(name) {
        let what =
            format!("{} cannot be the name of a task: an agent that addresses it would mean a seat or a tool of the host", code(name));
        reader.error(span, what, format!("write `[tasks.{name}-task]`"));
    } else {
        plugin::check_name(reader, "tasks", name, span);
    }
}

fn read(reader: &mut Reader, references: &mut References, table: &Table<'_>) -> TaskConfig {
    let agent = table.require(reader, "agent").and_then(|item| plugin_name(reader, references, &item));
    let subtasks = subtasks(reader, references, table);
    let interactive = flag(reader, table, "interactive");
    let default = if subtasks.is_empty() && !interactive { NoTool::Done } else { NoTool::Nothing };
    TaskConfig {
        agent: agent.unwrap_or_else(|| PluginName::from("")),
        description: text(reader, table, "description"),
        system: text(reader, table, "system").into(),
        tools: tools(reader, references, table),
        deliver: table.get("deliver").and_then(|item| plugin_name(reader, references, &item)),
        turns: table.get("turns").and_then(|item| count32(reader, &item)),
        max_stalled_steps: stalled_steps(reader, table).unwrap_or(MAX_STALLED_STEPS),
        done_if_response: seats(reader, table, "done_if_response"),
        done_if_no_response: seats(reader, table, "done_if_no_response"),
        no_tool: table.get("handle_llm_no_tool").and_then(|item| no_tool(reader, &item)).unwrap_or(default),
        agent_seat: table.get("agent_seat").and_then(|item| agent_seat(reader, &item)).unwrap_or_default(),
        allow_null_result: flag(reader, table, "allow_null_result"),
        subtasks,
        interactive,
    }
}

fn plugin_name(reader: &mut Reader, references: &mut References, item: &Item<'_>) -> Option<PluginName> {
    let name = item.string(reader)?;
    references.add_plugin(item, name);
    Some(PluginName::from(name))
}

fn subtasks(reader: &mut Reader, references: &mut References, table: &Table<'_>) -> Vec<TaskName> {
    let names = table.get("subtasks").and_then(|item| names_of(reader, &item, false)).unwrap_or_default();
    names.iter().for_each(|(item, name)| references.add_task(item, name));
    names.into_iter().map(|(_, name)| TaskName::from(name)).collect()
}

/// An empty list is a narrowing too: no tools at all.
fn tools(reader: &mut Reader, references: &mut References, table: &Table<'_>) -> Option<Vec<ToolPattern>> {
    let names = table.get("tools").and_then(|item| names_of(reader, &item, false))?;
    Some(patterns(reader, references, names))
}

fn seats(reader: &mut Reader, table: &Table<'_>, name: &str) -> BTreeSet<Entity> {
    let known = [Entity::Llm, Entity::Agent, Entity::User];
    let names = table.get(name).and_then(|item| names_of(reader, &item, false)).unwrap_or_default();
    let mut seats = BTreeSet::new();
    for (item, name) in names {
        match known.into_iter().find(|entity| entity.as_str() == name) {
            Some(entity) => drop(seats.insert(entity)),
            None => item.wrong(reader, &format!("cannot be {}", code(name)), suggest(name, &known.map(Entity::as_str), "seats")),
        }
    }
    seats
}

fn no_tool(reader: &mut Reader, item: &Item<'_>) -> Option<NoTool> {
    match item.value {
        DeValue::Table(_) => {
            let table = item.table(reader, "tasks.NAME.handle_llm_no_tool")?;
            let nudge = table.require(reader, "nudge")?;
            let text = nudge.string(reader)?;
            if text.trim().is_empty() {
                nudge.wrong(reader, "is empty, which says nothing to the agent", None);
            }
            Some(NoTool::Nudge(text.to_owned()))
        }
        DeValue::String(_) => match item.choice(reader)? {
            "done" => Some(NoTool::Done),
            "user" => Some(NoTool::User),
            _ => Some(NoTool::Nothing),
        },
        _ => {
            item.expected(reader, "\"nothing\", \"done\", \"user\" or { nudge = \"…\" }");
            None
        }
    }
}

fn agent_seat(reader: &mut Reader, item: &Item<'_>) -> Option<AgentSeat> {
    match item.choice(reader)? {
        "host" => Some(AgentSeat::Host),
        "component" => Some(AgentSeat::Component),
        _ => Some(AgentSeat::HostThenComponent),
    }
}

fn text(reader: &mut Reader, table: &Table<'_>, name: &str) -> String {
    table.get(name).and_then(|item| item.string(reader)).unwrap_or_default().to_owned()
}

fn flag(reader: &mut Reader, table: &Table<'_>, name: &str) -> bool {
    table.get(name).and_then(|item| item.boolean(reader)).unwrap_or(false)
}
