//! A task's narrowed grants, tested by an agent that tries everything, through the contract and
//! through `std`.

use conclave_core::types::denial::Layer;
use conclave_models::test_server::{Server, TestReply};
use conclave_test_support::{Ran, Rig, stepping};
use serde_json::{Value, json};

fn reach(narrow: &str) -> (Ran, Value, bool) {
    let server = Server::answering(|_| TestReply::bytes(200, "text/plain", "light"));
    let rig = Rig::new().with_file("data/a.txt", "inside").with_file("token", "a-value-of-a-test");
    let grants = format!(
        "grants.files = [{{ dir = \"data\", at = \"/data\", mode = \"read-write\" }}]\n\
         grants.fetch = {{ urls = [\"{}/*\"], private = [\"127.0.0.1\"] }}\ngrants.secrets = [\"token_of_test\"]\ngrants.kv = true\n",
        server.url()
    );
    let secret = "[secrets.token_of_test]\nfrom = { file = \"token\" }\nhosts = [\"127.0.0.1\"]\n";
    let config = stepping("agent_reaches", &grants, narrow) + secret;
    let ran = rig.run(&config, &format!("{}/x", server.url()));
    let tried = serde_json::from_str(ran.content())
        .unwrap_or_else(|error| panic!("{error}: {}", ran.content()));
    (ran, tried, !server.requests().is_empty())
}

#[test]
fn an_agent_reaches_what_was_granted_where_its_task_leaves_it() {
    let (ran, tried, sent) = reach("");
    let all = json!({ "read": "DONE", "write": "DONE", "std-read": "DONE", "std-write": "DONE", "fetch": "DONE", "secret": "DONE", "kv": "DONE" });
    assert_eq!(tried, all);
    assert!(sent && ran.denials().is_empty(), "{:?}", ran.denials());
}

#[test]
fn a_task_that_leaves_nothing_is_obeyed_by_every_import_and_both_faces() {
    let (ran, tried, sent) = reach("scope = { files = [], fetch = [], secrets = [], kv = false }");
    assert!(
        tried.as_object().expect("an object").values().all(|came| came == "refused"),
        "{tried}"
    );
    assert!(!sent, "a request left");
    let denials = ran.denials();
    for capability in ["files", "fetch", "secrets", "kv"] {
        let of_task = denials
            .iter()
            .any(|record| record.denial.capability == capability && record.layer == Layer::Task);
        assert!(of_task, "{capability}: {denials:?}");
    }
}

#[test]
fn a_task_that_may_only_read_writes_by_neither_face() {
    let (_, tried, _) = reach("scope = { read_only = true }");
    let of = |name: &str| tried[name].as_str().unwrap_or_default().to_owned();
    assert_eq!([of("read"), of("std-read")], ["DONE", "DONE"], "{tried}");
    assert_eq!([of("write"), of("std-write")], ["refused", "refused"], "{tried}");
}
