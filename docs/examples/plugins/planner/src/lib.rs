//! Planner: makes a plan with a model and works through it, depth first. The host stores the plan,
//! so it is visible, logged and never lost; the planner only selects the next task. One step is one
//! action: begin a task, work on it, or close it.
//!
//! The model writes actions in their fixed JSON form, or calls tools. Its mistakes return to it
//! with the reason, because the step returns the error. When the plan is complete, the planner
//! finishes by itself (O-066) with the results of its tasks.
//!
//! ```toml
//! [plugins.planner]
//! source = "../../target/conclave/guests/planner.wasm"
//! grants.model = ["default"]
//!
//! [tasks.build]
//! agent = "planner"
//! system = "You build small web sites."
//! ```

mod plan;

use std::collections::BTreeMap;

use conclave_sdk::actions::Action;
use conclave_sdk::model::{self, Part, Request};
use conclave_sdk::{Agent, PlanState, Result, Turn, View, act, finish, scratch};
use serde_json::Value;

use plan::{Next, Task};

/// Characters of an observation that the model reads here; its history has the rest.
const SHOWN: usize = 4_000;
const PLAN: &str = "There is no plan yet. Make one: add_task with an empty parent, a goal, and its parts as subtasks, as deep as they need to be.";
const WORK: &str = "When it is done, write finish with what came of it; when it cannot be done, set its state to abandoned.";

struct Planner;

/// The result of each task, by its id. Plans do not contain results, and each step is a fresh
/// instance.
type Notes = BTreeMap<String, String>;

impl Agent for Planner {
    fn step(view: &View) -> Result<Turn> {
        let plan: Task = serde_json::from_value(view.plan()?)?;
        match plan.next() {
            Next::Plan => {
                // Results of an earlier plan do not belong to this one.
                scratch::set(&Notes::new())?;
                Ok(said_aloud(ask(view, PLAN.to_owned())?))
            }
            Next::Set(id, PlanState::Completed) => {
                Ok(act::modify_task(id, PlanState::Completed).because("all its parts are done"))
            }
            Next::Set(id, state) => Ok(act::modify_task(id, state).because("its turn has come")),
            Next::Work(task) => work(view, &plan, task),
            Next::Finish => Ok(finish(answer(&plan, &scratch::get()?.unwrap_or_default()))),
        }
    }
}

fn work(view: &View, plan: &Task, task: &Task) -> Result<Turn> {
    let turn = ask(
        view,
        format!(
            "The plan:\n{}\n\nYou work on task {}: {}. {WORK}",
            plan.to_text(),
            task.id,
            task.goal
        ),
    )?;
    let (turn, note) = closed(turn, task);
    if let Some(note) = note {
        let mut notes: Notes = scratch::get()?.unwrap_or_default();
        notes.insert(task.id.clone(), note);
        scratch::set(&notes)?;
    }
    Ok(said_aloud(turn))
}

/// Asks the model for the next action.
fn ask(view: &View, what: String) -> Result<Turn> {
    let came: Vec<_> = view.new_events().iter().map(|event| event.memory_form(SHOWN)).collect();
    let quoted = |came| model::quoted("EVENTS", "your actions, tools and other plugins gave", came);
    let came = if came.is_empty() {
        String::new()
    } else {
        format!("\n\nWhat came since your last action:\n{}", quoted(came))
    };
    let form = format!(
        "\n\nCall a tool, or write one action as a JSON object and nothing else:\n{}",
        act::form(&[])
    );
    let prompt = vec![Part::System, model::history(), model::note(what + &came + &form)];
    model::act(&Request { prompt, ..Request::default() })
}

/// A model that finishes means its present task, not the whole plan. Returns the turn and, once the
/// task is closed, its result.
fn closed(turn: Turn, task: &Task) -> (Turn, Option<String>) {
    match turn.action() {
        Action::Finish(outputs) => {
            let note = text_of(outputs).unwrap_or_else(|| turn.thought().to_owned());
            (act::modify_task(&task.id, PlanState::Completed).because(turn.thought()), Some(note))
        }
        Action::ModifyTask(change)
            if change.task_id == task.id && change.state != PlanState::InProgress =>
        {
            let note = turn.thought().to_owned();
            (turn, Some(note))
        }
        _ => (turn, None),
    }
}

/// A plain speech would end the turn of the whole task. Here the user hears it, and the work
/// continues.
fn said_aloud(turn: Turn) -> Turn {
    match turn.action() {
        Action::Reply(reply) if reply.tool_calls.is_empty() && !turn.waits() => {
            act::talk(reply.content.clone().unwrap_or_default()).because(turn.thought())
        }
        _ => turn,
    }
}

/// The outputs of a finish in words, or `None` if there are none.
fn text_of(outputs: &str) -> Option<String> {
    match serde_json::from_str(outputs) {
        Ok(Value::String(text)) => Some(text),
        Ok(Value::Object(outputs)) if outputs.len() == 1 => {
            outputs.into_iter().next().map(|(_, value)| match value {
                Value::String(text) => text,
                value => value.to_string(),
            })
        }
        Ok(Value::Object(outputs)) if !outputs.is_empty() => {
            Some(Value::Object(outputs).to_string())
        }
        _ => None,
    }
}

/// The results of the tasks, in order. A single result comes without its goal.
fn answer(plan: &Task, notes: &Notes) -> String {
    let tasks = plan.below();
    let told: Vec<_> = tasks
        .iter()
        .filter_map(|task| Some((task, notes.get(&task.id).filter(|note| !note.is_empty())?)))
        .collect();
    match told.as_slice() {
        [] => format!("The plan is finished.\n{}", plan.to_text()),
        [(_, note)] => (*note).clone(),
        told => told
            .iter()
            .map(|(task, note)| format!("{}: {note}", task.goal))
            .collect::<Vec<_>>()
            .join("\n"),
    }
}

conclave_sdk::export!(agent: Planner);

#[cfg(test)]
mod tests {
    use conclave_sdk::{PlanState, act, call, finish, say};
    use serde_json::json;

    use super::{Notes, Task, answer, closed, said_aloud};

    fn plan() -> Task {
        let task = |id: &str, goal: &str| json!({ "id": id, "goal": goal, "state": "completed", "subtasks": [] });
        let root = json!({ "id": "", "goal": "", "state": "completed", "subtasks": [task("0", "Find it"), task("1", "Write it down")] });
        serde_json::from_value(root).unwrap()
    }

    #[test]
    fn a_model_that_is_done_is_done_with_its_task() {
        let plan = plan();
        let done = act::modify_task("1", PlanState::Completed).because("I wrote it");
        for (outputs, note) in [
            (json!({ "answer": "48 m" }), "48 m"),
            (json!("48 m"), "48 m"),
            (json!({}), "I wrote it"),
        ] {
            let closed = closed(finish(outputs).because("I wrote it"), &plan.subtasks[1]);
            assert_eq!(closed, (done.clone(), Some(note.to_owned())));
        }
        let abandoned = act::modify_task("1", PlanState::Abandoned).because("no disk");
        assert_eq!(
            closed(abandoned.clone(), &plan.subtasks[1]),
            (abandoned, Some("no disk".to_owned()))
        );
        let other = act::modify_task("0", PlanState::Completed);
        assert_eq!(closed(other.clone(), &plan.subtasks[1]), (other, None));
    }

    #[test]
    fn talking_does_not_end_the_work() {
        assert_eq!(said_aloud(say("Nearly there.")), act::talk("Nearly there."));
        for kept in
            [say("Which one?").and_wait_for_user(), call("search.find", json!({})), act::run("ls")]
        {
            assert_eq!(said_aloud(kept.clone()), kept);
        }
    }

    #[test]
    fn the_answer_is_what_came_of_the_tasks() {
        let notes = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(id, note)| ((*id).to_owned(), (*note).to_owned())).collect::<Notes>()
        };
        assert_eq!(
            answer(&plan(), &notes(&[("0", "48 m"), ("1", "in a.md")])),
            "Find it: 48 m\nWrite it down: in a.md"
        );
        assert_eq!(
            answer(&plan(), &notes(&[("0", ""), ("1", "in a.md"), ("9", "gone")])),
            "in a.md"
        );
        assert!(
            answer(&plan(), &notes(&[]))
                .starts_with("The plan is finished.\n0 [completed] Find it")
        );
    }
}
