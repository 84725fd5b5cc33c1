//! The hot paths.

use std::hint::black_box;

use conclave_core::journal::record::fold;
use conclave_core::policy::decision::decide;
use conclave_core::types::ids::PluginName;
use serde_json::json;

use crate::counted;
use crate::room::{DrivenRoom, setup, with_rules};

/// The scenarios by name.
pub(crate) const ALL: &[(&str, fn())] = &[
    ("task-of-three-steps", task_of_three_steps),
    ("step-after-10", || step_after(10)),
    ("step-after-1000", || step_after(1_000)),
    ("delegate-and-deliver", delegate_and_deliver),
    ("policy-21-rules", || policy(21)),
    ("policy-1000-rules", || policy(1_000)),
    ("replay-1000-events", replay),
    ("snapshot", snapshot),
    ("config", config),
];

/// A step, a tool call and a step, from the opening to the outcome.
fn task_of_three_steps() {
    let setup = setup();
    DrivenRoom::open(&setup, "desk").run(usize::MAX);
    counted(|| DrivenRoom::open(&setup, "desk").run(usize::MAX));
}

/// One step and the host's answer to it.
fn step_after(steps: usize) {
    let mut driven = DrivenRoom::open(&setup(), "talk");
    driven.run(steps);
    counted(|| driven.run(1));
}

fn delegate_and_deliver() {
    let setup = setup();
    DrivenRoom::open(&setup, "boss").run(usize::MAX);
    counted(|| DrivenRoom::open(&setup, "boss").run(usize::MAX));
}

/// The decision by the last of `rules` rules.
fn policy(rules: usize) {
    let setup = with_rules(rules);
    let callers = [PluginName::from("caller")];
    let arguments = json!({ "path": "/notes/today.md", "text": "x".repeat(1_000) });
    let decided =
        || decide(&setup, black_box(&callers), "search.find", black_box(&arguments)).decide;
    decided();
    counted(decided);
}

fn replay() {
    let mut driven = DrivenRoom::open(&setup(), "talk");
    driven.run(1_000);
    let records = driven.records;
    counted(|| fold(records));
}

fn snapshot() {
    let mut driven = DrivenRoom::open(&setup(), "talk");
    driven.run(1_000);
    counted(|| serde_json::to_vec(&driven.room).map(|json| json.len()).unwrap_or_default());
}

fn config() {
    counted(setup);
}
