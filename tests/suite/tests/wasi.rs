//! What a language's standard library brings along: inert, virtual, and of no use for getting out.

use conclave_test_support::{Ran, Rig, calling};
use serde_json::json;

fn run(guest: &str) -> Ran {
    Rig::new().run(&calling(guest, "run", &json!({}), ""), "go")
}

#[test]
fn there_is_no_environment() {
    assert!(std::env::vars_os().count() > 0, "there is something that could leak");
    let seen: serde_json::Value = serde_json::from_str(run("env").content()).expect("the guest answers with JSON");
    assert_eq!((&seen["variables"], &seen["arguments"]), (&json!(0), &json!(0)), "{seen}");
}

#[test]
fn files_past_the_contract_are_not_there() {
    let content = run("std_fs").content().to_owned();
    assert!(["READ", "WROTE", "LISTED"].iter().all(|success| !content.contains(success)), "{content}");
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
    // The same room and call give the same seed, and the clock stands still within a call.
    let clock: serde_json::Value = serde_json::from_str(run("clock").content()).expect("the guest answers with JSON");
    assert_eq!(clock["wall_ns"][0], clock["wall_ns"][1], "{clock}");
    assert!(clock["wall_ns"][0].as_u64() > Some(1_700_000_000_000_000_000), "it is the time at which the call began: {clock}");
    assert_eq!(run("randomness").content(), run("randomness").content());
}

#[test]
fn what_a_guest_prints_goes_to_its_log() {
    let logs = run("stdout").logs();
    assert!(logs.len() >= 2, "{logs:?}");
    assert!(logs.iter().all(|line| !line.contains('\u{1b}')), "{logs:?}");
}
