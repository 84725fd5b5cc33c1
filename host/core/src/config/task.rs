//! `[tasks.NAME]`: the agent of a task, its sub-tasks, and its end. Its tools are read in
//! `task_tools`, rules with tables of their own in `task_rules`.

use std::collections::{BTreeMap, BTreeSet};

use super::grants::{self, names_in_order};
use super::keys::TASK;
use super::names::{check_task_name, proposed_task_name};
use super::problem::Span;
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::references::References;
use super::{
    PluginConfig, TaskConfig, acting, background, is_reserved_task, task_rules, task_tools,
};
use crate::setup::{NoTool, ResponderName, TaskSetup, is_user};
use crate::types::ids::{ModelName, PluginName, TaskName};
use crate::types::message::Role;
use crate::types::wording::{code, nearest, one_of, string};

pub(crate) fn read_all(
    reader: &mut ConfigReader,
    references: &mut References,
    root: &Table<'_>,
    plugins: &BTreeMap<PluginName, PluginConfig>,
    folder: &str,
) -> BTreeMap<TaskName, TaskConfig> {
    let mut tasks = BTreeMap::new();
    let mut lowered: BTreeMap<String, (&str, Span)> = BTreeMap::new();
    let as_langroid = is_langroid(reader, root);
    for (name, span, table) in root.named_tables(reader, "tasks", TASK) {
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
            read(reader, references, &table, as_langroid, (plugins, folder)),
        );
    }
    tasks
}

fn check_name(reader: &mut ConfigReader, name: &str, span: &Span) {
    if is_reserved_task(name) {
        let what = format!(
            "{} cannot be the name of a task: it is a responder or a tool of the host, which agents address by that name",
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
    as_langroid: bool,
    (plugins, folder): (&BTreeMap<PluginName, PluginConfig>, &str),
) -> TaskConfig {
    let as_langroid = as_langroid || is_langroid(reader, table);
    let agent =
        table.require(reader, "agent").and_then(|item| plugin_name(reader, references, &item));
    let around = task_tools::Around { as_langroid, plugins, agent: agent.as_ref() };
    let tools =
        table.get("tools").and_then(|item| task_tools::read(reader, references, &item, &around));
    // A missing agent was reported, so this config is refused.
    let agent = agent.unwrap_or_else(|| PluginName::from(""));
    let mut setup = TaskSetup { agent, as_langroid, ..TaskSetup::default() };
    table.set(reader, "description", &mut setup.description);
    table.set(reader, "system", &mut setup.system);
    setup.user_message =
        table.read(reader, "user_message").filter(|text: &String| !text.is_empty());
    setup.subtasks = subtasks(reader, references, table);
    table.set(reader, "interactive", &mut setup.interactive);
    table.set(reader, "only_user_quits_root", &mut setup.only_user_quits_root);
    table.set(reader, "default_human_response", &mut setup.default_human_response);
    responders(reader, table, &mut setup);
    table.set(reader, "agent_responder", &mut setup.agent_responder);
    setup.no_tool = no_tool(reader, table, &setup);
    setup.turns = turns(reader, table);
    table.set(reader, "max_stalled_steps", &mut setup.max_stalled_steps);
    setup.done_if_response = responder_names(reader, table, "done_if_response", &setup);
    setup.done_if_no_response = responder_names(reader, table, "done_if_no_response", &setup);
    table.set(reader, "done_if_tool", &mut setup.done_if_tool);
    setup.done_sequences = task_rules::sequences(reader, table);
    setup.returns = table.get("returns").and_then(|item| task_rules::returns(reader, &item));
    table.set(reader, "allow_null_result", &mut setup.allow_null_result);
    table.set(reader, "restart", &mut setup.restart);
    table.set(reader, "restart_as_subtask", &mut setup.restart_as_subtask);
    table.set(reader, "erase_substeps", &mut setup.erase_substeps);
    table.set(reader, "force_tool", &mut setup.force_tool);
    table.set(reader, "tool_format", &mut setup.tool_format);
    setup.models = models(reader, references, table);
    table.set(reader, "allow_multiple_tools", &mut setup.allow_multiple_tools);
    table.set(reader, "respond_tools_only", &mut setup.respond_tools_only);
    table.set(reader, "allow_subtask_multi_tools", &mut setup.allow_subtask_multi_tools);
    table.set(reader, "overflow", &mut setup.overflow);
    table.set(reader, "bytes_per_token", &mut setup.bytes_per_token);
    setup.text_rules = task_rules::words(reader, table, as_langroid);
    setup.loop_detection = task_rules::loops(reader, table);
    setup.stuck_detection = acting::stuck(reader, table, as_langroid);
    if let Some(item) = table.get("scope") {
        setup.scope = grants::scope(reader, references, &item);
    }
    setup.handoff = handoff(reader, references, table);
    setup.background = background::rules(reader, references, table);
    setup.budget = background::budget(reader, table);
    table.set(reader, "deadline", &mut setup.deadline_ms);
    table.set(reader, "on_close", &mut setup.on_close);
    table.set(reader, "structured_retries", &mut setup.structured_retries);
    setup.delivery_strategy =
        table.get("delivery_strategy").and_then(|item| plugin_name(reader, references, &item));
    table.set(reader, "result_delivery", &mut setup.result_delivery);
    setup.action_plugins = acting::executors(reader, references, table);
    table.set(reader, "action_timeout", &mut setup.action_timeout_ms);
    setup.memory = table.get("memory").and_then(|item| plugin_name(reader, references, &item));
    setup.judge = table.get("judge").and_then(|item| plugin_name(reader, references, &item));
    setup.simulated_user = simulated_user(reader, references, table, &setup);
    setup.confirm = acting::confirm(reader, references, table);
    setup.condense = acting::condense(reader, references, table);
    TaskConfig {
        setup,
        tools,
        // `take_micro` and `take_knowledge` add the content: parsing reads no files.
        micro_file: acting::micro(reader, table, folder),
        knowledge_files: acting::knowledge(reader, table, folder),
        wanted_tools: Vec::new(),
    }
}

/// Whether the table asks for Langroid's defaults.
fn is_langroid(reader: &mut ConfigReader, table: &Table<'_>) -> bool {
    table.get("compat").and_then(|item| item.choice(reader)) == Some("langroid")
}

/// Reads the name of a plugin of this config.
pub(super) fn plugin_name(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'_>,
) -> Option<PluginName> {
    let name = item.string(reader)?;
    references.add_plugin(item, name);
    Some(PluginName::from(name))
}

/// `simulated_user`: a task has one answer to its questions, a plugin's or a fixed one.
fn simulated_user(
    reader: &mut ConfigReader,
    references: &mut References,
    table: &Table<'_>,
    setup: &TaskSetup,
) -> Option<PluginName> {
    let item = table.get("simulated_user")?;
    if table.get("default_human_response").is_some() {
        item.reject(
            reader,
            ProblemCode::Conflict,
            "and `default_human_response` both answer the task's questions",
            "leave one of them out".to_owned(),
        );
    }
    if !setup.responders.contains(&Role::User) {
        let what = "`simulated_user` does nothing: the user takes no part in this task";
        let help = "add \"user\" to `responders`, or leave it out";
        let problem = reader.source.problem(ProblemCode::NoEffect, &item.key_span, what);
        reader.problems.push(problem.help(help).as_warning());
    }
    plugin_name(reader, references, &item)
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

/// Reads `model`: one, or several in the order in which they are asked.
fn models(
    reader: &mut ConfigReader,
    references: &mut References,
    table: &Table<'_>,
) -> Vec<ModelName> {
    let Some(item) = table.get("model") else { return Vec::new() };
    if item.value.is_str() {
        let name = item.string(reader).unwrap_or_default();
        references.add_model(&item, name);
        return vec![ModelName::from(name)];
    }
    let names = names_in_order(reader, &item).unwrap_or_default();
    if item.value.as_array().is_some_and(|list| list.is_empty()) {
        item.wrong(
            reader,
            "is an empty list, which names no model",
            "leave it out, so that the agent asks the model of its grant".to_owned(),
        );
    }
    let mut models: Vec<ModelName> = Vec::new();
    for (item, name) in names {
        references.add_model(&item, name);
        if models.iter().any(|model| model.as_str() == name) {
            item.reject(
                reader,
                ProblemCode::Duplicate,
                &format!("names the model {} once more", code(name)),
                "leave it out: a model that did not answer is not asked again".to_owned(),
            );
            continue;
        }
        models.push(ModelName::from(name));
    }
    models
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
    let turns = written.and_then(|item| item.read(reader));
    turns.or(single.map(|_| if delegate.is_some() { 2 } else { 1 }))
}

/// `responders`: those that take part. A task without sub-tasks needs one.
fn responders(reader: &mut ConfigReader, table: &Table<'_>, setup: &mut TaskSetup) {
    table.set(reader, "responders", &mut setup.responders);
    let item = table.get("responders").filter(|item| item.is_empty_list());
    if let Some(item) = item.filter(|_| setup.subtasks.is_empty()) {
        item.wrong(
            reader,
            "is an empty list, and there are no sub-tasks, so nothing can answer",
            None,
        );
    }
}

/// Returns the responders of a list: roles and sub-tasks.
fn responder_names(
    reader: &mut ConfigReader,
    table: &Table<'_>,
    key: &str,
    setup: &TaskSetup,
) -> BTreeSet<ResponderName> {
    let names = table.get(key).and_then(|item| names_in_order(reader, &item)).unwrap_or_default();
    let mut all = BTreeSet::new();
    for (item, name) in names {
        let responder = ResponderName::from(name);
        match &responder {
            ResponderName::Subtask(task) if !setup.subtasks.contains(task) => {
                let roles = ["llm", "agent", "user"];
                let known = roles.into_iter().chain(setup.subtasks.iter().map(TaskName::as_str));
                let help = match nearest(name, known.clone()) {
                    Some(near) => format!("did you mean {}?", code(near)),
                    None => format!("write {}", one_of(known)),
                };
                let what = format!("cannot be {}: this task has no such responder", code(name));
                item.wrong(reader, &what, help);
            }
            _ => drop(all.insert(responder)),
        }
    }
    all
}

/// Returns the treatment of a message without a call. By default, it is the result of a task
/// without sub-tasks and user.
fn no_tool(reader: &mut ConfigReader, table: &Table<'_>, setup: &TaskSetup) -> NoTool {
    let is_alone = setup.subtasks.is_empty() && !setup.interactive;
    let usual = if is_alone && !setup.as_langroid { NoTool::Done } else { NoTool::Nothing };
    let item = table.get("on_no_tool_call");
    item.and_then(|item| task_rules::no_tool(reader, &item)).unwrap_or(usual)
}
