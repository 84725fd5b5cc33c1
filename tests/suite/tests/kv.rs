//! The key-value store of a plugin: durable across runs, within its quota, and private.

use conclave_core::protocol::event::Event;
use conclave_core::types::denial::Layer;
use conclave_test_support::{Ran, Rig, calling, guest};
use serde_json::json;

const ALLOWED: &str = "[[policy]]\ntool = \"*\"\ndecide = \"allow\"\n";

fn run(guest: &str, rig: &Rig, tool: &str, grants: &str) -> Ran {
    rig.run(&(calling(guest, tool, &json!({}), grants) + ALLOWED), "go")
}

#[test]
fn what_was_kept_is_there_in_the_next_run_and_journalled_by_digest() {
    let rig = Rig::new();
    for expected in ["1", "2", "3"] {
        let ran = run("kv_quota", &rig, "count", "grants.kv = true");
        assert_eq!(ran.content(), expected);
        let side_effects = ran
            .events("test")
            .iter()
            .filter(|event| {
                matches!(event, Event::SideEffectAsked { .. } | Event::SideEffectEnded { .. })
            })
            .count();
        assert_eq!(side_effects, 2, "a read is none");
    }
}

#[test]
fn a_quota_holds_for_keys_and_bytes() {
    let ran = run("kv_quota", &Rig::new(), "run", "grants.kv = { bytes = \"2 kB\", keys = 30 }");
    let tried: Vec<String> = serde_json::from_str(ran.content())
        .unwrap_or_else(|error| panic!("{error}: {}", ran.content()));
    // Keys of one or two digits with a hundred bytes each: nineteen fit into two thousand.
    assert!(tried[0].starts_with("30: ") && tried[0].contains("QuotaExceeded(2000)"), "{tried:?}");
    assert!(tried[1].starts_with("19: ") && tried[1].contains("QuotaExceeded(2000)"), "{tried:?}");
    assert!(tried[2].contains("QuotaExceeded(2000)") && tried[3].contains("Denied"), "{tried:?}");
}

#[test]
fn a_store_without_a_grant_is_denied_and_the_operator_learns_which_grant() {
    let ran = run("kv_denied", &Rig::new(), "run", "");
    let tried: Vec<String> = serde_json::from_str(ran.content())
        .unwrap_or_else(|error| panic!("{error}: {}", ran.content()));
    assert!(tried.iter().all(|result| result.contains("Denied")), "{tried:?}");
    let record = ran.denials().into_iter().next().expect("a refusal");
    assert_eq!(
        (record.layer, record.suggestion.as_deref()),
        (Layer::Config, Some("[plugins.subject] grants.kv = true"))
    );
}

#[test]
fn a_plugin_finds_nothing_of_another() {
    let call = |name: &str| json!({ "calls": [{ "name": name }] });
    let replies = json!({ "replies": [call("victim.count"), call("thief.run"), call("victim.count"), "end"] });
    let config = format!(
        r#"
entry = "main"
[models.default]
kind = "scripted"
replies = "replies.json"
[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
grants.tools = ["victim.*", "thief.*"]
[plugins.victim]
source = "{}"
grants.kv = true
[plugins.thief]
source = "{}"
grants.kv = true
[tasks.main]
agent = "chat"
{ALLOWED}"#,
        guest("kv_quota").display(),
        guest("kv_other").display()
    );
    let ran = Rig::new().with_file("replies.json", replies.to_string()).run(&config, "go");
    let contents: Vec<String> = ran.answers().into_iter().map(|answer| answer.content).collect();
    assert_eq!(contents, ["1", "[]", "2"]);
}

#[test]
fn another_component_in_the_place_of_a_plugin_finds_nothing_and_takes_nothing_away() {
    let rig = Rig::new();
    assert_eq!(run("kv_quota", &rig, "count", "grants.kv = true").content(), "1");
    assert_eq!(run("kv_other", &rig, "run", "grants.kv = true").content(), "[]");
    assert_eq!(run("kv_quota", &rig, "count", "grants.kv = true").content(), "2");
    assert_eq!(
        run("kv_quota", &Rig::new(), "count", "grants.kv = true").content(),
        "1",
        "another config, another store"
    );
}
