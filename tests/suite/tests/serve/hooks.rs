//! Webhooks that come in: who may send one, what a replay does, and what is refused.

use conclave_runtime::clock::{Clock as _, SystemClock};
use conclave_runtime::webhook::WebhookSecret;
use conclave_test_support::{Rig, until};
use serde_json::{Value, json};

use super::acting::Client;
use super::client::{Response, Served};
use super::people::token;
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
pub(super) struct Hook {
    path: String,
    id: String,
    time: u64,
    body: String,
    secret: &'static str,
}

impl Hook {
    pub(super) fn new(id: &str, text: &str) -> Self {
        let time = SystemClock.now().0 / 1000;
        let body = json!({ "type": "message", "data": { "text": text } }).to_string();
        Self { path: "/hooks/ops".to_owned(), id: id.to_owned(), time, body, secret: SECRET }
    }

    fn signature(&self) -> String {
        let secret = WebhookSecret::parse(self.secret).unwrap_or_else(|what| panic!("{what}"));
        secret.sign(&self.id, self.time, self.body.as_bytes())
    }

    pub(super) fn send(&self, served: &Served) -> Response {
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

#[test]
fn of_several_configs_the_one_is_meant_whose_secret_signed() {
    let plain = rig("");
    let config = std::fs::read_to_string(plain.folder().join("c.toml")).expect("it is there");
    let shared = config.replace("other.secret", "ops.secret");
    let of_b = config.replace("ops.secret", "b.secret");
    let rig = Rig::new()
        .with_file("a.toml", shared)
        .with_file("b.toml", of_b)
        .with_file("ops.secret", SECRET)
        .with_file("other.secret", OTHER)
        .with_file("b.secret", OTHER);
    let vera = token(&rig, "vera", "viewer");
    let served = Served::start_configs(&rig, &["a.toml", "b.toml"], &[]);
    let client = Client { served: &served, token: &vera };
    let room_of = |hook: &Hook| {
        let accepted = hook.send(&served);
        assert_eq!(accepted.status, 202, "{}", accepted.text);
        accepted.body["room"].as_str().expect("a room").to_owned()
    };
    let (of_a, of_b) = (Hook::new("msg_1", "for a"), Hook::new("msg_1", "for b"));
    let of_b = Hook { secret: OTHER, ..of_b };
    let rooms = [room_of(&of_a), room_of(&of_b)];
    let config_of = |room: &str| client.get(&format!("/runs/{room}"))["config"].clone();
    assert_eq!(rooms.each_ref().map(|room| config_of(room)), [json!("a"), json!("b")]);
    // What is not signed says nothing, also in the words of the older address.
    let at = |hook: &Hook, query: &str| {
        let path = format!("/hooks/ops?{query}");
        code(&Hook { path, ..hook.clone() }.send(&served))
    };
    assert_eq!(at(&of_b, "config=b"), (202, Value::Null));
    for query in ["config=a", "config=nothing"] {
        assert_eq!(at(&of_b, query), (401, json!("wrong_signature")), "{query}");
    }
    assert_eq!(at(&of_b, "config=b&config=a"), (400, json!("ambiguous_request")));
    // A session beside it neither helps nor hinders.
    let headers = [("Authorization", format!("Bearer {vera}"))];
    let unsigned = served.request(
        "POST",
        "/hooks/ops?config=a",
        &[&headers[..], &[("Host", served.address().to_owned())]].concat(),
        "{}",
    );
    assert_eq!(code(&unsigned), (401, json!("wrong_signature")));
    // With one secret in both, what was sent to one could be sent to the other.
    std::fs::write(rig.folder().join("b.secret"), SECRET).expect("it is written");
    let served = served.killed().start_again(&rig);
    let both = Hook::new("msg_2", "for one of them");
    for path in ["/hooks/ops", "/hooks/ops?config=a", "/hooks/ops?config=b"] {
        let refused = Hook { path: path.to_owned(), ..both.clone() }.send(&served);
        assert_eq!(code(&refused), (409, json!("ambiguous_webhook")), "{path}");
    }
}

#[test]
fn a_refused_webhook_is_counted_and_the_operator_reads_of_it() {
    let rig = rig("");
    let vera = token(&rig, "vera", "viewer");
    let served = Served::start(&rig, &[]);
    let hook = Hook::new("msg_1", "The lamp is out.");
    assert_eq!(hook.send(&served).status, 202);
    for _ in 0..3 {
        assert_eq!(hook.send_with(&served, "v1,AAAA".to_owned()).status, 401);
    }
    let late = Hook { time: hook.time - 400, ..hook.clone() };
    assert_eq!(late.send(&served).status, 401);
    let nowhere = Hook { path: "/hooks/\u{1b}nobody".replace('\u{1b}', "%1b"), ..hook };
    assert_eq!(nowhere.send(&served).status, 401);
    let figures = served.request(
        "GET",
        "/metrics",
        &[("Host", served.address().to_owned()), ("Authorization", format!("Bearer {vera}"))],
        "",
    );
    for line in [
        "conclave_webhooks_total{code=\"accepted\"} 1\n",
        "conclave_webhooks_total{code=\"wrong_signature\"} 4\n",
        "conclave_webhooks_total{code=\"wrong_time\"} 1\n",
    ] {
        assert!(figures.text.contains(line), "{line}: {}", figures.text);
    }
    let log = || std::fs::read_to_string(rig.folder().join("serve.log")).unwrap_or_default();
    let words = "1 request to webhooks refused; the newest was to the channel ops: wrong_signature";
    until(words, || log().contains(words).then_some(()));
    assert_eq!(log().matches("webhooks refused").count(), 1, "once a minute: {}", log());
}
