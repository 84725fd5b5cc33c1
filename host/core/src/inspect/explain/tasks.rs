//! The restrictions of grants by the tasks of an agent. Asks the same decisions as a run, once for
//! each task concerned.

use super::{AccessQuestion, layers};
use crate::permissions::grants::{Refused, Rights, kind_of};
use crate::permissions::task_scope::TaskScope;
use crate::setup::{Setup, TaskSetup};
use crate::types::denial::Layer;
use crate::types::ids::TaskName;

/// The task that is named, else all tasks of the plugin's agent.
pub(super) fn tasks_of<'a>(
    setup: &'a Setup,
    question: &AccessQuestion,
) -> Vec<(&'a TaskName, &'a TaskSetup)> {
    let is_meant = |name: &TaskName| question.task.as_ref().is_none_or(|task| task == name);
    let tasks =
        setup.tasks.iter().filter(|(name, task)| is_meant(name) && task.agent == question.plugin);
    tasks.map(|(name, task)| (name, &**task)).collect()
}

/// Returns the decision for the plugin on behalf of its tasks. For several tasks, the most
/// permissive decides.
pub(super) fn decide(
    setup: &Setup,
    question: &AccessQuestion,
    decide: impl Fn(&Rights<'_>) -> Result<(), Refused>,
) -> Result<(), Refused> {
    let Some(rights) = setup.rights(&question.plugin) else { return Ok(()) };
    decide(&rights)?;
    let mut first = None;
    for (task, _) in tasks_of(setup, question) {
        let Some(rights) = setup.rights_in(&question.plugin, task) else { continue };
        match decide(&rights).and_then(|()| anything_left(&rights, question)) {
            Ok(()) => return Ok(()),
            Err(refused) => first = first.or(Some(refused)),
        }
    }
    first.map_or(Ok(()), Err)
}

/// Checks that the task leaves any part of the capability.
fn anything_left(rights: &Rights<'_>, question: &AccessQuestion) -> Result<(), Refused> {
    let Some(narrowed) = rights.narrowed.filter(|narrowed| {
        question.target.is_none() && remains(narrowed.scope, question) == Some(false)
    }) else {
        return Ok(());
    };
    let capability = question.capability;
    let reason = format!(
        "plugins.{}.grants.{capability} holds it, and tasks.{}.scope leaves nothing of it",
        rights.plugin, narrowed.task
    );
    Err(rights.refuse(capability, "", Layer::Task, &reason, None))
}

/// Whether a task's scope leaves any of the capability; `None` if no scope can restrict it.
fn remains(scope: &TaskScope, question: &AccessQuestion) -> Option<bool> {
    (kind_of(question.capability)?.remains)(scope, question.writes)
}

/// A text with the tasks that leave it, and the deciding key.
pub(super) fn narrowing_text(
    setup: &Setup,
    question: &AccessQuestion,
) -> Option<(String, Option<String>)> {
    let tasks = tasks_of(setup, question);
    if remains(&TaskScope::default(), question).is_none() || tasks.is_empty() {
        return None;
    }
    let leaves = |task: &TaskName| {
        layers::decide(setup, &AccessQuestion { task: Some(task.clone()), ..question.clone() })
            .is_ok()
    };
    let (with, without): (Vec<&TaskName>, Vec<&TaskName>) =
        tasks.iter().map(|(name, _)| *name).partition(|name| leaves(name));
    let names =
        |names: &[&TaskName]| names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    let text = match without.is_empty() {
        true => format!("left as granted by {}", names(&with)),
        false => format!("left by {}, not by {}", names(&with), names(&without)),
    };
    let narrowing = |name: &TaskName| {
        setup.tasks.get(name).is_some_and(|task| task.scope != TaskScope::default())
    };
    let key = without
        .iter()
        .chain(&with)
        .find(|name| narrowing(name))
        .map(|name| format!("tasks.{name}.scope"));
    Some((text, key))
}
