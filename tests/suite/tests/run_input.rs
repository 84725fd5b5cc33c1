//! What `conclave run` begins with besides a message: task, inputs, limits, room, answers.

use conclave_test_support::{Rig, guest};
use serde_json::{Value, json};

use crate::cli::{conclave, text};

/// Returns a config with a task that asks its user, and one that counts its history.
fn config() -> String {
    format!(
        r#"
entry = "desk"
[models.default]
kind = "scripted"
replies = "replies.json"
[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
grants.route = ["user"]
[plugins.history]
source = "{}"
[plugins.loop]
source = "{}"
[tasks.desk]
agent = "chat"
text_rules = {{ recipients = true }}
[tasks.count]
agent = "history"
restart = false
[tasks.begins]
agent = "chat"
user_message = "Begin."
[tasks.talk]
agent = "loop"
on_no_tool_call = {{ nudge = "go on" }}
[tasks.steps]
agent = "loop"
on_no_tool_call = {{ nudge = "go on" }}
restart = false
[plugins.caller]
source = "stock:chat"
grants.model = ["default"]
grants.tools = ["counter.run"]
[plugins.counter]
source = "{}"
[tasks.counts]
agent = "caller"
restart = false
"#,
        guest("agent_history").display(),
        guest("agent_loop").display(),
        guest("scratch_counter").display()
    )
}

fn rig(replies: &Value) -> Rig {
    Rig::new()
        .with_file("conclave.toml", config())
        .with_file("replies.json", json!({ "replies": replies }).to_string())
}

/// Runs the program, and returns its exit code, its result and what it told.
fn ran(rig: &Rig, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = conclave(rig, &[&["run"], arguments].concat());
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_run_takes_its_task_its_turns_and_its_limits_from_the_command_line() {
    let rig = rig(&json!(["hello"]));
    let (code, result, told) = ran(&rig, &["--task", "count", "hi"]);
    assert_eq!(
        (code, result.as_str()),
        (Some(0), "1 of 1 messages, backwards the same\n"),
        "{told}"
    );
    for (turns, result) in [("1", "thought number 0\n"), ("3", "thought number 1\n")] {
        let (code, said, told) = ran(&rig, &["--task", "talk", "--turns", turns, "hi"]);
        assert_eq!((code, said.as_str()), (Some(0), result), "{told}");
    }
    let (_, _, told) = ran(&rig, &["--task", "talk", "--limit", "turns=4", "hi"]);
    assert!(told.contains("MAX_TURNS"), "{told}");
    for (limit, says) in [
        ("turn=4", "unknown key `turn`"),
        ("turns=many", "`turns`"),
        ("turns", "write KEY=VALUE"),
        ("turns=4\n[models.x]\nkind=1", "`turns`"),
        ("[models.x]=4", "--limit:2:12: error"),
    ] {
        let (code, _, told) = ran(&rig, &["--task", "talk", "--limit", limit, "hi"]);
        assert_eq!(code, Some(2), "{limit}: {told}");
        assert!(told.contains(says), "{limit}: {told}");
    }
    let (code, _, told) = ran(&rig, &["--task", "tallk", "hi"]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("no task tallk") && told.contains("did you mean `talk`?"), "{told}");
}

#[test]
fn a_task_with_a_first_message_of_its_own_needs_none() {
    let rig = rig(&json!(["I have begun."]));
    let (code, result, told) = ran(&rig, &["--task", "begins"]);
    assert_eq!((code, result.as_str()), (Some(0), "I have begun.\n"), "{told}");
    let (code, _, told) = ran(&rig, &["--task", "talk"]);
    assert_eq!(code, Some(2), "{told}");
    assert!(
        told.contains("the task talk needs a message") && told.contains("user_message"),
        "{told}"
    );
}

#[test]
fn a_task_that_keeps_its_history_goes_on_in_its_room_without_a_message() {
    let rig = rig(&json!(["never asked"]));
    let step = |message: &[&str]| {
        let options = ["--room", "steps", "--task", "steps", "--turns", "1"];
        let (_, result, told) = ran(&rig, &[&options, message].concat());
        assert!(!told.contains("needs a message"), "{told}");
        result
    };
    let (_, _, told) = ran(&rig, &["--room", "steps", "--task", "steps", "--turns", "1"]);
    assert!(told.contains("needs a message"), "{told}");
    assert_eq!(step(&["begin"]), "thought number 0\n");
    assert_eq!(step(&[]), "go on\n", "the host answers the agent's message");
}

#[test]
fn a_task_is_run_step_by_step_and_no_step_runs_twice() {
    let rig = rig(&json!([{ "calls": [{ "name": "counter.run", "args": {} }] }]));
    let step = |message: &[&str]| {
        let options = ["--room", "one", "--task", "counts", "--turns", "1"];
        let (_, result, told) = ran(&rig, &[&options, message].concat());
        assert!(!told.contains("error"), "{told}");
        result
    };
    let calls = |result: String| result.contains("counter.run");
    assert!(calls(step(&["count"])), "the first step is the model's");
    assert_eq!(step(&[]), "1\n", "the call of the first step runs in the second");
    assert!(calls(step(&[])), "its result is what the model reads in the third");
    assert_eq!(step(&[]), "2\n", "by another call");
    assert!(calls(step(&["never mind"])), "a message takes the place of what was left");
    assert_eq!(step(&[]), "3\n");
}

#[test]
fn a_run_that_ends_as_it_begins_leaves_its_room_usable() {
    let rig = rig(&json!(["hello"]));
    let room = ["--room", "one", "--task", "steps"];
    let step = |message: &[&str]| ran(&rig, &[&room, message].concat());
    let last = || {
        let runs = text(&conclave(&rig, &["runs", "--json"]).stdout);
        let row: Value = serde_json::from_str(runs.lines().next().expect("a run")).expect("a row");
        row["state"].as_str().unwrap_or_default().to_owned()
    };
    // The task keeps its history, so its second run can be over with its first record.
    let (_, _, told) = step(&["--turns", "1", "begin"]);
    assert!(!told.contains("error"), "{told}");
    let (_, _, told) = step(&["--recipient", "nobody-here", "hi"]);
    let ended = last();
    assert!(!ended.contains("interrupted"), "{ended}: {told}");
    let (_, _, told) = step(&["--turns", "1", "again"]);
    assert!(!told.contains("was interrupted"), "{told}");
}

#[test]
fn a_room_with_a_name_is_run_once_more_and_remembers() {
    let rig = rig(&json!(["never asked"]));
    let counts = |room: &[&str]| -> String {
        let (code, result, told) = ran(&rig, &[room, &["--task", "count", "hi"]].concat());
        assert_eq!(code, Some(0), "{told}");
        result
    };
    let room = ["--room", "front-desk"];
    let first = counts(&room);
    assert_eq!(first, "1 of 1 messages, backwards the same\n");
    assert_eq!(counts(&room), "3 of 3 messages, backwards the same\n");
    assert_eq!(counts(&room), "5 of 5 messages, backwards the same\n");
    assert_eq!(counts(&["--room", "front"]), first, "a prefix of a name is another room");
    assert_eq!(counts(&[]), first);
    // A room counts by its newest run.
    let newest = || -> Value {
        let runs = text(&conclave(&rig, &["runs", "--json"]).stdout);
        serde_json::from_str(runs.lines().next().expect("a run")).expect("an object")
    };
    assert_ne!(newest()["run"], "front-desk");
    assert!(counts(&room).starts_with("7 of 7"));
    assert_eq!(newest()["run"], "front-desk");
    let shown = text(&conclave(&rig, &["show", "front-desk"]).stdout);
    assert_eq!(shown.matches("step history").count(), 4, "{shown}");
    // In a store of the user's choice too, which the first run creates.
    let stored = ["--room", "desk", "--store", "kept"];
    assert_eq!((counts(&stored), counts(&stored).starts_with("3 of 3")), (first.clone(), true));
    // A room belongs to its config, and to `run`.
    std::fs::copy(rig.folder().join("conclave.toml"), rig.folder().join("other.toml"))
        .expect("a copy");
    let other = conclave(&rig, &["run", "other.toml", "--room", "front-desk", "hi"]);
    assert_eq!(other.status.code(), Some(2), "{}", text(&other.stderr));
    assert!(text(&other.stderr).contains("the room front-desk belongs to"));
    let (code, _, told) = ran(&rig, &["--room", "a/b", "hi"]);
    assert_eq!(code, Some(2), "{told}");
}

#[test]
fn questions_are_answered_from_a_file_and_one_without_an_answer_ends_the_run() {
    let replies = json!(["TO[user]: Which one?", "TO[user]: Sure?", "So be it."]);
    let rig = rig(&replies).with_file("answers.txt", "\"the\\nsecond\"\nyes\n");
    let (code, result, told) = ran(&rig, &["--answers", "answers.txt", "Choose."]);
    assert_eq!((code, result.as_str()), (Some(0), "So be it.\n"), "{told}");
    for shown in ["│ Which one?", "│ the", "│ second", "│ Sure?", "│ yes"] {
        assert!(told.contains(shown), "{shown}: {told}");
    }
    let rig = rig.with_file("answers.txt", "the second\n");
    let (code, result, told) = ran(&rig, &["--answers", "answers.txt", "Choose."]);
    assert_eq!((code, result.as_str()), (Some(9), ""), "{told}");
    assert!(told.contains("desk asks:\n│ Sure?"), "{told}");
    assert!(told.contains("--answers is used up after 1 answer"), "{told}");
    let (code, _, told) = ran(&rig, &["--answers", "nowhere.txt", "Choose."]);
    assert_eq!(code, Some(2), "{told}");
}

#[test]
fn answers_for_a_simulated_user_are_refused_before_the_run() {
    let config = r#"
entry = "desk"
[models.default]
kind = "scripted"
replies = "replies.json"
[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
[plugins.guest]
source = "stock:scripted-user"
config = { lines = ["For two."] }
[tasks.desk]
agent = "chat"
interactive = true
simulated_user = "guest"
"#;
    let rig = rig(&json!(["never asked"]))
        .with_file("conclave.toml", config)
        .with_file("answers.txt", "yes\n");
    let (code, result, told) = ran(&rig, &["--answers", "answers.txt", "A table."]);
    assert_eq!((code, result.as_str()), (Some(2), ""), "{told}");
    assert!(
        told.contains("--answers answers.txt") && told.contains("simulated user guest"),
        "{told}"
    );
}

#[test]
fn a_message_can_be_for_somebody_and_inputs_are_an_object() {
    let rig = rig(&json!(["never asked"])).with_file("inputs.json", r#"{"language": "Gaelic"}"#);
    let (_, _, told) = ran(&rig, &["--recipient", "nobody", "hi"]);
    assert!(told.contains("NOT_ADDRESSED"), "{told}");
    for inputs in [r#"{"language": "Gaelic"}"#, "@inputs.json"] {
        let (code, _, told) = ran(&rig, &["--inputs", inputs, "--journal", "kept", "hi"]);
        assert_eq!(code, Some(0), "{told}");
        let kept = std::fs::read_dir(rig.folder().join("kept")).expect("a folder");
        let kept: String = kept
            .flatten()
            .map(|file| std::fs::read_to_string(file.path()).unwrap_or_default())
            .collect();
        assert!(kept.contains(r#""inputs":{"language":"Gaelic"}"#), "{kept}");
        std::fs::remove_dir_all(rig.folder().join("kept")).expect("it is removed");
    }
    let (code, _, told) = ran(&rig, &["--inputs", "[1]", "hi"]);
    assert_eq!(code, Some(2), "{told}");
}
