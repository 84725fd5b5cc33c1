//! Questions that wait for `conclave answer`, with real processes.

use conclave_core::protocol::control::ControlCommand;
use conclave_core::types::approval::{Approval, parse_approval_id};
use conclave_core::types::ids::RoomId;
use conclave_models::test_server::{Server, TestReply};
use conclave_runtime::store::{ControlMessage, StoreReader};
use conclave_test_support::Rig;
use serde_json::{Value, json};

use crate::cli::text;
use crate::resume_cli::{self, conclave, start, until, waiting};

/// Returns a config whose agent asks its user, and then repeats what its model says. The server
/// goes on with its replies when the run is resumed.
fn asking() -> (Rig, Server) {
    let replies = ["TO[user]: Which light?", "Skerryvore it is."];
    let server = Server::start(replies.into_iter().map(TestReply::says).collect());
    let config = "entry = \"desk\"\n[models.default]\nkind = \"openai\"\nurl = \"URL\"\nmodel = \"m\"\n\
         [plugins.chat]\nsource = \"stock:chat\"\ngrants.model = [\"default\"]\ngrants.route = [\"user\"]\n\
         [tasks.desk]\nagent = \"chat\"\ntext_rules = { recipients = true }\n";
    (Rig::new().with_file("c.toml", config.replace("URL", &server.url())), server)
}

/// Returns the open questions once there is one.
fn question(rig: &Rig) -> Value {
    until("a question that waits", || {
        let output = conclave(rig, &["answer", "--json"]);
        let first = text(&output.stdout).lines().next().map(str::to_owned);
        first.map(|line| serde_json::from_str(&line).expect("a line of JSON"))
    })
}

fn id(question: &Value) -> String {
    question["id"].as_str().expect("an id").to_owned()
}

#[test]
fn a_question_waits_for_its_answer_in_another_process() {
    let (rig, _server) = asking();
    let child = start(&rig, &["run", "c.toml", "go", "--questions", "wait"]);
    let question = question(&rig);
    assert_eq!(
        (&question["question"], &question["task"]),
        (&json!("Which light?"), &json!("desk"))
    );
    assert_eq!(question["run_state"], "running");
    let listed = conclave(&rig, &["answer"]);
    assert!(text(&listed.stdout).contains("Which light?"), "{}", text(&listed.stdout));
    let answered = conclave(&rig, &["answer", &id(&question), "the oldest"]);
    assert_eq!(answered.status.code(), Some(0), "{}", text(&answered.stderr));
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(text(&output.stdout), "Skerryvore it is.\n", "{}", text(&output.stderr));
    let late = conclave(&rig, &["answer", &id(&question), "another"]);
    assert_eq!(late.status.code(), Some(2), "{}", text(&late.stderr));
}

#[test]
fn an_answer_reaches_an_interrupted_run_when_it_is_resumed_and_the_first_one_counts() {
    let (rig, _server) = asking();
    let child = start(&rig, &["run", "c.toml", "go", "--questions", "wait"]);
    let question = question(&rig);
    rig.kill(child);
    let id = id(&question);
    let answer = |more: &[&str]| conclave(&rig, &[&["answer", &id], more].concat()).status.code();
    assert_eq!(answer(&["the oldest"]), Some(0));
    assert_eq!(answer(&["the newest"]), Some(2), "another answer is on its way");
    assert_eq!(answer(&["the newest", "--instead"]), Some(0));
    // It waits again: that is how it was started.
    let output = conclave(&rig, &["resume"]);
    assert_eq!(text(&output.stdout), "Skerryvore it is.\n", "{}", text(&output.stderr));
    let shown = text(&conclave(&rig, &["show"]).stdout);
    assert!(shown.contains("the newest") && !shown.contains("the oldest"), "{shown}");
}

#[test]
fn a_resumed_run_asks_as_it_did_when_it_was_started() {
    let (rig, _server) = asking();
    let child = start(&rig, &["run", "c.toml", "go", "--questions", "wait"]);
    let id = id(&question(&rig));
    rig.kill(child);
    let child = start(&rig, &["resume"]);
    // Without a terminal it would have ended, with nobody to ask.
    until("it runs again", || (question(&rig)["run_state"] == "running").then_some(()));
    let answered = conclave(&rig, &["answer", &id, "the oldest"]);
    assert_eq!(answered.status.code(), Some(0), "{}", text(&answered.stderr));
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(text(&output.stdout), "Skerryvore it is.\n", "{}", text(&output.stderr));
}

#[test]
fn an_approval_is_no_question_and_an_unknown_id_is_an_error() {
    let (rig, _server) = asking();
    let child = start(&rig, &["run", "c.toml", "go", "--questions", "wait"]);
    let id = id(&question(&rig));
    let approved = conclave(&rig, &["approve", &id, "--yes"]);
    assert_eq!(approved.status.code(), Some(2), "{}", text(&approved.stderr));
    assert_eq!(text(&conclave(&rig, &["approvals", "--json"]).stdout), "");
    let room = id.rsplit_once(':').expect("a room").0;
    let unknown = conclave(&rig, &["answer", &format!("{room}:c99"), "x"]);
    let stderr = text(&unknown.stderr);
    assert!(unknown.status.code() == Some(2) && stderr.contains(&id), "{stderr}");
    rig.kill(child);
}

#[test]
fn what_was_approved_is_what_runs_and_who_comes_second_learns_who_decided() {
    let rig = resume_cli::asking();
    let child = start(&rig, &["run", "c.toml", "go", "--approvals", "wait"]);
    let id = waiting(&rig);
    let listed = text(&conclave(&rig, &["approvals", "--json"]).stdout);
    let line: Value = serde_json::from_str(listed.lines().next().expect("a line")).expect("JSON");
    assert_eq!(line["may_answer"], json!(["approver", "admin"]), "{line}");
    assert_eq!(line["chain"].as_array().map(Vec::len), Some(1), "{line}");
    assert_eq!(line["arguments_sha256"].as_str().map(str::len), Some(64), "{line}");

    // A decision that was made about an older list: other arguments under the same id.
    let (room, call) = parse_approval_id(&id).expect("an id");
    let store = rig.store(&rig.folder().join("state"));
    let reader = StoreReader::open(store).expect("the store of the run");
    let command = ControlCommand::Decide {
        call,
        approval: Approval::Approved,
        arguments_sha256: Some("00".repeat(32)),
    };
    let room = line["room"].as_str().map_or(RoomId::from(room), RoomId::from);
    reader.mail().send(&ControlMessage::new(room, command)).expect("it is sent");
    until("it is received", || reader.mail().pending().expect("read").is_empty().then_some(()));
    assert_eq!(waiting(&rig), id, "the call waits for a decision about its own arguments");

    let approved = conclave(&rig, &["approve", &id, "--yes"]);
    assert_eq!(approved.status.code(), Some(0), "{}", text(&approved.stderr));
    let ended = child.wait_with_output().expect("it ends");
    let stderr = text(&ended.stderr);
    assert_eq!(text(&ended.stdout), "it ran\n", "{stderr}");
    assert!(stderr.contains("rejected a decision about"), "{stderr}");

    for late in [vec!["approve", &id, "--yes", "--json"], vec!["refuse", &id, "--json"]] {
        let output = conclave(&rig, &late);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("it was already approved by a person at another terminal"), "{said}");
        assert!(said.contains("\"code\":\"already_decided\""), "{said}");
    }
}
