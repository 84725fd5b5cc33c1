//! Restarts: nothing is lost and nothing is said twice, after a kill in the middle of a turn and
//! after Ctrl-C.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conclave_models::test_server::{Server, TestReply};
use conclave_test_support::Rig;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::client::Served;
use super::{chatting, echo};

/// Returns the kinds and texts of entries.
fn said(entries: &[Value]) -> Vec<(&str, &str)> {
    entries
        .iter()
        .map(|entry| {
            (entry["kind"].as_str().unwrap_or_default(), entry["text"].as_str().unwrap_or_default())
        })
        .collect()
}

#[test]
fn after_a_kill_the_page_shows_the_same_and_a_repeated_message_has_no_effect() {
    let rig = echo(super::WEB);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    served.send(&room, "a", "one");
    let mut events = served.events(&room, None);
    events.entry();
    let answer = loop {
        let event = events.next();
        if event.kind == "entry" {
            break event;
        }
    };
    let before = served.entries(&room);
    assert_eq!(said(&before), [("user", "one"), ("answer", "one")]);
    // A page that connects again gets what follows the last event that it has.
    served.send(&room, "b", "two");
    let mut again = served.events(&room, answer.id.as_deref());
    assert_eq!(again.entry()["text"], "two");
    let served = served.killed().start_again(&rig);
    assert_eq!(served.only_room(), room);
    // A page of the process before begins anew, and shows each entry once.
    let mut stale = served.events(&room, answer.id.as_deref());
    assert_eq!(stale.next().kind, "reset");
    assert_eq!(stale.entry(), before[0]);
    // The client that got no reply sends its message again.
    let repeated = served.send(&room, "b", "two");
    assert_eq!(repeated.body, json!({ "index": 1, "duplicate": true }));
    let other = served.send(&room, "b", "another text");
    assert_eq!((other.status, &other.body["error"]), (409, &json!("key_reused")));
    assert_eq!(served.send(&room, "c", "three").body, json!({ "index": 2, "duplicate": false }));
    let mut events = served.events(&room, None);
    events.entry_so(|entry| entry["kind"] == "answer" && entry["text"] == "three");
    let all = served.entries(&room);
    let expected = [
        ("user", "one"),
        ("answer", "one"),
        ("user", "two"),
        ("answer", "two"),
        ("user", "three"),
        ("answer", "three"),
    ];
    assert_eq!(said(&all), expected);
    assert_eq!(all[..2], before[..], "the times too");
    assert_eq!(resumptions(&rig, &room), [false], "only an upper bound of the time is known");
}

/// Returns, for each resumption of a conversation, whether its downtime is exact.
fn resumptions(rig: &Rig, room: &str) -> Vec<bool> {
    let shown = crate::cli::conclave(rig, &["show", room, "--json"]);
    let resumed = |row: &Value| {
        (row["type"] == "resumed").then(|| row["is_exact"].as_bool().expect("a flag"))
    };
    let timeline: Value = serde_json::from_slice(&shown.stdout).expect("a timeline");
    timeline["rows"].as_array().into_iter().flatten().filter_map(resumed).collect()
}

/// A model server that is silent until it is released.
fn silent() -> (Server, Arc<AtomicBool>) {
    let is_released = Arc::new(AtomicBool::new(false));
    let released = Arc::clone(&is_released);
    let server = Server::answering(move |_| match released.load(Ordering::SeqCst) {
        true => TestReply::says("It was lit in 1844."),
        false => TestReply::silence(),
    });
    (server, is_released)
}

#[test]
fn a_turn_that_was_under_way_at_a_kill_is_answered_once_after_it() {
    let (server, is_released) = silent();
    let rig = chatting(&server.url());
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    served.send(&room, "a", "When?");
    server.wait_for_requests(1);
    served.events(&room, None).status(|status| status["is_working"] == true);
    let killed = served.killed();
    is_released.store(true, Ordering::SeqCst);
    let served = killed.start_again(&rig);
    let mut events = served.events(&room, None);
    events.entry_so(|entry| entry["kind"] == "answer");
    assert_eq!(
        said(&served.entries(&room)),
        [("user", "When?"), ("answer", "It was lit in 1844.")]
    );
}

#[cfg(unix)]
#[test]
fn ctrl_c_closes_the_server_and_not_its_conversations() {
    let (server, is_released) = silent();
    let rig = chatting(&server.url());
    let served = Served::start(&rig, &["--room", "lights"]);
    assert_eq!(served.only_room(), "lights");
    served.send("lights", "a", "When?");
    server.wait_for_requests(1);
    let process = Pid::from_raw(i32::try_from(served.process()).expect("it fits"));
    kill_process(process.expect("a process"), Signal::INT).expect("it is there");
    let ended = served.ended();
    is_released.store(true, Ordering::SeqCst);
    let served = ended.start_again(&rig);
    served.events("lights", None).entry_so(|entry| entry["kind"] == "answer");
    assert_eq!(served.entries("lights").len(), 2);
    let log = std::fs::read_to_string(rig.folder().join("serve.log")).expect("it was written");
    assert!(
        log.contains("closed; the conversations continue with: conclave serve c.toml"),
        "{log}"
    );
    assert!(log.contains("1 conversation resumed"), "{log}");
}

#[cfg(unix)]
#[test]
fn after_ctrl_c_a_conversation_is_closed_and_not_interrupted() {
    let rig = echo(super::WEB);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    served.send(&room, "a", "When?");
    served.events(&room, None).entry_so(|entry| entry["kind"] == "answer");
    let process = Pid::from_raw(i32::try_from(served.process()).expect("it fits"));
    kill_process(process.expect("a process"), Signal::INT).expect("it is there");
    let ended = served.ended();
    let of = |arguments: &[&str]| crate::cli::conclave(&rig, arguments);
    let listed = of(&["runs", "--status", "closed", "--json"]);
    let row: Value = serde_json::from_slice(&listed.stdout).expect("one run");
    assert_eq!(
        (&row["run"], &row["state"], &row["message"]),
        (&json!(room), &json!("closed"), &json!("When?"))
    );
    let table = crate::cli::text(&of(&["runs"]).stdout);
    assert!(table.contains("closed") && !table.contains("resume"), "{table}");
    let resumed = crate::cli::text(&of(&["resume"]).stderr);
    assert_eq!(resumed, "no run was interrupted\n");
    // The process noted when it stopped, so the time without a host is exact.
    let served = ended.start_again(&rig);
    served.send(&room, "b", "And then?");
    served.events(&room, None).entry_so(|entry| entry["text"] == "And then?");
    assert_eq!(resumptions(&rig, &room), [true]);
}

#[test]
fn a_turn_can_be_stopped_from_the_page_and_the_conversation_goes_on() {
    let (server, is_released) = silent();
    let rig = chatting(&server.url());
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    served.send(&room, "a", "When?");
    server.wait_for_requests(1);
    let mut events = served.events(&room, None);
    events.status(|status| status["is_working"] == true);
    assert_eq!(served.post(&format!("/api/conversations/{room}/stop"), &json!({})).status, 202);
    let note = events.entry_so(|entry| entry["kind"] == "note");
    assert_eq!(note["text"], "The turn was stopped: its user pressed Stop.");
    events.status(|status| status["is_working"] == false);
    is_released.store(true, Ordering::SeqCst);
    served.send(&room, "b", "And now?");
    let answer = events.entry_so(|entry| entry["kind"] == "answer");
    assert_eq!(answer["text"], "It was lit in 1844.");
}

#[test]
fn sigterm_ends_streams_with_a_hint_and_leaves_conversations_that_go_on() {
    let rig = echo(super::WEB);
    let socket = rig.folder().join("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    let mut buffer = [0; 64];
    let mut message = || {
        let length = manager.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let variables = [("NOTIFY_SOCKET", socket.to_string_lossy().into_owned())];
    let served = Served::start_with_variables(&rig, &variables);
    assert_eq!(message(), "READY=1");
    let room = served.only_room();
    served.send(&room, "a", "one");
    let mut events = served.events(&room, None);
    events.entry_so(|entry| entry["kind"] == "answer");
    let records = served.stream(&format!("/api/v1/runs/{room}/events"), None);
    // A request whose body has not arrived yet is answered.
    let slow = served.begin_message(&room, "b", "two");
    let process = Pid::from_raw(i32::try_from(served.process()).expect("an id")).expect("an id");
    kill_process(process, Signal::TERM).expect("it lives");
    assert_eq!(message(), "STOPPING=1");
    for stream in [events, records] {
        assert!(stream.rest().contains("retry: "), "a reader comes back");
    }
    assert_eq!(slow.finish().status, 200);
    let killed = served.ended_with(0);
    let served = killed.start_again(&rig);
    served.send(&room, "c", "three");
    let texts: Vec<_> = served.entries(&room).iter().map(|entry| entry["text"].clone()).collect();
    assert!(texts.contains(&json!("two")) && texts.contains(&json!("three")), "{texts:?}");
}
