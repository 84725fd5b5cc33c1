//! Webhooks that come in: who may send one, what a replay does, and what is refused.

use conclave_runtime::clock::{Clock as _, SystemClock};
use conclave_runtime::webhook::WebhookSecret;
use conclave_test_support::{Rig, until};
use serde_json::{Value, json};

use super::client::{Response, Served};
use super::{WEB, echo};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// A config with two webhooks that only send, and one more line for the first.
pub(super) fn rig(line: &str) -> Rig {
    let hook = |name: &str, line: &str| {
        format!(
            "[channels.{name}]\nkind = \"webhook\"\naccess = \"write-only\"\n\
             secret = {{ file = \"{name}.secret\" }}\n{line}\n"
        )
    };
    echo(&format!("{WEB}{}{}", hook("ops", line), hook("other", "")))
        .with_file("ops.secret", SECRET)
        .with_file("other.secret", OTHER)
}

/// A request that a test may spoil.
#[derive(Clone)]
struct Hook {
    path: String,
    id: String,
    time: u64,
    body: String,
    secret: &'static str,
}

impl Hook {
    fn new(id: &str, text: &str) -> Self {
        let time = SystemClock.now().0 / 1000;
        let body = json!({ "type": "message", "data": { "text": text } }).to_string();
        Self { path: "/hooks/ops".to_owned(), id: id.to_owned(), time, body, secret: SECRET }
    }

    fn signature(&self) -> String {
        let secret = WebhookSecret::parse(self.secret).unwrap_or_else(|what| panic!("{what}"));
        secret.sign(&self.id, self.time, self.body.as_bytes())
    }

    fn send(&self, served: &Served) -> Response {
        self.send_with(served, self.signature())
    }

    /// As any program sends it: without a cookie and an origin.
    fn send_with(&self, served: &Served, signature: String) -> Response {
        let headers = [
            ("Host", served.address().to_owned()),
            ("webhook-id", self.id.clone()),
            ("webhook-timestamp", self.time.to_string()),
            ("webhook-signature", signature),
        ];
        served.request("POST", &self.path, &headers, &self.body)
    }
}

/// Sends a signed message to the first hook.
pub(super) fn send(served: &Served, id: &str, text: &str) -> Response {
    Hook::new(id, text).send(served)
}

fn code(response: &Response) -> (u16, Value) {
    (response.status, response.body["code"].clone())
}

#[test]
fn a_signed_message_has_its_effect_once_also_after_a_restart() {
    let rig = rig("sender = \"the pager\"");
    let served = Served::start(&rig, &[]);
    let hook = Hook::new("msg_1", "The lamp is out.");
    let first = hook.send(&served);
    assert_eq!(first.status, 202, "{}", first.text);
    assert_eq!(first.body["duplicate"], false);
    let room = first.body["room"].as_str().expect("a room").to_owned();
    assert_ne!(room, served.only_room(), "it has a conversation of its own, which no user sees");
    let again = hook.send(&served);
    assert_eq!((again.status, &again.body["duplicate"]), (202, &json!(true)), "{}", again.text);
    let served = served.killed().start_again(&rig);
    let again = hook.send(&served);
    let expected = json!({ "room": room, "index": 0, "duplicate": true });
    assert_eq!((again.status, &again.body), (202, &expected), "{}", again.text);
    let next = Hook::new("msg_2", "Still out.").send(&served);
    assert_eq!(next.body, json!({ "room": room, "index": 1, "duplicate": false }));
    let told = until("both are in the journal", || {
        let shown = rig.conclave(&["show", &room, "--json"]).output().expect("it runs");
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        Some(shown).filter(|shown| shown.contains("Still out."))
    });
    assert!(told.contains("the pager"), "{told}");
}

#[test]
fn what_is_not_signed_by_the_sender_now_has_no_effect() {
    // Its folder has the secrets, which are read with the first request.
    let rig = rig("");
    let served = Served::start(&rig, &[]);
    let valid = Hook::new("msg_1", "The lamp is out.");
    let unsigned = (401, json!("wrong_signature"));
    let spoilt = |change: &dyn Fn(&mut Hook)| {
        let mut hook = valid.clone();
        let signature = hook.signature();
        change(&mut hook);
        code(&hook.send_with(&served, signature))
    };
    assert_eq!(spoilt(&|hook| hook.body.push(' ')), unsigned, "another body");
    assert_eq!(spoilt(&|hook| hook.id.push('0')), unsigned, "another id");
    assert_eq!(spoilt(&|hook| hook.time += 1), unsigned, "another time");
    assert_eq!(spoilt(&|hook| hook.path = "/hooks/other".to_owned()), unsigned, "another channel");
    assert_eq!(spoilt(&|hook| hook.path = "/hooks/web".to_owned()), unsigned, "no webhook");
    assert_eq!(spoilt(&|hook| hook.path = "/hooks/nobody".to_owned()), unsigned, "no channel");
    assert_eq!(code(&Hook { secret: OTHER, ..valid.clone() }.send(&served)), unsigned);
    assert_eq!(code(&valid.send_with(&served, String::new())), unsigned);
    for time in [valid.time - 400, valid.time + 400, 0] {
        let late = Hook { time, ..valid.clone() };
        assert_eq!(code(&late.send(&served)), (401, json!("wrong_time")));
    }
    let sent = json!({ "data": { "text": "x", "channel": "ops", "room": "r" } }).to_string();
    let sent = Hook { body: sent, ..valid.clone() };
    assert_eq!(code(&sent.send(&served)), (400, json!("bad_arguments")), "as the host sends it");
    let other = Hook { body: "{\"text\":\"x\"}".to_owned(), ..valid.clone() };
    assert_eq!(code(&other.send(&served)), (400, json!("bad_arguments")));
    let foreign = json!({ "data": { "text": "x", "room": served.only_room() } }).to_string();
    let foreign = Hook { body: foreign, ..valid.clone() };
    assert_eq!(
        code(&foreign.send(&served)),
        (404, json!("room_not_found")),
        "it cannot read there"
    );
    let giant = Hook { body: format!("{}{}", valid.body, " ".repeat(300 << 10)), ..valid.clone() };
    assert_eq!(giant.send(&served).status, 413);
    assert_eq!(valid.send(&served).status, 202, "nothing of it took the id");
}

#[test]
fn access_and_rate_apply_and_many_at_once_begin_one_conversation() {
    let slow = rig("rate = 1");
    let served = Served::start(&slow, &[]);
    assert_eq!(Hook::new("msg_1", "one").send(&served).status, 202);
    assert_eq!(code(&Hook::new("msg_2", "two").send(&served)), (429, json!("rate_limited")));
    let fast = rig("rate = 16");
    let served = Served::start(&fast, &[]);
    let rooms: Vec<Value> = std::thread::scope(|scope| {
        let send = |number: usize| {
            let served = &served;
            scope.spawn(move || Hook::new(&format!("msg_{number}"), "hello").send(served))
        };
        let sent: Vec<_> = (0..12).map(send).collect();
        sent.into_iter().map(|sent| sent.join().expect("it answers").body["room"].clone()).collect()
    });
    assert!(rooms.iter().all(|room| *room == rooms[0] && room.is_string()), "{rooms:?}");
    let text = "kind = \"webhook\"\naccess = \"read-only\"\nurl = \"http://127.0.0.1:1/\"";
    let lines = format!("{WEB}[channels.ops]\n{text}\nsecret = {{ file = \"ops.secret\" }}\n");
    let rig = echo(&lines).with_file("ops.secret", SECRET);
    let served = Served::start(&rig, &[]);
    assert_eq!(code(&Hook::new("msg_1", "one").send(&served)), (403, json!("no_access")));
}
