//! Channels of plugins: Slack's protocol against a fake Slack, with faults of the network, and a
//! plugin that is hostile.

use conclave_models::test_server::{SeenRequest, Server, TestReply};
use conclave_runtime::clock::{Clock as _, SystemClock};
use conclave_test_support::{Rig, guest, until};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use super::client::{Response, Served};
use super::{WEB, echo};

const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";

/// A config with Slack at this address, and more lines for its channel.
fn slack(api: &str, lines: &str) -> Rig {
    let config = format!(
        "{WEB}[channels.slack]\nkind = \"plugin\"\nplugin = \"slack\"\n\
         senders = [\"U1\"]\nsecret = {{ file = \"signing.secret\" }}\n{lines}\n\
         [secrets.bot]\nfrom = {{ file = \"bot.secret\" }}\nhosts = [\"127.0.0.1\"]\n\
         [plugins.slack]\nsource = \"{}\"\nconfig = {{ api = \"{api}\", token = \"bot\" }}\n\
         grants.secrets = [\"bot\"]\n\
         grants.fetch = {{ urls = [\"{api}/*\"], methods = [\"POST\"], private = [\"127.0.0.1\"] }}\n",
        guest("slack").display()
    );
    let secrets = echo(&config).with_file("signing.secret", SECRET);
    secrets.with_file("bot.secret", "xoxb-1234-not-shown")
}

fn signature(secret: &str, time: u64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any length");
    mac.update(format!("v0:{time}:{body}").as_bytes());
    let tag = mac.finalize().into_bytes();
    tag.iter().fold("v0=".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// Sends an event as Slack does.
fn event(served: &Served, secret: &str, body: &Value) -> Response {
    let (time, body) = (SystemClock.now().0 / 1000, body.to_string());
    let headers = [
        ("Host", served.address().to_owned()),
        ("X-Slack-Request-Timestamp", time.to_string()),
        ("X-Slack-Signature", signature(secret, time, &body)),
    ];
    served.request("POST", "/hooks/slack", &headers, &body)
}

fn said(id: &str, user: &str, channel: &str, text: &str) -> Value {
    let event = json!({ "type": "message", "user": user, "channel": channel, "text": text });
    json!({ "type": "event_callback", "event_id": id, "event": event })
}

fn posted() -> TestReply {
    TestReply::json(200, &json!({ "ok": true, "ts": "1482960137.003543" }))
}

/// What was posted, as `channel: text`.
fn texts(api: &Server) -> Vec<String> {
    let text = |request: &SeenRequest| {
        let body = request.json();
        format!("{}: {}", body["channel"].as_str().unwrap_or_default(), body["text"])
    };
    api.requests().iter().map(text).collect()
}

/// What `conclave show` says of a room, once it has this text.
fn shown(rig: &Rig, room: &str, text: &str) -> String {
    until(text, || {
        let shown = rig.conclave(&["show", room, "--json"]).output().expect("it runs");
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        Some(shown).filter(|shown| shown.contains(text))
    })
}

#[test]
fn a_conversation_in_slack_is_answered_there_once_also_after_a_restart() {
    let api = Server::start(vec![posted()]);
    let rig = slack(&api.url(), "");
    let served = Served::start(&rig, &[]);
    let challenge = json!({ "type": "url_verification", "challenge": "3eZbrw1a" });
    let verified = event(&served, SECRET, &challenge);
    assert_eq!((verified.status, verified.text.as_str()), (200, "3eZbrw1a"));
    let hello = said("Ev1", "U1", "C1", "hello");
    let first = event(&served, SECRET, &hello);
    let row = first.body["messages"][0].clone();
    assert_eq!((first.status, &row["duplicate"]), (200, &json!(false)), "{}", first.text);
    let room = row["room"].as_str().expect("a room").to_owned();
    api.wait_for_requests(1);
    assert_eq!(texts(&api), ["C1: \"hello\""], "the answer goes where the question came from");
    assert_eq!(api.requests()[0].headers["authorization"], "Bearer xoxb-1234-not-shown");
    // The service repeats what it thinks was lost.
    let served = served.killed().start_again(&rig);
    let again = event(&served, SECRET, &hello);
    assert_eq!(again.body["messages"][0]["duplicate"], true, "{}", again.text);
    let other = event(&served, SECRET, &said("Ev2", "U1", "C2", "and here"));
    assert_ne!(other.body["messages"][0]["room"], row["room"], "another conversation");
    api.wait_for_requests(2);
    assert_eq!(texts(&api)[1], "C2: \"and here\"");
    let told = shown(&rig, &room, "channel:slack/U1");
    assert!(!told.contains("xoxb-1234") && !told.contains(SECRET), "{told}");
}

#[test]
fn only_signed_events_of_listed_people_count() {
    let api = Server::start(vec![posted()]);
    let rig = slack(&api.url(), "");
    let served = Served::start(&rig, &[]);
    let hello = said("Ev1", "U1", "C1", "hello");
    let forged = event(&served, "another secret, as long as it", &hello);
    assert_eq!((forged.status, &forged.body["code"]), (401, &json!("wrong_signature")));
    let stranger = event(&served, SECRET, &said("Ev2", "U2", "C1", "let me in"));
    assert_eq!((stranger.status, &stranger.body), (200, &json!({ "messages": [] })));
    let list = served.get("/api/conversations").body;
    assert!(!list.to_string().contains("C1"), "nothing began: {list}");
}

#[test]
fn a_busy_slack_gets_the_message_again_and_a_lost_one_is_not_repeated() {
    let busy = || TestReply::bytes(429, "text/plain", "slow down").header("retry-after", "1");
    let api = Server::start(vec![busy(), posted(), TestReply::hang_up(), posted()]);
    let rig = slack(&api.url(), "");
    let served = Served::start(&rig, &[]);
    event(&served, SECRET, &said("Ev1", "U1", "C1", "first"));
    api.wait_for_requests(2);
    let keys: Vec<_> =
        api.requests().iter().map(|it| it.headers["idempotency-key"].clone()).collect();
    assert!(keys[0] == keys[1] && keys[0].starts_with("msg_"), "{keys:?}");
    let second = event(&served, SECRET, &said("Ev2", "U1", "C1", "second"));
    let room = second.body["messages"][0]["room"].as_str().expect("a room").to_owned();
    api.wait_for_requests(3);
    let told = shown(&rig, &room, "unknown:");
    assert!(told.contains("was not told"), "{told}");
    event(&served, SECRET, &said("Ev3", "U1", "C1", "third"));
    api.wait_for_requests(4);
    let texts = texts(&api);
    assert_eq!(texts[2..], ["C1: \"second\"", "C1: \"third\""], "the lost one is not repeated");
}

/// A config with the hostile channel.
fn hostile(settings: &str, lines: &str) -> Rig {
    let config = format!(
        "{WEB}[channels.hostile]\nkind = \"plugin\"\nplugin = \"hostile\"\n\
         senders = [\"*\"]\nsecret = {{ file = \"channel.secret\" }}\n\
         [plugins.hostile]\nsource = \"{}\"\nconfig = {{ {settings} }}\n{lines}\n",
        guest("hostile_channel").display()
    );
    echo(&config).with_file("channel.secret", SECRET)
}

fn post(served: &Served, id: &str, token: &str, body: &str) -> Response {
    let headers = [("Host", served.address().to_owned()), ("X-Token", token.to_owned())];
    served.request("POST", &format!("/hooks/hostile?{id}"), &headers, body)
}

#[test]
fn a_hostile_plugin_brings_no_message_that_was_not_verified_or_has_another_form() {
    let refused = (401, json!("wrong_signature"));
    let failed = (503, json!("failed"));
    for (mode, token, expected) in [
        ("read", "a guess", &refused),
        ("forge", "a guess", &refused),
        ("fetch", SECRET, &failed),
        ("keep", SECRET, &failed),
        ("long", SECRET, &failed),
        ("many", SECRET, &failed),
        ("name", SECRET, &failed),
        ("spin", SECRET, &failed),
        ("trap", SECRET, &failed),
    ] {
        let grants =
            "grants.kv = true\ngrants.fetch = [\"https://a.example/*\"]\nlimits.cpu = \"100 ms\"";
        let rig = hostile(&format!("receive = \"{mode}\""), grants);
        let served = Served::start(&rig, &[]);
        let response = post(&served, "m1", token, "U1 hello");
        assert_eq!(&(response.status, response.body["code"].clone()), expected, "{mode}");
        assert!(!response.text.contains("a.example"), "only the operator reads why: {mode}");
    }
    let rig = hostile("receive = \"answer\"", "");
    let answer = post(&Served::start(&rig, &[]), "m1", SECRET, "");
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn nobody_speaks_as_a_person_of_the_host_through_a_channel() {
    let rig = hostile("", "");
    let served = Served::start(&rig, &[]);
    for (id, sender) in [("m1", "operator"), ("m2", "user"), ("m3", "channel:hostile/U1")] {
        let response = post(&served, id, SECRET, &format!("{sender} hello from {id}"));
        let room = response.body["messages"][0]["room"].as_str().expect("a room").to_owned();
        let told = shown(&rig, &room, &format!("hello from {id}"));
        assert!(told.contains(&format!("channel:hostile/{sender}")), "{told}");
        let persons = served.get("/api/conversations").body;
        let persons = persons["conversations"].as_array().cloned().unwrap_or_default();
        let of_persons = persons.iter().filter(|row| row["owner"] == "operator");
        assert!(of_persons.into_iter().all(|row| row["id"] != room.as_str()), "{persons:?}");
    }
}

#[test]
fn a_plugin_that_cannot_send_ends_its_message_and_not_the_room() {
    for (mode, says) in [
        ("fail", "the channel fails"),
        ("spin", "cpu"),
        ("trap", "the channel panics"),
        ("fetch", "fetch"),
    ] {
        let rig = hostile(&format!("send = \"{mode}\""), "limits.cpu = \"100 ms\"");
        let served = Served::start(&rig, &[]);
        let first = post(&served, "m1", SECRET, "U1 hello");
        let room = first.body["messages"][0]["room"].as_str().expect("a room").to_owned();
        let told = shown(&rig, &room, "was not told");
        assert!(told.contains(says), "{mode}: {told}");
        assert!(!told.contains("unknown:"), "nothing was sent: {mode}: {told}");
        let next = post(&served, "m2", SECRET, "U1 again");
        assert_eq!(next.body["messages"][0]["index"], 1, "{}", next.text);
    }
}
