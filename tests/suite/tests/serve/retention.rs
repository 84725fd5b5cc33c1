//! Retention while a server runs: what its config keeps no longer goes, and nothing that is open.

use conclave_test_support::{Rig, until};
use serde_json::{Value, json};

use super::WEB;
use super::acting::{Client, waiting};
use super::client::Served;
use super::people::token;
use super::reload::{log, reload};
use crate::cli::{conclave, text};

/// The runs of the API that the person sees.
fn runs(client: &Client<'_>) -> Vec<String> {
    let listed = client.get("/runs");
    let rows = listed["runs"].as_array().cloned().unwrap_or_default();
    let rows = rows.iter().filter(|row| row["command"] == "api");
    rows.filter_map(|row| row["run"].as_str().map(str::to_owned)).collect()
}

fn config(rig: &Rig) -> String {
    std::fs::read_to_string(rig.folder().join("c.toml")).expect("a config")
}

#[test]
fn ended_runs_go_while_the_server_runs_and_open_ones_and_the_audit_stay() {
    let rig = waiting();
    let token = token(&rig, "ada", "admin");
    let served = Served::start(&rig, &[]);
    let client = Client { served: &served, token: &token };
    // The oldest of all.
    let (open, call) = client.start("open");
    let mut ended = Vec::new();
    for number in 0..3 {
        let (run, call) = client.start(&format!("k{number}"));
        let refused = client.settle((&run, &call), &json!({ "decision": "refuse" }));
        assert_eq!(refused.status, 200, "{}", refused.text);
        client.until_state(&run, "done");
        ended.push(run);
    }
    let begun = client.post("/runs", Some("k3"), &json!({ "text": "go" }));
    let newest = begun.body["run"].as_str().expect("a run").to_owned();
    assert!(client.post(&format!("/runs/{newest}/stop"), None, &json!({})).status < 300);
    assert_eq!(runs(&client).len(), 5, "without the key nothing goes");
    let before = config(&rig);
    let rig = rig.with_file("c.toml", format!("{before}[server.keep]\nruns = 1\n"));
    reload(&rig, &served, "c was read again: server.keep");
    let left = until("the removal", || {
        let left = runs(&client);
        (left.len() == 2).then_some(left)
    });
    assert_eq!(left, [newest.as_str(), open.as_str()]);
    assert!(log(&rig).contains("retention removed 3 ended runs"), "{}", log(&rig));
    assert_eq!(client.request("GET", &format!("/runs/{}", ended[0]), None, "").status, 404);
    // The open run is one that goes on, and the chain is whole.
    assert_eq!(client.settle((&open, &call), &json!({ "decision": "approve" })).status, 200);
    client.until_state(&open, "done");
    assert_eq!(client.get("/audit")["is_intact"], true);
    let verified = conclave(&rig, &["audit", "verify"]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified.stdout));
}

#[test]
fn a_conversation_that_was_removed_leaves_the_list_and_its_address_leads_to_no_other() {
    let rig = super::echo(&format!("{WEB}[server.keep]\nruns = 1\n"));
    let served = Served::start(&rig, &[]);
    assert!(
        log(&rig).contains("ended runs stay while they are among the newest 1"),
        "{}",
        log(&rig)
    );
    let first = served.only_room();
    let begin = |served: &Served| {
        let begun = served.post("/api/conversations", &json!({}));
        begun.body["id"].as_str().expect("it has begun").to_owned()
    };
    let second = begin(&served);
    let rooms = |served: &Served| -> Vec<String> {
        let list = served.get("/api/conversations").body;
        let rows = list["conversations"].as_array().cloned().unwrap_or_default();
        rows.iter().filter_map(|row: &Value| row["id"].as_str().map(str::to_owned)).collect()
    };
    for room in [&second, &first] {
        let stopped = conclave(&rig, &["stop", room]);
        assert_eq!(stopped.status.code(), Some(0), "{}", text(&stopped.stderr));
    }
    reload(&rig, &served, "c was read again");
    until("the removal", || (rooms(&served) == [second.as_str()]).then_some(()));
    // Also when the one with the highest number is gone.
    let killed = served.killed();
    let removed = conclave(&rig, &["store", "gc", "--keep", "0", "--yes"]);
    assert_eq!(removed.status.code(), Some(0), "{}", text(&removed.stderr));
    let served = killed.start_again(&rig);
    assert_eq!(rooms(&served), [format!("{first}.3")], "a start begins one, if none is open");
}
