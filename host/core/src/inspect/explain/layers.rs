//! The layers of one question, from the manifest to the grant's own limits. The decision is asked
//! once, and each layer before the refusing one explains why it did not refuse.

use std::sync::Arc;

use super::tasks::{self, tasks_of};
use super::{AccessQuestion, LayerAnswer, LayerVerdict};
use crate::permissions::grants::{AccessRequest, GrantTexts, Refused, Rights, kind_of};
use crate::permissions::policy_rules::Decide;
use crate::policy::decision;
use crate::room::{naming_task_list, wider_tools};
use crate::setup::{GatePoint, Setup, TaskSetup};
use crate::types::capability::Capability;
use crate::types::denial::{DenialRecord, Layer};
use crate::types::ids::PluginName;

/// The order in which layers are asked.
const ORDER: [Layer; 6] =
    [Layer::Host, Layer::Manifest, Layer::Config, Layer::Task, Layer::Policy, Layer::Runtime];
/// The number of characters shown of an author's reason, which is untrusted text.
const WHY_SHOWN: usize = 200;

/// Returns the decision of the room and the imports; makes none of its own.
pub(super) fn decide(setup: &Setup, question: &AccessQuestion) -> Result<(), Refused> {
    tasks::decide(setup, question, |rights| decide_with(setup, rights, question))
}

fn decide_with(
    setup: &Setup,
    rights: &Rights<'_>,
    question: &AccessQuestion,
) -> Result<(), Refused> {
    let capability = question.capability;
    let Some(target) = question.target.as_deref() else {
        return rights.require(capability, "", || None);
    };
    match kind_of(capability) {
        Some(_) if capability == Capability::Tools => may_call(setup, rights, question, target),
        Some(kind) => (kind.decide)(&AccessRequest {
            is_task: &|name| setup.tasks.contains_key(name),
            is_channel: &|name| setup.channels.contains_key(name),
            ..request(*rights, question)
        }),
        None => rights.require(capability, target, || None),
    }
}

fn request<'a>(rights: Rights<'a>, question: &'a AccessQuestion) -> AccessRequest<'a> {
    AccessRequest {
        target: question.target.as_deref().unwrap_or_default(),
        writes: question.writes,
        method: &question.method,
        headers: &question.headers,
        host: question.host.as_deref(),
        ..AccessRequest::new(rights)
    }
}

/// Checks the grant, then the tasks' restrictions, then the policy. For several tasks of one agent,
/// the most permissive decides.
fn may_call(
    setup: &Setup,
    rights: &Rights<'_>,
    question: &AccessQuestion,
    tool: &str,
) -> Result<(), Refused> {
    let (agent, tasks) = (&question.plugin, tasks_of(setup, question));
    rights.may_call(tool).map_err(|record| match tasks.first() {
        Some((task, _)) => naming_task_list(record, task),
        None => record,
    })?;
    if let Some((name, task)) = tasks.first()
        && !tasks.iter().any(|(_, task)| task.carries_out(tool))
    {
        let (reason, wider) = wider_tools(&task.toolbox, agent, name, tool);
        return Err(rights.refuse(Capability::Tools, tool, Layer::Task, &reason, wider));
    }
    if tasks.is_empty() {
        callers_may_call(setup, rights, tool)?;
    }
    let ruling = question.ruling(setup, tool);
    if ruling.decide == Decide::Deny {
        let reason = format!("the rule at {} denies it", ruling.why);
        return Err(rights.refuse(Capability::Tools, tool, Layer::Policy, &reason, None));
    }
    Ok(())
}

/// Checks that an agent that calls the plugin may call the tool too: a nested call needs both
/// grants. Passes for an agent, and for a plugin that no agent calls.
fn callers_may_call(setup: &Setup, rights: &Rights<'_>, tool: &str) -> Result<(), Refused> {
    let plugin = PluginName::from(rights.plugin);
    let mut callers = setup.tasks.iter().filter(|(_, task)| task.calls(&plugin)).peekable();
    let Some((name, task)) = callers.peek().map(|(name, task)| (*name, Arc::clone(task))) else {
        return Ok(());
    };
    if callers.any(|(_, task)| task.carries_out(tool)) {
        return Ok(());
    }
    let agent = &task.agent;
    let reason = format!(
        "{agent}, which calls {} in the task {name}, may not call it, and a nested call needs both grants",
        rights.plugin
    );
    let wider = setup.rights(agent).and_then(|rights| rights.may_call(tool).err()?.suggestion);
    Err(rights.refuse(Capability::Tools, tool, Layer::Task, &reason, wider))
}

/// The answer of every layer that applies, in order.
pub(super) fn answers(
    setup: &Setup,
    question: &AccessQuestion,
    refused: Option<&DenialRecord>,
) -> Vec<LayerAnswer> {
    let position =
        |layer: Layer| ORDER.iter().position(|other| *other == layer).unwrap_or(ORDER.len());
    let refused_at = refused.map(|record| position(record.layer));
    let mut answers = Vec::new();
    for (index, layer) in ORDER.into_iter().enumerate() {
        let Some((text, key)) = layer_text(setup, question, layer) else {
            // A layer without a text of its own can still be the one that refused.
            if let Some(record) = refused.filter(|record| record.layer == layer) {
                answers.push(LayerAnswer {
                    layer,
                    verdict: LayerVerdict::No,
                    text: record.reason.clone(),
                    key: None,
                });
            }
            continue;
        };
        let (verdict, text) = match (refused, refused_at) {
            (Some(record), Some(at)) if index == at => (LayerVerdict::No, record.reason.clone()),
            (Some(_), Some(at)) if index > at => {
                (LayerVerdict::NotReached, "not reached".to_owned())
            }
            _ if layer == Layer::Policy && asks(setup, question) => (LayerVerdict::Ask, text),
            _ => (LayerVerdict::Yes, text),
        };
        let key = key.filter(|_| verdict != LayerVerdict::NotReached);
        answers.push(LayerAnswer { layer, verdict, text, key });
    }
    answers
}

fn asks(setup: &Setup, question: &AccessQuestion) -> bool {
    question
        .target
        .as_deref()
        .is_some_and(|tool| question.ruling(setup, tool).decide == Decide::Ask)
}

/// The gates that check a call of a tool, as the end of a sentence; empty if none does.
fn checked_by(setup: &Setup, tool: &str) -> String {
    let gates = |point| {
        let rules = setup.gates.iter().filter(move |rule| rule.checks(point, Some(tool)));
        let names: Vec<&str> = rules.map(|rule| rule.plugin.as_str()).collect();
        names.join(", ")
    };
    let (call, result) = (gates(GatePoint::ToolCall), gates(GatePoint::ToolResult));
    let of = |gates: String, what: &str| match gates.as_str() {
        "" => String::new(),
        gates => format!("; gates check {what}: {gates}"),
    };
    of(call, "the call first") + &of(result, "its result")
}

/// The text of a layer that does not refuse, with the deciding key of the config; `None` if the
/// layer does not apply.
fn layer_text(
    setup: &Setup,
    question: &AccessQuestion,
    layer: Layer,
) -> Option<(String, Option<String>)> {
    let (plugin, capability) = (&question.plugin, question.capability);
    let found = setup.plugins.get(plugin)?;
    let key = format!("plugins.{plugin}.grants.{capability}");
    let texts = || {
        let request = request(found.rights(plugin), question);
        Some(found.grants.get(capability)?.texts(&request))
    };
    match layer {
        Layer::Host => None,
        Layer::Manifest if capability.is_own() => {
            Some((format!("`{capability}` is the plugin's own; it need not ask"), None))
        }
        Layer::Manifest => {
            let ask = found.facts.manifest.ask(capability);
            let why = ask.map(|ask| ask.why.trim()).filter(|why| !why.is_empty());
            let optional =
                if ask.is_some_and(|ask| ask.optional) { ", and works without" } else { "" };
            let words = why.map_or("its author gives no reason".to_owned(), |why| {
                format!("its author says: {}", why.chars().take(WHY_SHOWN).collect::<String>())
            });
            Some((format!("{plugin} asks for `{capability}`{optional}; {words}"), None))
        }
        Layer::Config if capability.is_own() => None,
        Layer::Config => {
            let GrantTexts { granted, entry, .. } = texts().unwrap_or_default();
            let entry = entry.map_or_else(String::new, |index| format!("[{index}]"));
            Some((format!("granted: {granted}"), Some(format!("{key}{entry}"))))
        }
        Layer::Task => in_tasks(setup, question),
        Layer::Policy if capability == Capability::Tools => {
            let tool = question.target.as_deref()?;
            let (text, key) = ruling(setup, question, tool);
            Some((text + &checked_by(setup, tool), key))
        }
        Layer::Policy => None,
        Layer::Runtime => {
            let bounds = match texts() {
                Some(texts) => texts.bounds?,
                // Lists are limited by a run even if they are empty; nothing reaches that layer.
                None if matches!(capability, Capability::Files | Capability::Secrets) => {
                    String::new()
                }
                None => return None,
            };
            Some((bounds, Some(key)))
        }
    }
}

/// Returns how the plugin's tasks restrict a grant: tools by their toolbox, all else by `narrow`.
fn in_tasks(setup: &Setup, question: &AccessQuestion) -> Option<(String, Option<String>)> {
    if question.capability != Capability::Tools {
        return tasks::narrowing_text(setup, question);
    }
    let tool = question.target.as_deref()?;
    let tasks = tasks_of(setup, question);
    let with: Vec<&str> = tasks
        .iter()
        .filter(|(_, task)| task.carries_out(tool))
        .map(|(name, _)| name.as_str())
        .collect();
    let key = with.first().map(|name| format!("tasks.{name}.tools"));
    match tasks.is_empty() {
        true => {
            let calls = |(_, task): &(_, &Arc<TaskSetup>)| {
                task.calls(&question.plugin) && task.carries_out(tool)
            };
            let callers: Vec<&str> =
                setup.tasks.iter().filter(calls).map(|(name, _)| name.as_str()).collect();
            Some(match callers.is_empty() {
                true => (format!("{} is the agent of no task", question.plugin), None),
                false => (format!("for the agents of {}", callers.join(", ")), None),
            })
        }
        false => Some((format!("in the toolbox of {}", with.join(", ")), key)),
    }
}

fn ruling(setup: &Setup, question: &AccessQuestion, tool: &str) -> (String, Option<String>) {
    let ruling = question.ruling(setup, tool);
    let words = match ruling.decide {
        Decide::Allow => "runs without asking",
        Decide::Ask => "you are asked each time",
        Decide::Deny => "is refused",
    };
    match ruling.why {
        decision::DecisionSource::Rule { index, rule } => {
            // The rules of the last resumption stand behind those of the start.
            let index = index.checked_sub(setup.policy.len()).unwrap_or(index);
            (format!("{words}: the rule at {}", rule.source), Some(format!("policy[{index}]")))
        }
        why => (format!("{words}: no rule matches, and {why}"), None),
    }
}
