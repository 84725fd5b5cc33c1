//! The standard library of a guest's language: inert, virtual, and no way out of the sandbox.

use std::sync::Arc;

use conclave_core::protocol::event::{Event, Principal, RULES, Record};
use conclave_core::types::ids::{Millis, RoomId};
use conclave_core::types::room_secret::RoomSecret;
use conclave_runtime::RunOptions;
use conclave_runtime::journal::MemoryJournals;
use conclave_runtime::subscribe::RunEvent;
use conclave_test_support::{Ran, Rig, block_on, calling};
use serde_json::json;

fn run(guest: &str) -> Ran {
    Rig::new().run(&calling(guest, "run", &json!({}), ""), "go")
}

#[test]
fn there_is_no_environment() {
    assert!(std::env::vars_os().count() > 0, "there is something that could leak");
    let seen: serde_json::Value =
        serde_json::from_str(run("env").content()).expect("the guest answers with JSON");
    assert_eq!((&seen["variables"], &seen["arguments"]), (&json!(0), &json!(0)), "{seen}");
}

#[test]
fn files_past_the_contract_are_not_there() {
    let content = run("std_fs").content().to_owned();
    assert!(
        ["READ", "WROTE", "LISTED"].iter().all(|success| !content.contains(success)),
        "{content}"
    );
}

#[cfg(unix)]
#[test]
fn granted_folders_are_there_for_the_standard_library_with_the_same_checks_and_journal() {
    use std::os::unix::fs::symlink;

    let rig = Rig::new()
        .with_file("data/a.txt", "inside")
        .with_file("data/sub/b.txt", "")
        .with_file("secret", "OUTSIDE")
        .with_file("read/a.txt", "inside");
    let data = rig.folder().join("data");
    symlink("../secret", data.join("link-up")).expect("a link can be made");
    symlink("..", data.join("link-dir")).expect("a link can be made");
    std::fs::hard_link(rig.folder().join("secret"), data.join("hard")).expect("a link can be made");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(data.join("pipe"))
            .status()
            .expect("mkfifo runs")
            .success()
    );
    let grants = r#"grants.files = [{ dir = "data", at = "/folder", mode = "read-write", bytes = "1 MiB" }, { dir = "read", at = "/reading", mode = "read" }]"#;
    let call = |tool: &str| {
        let config = calling("std_fs_write", tool, &json!({}), grants)
            + "[[policy]]\ntool = \"*\"\ndecide = \"allow\"\n";
        let ran = rig.run(&config, "go");
        let tried: Vec<(String, String)> = serde_json::from_str(ran.content())
            .unwrap_or_else(|error| panic!("{error}: {}", ran.content()));
        (ran, tried)
    };
    let (ran, honest) = call("run");
    let found = |what: &str| {
        honest
            .iter()
            .find(|(tried, _)| tried == what)
            .map(|(_, result)| result.as_str())
            .unwrap_or_default()
    };
    assert_eq!((found("read"), found("length")), ("DONE \"inside\"", "DONE 6"), "{honest:?}");
    assert_eq!((found("write"), found("patch")), ("DONE ()", "DONE \"01XY456789\""), "{honest:?}");
    assert_eq!(
        (found("append"), found("remove")),
        ("DONE \"01XY456789!\"", "DONE ()"),
        "{honest:?}"
    );
    assert_eq!(
        found("list"),
        r#"DONE ["a.txt", "hard", "sub"]"#,
        "what leads outside or is no file is not shown: {honest:?}"
    );
    assert!(found("gone").starts_with("refused"), "{honest:?}");
    let journalled = ran
        .events("test")
        .iter()
        .filter(|event| matches!(event, Event::SideEffectEnded { .. }))
        .count();
    assert!(journalled >= 5, "make, write, patch, append, remove: {journalled}");

    let (ran, hostile) = call("escape");
    assert!(
        hostile.len() > 30 && hostile.iter().all(|(_, result)| !result.starts_with("DONE")),
        "{hostile:?}"
    );
    let read = |path: &str| std::fs::read_to_string(rig.folder().join(path)).unwrap_or_default();
    assert_eq!(
        (read("secret").as_str(), read("data/a.txt").as_str(), read("read/a.txt").as_str()),
        ("OUTSIDE", "inside", "inside")
    );
    assert!(!ran.denials().is_empty());
}

#[test]
fn the_network_is_refused_with_an_audit_event() {
    let ran = run("std_net");
    assert!(!ran.content().contains("SUCCEEDED"), "{}", ran.content());
    let denials = ran.denials();
    assert!(denials.iter().any(|record| record.denial.capability == "network"), "{denials:?}");
    assert!(denials.iter().all(|record| record.suggestion.is_none()), "no grant opens the network");
}

#[test]
fn clock_and_randomness_are_the_same_when_a_call_is_run_again() {
    // The clock stands still within a call.
    let clock: serde_json::Value =
        serde_json::from_str(run("clock").content()).expect("the guest answers with JSON");
    assert_eq!(clock["wall_ns"][0], clock["wall_ns"][1], "{clock}");
    assert!(
        clock["wall_ns"][0].as_u64() > Some(1_700_000_000_000_000_000),
        "it is the time at which the call began: {clock}"
    );
    assert_eq!(clock["monotonic_ns"][0], clock["monotonic_ns"][1], "{clock}");
    assert!(clock["monotonic_ns"][0].as_u64() > Some(0), "Go's runtime refuses zero: {clock}");
    for tool in ["run", "secure"] {
        let config = calling("randomness", tool, &json!({}), "");
        let ran = Rig::new().run(&config, "go");
        assert!(ran.content().len() >= 32, "{}", ran.content());
        let events = ran.events("test");
        let is_answer = |event: &Event| matches!(event, Event::ToolAnswered { .. });
        let before: Vec<Event> =
            events.iter().take_while(|event| !is_answer(event)).cloned().collect();
        assert!(before.len() < events.len(), "it was cut off before the answer");
        assert_eq!(
            resumed(&config, before.clone()),
            ran.content(),
            "the journal has the room's secret"
        );
        // The same room, call and time, but another secret.
        let other = before.into_iter().map(|event| match event {
            Event::RoomOpened { setup, opening, .. } => {
                Event::RoomOpened { setup, opening, secret: RoomSecret::new([1; 32]) }
            }
            event => event,
        });
        assert_ne!(resumed(&config, other.collect()), ran.content());
        assert_ne!(
            Rig::new().run(&config, "go").content(),
            ran.content(),
            "each room has a secret of its own"
        );
    }
}

/// Returns the result of a run that another process has resumed after these events.
fn resumed(config: &str, events: Vec<Event>) -> String {
    let record = |(seq, event): (usize, Event)| {
        Arc::new(Record {
            seq: seq as u64,
            at: Millis(1_700_000_000_000),
            principal: Principal("tester".into()),
            rules: RULES,
            epoch: 0,
            event,
        })
    };
    let room = RoomId::from("test");
    let journals = MemoryJournals::of(room.clone(), events.into_iter().enumerate().map(record));
    let options = RunOptions {
        ids: Arc::new(room.clone()),
        journals: Arc::new(journals),
        ..RunOptions::default()
    };
    let rig = Rig::new();
    let prepared = rig.prepare(config).expect("it is prepared");
    let outcome = block_on(async {
        prepared
            .reopen(&room, options)
            .await
            .expect("it is kept")
            .resume()
            .await
            .expect("it is kept in memory")
    });
    outcome.content.clone().unwrap_or_default()
}

#[test]
fn the_secret_of_a_room_is_told_to_nobody_who_follows_it() {
    let ran = run("randomness");
    let secret = ran.events("test").into_iter().find_map(|event| match event {
        Event::RoomOpened { secret, .. } => Some(secret),
        _ => None,
    });
    let hex = secret.expect("the room was opened").to_hex();
    let told: Vec<String> = ran
        .happenings
        .iter()
        .map(|happening| serde_json::to_string(happening).expect("JSON"))
        .collect();
    assert!(
        told.iter().any(|line| line.contains("room-opened"))
            && told.iter().all(|line| !line.contains(&hex))
    );
    let recorded = ran.happenings.iter().filter_map(|happening| match &happening.what {
        RunEvent::Recorded { record } => Some(record),
        _ => None,
    });
    // It must not be in the value for programs either.
    assert!(
        recorded
            .into_iter()
            .all(|record| !conclave_core::journal::record::to_line(record).unwrap().contains(&hex))
    );
}

#[test]
fn what_a_guest_prints_goes_to_its_log() {
    let logs = run("stdout").logs();
    assert!(logs.len() >= 2, "{logs:?}");
    assert!(logs.iter().all(|line| !line.contains('\u{1b}')), "{logs:?}");
}
