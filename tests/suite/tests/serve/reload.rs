//! Configs that a running server reads again at SIGHUP: all of them or none; rooms that run keep
//! theirs, and people who were removed lose their sessions.

use conclave_test_support::{Rig, guest, stepping, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::WEB;
use super::acting::Client;
use super::client::Served;
use super::hooks::Hook;
use super::people::person_of_config;

fn config(description: &str, people: &str) -> String {
    let task = format!("description = {}", json!(description));
    format!("{}{WEB}{people}\n", stepping("agent_echo", "", &task))
}

pub(super) fn log(rig: &Rig) -> String {
    std::fs::read_to_string(rig.folder().join("serve.log")).unwrap_or_default()
}

/// Asks the server to read its configs again, and waits until its log has these words once more.
pub(super) fn reload(rig: &Rig, served: &Served, words: &str) {
    let before = log(rig).matches(words).count();
    let process = Pid::from_raw(i32::try_from(served.process()).expect("it fits"));
    kill_process(process.expect("a process"), Signal::HUP).expect("it is there");
    until(words, || (log(rig).matches(words).count() > before).then_some(()));
}

#[test]
fn new_rooms_have_the_new_config_and_the_others_keep_theirs() {
    let rig = Rig::new().with_file("c.toml", config("Before.", ""));
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let greeting = |served: &Served, room: &str| {
        let status = served.events(room, None).status(|status| status["task"] != json!(null));
        status["task"]["description"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(greeting(&served, &room), "Before.");
    let rig = rig.with_file("c.toml", config("After.", ""));
    reload(&rig, &served, "c was read again: tasks.main");
    let begun = served.post("/api/conversations", &json!({}));
    let other = begun.body["id"].as_str().expect("it has begun").to_owned();
    assert_eq!(
        (greeting(&served, &room), greeting(&served, &other)),
        ("Before.".into(), "After.".into())
    );
    assert_eq!(served.send(&room, "a", "hello").status, 200, "it goes on");
    assert_eq!(served.events(&room, None).entry()["text"], "hello");
    reload(&rig, &served, "c was read again: nothing is different");
}

#[test]
fn a_config_that_cannot_be_used_keeps_all_of_them() {
    let (token, users) = person_of_config("ada", "admin");
    let rig = Rig::new()
        .with_file("a.toml", config("Before.", &users))
        .with_file("b.toml", config("Before.", &users));
    let served = Served::start_configs(&rig, &["a.toml", "b.toml"], &[]);
    let client = Client { served: &served, token: &token };
    // One is right and has nobody any more, the other is none.
    let rig = rig.with_file("a.toml", config("After.", "")).with_file("b.toml", "entry = 7\n");
    reload(&rig, &served, "the configs were not read again, and those before stay");
    assert_eq!(client.get("/configs")["configs"].as_array().map(Vec::len), Some(2));
    let started = client.post("/runs", None, &json!({ "text": "go", "config": "a" }));
    assert_eq!(started.status, 201, "{}", started.text);
    assert_eq!(served.get("/readyz").status, 200);
    // A plugin that is not there is found too, and so is the channel of the conversations.
    for wrong in [
        config("After.", &users).replace("agent_echo", "no_such_guest"),
        config("After.", &users).replace(WEB, ""),
        format!("store = \"other\"\n{}", config("After.", &users)),
    ] {
        std::fs::write(rig.folder().join("b.toml"), wrong).expect("it is written");
        reload(&rig, &served, "the configs were not read again, and those before stay");
    }
    assert_eq!(client.get("/configs")["configs"].as_array().map(Vec::len), Some(2));
}

#[test]
fn people_who_are_removed_lose_their_sessions_and_streams() {
    let (ada, users_ada) = person_of_config("ada", "operator");
    let (bob, users_bob) = person_of_config("bob", "admin");
    let rig = Rig::new().with_file("c.toml", config("Both.", &format!("{users_ada}\n{users_bob}")));
    let mut served = Served::start(&rig, &[]);
    let cookie = served.log_in(&ada);
    served.with_cookie(&cookie);
    let begun = served.post("/api/conversations", &json!({}));
    let room = begun.body["id"].as_str().expect("it has begun").to_owned();
    let stream = served.events(&room, None);
    // One is removed, and the other has another role.
    let demoted = users_bob.replace("\"admin\"", "\"viewer\"");
    let rig = rig.with_file("c.toml", config("Both.", &demoted));
    let words = "server.users.ada (removed), server.users.bob";
    reload(&rig, &served, words);
    stream.until_end();
    assert_eq!(served.get("/api/conversations").status, 401);
    assert_eq!(served.post("/api/session", &json!({ "token": ada })).status, 401);
    let client = Client { served: &served, token: &bob };
    assert_eq!(client.get("/configs")["configs"][0]["role"], "viewer");
    // The printed address is none that comes back.
    let rig = rig.with_file("c.toml", config("Nobody.", ""));
    reload(&rig, &served, "server.users.bob (removed)");
    assert_eq!(served.get("/api/v1/configs").status, 401);
}

#[test]
fn access_that_was_made_narrower_counts_for_the_next_message() {
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let config = |web: &str, ops: &str| {
        format!(
            "{}[channels.web]\nkind = \"web\"\naccess = \"{web}\"\n[channels.ops]\nkind = \"webhook\"\n\
             url = \"http://127.0.0.1:1/\"\naccess = \"{ops}\"\nsecret = {{ file = \"ops.secret\" }}\n",
            stepping("agent_echo", "", "")
        )
    };
    let rig = Rig::new()
        .with_file("ops.secret", SECRET)
        .with_file("c.toml", config("read-write", "read-write"));
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let hook = |id: &str| Hook::new(id, "hello").send(&served).status;
    assert_eq!((served.send(&room, "a", "hello").status, hook("msg_1")), (200, 202));
    let rig = rig.with_file("c.toml", config("read-only", "read-write"));
    reload(&rig, &served, "c was read again: channels.web");
    let refused = served.send(&room, "b", "hello");
    assert_eq!((refused.status, &refused.body["error"]), (403, &json!("no_access")));
    assert_eq!(hook("msg_2"), 202);
    let rig = rig.with_file("c.toml", config("read-write", "read-only"));
    reload(&rig, &served, "c was read again: channels.ops, channels.web");
    assert_eq!((served.send(&room, "c", "hello").status, hook("msg_3")), (200, 403));
}

#[test]
fn what_was_granted_and_not_used_is_that_of_the_present_config() {
    let (token, users) = person_of_config("ada", "admin");
    let config = |more: &str| {
        let writer = guest("overlay_escape").display().to_string();
        let files = format!("{{ dir = \"data\", at = \"/folder\", mode = \"overlay\" }}{more}");
        let plugin = format!("[plugins.writer]\nsource = {writer:?}\ngrants.files = [{files}]\n");
        format!("{}{plugin}{WEB}{users}\n", stepping("agent_echo", "", ""))
    };
    let rig = Rig::new()
        .with_file("data/a.txt", "a")
        .with_file("more/a.txt", "a")
        .with_file("c.toml", config(""));
    let served = Served::start(&rig, &[]);
    let client = Client { served: &served, token: &token };
    let entries = || client.get("/rights")["uses"]["entries"].as_array().map_or(0, Vec::len);
    let before = entries();
    let more = ", { dir = \"more\", at = \"/more\", mode = \"read\" }";
    let rig = rig.with_file("c.toml", config(more));
    reload(&rig, &served, "c was read again: plugins.writer");
    assert_eq!(entries(), before + 1, "not after a minute");
}
