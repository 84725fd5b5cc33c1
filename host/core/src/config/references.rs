//! References between parts of the config: each name must exist. They are collected while reading
//! and checked at the end, so the order of the file does not matter.

use std::collections::{BTreeMap, BTreeSet};

use super::names::LATER_TOOLS;
use super::problem::Span;
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::spans::SourceSpans;
use super::{ModelConfig, ORCHESTRATION_TOOLS, TERMINAL, TaskConfig};
use crate::permissions::policy_rules::glob;
use crate::types::ids::{ModelName, TaskName};
use crate::types::wording::{code, nearest, suggest};

/// The limit of tasks shown of a cycle.
const CYCLE_SHOWN: usize = 12;
/// Roles that can receive a message.
const RECIPIENTS: [&str; 3] = ["user", "llm", "agent"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReferenceTarget {
    Plugin,
    /// Plugins by a pattern, of which one must exist.
    Plugins,
    Task,
    Model,
    /// A task, `user`, or a host tool.
    Address,
    /// A task or a responder, ignoring case.
    Recipient,
    Channel,
    /// A channel or a task that gets a message.
    Audience,
}

/// All references.
#[derive(Default)]
pub(crate) struct References(Vec<Reference>);

struct Reference {
    target: ReferenceTarget,
    name: String,
    span: Span,
    /// The key with the reference: `grants.delegate[0]`.
    user: String,
}

impl References {
    pub(crate) fn add_plugin(&mut self, item: &SpannedValue<'_>, name: &str) {
        self.add(ReferenceTarget::Plugin, item, name);
    }

    pub(crate) fn add_task(&mut self, item: &SpannedValue<'_>, name: &str) {
        self.add(ReferenceTarget::Task, item, name);
    }

    pub(crate) fn add_model(&mut self, item: &SpannedValue<'_>, name: &str) {
        self.add(ReferenceTarget::Model, item, name);
    }

    pub(crate) fn add_address(&mut self, item: &SpannedValue<'_>, name: &str) {
        self.add(ReferenceTarget::Address, item, name);
    }

    pub(crate) fn add_recipient(&mut self, item: &SpannedValue<'_>, name: &str) {
        self.add(ReferenceTarget::Recipient, item, name);
    }

    pub(crate) fn add_channel(&mut self, item: &SpannedValue<'_>, name: &str) {
        self.add(ReferenceTarget::Channel, item, name);
    }

    pub(crate) fn add_audience(&mut self, item: &SpannedValue<'_>, name: &str) {
        self.add(ReferenceTarget::Audience, item, name);
    }

    /// Adds a well-formed pattern; `*` names no plugin.
    pub(crate) fn add_pattern(&mut self, item: &SpannedValue<'_>, pattern: &str) {
        if let Some((plugin, _)) = pattern.split_once('.') {
            let is_plain = !plugin.contains('*');
            let target = if is_plain { ReferenceTarget::Plugin } else { ReferenceTarget::Plugins };
            self.add(target, item, plugin);
        }
    }

    fn add(&mut self, target: ReferenceTarget, item: &SpannedValue<'_>, name: &str) {
        self.0.push(Reference {
            target,
            name: name.to_owned(),
            span: item.span.clone(),
            user: item.name.clone(),
        });
    }

    /// Reports every name that the config lacks. Names with an invalid table were reported there.
    pub(crate) fn check(
        &self,
        reader: &mut ConfigReader,
        root: &Table<'_>,
        added: &BTreeMap<ModelName, ModelConfig>,
    ) {
        // The written keys, not the tables that could be read: an invalid table is one problem, not
        // one more for each reference to it.
        let declared = |section: &str| -> Vec<String> {
            let table = root.get(section).and_then(|item| item.value.as_table());
            table
                .map(|table| table.keys().map(|key| key.get_ref().to_string()).collect())
                .unwrap_or_default()
        };
        let (plugins, tasks, mut models) =
            (declared("plugins"), declared("tasks"), declared("models"));
        let channels: Vec<String> =
            [TERMINAL.to_owned()].into_iter().chain(declared("channels")).collect();
        models.extend(added.keys().map(ModelName::to_string));
        let [in_plugins, in_tasks, in_models, in_channels] = [&plugins, &tasks, &models, &channels]
            .map(|names| names.iter().map(String::as_str).collect::<BTreeSet<&str>>());
        let lowered: BTreeSet<String> =
            tasks.iter().map(|task| task.to_ascii_lowercase()).collect();
        for reference in &self.0 {
            let (cause, known, is_known, section) = match reference.target {
                ReferenceTarget::Plugin => {
                    (ProblemCode::UnknownPlugin, &plugins, &in_plugins, "plugins")
                }
                ReferenceTarget::Plugins => {
                    check_plugins(reader, reference, &plugins);
                    continue;
                }
                ReferenceTarget::Task => (ProblemCode::UnknownTask, &tasks, &in_tasks, "tasks"),
                ReferenceTarget::Model => {
                    (ProblemCode::UnknownModel, &models, &in_models, "models")
                }
                ReferenceTarget::Channel => {
                    (ProblemCode::UnknownChannel, &channels, &in_channels, "channels")
                }
                ReferenceTarget::Address => {
                    if !in_tasks.contains(reference.name.as_str()) {
                        check_address(reader, reference, &tasks);
                    }
                    continue;
                }
                ReferenceTarget::Recipient => {
                    let name = reference.name.to_ascii_lowercase();
                    if !lowered.contains(&name) && !RECIPIENTS.contains(&name.as_str()) {
                        report_recipient(reader, reference, &tasks);
                    }
                    continue;
                }
                ReferenceTarget::Audience => {
                    check_audience(reader, reference, &channels, &tasks);
                    continue;
                }
            };
            if is_known.contains(reference.name.as_str()) {
                continue;
            }
            let noun = section.trim_end_matches('s');
            let what = format!(
                "{} names the {noun} {}, which is not in this config",
                code(&reference.user),
                code(&reference.name)
            );
            let help = suggest(&reference.name, known, &format!("{section} here"));
            reader.error(
                cause,
                &reference.span,
                what,
                help.or_else(|| {
                    Some(format!(
                        "add a table {}",
                        code(&format!("[{section}.{}]", reference.name))
                    ))
                }),
            );
        }
    }
}

/// Checks that a pattern covers the name of a plugin.
fn check_plugins(reader: &mut ConfigReader, reference: &Reference, plugins: &[String]) {
    if plugins.iter().any(|plugin| glob::covers(&reference.name, plugin)) {
        return;
    }
    let what = format!(
        "{} names plugins {}, and none in this config has such a name",
        code(&reference.user),
        code(&reference.name)
    );
    let help = suggest(&reference.name, plugins, "plugins here");
    reader.error(ProblemCode::UnknownPlugin, &reference.span, what, help);
}

/// Checks an address besides tasks: the user, or the host through one of its tools.
fn check_address(reader: &mut ConfigReader, reference: &Reference, tasks: &[String]) {
    let name = reference.name.as_str();
    if name == "user" || ORCHESTRATION_TOOLS.contains(&name) {
        return;
    }
    if LATER_TOOLS.contains(&name) {
        reader.unavailable(
            &reference.span,
            &format!("{} = \"{name}\"", reference.user),
            "leave it out".to_owned(),
        );
        return;
    }
    let addresses: Vec<&str> = tasks.iter().map(String::as_str).chain(["user"]).collect();
    let what = format!(
        "{} names {}, which is not a task of this config, `user` or a tool of the host",
        code(&reference.user),
        code(name)
    );
    let near = nearest(name, addresses.iter().copied().chain(ORCHESTRATION_TOOLS))
        .map(|near| format!("did you mean {}?", code(near)));
    reader.error(
        ProblemCode::UnknownRecipient,
        &reference.span,
        what,
        near.or_else(|| suggest(name, &addresses, "addresses here")),
    );
}

/// Checks the readers of a channel's messages: other channels, and tasks.
fn check_audience(
    reader: &mut ConfigReader,
    reference: &Reference,
    channels: &[String],
    tasks: &[String],
) {
    let name = reference.name.as_str();
    let known: Vec<&str> = channels.iter().chain(tasks).map(String::as_str).collect();
    if !known.contains(&name) {
        let what = format!(
            "{} names {}, which is not a channel or a task of this config",
            code(&reference.user),
            code(name)
        );
        reader.error(
            ProblemCode::UnknownRecipient,
            &reference.span,
            what,
            suggest(name, &known, "names here"),
        );
    }
}

/// Reports an unknown recipient of a message (L-063).
fn report_recipient(reader: &mut ConfigReader, reference: &Reference, tasks: &[String]) {
    let name = reference.name.as_str();
    let addresses: Vec<&str> = tasks.iter().map(String::as_str).chain(RECIPIENTS).collect();
    let what = format!(
        "{} names {}, which is not a task of this config, nor a responder",
        code(&reference.user),
        code(name)
    );
    reader.error(
        ProblemCode::UnknownRecipient,
        &reference.span,
        what,
        suggest(name, &addresses, "addresses here"),
    );
}

/// Reports every cycle of sub-tasks: a task that reaches itself would wait for its own answer.
pub(crate) fn check_cycles(
    reader: &mut ConfigReader,
    spans: &SourceSpans,
    tasks: &BTreeMap<TaskName, TaskConfig>,
) {
    let mut visited: BTreeSet<&TaskName> = BTreeSet::new();
    for start in tasks.keys() {
        // Not recursive, because a file can hold very many tasks. Each task of the path has the
        // number of its sub-tasks already followed.
        let mut path: Vec<(&TaskName, usize)> = Vec::new();
        let mut on_path: BTreeSet<&TaskName> = BTreeSet::new();
        if visited.insert(start) {
            path.push((start, 0));
            on_path.insert(start);
        }
        while let Some((task, followed)) = path.last_mut() {
            let (task, index) = (*task, *followed);
            *followed += 1;
            let Some(next) = tasks.get(task).and_then(|task| task.setup.subtasks.get(index)) else {
                path.pop();
                on_path.remove(task);
                continue;
            };
            if on_path.contains(next) {
                report_cycle(reader, spans, &path, next, index);
            } else if tasks.contains_key(next) && visited.insert(next) {
                path.push((next, 0));
                on_path.insert(next);
            }
        }
    }
}

fn report_cycle(
    reader: &mut ConfigReader,
    spans: &SourceSpans,
    path: &[(&TaskName, usize)],
    back_to: &TaskName,
    index: usize,
) {
    let Some((last, _)) = path.last() else { return };
    let circle =
        path.iter().map(|(task, _)| *task).skip_while(|task| *task != back_to).chain([back_to]);
    let mut names: Vec<&str> = circle.map(TaskName::as_str).collect();
    if names.len() > CYCLE_SHOWN {
        names.splice(CYCLE_SHOWN / 2..names.len() - CYCLE_SHOWN / 2, ["…"]);
    }
    let chain = names.join(" → ");
    let span = spans.find(&format!("tasks.{last}.subtasks[{index}]")).cloned().unwrap_or(0..0);
    let what = format!("a task cannot reach itself through its sub-tasks: {chain}");
    reader.error(
        ProblemCode::TaskCycle,
        &span,
        what,
        format!(
            "leave {} out here, or hand the work on with `grants.delegate`",
            code(back_to.as_str())
        ),
    );
}
