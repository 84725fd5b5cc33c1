//! The planner of the examples with a scripted model: a plan of three levels executed to its end,
//! and a model with malformed replies.

use conclave_core::protocol::notice::Notice;
use conclave_core::types::outcome::Status;
use conclave_models::test_server::TestReply;
use conclave_test_support::{Ran, Rig, guest};
use serde_json::{Value, json};

use super::{allowed, model, prompts, says};

fn config(models: &str, plugins: &str, task: &str) -> String {
    let tools = if plugins.is_empty() { "" } else { "grants.tools = [\"workspace.*\"]" };
    format!(
        "entry = \"main\"\n{models}\n[plugins.planner]\nsource = \"{planner}\"\ngrants.model = [\"default\"]\n{tools}\n\
         [tasks.main]\nagent = \"planner\"\nsystem = \"You keep a light.\"\n{task}\n{plugins}",
        planner = guest("planner").display(),
    )
}

fn plan() -> Value {
    let leaf = |goal: &str| json!({ "goal": goal });
    json!({ "action": "add_task", "args": { "parent": "", "goal": "Keep the light", "subtasks": [
        { "goal": "Prepare", "subtasks": [leaf("Trim the wick"), leaf("Fill the oil")] },
        { "goal": "Watch", "subtasks": [leaf("Light it"), leaf("Put it out")] },
    ] } })
}

fn finish(answer: &str) -> Value {
    json!({ "action": "finish", "args": { "outputs": { "answer": answer } } })
}

/// Returns the last published plan.
fn told_plan(ran: &Ran) -> Value {
    let plans = ran.notices().filter_map(|notice| match notice {
        Notice::PlanChanged { plan, .. } => Some(plan.clone()),
        _ => None,
    });
    plans.last().expect("a plan was told")
}

fn states(task: &Value, into: &mut Vec<(String, String)>) {
    let text = |key: &str| task[key].as_str().unwrap_or_default().to_owned();
    into.push((text("goal"), text("state")));
    task["subtasks"].as_array().into_iter().flatten().for_each(|task| states(task, into));
}

fn all_completed(ran: &Ran, goals: usize) {
    let mut all = Vec::new();
    states(&told_plan(ran), &mut all);
    assert_eq!(all.len(), goals + 1, "{all:?}");
    assert!(all.iter().all(|(_, state)| state == "completed"), "{all:?}");
}

#[test]
fn a_plan_of_three_levels_is_worked_through() {
    let leaves = ["trimmed", "full", "lit", "out"];
    let replies =
        std::iter::once(plan()).chain(leaves.map(finish)).map(|reply| says(&reply)).collect();
    let (server, models) = model(replies);
    let ran = Rig::new().run(&config(&models, "", ""), "Keep the light tonight.");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let expected = "Trim the wick: trimmed\nFill the oil: full\nLight it: lit\nPut it out: out";
    assert_eq!(ran.content(), expected);
    all_completed(&ran, 7);
    let asked = prompts(&server);
    assert_eq!(asked.len(), 5, "one for the plan, and one for each leaf");
    assert!(asked.iter().all(|prompt| prompt[0].1.starts_with("You keep a light.")), "{asked:#?}");
    let last = |prompt: &[(String, String)]| {
        prompt.last().map(|(_, text)| text.clone()).unwrap_or_default()
    };
    assert!(last(&asked[0]).contains("\n\nThere is no plan yet."), "{}", last(&asked[0]));
    for (prompt, goal) in
        asked[1..].iter().zip(["Trim the wick", "Fill the oil", "Light it", "Put it out"])
    {
        assert!(
            last(prompt).contains(&format!(": {goal}. When it is done")),
            "{goal}: {}",
            last(prompt)
        );
    }
}

#[test]
fn a_planner_acts_for_its_tasks() {
    let write =
        json!({ "action": "write", "args": { "path": "log.txt", "content": "lit at eight" } });
    let add = json!({ "action": "add_task", "args": { "parent": "", "goal": "Write the log" } });
    let (server, models) = model([add, write, finish("It is written.")].iter().map(says).collect());
    let workspace = format!(
        "[plugins.workspace]\nsource = \"stock:workspace\"\ngrants.files = [{{ dir = \"box\", at = \"/work\", mode = \"read-write\" }}]\n{}",
        allowed("workspace.*")
    );
    let rig = Rig::new().with_file("box/old.txt", "");
    let ran =
        rig.run(&config(&models, &workspace, "action_plugins = [\"workspace\"]"), "Write the log.");
    assert_eq!(
        (ran.status(), ran.content()),
        (Status::Done, "It is written."),
        "{}",
        ran.outcome.reason
    );
    assert_eq!(
        std::fs::read_to_string(rig.folder().join("box/log.txt")).expect("it was written"),
        "lit at eight"
    );
    let told =
        prompts(&server).pop().and_then(|prompt| prompt.last().cloned()).unwrap_or_default().1;
    assert!(
        told.contains("What came since your last action") && told.contains("log.txt"),
        "{told}"
    );
}

/// A malformed reply is returned to the model with the error.
#[test]
fn a_reply_that_makes_no_sense_goes_back_to_the_model() {
    let add = says(&json!({ "action": "add_task", "args": { "parent": "", "goal": "Light it" } }));
    let wrong = says(&json!({ "action": "dance", "args": {} }));
    let (server, models) =
        model(vec![TestReply::says("Well, let us see."), add, wrong, says(&finish("lit"))]);
    let ran = Rig::new().run(&config(&models, "", ""), "Light it.");
    assert_eq!((ran.status(), ran.content()), (Status::Done, "lit"), "{}", ran.outcome.reason);
    all_completed(&ran, 1);
    let asked = prompts(&server);
    let reads = |prompt: &[(String, String)], text: &str| {
        prompt.iter().any(|(_, told)| told.contains(text))
    };
    assert_eq!(asked.len(), 4);
    assert!(reads(&asked[1], "You wrote: Well, let us see."), "{:#?}", asked[1]);
    assert!(reads(&asked[3], "dance") && reads(&asked[3], "does not exist"), "{:#?}", asked[3]);
}

/// An abandoned task is closed, so the plan continues with the others.
#[test]
fn a_task_that_cannot_be_done_is_abandoned_and_the_rest_goes_on() {
    let add = json!({ "action": "add_task", "args": { "parent": "", "goal": "All", "subtasks": [{ "goal": "First" }, { "goal": "Second" }] } });
    let give_up = json!({ "action": "modify_task", "args": { "task_id": "0.0", "state": "abandoned", "thought": "there is no oil" } });
    let (_server, models) = model([add, give_up, finish("done")].iter().map(says).collect());
    let ran = Rig::new().run(&config(&models, "", ""), "go");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let mut all = Vec::new();
    states(&told_plan(&ran), &mut all);
    let of = |goal: &str| all.iter().find(|(of, _)| of == goal).map(|(_, state)| state.as_str());
    assert_eq!(
        (of("First"), of("Second"), of("All")),
        (Some("abandoned"), Some("completed"), Some("completed")),
        "{all:?}"
    );
}
