//! `--log json`: every line on stderr is an object with its level, its event and what it is
//! about, and none has a text of a person or a secret.

use conclave_test_support::{Rig, until};
use serde_json::{Value, json};

use super::acting::{Client, waiting};
use super::client::Served;
use super::people::token;
use super::reload::log;
use crate::cli::{conclave, text};

fn lines(rig: &Rig) -> Vec<Value> {
    let parse =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    // The last one may be under way.
    let log = log(rig);
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    whole.lines().map(parse).collect()
}

#[test]
fn each_line_is_an_object_that_names_run_principal_and_request() {
    let rig = waiting();
    let [ada, petra] =
        [("ada", "user"), ("petra", "approver")].map(|(name, role)| token(&rig, name, role));
    let served = Served::start(&rig, &["--log", "json"]);
    let client = Client { served: &served, token: &ada };
    let started = client.post("/runs", Some("k"), &json!({ "text": "the word swordfish" }));
    assert_eq!(started.status, 201, "{}", started.text);
    let run = started.body["run"].as_str().expect("a run").to_owned();
    let request = started.header("x-request-id").expect("an id").to_owned();
    let call = client.question(&run);
    let refused = client.settle((&run, &call), &json!({ "decision": "approve" }));
    assert_eq!(refused.status, 403);
    let approver = Client { served: &served, token: &petra };
    assert_eq!(approver.settle((&run, &call), &json!({ "decision": "approve" })).status, 200);
    client.until_state(&run, "done");
    let of_run = |event: &str| {
        let all = lines(&rig);
        all.into_iter().find(|line| line["event"] == event && line["run"] == run.as_str())
    };
    let asked = until("the event", || of_run("approval-asked"));
    assert_eq!((&asked["principal"], &asked["level"]), (&json!("ada"), &json!("info")));
    assert!(asked["record"].is_u64() && asked["room"] == run.as_str(), "{asked}");
    let time = asked["time"].as_str().expect("a time");
    assert!(time.len() == "2026-11-30T13:00:00.000Z".len() && time.ends_with('Z'), "{time}");
    let requests: Vec<Value> =
        lines(&rig).into_iter().filter(|line| line["event"] == "request").collect();
    let posted = requests.iter().find(|line| line["request"] == request.as_str());
    let posted = posted.unwrap_or_else(|| panic!("{requests:?}"));
    assert_eq!((&posted["principal"], &posted["level"]), (&json!("ada"), &json!("info")));
    assert!(posted["message"].as_str().is_some_and(|it| it.starts_with("POST /api/v1/runs 201 ")));
    let denied = requests.iter().find(|line| line["level"] == "warning").expect("a refusal");
    assert!(denied["message"].as_str().is_some_and(|it| it.contains(" 403 ")), "{denied}");
    assert!(requests.iter().all(|line| !line["message"].to_string().contains("GET")));
    assert!(lines(&rig).iter().any(|line| line["event"] == "serving"));
    let whole = log(&rig);
    for private in ["swordfish", "it ran", &*ada, &*petra] {
        assert!(!whole.contains(private), "{private}: {whole}");
    }
    // What the server cannot do is an object too.
    let broken = conclave(&rig, &["serve", "c.toml", "--listen", "192.0.2.1:1", "--log", "json"]);
    let first: Value =
        serde_json::from_str(text(&broken.stderr).lines().next().unwrap_or_default())
            .unwrap_or_else(|error| panic!("{error}: {}", text(&broken.stderr)));
    assert_eq!(first["level"], "error");
}
