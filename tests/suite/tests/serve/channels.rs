//! The settings of the served channel: access, visibility, mute, rate, and the gates.

use conclave_test_support::{Rig, stepping, until};
use serde_json::{Value, json};

use super::client::Served;
use super::echo;

/// Returns the entries once there are `count`, and their texts.
fn texts(served: &Served, room: &str, count: usize) -> Vec<String> {
    let entries = until("the entries", || {
        Some(served.entries(room)).filter(|entries| entries.len() >= count)
    });
    entries.iter().map(|entry| entry["text"].as_str().unwrap_or_default().to_owned()).collect()
}

fn refused(served: &Served, room: &str, key: &str, text: &str) -> (u16, Value) {
    let response = served.send(room, key, text);
    (response.status, response.body["error"].clone())
}

#[test]
fn a_read_only_channel_sends_nothing() {
    let rig = echo("[channels.web]\nkind = \"web\"\naccess = \"read-only\"\n");
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    assert_eq!(refused(&served, &room, "a", "hello"), (403, json!("no_access")));
    // Once the room is open: a message is refused before.
    let status = served.events(&room, None).status(|status| status["can_receive"] == true);
    assert_eq!(status["can_send"], false);
    assert_eq!(served.entries(&room), Vec::<Value>::new());
}

#[test]
fn a_muted_channel_and_one_that_only_sends_read_no_answer() {
    for line in ["muted = true", "access = \"write-only\""] {
        let rig = echo(&format!("[channels.web]\nkind = \"web\"\n{line}\n"));
        let served = Served::start(&rig, &[]);
        let room = served.only_room();
        assert_eq!(served.send(&room, "a", "hello").status, 200);
        assert_eq!(served.send(&room, "b", "again").status, 200);
        // Each message is accepted after the one before began its turn.
        assert_eq!(texts(&served, &room, 2), ["hello", "again"], "{line}");
        let status = served.events(&room, None).status(|_| true);
        assert_eq!((&status["can_send"], &status["can_receive"]), (&json!(true), &json!(false)));
    }
}

#[test]
fn only_those_who_see_the_channel_answer_its_messages() {
    for (visibility, answers) in [("\"people\"", false), ("\"agents\"", true), ("[\"main\"]", true)]
    {
        let rig = echo(&format!("[channels.web]\nkind = \"web\"\nvisibility = {visibility}\n"));
        let served = Served::start(&rig, &[]);
        let room = served.only_room();
        assert_eq!(served.send(&room, "a", "hello").status, 200);
        if answers {
            assert_eq!(texts(&served, &room, 2), ["hello", "hello"], "{visibility}");
        } else {
            // The reply comes after the message took its effect, so no answer is on its way.
            let mut events = served.events(&room, None);
            assert_eq!(events.entry()["kind"], "user");
            let status = events.status(|_| true);
            assert_eq!(status["is_working"], false, "nobody reads it");
            assert_eq!(served.entries(&room).len(), 1);
        }
    }
}

#[test]
fn a_flood_is_refused_by_the_rate_of_the_channel() {
    let rig = echo("[channels.web]\nkind = \"web\"\nrate = 1\n");
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    // However slow the machine is, some of many messages come within the same second.
    let mut refusal = None;
    for number in 0..1_000 {
        let response = served.send(&room, &number.to_string(), "hello");
        if response.status != 200 {
            refusal = Some(response);
            break;
        }
    }
    let refusal = refusal.expect("one of a thousand is too many");
    assert_eq!((refusal.status, &refusal.body["error"]), (429, &json!("rate_limited")));
    assert!(refusal.body["message"].as_str().is_some_and(|text| text.len() > 10));
}

/// Returns a server whose messages pass `stock:moderation`.
fn moderated(point: &str) -> Rig {
    let config = format!(
        "{}[plugins.moderation]\nsource = \"stock:moderation\"\n\
         config = {{ rules = [{{ pattern = \"\\\\d{{4}}\", replace = \"…\" }}, {{ pattern = \"secret\", reason = \"no secrets\" }}] }}\n\
         [[gates]]\non = \"{point}\"\nplugin = \"moderation\"\n{}",
        stepping("agent_echo", "", ""),
        super::WEB
    );
    Rig::new().with_file("c.toml", config)
}

#[test]
fn inbound_gates_change_and_block_messages_before_an_agent_reads_them() {
    let rig = moderated("inbound");
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let blocked = served.send(&room, "a", "a secret");
    assert_eq!((blocked.status, &blocked.body["error"]), (403, &json!("blocked")));
    assert!(blocked.body["message"].as_str().is_some_and(|text| text.contains("no secrets")));
    assert_eq!(served.send(&room, "b", "call 1234").status, 200);
    assert_eq!(texts(&served, &room, 2), ["call …", "call …"]);
}

#[test]
fn outbound_gates_change_what_the_page_shows() {
    let rig = moderated("outbound");
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    assert_eq!(served.send(&room, "a", "call 1234").status, 200);
    assert_eq!(texts(&served, &room, 2), ["call 1234", "call …"]);
    assert_eq!(served.send(&room, "b", "a secret").status, 200);
    let all = texts(&served, &room, 4);
    assert!(all[3].contains("There is no answer") && !all[3].contains("a secret"), "{all:?}");
}

#[test]
fn an_empty_message_and_one_without_a_key_are_refused() {
    let rig = echo(super::WEB);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    assert_eq!(refused(&served, &room, "a", " "), (400, json!("bad_arguments")));
    assert_eq!(refused(&served, &room, "", "hello"), (400, json!("bad_arguments")));
    let path = format!("/api/conversations/{room}/messages");
    let without = served.post(&path, &json!({ "text": "hello" }));
    assert_eq!((without.status, &without.body["error"]), (422, &json!("bad_arguments")));
    assert_eq!(served.send("nobody", "a", "hello").status, 404);
}
