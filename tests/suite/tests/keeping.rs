//! The stores of the program: one per process, a named one, or none.

use std::path::Path;

use conclave_test_support::{Rig, calling, stepping};
use serde_json::json;

use crate::cli::text;
use crate::resume_cli::{conclave, start, stores, until};

fn echo() -> Rig {
    Rig::new().with_file("c.toml", stepping("agent_echo", "", ""))
}

/// Returns a config whose run lasts until it is killed.
fn endless() -> Rig {
    let config = calling("spin", "run", &json!({}), "limits = { cpu = \"1 h\", wall = \"1 h\" }");
    Rig::new().with_file("c.toml", stepping("agent_echo", "", "")).with_file("endless.toml", config)
}

#[test]
fn two_processes_at_once_have_a_store_each() {
    let rig = endless();
    let state = rig.folder().join("state");
    let child = start(&rig, &["run", "endless.toml", "go"]);
    until("the first store", || stores(&state).contains(&"1".to_owned()).then_some(()));
    let output = until("a second store", || {
        let output = conclave(&rig, &["run", "c.toml", "hello"]);
        assert_eq!(
            (output.status.code(), text(&output.stdout).as_str()),
            (Some(0), "hello\n"),
            "{}",
            text(&output.stderr)
        );
        (stores(&state) == ["1", "2"]).then_some(output)
    });
    assert!(!text(&output.stderr).contains("warning"), "{}", text(&output.stderr));
    rig.kill(child);
    // A free store is used again.
    assert_eq!(conclave(&rig, &["run", "c.toml", "hello"]).status.code(), Some(0));
    assert_eq!(stores(&state), ["1", "2"]);
}

#[test]
fn a_store_that_is_named_is_taken_and_no_other() {
    let rig = endless();
    let child = start(&rig, &["run", "endless.toml", "go", "--store", "mine"]);
    let output = until("the store in use", || {
        let output = conclave(&rig, &["run", "c.toml", "hello", "--store", "mine"]);
        (output.status.code() != Some(0)).then_some(output)
    });
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{stderr}");
    assert!(stderr.contains("is in use by") && stderr.contains("help:"), "{stderr}");
    rig.kill(child);
    assert_eq!(
        conclave(&rig, &["run", "c.toml", "hello", "--store", "mine"]).status.code(),
        Some(0)
    );
    assert!(stores(&rig.folder().join("state")).is_empty());
    let shown = conclave(&rig, &["why", "--store", "mine"]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
}

#[test]
fn no_plugin_is_let_into_the_store_of_its_run() {
    let config = calling(
        "files_read",
        "run",
        &json!({ "path": "/folder/store.sqlite" }),
        "grants.files = [{ dir = \"mine\", at = \"/folder\", mode = \"read\" }]",
    );
    let rig = Rig::new().with_file("mine/a.txt", "a").with_file("c.toml", config);
    let output = conclave(&rig, &["run", "c.toml", "go", "--store", "mine"]);
    assert_eq!(output.status.code(), Some(2), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stderr).contains("the journals of the run"), "{}", text(&output.stderr));
}

#[test]
fn where_nothing_can_be_kept_it_runs_with_a_warning_unless_each_event_must_be() {
    let rig = echo();
    // A file in place of the state folder prevents every user, also root, from creating a store.
    std::fs::write(rig.folder().join("state"), "").expect("it is written");
    let output = conclave(&rig, &["run", "c.toml", "hello"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "hello\n"));
    assert!(text(&output.stderr).contains("this run is not stored"), "{}", text(&output.stderr));
    let output = conclave(&rig, &["run", "c.toml", "hello", "--durability", "sync"]);
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(1), ""),
        "{}",
        text(&output.stderr)
    );
    let config = format!("durability = \"sync\"\n{}", stepping("agent_echo", "", ""));
    let rig = rig.with_file("sync.toml", config);
    let output = conclave(&rig, &["run", "sync.toml", "hello"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("help:"), "{}", text(&output.stderr));
    // `--no-journal` still works, because it stores nothing.
    assert_eq!(
        conclave(&rig, &["run", "sync.toml", "hello", "--no-journal"]).status.code(),
        Some(0)
    );
}

#[test]
fn every_durability_runs_and_a_wrong_one_is_a_problem_of_the_config() {
    let rig = echo();
    for durability in ["sync", "group", "exit"] {
        let output = conclave(&rig, &["run", "c.toml", "hello", "--durability", durability]);
        assert_eq!(
            (output.status.code(), text(&output.stdout).as_str()),
            (Some(0), "hello\n"),
            "{}",
            text(&output.stderr)
        );
    }
    let rig = rig.with_file(
        "wrong.toml",
        format!("durability = \"never\"\n{}", stepping("agent_echo", "", "")),
    );
    let output = conclave(&rig, &["run", "wrong.toml", "hello"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("wrong.toml:1") && text(&output.stderr).contains("group"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_store_is_its_owners_alone() {
    let rig = echo();
    assert_eq!(conclave(&rig, &["run", "c.toml", "hello"]).status.code(), Some(0));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| {
            std::fs::metadata(path).expect("it is there").permissions().mode() & 0o077
        };
        let folder = rig.folder().join("state/stores");
        assert_eq!((mode(&folder), mode(&folder.join("1"))), (0, 0));
        for file in std::fs::read_dir(folder.join("1")).expect("it is there").flatten() {
            assert_eq!(mode(&file.path()), 0, "{}", file.path().display());
        }
    }
    let before = stores(&rig.folder().join("state"));
    let kept = conclave(&rig, &["why"]);
    assert_eq!(conclave(&rig, &["run", "c.toml", "hello", "--no-journal"]).status.code(), Some(0));
    assert_eq!(
        conclave(&rig, &["run", "c.toml", "hello", "--journal", "lines"]).status.code(),
        Some(0)
    );
    assert_eq!(
        (stores(&rig.folder().join("state")), conclave(&rig, &["why"]).stderr),
        (before, kept.stderr)
    );
}

#[test]
fn the_runs_of_a_batch_push_out_no_run() {
    let rig = echo().with_file("in.txt", "one\ntwo\nthree\n");
    assert_eq!(conclave(&rig, &["run", "c.toml", "hello"]).status.code(), Some(0));
    let output = conclave(&rig, &["batch", "in.txt", "--config", "c.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(stores(&rig.folder().join("state")), ["1"]);
    assert!(rig.folder().join("state/bulk/1").is_dir());
}
