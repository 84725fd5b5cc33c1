//! The API that acts: runs that people start, steer, decide and stop over HTTP, with who did it in
//! the journal, across a kill of the server.

use std::path::PathBuf;
use std::sync::Barrier;

use conclave_core::protocol::event::{Event, Principal, Record};
use conclave_core::types::approval::{Approval, parse_approval_id};
use conclave_core::types::ids::RoomId;
use conclave_runtime::steering::{self, DecisionPlace, PendingCall};
use conclave_runtime::store::{ControlCommand, ControlMessage, StoreReader, WaitRow};
use conclave_test_support::{Rig, TestPostgres, guest, postgres_or_skip};
use serde_json::{Value, json};

use super::WEB;
use super::client::{Response, Served};
use super::people::{begin, token};
use crate::cli::{conclave, text};
use conclave_test_support::until;

/// Returns a config whose agent calls a tool that needs an approval and then repeats its input.
pub(super) fn waiting() -> Rig {
    let config = format!(
        "entry = \"desk\"\n[tasks.desk]\nagent = \"actor\"\n[plugins.actor]\nsource = \"{}\"\ngrants.tools = [\"echo.*\"]\n\
         config = {{ script = [{{ call = \"echo.run\", arguments = {{ text = \"it ran\" }} }}] }}\n[plugins.echo]\nsource = \"{}\"\n\
         [[policy]]\ntool = \"echo.run\"\ndecide = \"ask\"\n{WEB}",
        guest("acting_agent").display(),
        guest("echo").display()
    );
    Rig::new().with_file("c.toml", config)
}

/// A program of a person.
pub(super) struct Client<'a> {
    pub(super) served: &'a Served,
    pub(super) token: &'a str,
}

impl Client<'_> {
    pub(super) fn request(
        &self,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: &str,
    ) -> Response {
        let mut headers = vec![
            ("Host", self.served.address().to_owned()),
            ("Authorization", format!("Bearer {}", self.token)),
        ];
        headers.extend(key.map(|key| ("Idempotency-Key", key.to_owned())));
        self.served.request(method, &format!("/api/v1{path}"), &headers, body)
    }

    pub(super) fn get(&self, path: &str) -> Value {
        let answer = self.request("GET", path, None, "");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.body
    }

    pub(super) fn post(&self, path: &str, key: Option<&str>, body: &Value) -> Response {
        self.request("POST", path, key, &body.to_string())
    }

    /// Starts a run that waits for an approval. Returns the run and the id of the call.
    pub(super) fn start(&self, key: &str) -> (String, String) {
        let started = self.post("/runs", Some(key), &json!({ "text": "go" }));
        assert_eq!(started.status, 201, "{}", started.text);
        let run = started.body["run"].as_str().expect("a run").to_owned();
        (run.clone(), self.question(&run))
    }

    /// Waits for a call of the run that waits for an approval.
    pub(super) fn question(&self, run: &str) -> String {
        until("a question", || {
            let listed = self.get("/questions");
            let found =
                listed["questions"].as_array()?.iter().find(|question| question["run"] == run)?;
            found["id"].as_str().map(str::to_owned)
        })
    }

    pub(super) fn settle(&self, (run, call): (&str, &str), body: &Value) -> Response {
        self.post(&format!("/runs/{run}/questions/{call}"), None, body)
    }

    pub(super) fn until_state(&self, run: &str, state: &str) {
        until(state, || (self.get(&format!("/runs/{run}"))["state"] == state).then_some(()));
    }
}

pub(super) fn refusal(response: &Response) -> (u16, &str) {
    (response.status, response.body["code"].as_str().unwrap_or_default())
}

/// The store of a run that was started by the API.
fn store_of(rig: &Rig, run: &str) -> PathBuf {
    let runs = conclave(rig, &["runs", "--json"]);
    let rows = text(&runs.stdout);
    let rows = rows.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let row = rows.into_iter().find(|row| row["run"] == run).expect("it is listed");
    assert_eq!(row["command"], "api");
    PathBuf::from(row["store"].as_str().expect("a store"))
}

/// The records of a run, from the store of its server.
fn records(rig: &Rig, run: &str) -> Vec<Record> {
    let reader = StoreReader::open(store_of(rig, run)).expect("it is there");
    reader.records(&RoomId::from(run)).expect("they are read")
}

/// Those who sent the messages of a run, in order.
fn senders(records: &[Record]) -> Vec<String> {
    let senders = records.iter().filter_map(|record| record.event.sender());
    senders.map(|Principal(name)| name.to_string()).collect()
}

#[test]
fn a_run_is_started_once_told_decided_by_who_may_and_ends() {
    let rig = waiting();
    let tokens = [
        ("ada", "user"),
        ("vera", "viewer"),
        ("olga", "operator"),
        ("petra", "approver"),
        ("paul", "approver"),
    ]
    .map(|(name, role)| token(&rig, name, role));
    let served = Served::start(&rig, &[]);
    let [ada, vera, olga, petra, paul] =
        tokens.each_ref().map(|token| Client { served: &served, token });
    // The same request twice is one run; the key names it for this person alone.
    let body = json!({ "text": "go" });
    assert_eq!(refusal(&vera.post("/runs", Some("k"), &body)), (403, "missing_role"));
    let first = olga.post("/runs", Some("k"), &body);
    assert_eq!(first.status, 201, "{}", first.text);
    let run = first.body["run"].as_str().expect("a run");
    assert_eq!((&first.body["principal"], &first.body["entry"]), (&json!("olga"), &json!("desk")));
    assert_eq!(olga.get(&format!("/runs/{run}"))["run"], run, "a GET right after finds it");
    let again = olga.post("/runs", Some("k"), &body);
    assert_eq!((again.status, &again.body["run"]), (200, &json!(run)));
    let other = olga.post("/runs", Some("k"), &json!({ "text": "another" }));
    assert_eq!(refusal(&other), (422, "key_reused"));
    for key in ["", "a b", &"x".repeat(256)] {
        assert_eq!(refusal(&olga.post("/runs", Some(key), &body)), (400, "bad_arguments"), "{key}");
    }
    let unknown = olga.post("/runs", None, &json!({ "text": "go", "task": "nobody" }));
    assert_eq!(refusal(&unknown), (400, "unknown_task"));
    assert_eq!(olga.get("/runs")["runs"].as_array().map(Vec::len), Some(1));
    // To another user it does not exist.
    let call = olga.question(run);
    assert_eq!(
        refusal(&ada.request("GET", &format!("/runs/{run}"), None, "")),
        (404, "run_not_found")
    );
    let say = format!("/runs/{run}/messages");
    assert_eq!(refusal(&ada.post(&say, None, &body)), (404, "run_not_found"));
    assert_eq!(ada.get("/questions")["questions"], json!([]));
    // A text arrives once under its key.
    for _ in 0..2 {
        let sent = olga.post(&say, Some("s"), &json!({ "text": "look into /docs" }));
        assert_eq!((sent.status, &sent.body["state"]), (200, &json!("recorded")), "{}", sent.text);
    }
    let other = olga.post(&say, Some("s"), &json!({ "text": "another" }));
    assert_eq!(refusal(&other), (422, "key_reused"));
    // Who may not decide is told who may, and decides nothing.
    let approve = json!({ "decision": "approve" });
    for client in [&vera, &olga] {
        let refused = client.settle((run, &call), &approve);
        assert_eq!(refusal(&refused), (403, "missing_role"));
        assert!(refused.body["detail"].as_str().is_some_and(|it| it.contains("approver")));
    }
    let listed = petra.get("/questions")["questions"][0].clone();
    assert_eq!((&listed["kind"], &listed["may_answer"]), (&json!("approval"), &json!(true)));
    assert_eq!(listed["request"]["arguments"], json!({ "text": "it ran" }));
    assert_eq!(olga.get("/questions")["questions"][0]["may_answer"], false);
    // Two decide at once: one decision counts, and the other person learns of it.
    let refuse = json!({ "decision": "refuse", "reason": "not today" });
    let (one, two) = std::thread::scope(|scope| {
        let one = scope.spawn(|| petra.settle((run, &call), &approve));
        let two = scope.spawn(|| paul.settle((run, &call), &approve));
        (one.join().expect("it answers"), two.join().expect("it answers"))
    });
    let winner = if one.status == 200 { "petra" } else { "paul" };
    let loser = if one.status == 200 { &two } else { &one };
    assert_eq!(one.status.min(two.status), 200, "{} {}", one.text, two.text);
    assert_eq!(refusal(loser), (409, "already_decided"), "{}", loser.text);
    let late = paul.settle((run, &call), &refuse);
    assert_eq!(refusal(&late), (409, "already_decided"));
    let detail = late.body["detail"].as_str().expect("a sentence");
    assert!(detail.contains(&format!("approved by a person at the server ({winner})")), "{detail}");
    olga.until_state(run, "done");
    assert_eq!(refusal(&olga.post(&say, None, &body)), (409, "run_ended"));
    // The journal has who acted, and so has each view of it.
    assert_eq!(senders(&records(&rig, run)), ["olga", winner]);
    let audit = olga.get(&format!("/runs/{run}/audit"));
    let by = |kind: &str| -> Vec<&Value> {
        let entries = audit["entries"].as_array().expect("a list").iter();
        entries.filter(|entry| entry["kind"] == kind).map(|entry| &entry["by"]).collect()
    };
    assert_eq!(by("approved"), [winner], "{audit}");
    assert!(by("message").contains(&&json!("olga")), "{audit}");
    assert_eq!(
        refusal(&vera.request("GET", &format!("/runs/{run}/audit"), None, "")),
        (403, "missing_role")
    );
    let shown = text(&conclave(&rig, &["show", run]).stdout);
    assert!(shown.contains(&format!("the server ({winner})")), "{shown}");
    for view in ["tasks", "timeline", "budget", "changes"] {
        assert!(vera.get(&format!("/runs/{run}/{view}")).is_object(), "{view}");
    }
    let number = call.rsplit_once(':').expect("an id").1;
    assert!(vera.get(&format!("/runs/{run}/why/{number}"))["notices"].as_array().is_some());
}

#[test]
fn a_paused_run_survives_a_kill_of_its_server_and_a_stopped_one_has_ended() {
    let rig = waiting();
    let tokens =
        [("olga", "operator"), ("root", "admin")].map(|(name, role)| token(&rig, name, role));
    let served = Served::start(&rig, &[]);
    let [olga, root] = tokens.each_ref().map(|token| Client { served: &served, token });
    let (run, call) = olga.start("one");
    let (other, _) = olga.start("two");
    assert_ne!(run, other);
    let paused = olga.post(&format!("/runs/{run}/pause"), None, &json!({ "reason": "the disk" }));
    assert_eq!((paused.status, &paused.body["state"]), (200, &json!("paused")), "{}", paused.text);
    for _ in 0..2 {
        let stopped = olga.post(&format!("/runs/{other}/stop"), Some("stop"), &json!({}));
        let ended = json!({ "state": "ended", "status": "KILL" });
        assert_eq!((stopped.status, &stopped.body), (200, &ended), "{}", stopped.text);
    }
    let waits = olga.get(&format!("/runs/{run}"))["waits"].clone();
    let ids = waits.as_array().into_iter().flatten().filter_map(|wait| wait["id"].as_str());
    assert_eq!(ids.collect::<Vec<_>>(), [call.as_str()], "only a question has an id: {waits}");
    let question = format!("/runs/{run}/questions/{call}");
    let approve = json!({ "decision": "approve" });
    let decided = root.post(&question, Some("approve"), &approve);
    assert_eq!(decided.status, 200, "{}", decided.text);
    let served = served.killed().start_again(&rig);
    let [olga, root] = tokens.each_ref().map(|token| Client { served: &served, token });
    // The client that lost its connection sends the decision again.
    for _ in 0..3 {
        let again = root.post(&question, Some("approve"), &approve);
        assert_eq!((again.status, &again.body), (200, &decided.body), "{}", again.text);
    }
    // The key names the same run, which is still paused behind the decision.
    let again = olga.post("/runs", Some("one"), &json!({ "text": "go" }));
    assert_eq!((again.status, &again.body["run"]), (200, &json!(run)), "{}", again.text);
    assert_eq!(olga.get(&format!("/runs/{other}"))["state"], "kill");
    let before = records(&rig, &run);
    assert!(!before.iter().any(|record| matches!(record.event, Event::ToolAnswered { .. })));
    let resumed = olga.post(&format!("/runs/{run}/resume"), None, &json!({}));
    assert_eq!(
        (resumed.status, &resumed.body["state"]),
        (200, &json!("running")),
        "{}",
        resumed.text
    );
    root.until_state(&run, "done");
    let after = records(&rig, &run);
    assert_eq!(senders(&after), ["olga", "root", "olga"]);
    let answered = after.iter().filter(|record| matches!(record.event, Event::ToolAnswered { .. }));
    assert_eq!(answered.count(), 1);
    let audit = text(&conclave(&rig, &["audit", &run]).stdout);
    assert!(audit.contains("the run was paused: the disk, by olga"), "{audit}");
}

/// The run receives the decision between the two looks of the request that sends it again.
#[test]
fn a_decision_that_arrives_while_it_is_sent_again_is_the_same_one() {
    const MOST: std::time::Duration = std::time::Duration::from_secs(20);
    let rig = waiting();
    let root = token(&rig, "root", "admin");
    let served = Served::start(&rig, &[]);
    let (run, id) = Client { served: &served, token: &root }.start("one");
    let reader = StoreReader::open(store_of(&rig, &run)).expect("it is there");
    let (room, call) = parse_approval_id(&id).expect("an id");
    let (arguments_sha256, approval) = (None, Approval::Approved);
    let word = ControlCommand::Decide { call, approval, arguments_sha256 };
    let mut message = ControlMessage::new(RoomId::from(room), word).under_key("sent twice");
    message.by = Some(Principal("root".into()));
    let has_come = std::cell::Cell::new(false);
    let first_comes = |_: &WaitRow| {
        if !has_come.replace(true) {
            let place = (&message.room, call);
            let pending = PendingCall::find(&reader, place, |row| row.wait.asks_approval());
            let settled = pending.and_then(|it| it.settle(&reader, &message, false, MOST));
            assert_eq!(settled.expect("it is taken"), DecisionPlace::Recorded);
        }
        false
    };
    let again = steering::settle_once(&reader, &message, call, first_comes, MOST);
    assert_eq!(again.expect("it is the same one"), DecisionPlace::Recorded);
    assert!(has_come.get());
}

/// Sends a start eight times at once under one key, and checks that it is one run, which one of the
/// answers says is new.
fn start_at_once(served: &[&Served], token: &str) {
    let barrier = Barrier::new(8);
    let start = |nth: usize| {
        let client = Client { served: served[nth % served.len()], token };
        barrier.wait();
        let started = client.post("/runs", Some("raced"), &json!({ "text": "go" }));
        (started.status, started.body["run"].as_str().unwrap_or(&started.text).to_owned())
    };
    let answers: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|nth| scope.spawn(move || start(nth))).collect();
        all.into_iter().map(|answer| answer.join().expect("an answer")).collect()
    });
    let of_status = |code| answers.iter().filter(|(status, _)| *status == code).count();
    assert_eq!((of_status(201), of_status(200)), (1, 7), "{answers:?}");
    assert!(answers.iter().all(|(_, run)| *run == answers[0].1), "{answers:?}");
    let client = Client { served: served[0], token };
    let runs = client.get("/runs");
    let runs = runs["runs"].as_array().expect("a list");
    assert_eq!(runs.iter().filter(|run| run["command"] == "api").count(), 1, "{runs:?}");
}

#[test]
fn a_start_that_is_raced_at_one_server_or_two_is_one_run() {
    let rig = waiting();
    let olga = token(&rig, "olga", "operator");
    start_at_once(&[&Served::start(&rig, &[])], &olga);
    let Some(database) = postgres_or_skip(TestPostgres::shared()) else { return };
    let store = [("CONCLAVE_STORE", database.url())];
    let [one, two] = [(); 2].map(|()| Served::start_with_variables(&rig, &store));
    start_at_once(&[&one, &two], &olga);
    let log = std::fs::read_to_string(rig.folder().join("serve.log")).expect("a log");
    assert!(!log.contains("error"), "the slower server has nothing to report: {log}");
}

#[test]
fn a_new_conversation_is_found_right_after_its_answer() {
    let rig = super::echo(WEB);
    let ada = token(&rig, "ada", "user");
    let mut served = Served::start(&rig, &[]);
    let cookie = served.log_in(&ada);
    served.with_cookie(&cookie);
    for _ in 0..5 {
        let room = begin(&served);
        let found = served.get(&format!("/api/v1/runs/{room}"));
        assert_eq!((found.status, &found.body["run"]), (200, &json!(room)), "{}", found.text);
    }
}
