//! The stock agent CodeAct with a shell and cells: the example, and the same run killed three times.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use conclave_models::test_server::{Server, TestReply};
use conclave_test_support::{Rig, until};
use serde_json::Value;

use super::root;
use crate::cli::text;
use crate::resume_cli::{conclave, kill, start};

const TASK: &str = "A test of heights.py fails. Fix it.";
const FIXED: &str = "(ordered[(len(ordered) - 1) // 2] + ordered[middle]) / 2";

fn example(name: &str) -> String {
    let path = root().join("docs/examples").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns a copy of the example, with this text in its config instead of that one.
fn rig(old: &str, new: &str) -> Rig {
    let config = example("codeact.toml");
    assert!(config.contains(old), "{old}");
    ["codeact-replies.json", "heights/heights.py", "heights/test_heights.py"]
        .into_iter()
        .fold(Rig::new(), |rig, name| rig.with_file(name, example(name)))
        .with_file("c.toml", config.replace(old, new))
}

fn replies() -> Vec<String> {
    let script: Value = serde_json::from_str(&example("codeact-replies.json")).expect("JSON");
    let replies = script["replies"].as_array().expect("replies");
    replies.iter().map(|reply| reply.as_str().expect("a text").to_owned()).collect()
}

/// Returns the answers of the tool calls of the last run.
fn answers(rig: &Rig) -> Vec<String> {
    let shown = text(&conclave(rig, &["show", "--json"]).stdout);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let rows = shown["rows"].as_array().into_iter().flatten().filter(|row| row["type"] == "tool");
    rows.map(|row| row["answer"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Returns the paths that the last run changed.
fn changed(rig: &Rig) -> Vec<String> {
    let shown = text(&conclave(rig, &["diff", "--json"]).stdout);
    let changes = shown.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    changes.map(|change| change["path"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Applies the changes, after reading them, and checks the folder.
fn is_fixed(rig: &Rig) {
    let untouched = std::fs::read_to_string(rig.folder().join("heights/heights.py"));
    assert_eq!(untouched.ok(), Some(example("heights/heights.py")), "before it is applied");
    assert_eq!(changed(rig), ["heights.py"]);
    let shown = text(&conclave(rig, &["diff"]).stdout);
    assert!(shown.contains(&format!("+    return {FIXED}")), "{shown}");
    let run: Value =
        serde_json::from_str(&text(&conclave(rig, &["runs", "--json"]).stdout)).expect("one run");
    let run = run["run"].as_str().expect("a name");
    let applied = conclave(rig, &["diff", run, "--apply", "--yes"]);
    assert_eq!(applied.status.code(), Some(0), "{}", text(&applied.stderr));
    let module = std::fs::read_to_string(rig.folder().join("heights/heights.py"));
    assert!(module.is_ok_and(|module| module.contains(FIXED)));
    let answers = answers(rig);
    assert_eq!(answers.len(), 4, "{answers:?}");
    assert!(answers[1].starts_with("F.\n"), "{}", answers[1]);
    assert!(answers[3].starts_with("..\n") && answers[3].ends_with("True"), "{}", answers[3]);
}

#[test]
#[ignore = "cargo xtask test runs it"]
fn codeact_finds_and_fixes_a_failing_test() {
    let rig = rig("", "");
    let output = conclave(&rig, &["run", "c.toml", TASK]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("both tests pass"), "{}", text(&output.stdout));
    is_fixed(&rig);
}

/// Killed while the model is asked about the first output, while the fix waits for an approval, and
/// while the model is asked about the last output. The model's answers follow from the prompt alone.
#[test]
#[ignore = "cargo xtask test runs it"]
fn a_run_that_is_killed_three_times_ends_with_the_test_fixed_once() {
    let silent = Arc::new(Mutex::new(BTreeSet::from([1, 4])));
    let replies = replies();
    let mine = Arc::clone(&silent);
    let server = Server::answering(move |request| {
        let messages = request.json()["messages"].as_array().cloned().unwrap_or_default();
        let step = messages.iter().filter(|message| message["role"] == "assistant").count();
        let mut silent = mine.lock().unwrap_or_else(PoisonError::into_inner);
        if silent.remove(&step) { TestReply::silence() } else { TestReply::says(&replies[step]) }
    });
    let model =
        format!("kind = \"openai\"\nurl = \"{}\"\nmodel = \"m\"\nretries = 0", server.url());
    let rig = rig("kind = \"scripted\"\nreplies = \"codeact-replies.json\"", &model);
    let config = std::fs::read_to_string(rig.folder().join("c.toml")).expect("it is there");
    let asks = "\n[[policy]]\ntool = \"terminal.run\"\narguments = { command = \"cat > fix.sed *\" }\ndecide = \"ask\"\n";
    let rig = rig.with_file("c.toml", config + asks);

    let first = start(&rig, &["run", "c.toml", TASK, "--approvals", "wait"]);
    server.wait_for_requests(2);
    kill(first);

    let second = start(&rig, &["resume", "--approvals", "wait"]);
    let approval = until("a fix that waits", || {
        let waiting = text(&conclave(&rig, &["approvals", "--json"]).stdout);
        waiting.lines().find_map(|line| serde_json::from_str::<Value>(line).ok())
    });
    kill(second);
    assert_eq!(server.requests().len(), 4);
    assert_eq!(changed(&rig), Vec::<String>::new());

    let id = approval["id"].as_str().expect("an id");
    let approved = conclave(&rig, &["approve", id, "--yes"]);
    assert_eq!(approved.status.code(), Some(0), "{}", text(&approved.stderr));
    let third = start(&rig, &["resume", "--approvals", "wait"]);
    server.wait_for_requests(6);
    kill(third);

    let output = conclave(&rig, &["resume", "--approvals", "refuse"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("both tests pass"), "{}", text(&output.stdout));
    // Each command and each cell ran once, and no reply of the model was asked for twice.
    is_fixed(&rig);
    let asked: Vec<Value> =
        server.requests().iter().map(|request| request.json()["messages"].clone()).collect();
    assert_eq!(asked.len(), 7);
    assert_eq!((&asked[1], &asked[5]), (&asked[2], &asked[6]));
    assert_eq!(asked.iter().map(Value::to_string).collect::<BTreeSet<_>>().len(), 5);
}
