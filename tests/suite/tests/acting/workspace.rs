//! File actions with the stock workspace. A written file exists, a failure is an observation, and a
//! missing executor is reported.

use conclave_core::config::ProblemCode;
use conclave_core::types::outcome::Status;
use conclave_test_support::{Rig, refused};
use serde_json::{Value, json};

use super::{acting, allowed, observations};

const GRANT: &str = "grants.files = [{ dir = \"box\", at = \"/work\", mode = \"read-write\" }]";

fn workspace(lines: &str) -> String {
    format!(
        "[plugins.workspace]\nsource = \"stock:workspace\"\n{lines}\n{}",
        allowed("workspace.*")
    )
}

fn config(script: &Value) -> String {
    acting(
        script,
        "grants.tools = [\"workspace.*\"]",
        "action_plugins = [\"workspace\"]",
        &workspace(GRANT),
    )
}

fn rig() -> Rig {
    let rig = Rig::new().with_file("secret.txt", "nobody's");
    std::fs::create_dir(rig.folder().join("box")).expect("a test can make a folder");
    rig
}

#[test]
fn what_is_written_is_read_and_edited() {
    let rig = rig();
    let script = json!([
        { "action": "write", "args": { "path": "notes/a.txt", "content": "one\ntwo\nthree" } },
        { "action": "read", "args": { "path": "notes/a.txt" } },
        { "action": "read", "args": { "path": "/work/notes/a.txt", "start": 1, "end": 2 } },
        { "action": "edit", "args": { "path": "notes/a.txt", "command": "str_replace", "old_str": "two", "new_str": "zwei" } },
        { "action": "read", "args": { "path": "notes/a.txt" } },
    ]);
    let ran = rig.run(&config(&script), "go");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let seen = observations(&ran);
    assert_eq!(seen.len(), 5, "{seen:#?}");
    assert_eq!(seen[0], json!({ "written": "notes/a.txt" }));
    assert_eq!(seen[1], json!({ "path": "notes/a.txt", "content": "one\ntwo\nthree" }));
    assert_eq!(seen[2], json!({ "path": "/work/notes/a.txt", "content": "two\n" }));
    assert_eq!(
        (&seen[3]["custom"], &seen[3]["extras"]["path"]),
        (&json!("edit"), &json!("notes/a.txt")),
        "{}",
        seen[3]
    );
    assert!(seen[3]["content"].as_str().is_some_and(|text| text.contains("zwei")), "{}", seen[3]);
    assert_eq!(seen[4]["content"], "one\nzwei\nthree");
    let kept =
        std::fs::read_to_string(rig.folder().join("box/notes/a.txt")).expect("it was written");
    assert_eq!(kept, "one\nzwei\nthree");
    assert!(ran.denials().is_empty(), "{:?}", ran.denials());
}

#[test]
fn an_edit_is_undone() {
    let rig = rig().with_file("box/a.txt", "one\n");
    let script = json!([
        { "action": "edit", "args": { "path": "a.txt", "command": "str_replace", "old_str": "one", "new_str": "two" } },
        { "action": "read", "args": { "path": "a.txt" } },
        { "action": "edit", "args": { "path": "a.txt", "command": "undo_edit" } },
        { "action": "read", "args": { "path": "a.txt" } },
        { "action": "edit", "args": { "path": "a.txt", "command": "undo_edit" } },
    ]);
    let seen = observations(&rig.run(&config(&script), "go"));
    assert_eq!(
        (&seen[1]["content"], &seen[3]["content"]),
        (&json!("two\n"), &json!("one\n")),
        "{seen:#?}"
    );
    assert!(
        seen[4]["error"].as_str().is_some_and(|text| text.contains("no edit of a.txt to undo")),
        "{}",
        seen[4]
    );
}

#[test]
fn what_goes_wrong_with_a_file_is_an_observation() {
    let rig = rig().with_file("box/sub/a.txt", "one\n").with_file("box/binary", [0xff, 0xfe]);
    let outside = |path: &str| {
        format!(
            "You're not allowed to access this path: {path}. You can only access paths inside the workspace."
        )
    };
    let cases = [
        (json!({ "path": "none.txt" }), "File not found: none.txt".to_owned()),
        (json!({ "path": "sub" }), "Path is a directory: sub. You can only read files".to_owned()),
        (json!({ "path": "binary" }), "File could not be decoded as utf-8: binary".to_owned()),
        (json!({ "path": "../secret.txt" }), outside("../secret.txt")),
        (json!({ "path": "/etc/passwd" }), outside("/etc/passwd")),
        (json!({ "path": "/work/../secret.txt" }), outside("/work/../secret.txt")),
    ];
    let script: Vec<Value> =
        cases.iter().map(|(args, _)| json!({ "action": "read", "args": args })).collect();
    let ran = rig.run(&config(&json!(script)), "go");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let expected: Vec<Value> = cases.iter().map(|(_, error)| json!({ "error": error })).collect();
    assert_eq!(observations(&ran), expected);
    assert_eq!(
        ran.denials().len(),
        3,
        "the operator learns of what was outside: {:?}",
        ran.denials()
    );
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_out_is_outside() {
    let rig = rig();
    std::os::unix::fs::symlink(rig.folder().join("secret.txt"), rig.folder().join("box/link"))
        .expect("a test can make a link");
    let script = json!([
        { "action": "read", "args": { "path": "link" } },
        { "action": "write", "args": { "path": "link", "content": "mine" } },
    ]);
    let seen = observations(&rig.run(&config(&script), "go"));
    let expected = json!({ "error": "You're not allowed to access this path: link. You can only access paths inside the workspace." });
    assert_eq!(seen, [expected.clone(), expected]);
    assert_eq!(
        std::fs::read_to_string(rig.folder().join("secret.txt")).expect("it is there"),
        "nobody's"
    );
}

/// The agent reads the reference's words about a missing executor. The operator reads the config
/// line that adds it.
#[test]
fn an_action_that_nobody_carries_out_goes_on_and_the_operator_reads_what_is_missing() {
    let script = json!([{ "action": "read", "args": { "path": "a.txt" } }, { "action": "run", "args": { "command": "ls" } }]);
    let rig = rig().with_file("box/a.txt", "one\n");
    let tools = "grants.tools = [\"workspace.*\"]";
    let unsupported = |kind: &str| json!({ "error": format!("Action {kind} is not supported in the current runtime.") });

    let ran = rig.run(&acting(&script, tools, "", &workspace(GRANT)), "go");
    assert_eq!(
        (ran.status(), observations(&ran)),
        (Status::Done, vec![unsupported("read"), unsupported("run")])
    );
    let [read, run] = &ran.denials()[..] else { panic!("{:?}", ran.denials()) };
    assert_eq!(
        read.suggestion.as_deref(),
        Some("add \"workspace\" to tasks.main.action_plugins"),
        "{read:?}"
    );
    assert!(run.reason.contains("a plugin with a tool named run is wanted"), "{run:?}");

    let ran =
        rig.run(&acting(&script, "", "action_plugins = [\"workspace\"]", &workspace(GRANT)), "go");
    assert_eq!((ran.status(), observations(&ran).pop()), (Status::Done, Some(unsupported("run"))));
    let missing = ran.denials().remove(0);
    assert!(
        missing
            .suggestion
            .as_deref()
            .is_some_and(|line| line.contains("[plugins.agent] grants.tools = [")),
        "{missing:?}"
    );
    assert!(observations(&ran)[0]["error"].is_string(), "{:?}", observations(&ran));
}

#[test]
fn a_workspace_without_a_folder_is_no_workspace() {
    let script = json!([{ "action": "read", "args": { "path": "a.txt" } }]);
    let config = acting(
        &script,
        "grants.tools = [\"workspace.*\"]",
        "action_plugins = [\"workspace\"]",
        &workspace(""),
    );
    let problems = refused(&rig(), &config);
    assert_eq!(problems.codes(), [ProblemCode::MissingGrant], "{problems}");
    assert!(problems.to_string().contains("grants.files = [{ dir"), "{problems}");
}
