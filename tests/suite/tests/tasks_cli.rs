//! `conclave tasks`: the background tasks of a run, from another terminal. An endless task is
//! cancelled there.

use conclave_test_support::{Rig, guest};
use serde_json::{Value, json};

use crate::cli::text;
use crate::resume_cli::{command, conclave, start, until};

/// Returns a config whose background task never ends by itself.
fn spinning() -> Rig {
    let config = format!(
        "entry = \"desk\"\n[plugins.coordinator]\nsource = \"stock:coordinator\"\ngrants.route = [\"answer\"]\n\
         grants.delegate = [\"digest\"]\n[plugins.echo]\nsource = \"{}\"\n[plugins.spin]\nsource = \"{}\"\n\
         limits = {{ cpu = \"5 min\", wall = \"5 min\" }}\n[plugins.immediate]\nsource = \"stock:immediate\"\ngrants.channels = [\"terminal\"]\n\
         [tasks.desk]\nagent = \"coordinator\"\nsubtasks = [\"answer\"]\n[tasks.answer]\nagent = \"echo\"\n\
         [tasks.digest]\nagent = \"spin\"\ndelivery_strategy = \"immediate\"\n",
        guest("agent_echo").display(),
        guest("agent_spin").display()
    );
    Rig::new().with_file("c.toml", config)
}

fn tasks(rig: &Rig, arguments: &[&str]) -> Vec<Value> {
    let output = conclave(rig, &[&["tasks"], arguments, &["--json"]].concat());
    text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

#[test]
fn a_task_that_computes_for_ever_is_listed_and_cancelled_from_another_terminal() {
    let rig = spinning();
    let child = start(&rig, &["run", "c.toml", "hello"]);
    let running = until("a task that runs", || {
        tasks(&rig, &[]).pop().filter(|task| task["state"] == json!("running"))
    });
    assert_eq!((&running["name"], &running["worker"]), (&json!("task-1"), &json!("digest")));
    let run = running["run"].as_str().expect("a name").to_owned();

    let wrong = conclave(&rig, &["tasks", &run, "task-7", "--cancel"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong.stderr).contains("has no background task task-7")
            && text(&wrong.stderr).contains("task-1")
    );
    let both = conclave(&rig, &["tasks", &run, "1", "--cancel", "--tell", "x"]);
    assert_eq!(both.status.code(), Some(2), "one of them");

    let cancelled = conclave(&rig, &["tasks", &run, "1", "--cancel", "--reason", "enough"]);
    assert_eq!(cancelled.status.code(), Some(0), "{}", text(&cancelled.stderr));
    let output = child.wait_with_output().expect("the run ends, as nothing goes on any more");
    assert_eq!(
        (output.status.code(), text(&output.stdout).trim()),
        (Some(0), "hello"),
        "{}",
        text(&output.stderr)
    );

    let ended = tasks(&rig, &[&run, "task-1"]).remove(0);
    assert_eq!(
        (&ended["state"], &ended["error"]),
        (&json!("cancelled"), &json!("cancelled: enough"))
    );
    assert_eq!(
        ended["delivery"]["state"],
        json!("delivered"),
        "its end is told like any other: {ended}"
    );
    let listed = text(&conclave(&rig, &["tasks"]).stdout);
    assert!(
        listed.contains("cancelled") && listed.contains("delivered on terminal by immediate"),
        "{listed}"
    );
    let narrow = command(&rig, &["tasks"]).env("COLUMNS", "80").output().expect("it runs");
    let head: Vec<String> = text(&narrow.stdout)
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    assert_eq!(head, ["TASK", "WORKER", "STATE", "DURATION", "DELIVERY"]);
    let late = conclave(&rig, &["tasks", &run, "1", "--cancel"]);
    assert_eq!(late.status.code(), Some(2), "{}", text(&late.stderr));
}

#[test]
fn a_run_without_background_tasks_says_so() {
    let rig = Rig::new().with_file(
        "c.toml",
        format!(
            "entry = \"a\"\n[plugins.e]\nsource = \"{}\"\n[tasks.a]\nagent = \"e\"\n",
            guest("agent_echo").display()
        ),
    );
    assert_eq!(conclave(&rig, &["run", "c.toml", "hello"]).status.code(), Some(0));
    assert!(text(&conclave(&rig, &["tasks"]).stdout).contains("started no background task"));
    assert!(tasks(&rig, &[]).is_empty());
}
