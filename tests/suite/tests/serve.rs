//! `conclave serve`: the real program over HTTP on loopback. Conversations and restarts, the channel
//! settings of a config, and the attacks on a local server that browsers can reach.

mod acting;
mod api;
mod attacks;
#[cfg(unix)]
mod budgets;
mod channels;
pub(crate) mod client;
mod configs;
mod hooks;
mod incidents;
#[cfg(unix)]
mod logs;
mod pages;
pub(crate) mod people;
mod plugin_channels;
mod provider;
#[cfg(unix)]
mod reload;
mod restarts;
#[cfg(unix)]
mod retention;
#[cfg(unix)]
mod service;

use conclave_test_support::{Rig, guest, stepping, stock};
use serde_json::{Value, json};

use crate::cli::{conclave, text};
use client::Served;

/// The channel of these tests.
const WEB: &str = "[channels.web]\nkind = \"web\"\n";

/// Returns a config whose agent repeats its input, with more lines.
fn echo(lines: &str) -> Rig {
    Rig::new().with_file("c.toml", format!("{}{lines}", stepping("agent_echo", "", "")))
}

/// Returns a config whose task gives another one work in the background, and its result to the page.
fn delegating() -> Rig {
    let config = format!(
        "entry = \"desk\"\n[plugins.coordinator]\nsource = \"{coordinator}\"\n\
         grants.route = [\"answer\"]\ngrants.delegate = [\"digest\"]\n\
         [plugins.echo]\nsource = \"{}\"\n\
         [plugins.immediate]\nsource = \"stock:immediate\"\ngrants.channels = [\"terminal\", \"web\"]\n\
         [tasks.desk]\nagent = \"coordinator\"\nsubtasks = [\"answer\"]\n\
         [tasks.answer]\nagent = \"echo\"\n\
         [tasks.digest]\nagent = \"echo\"\ndelivery_strategy = \"immediate\"\nresult_delivery = \"text\"\n{WEB}",
        guest("agent_echo").display(),
        coordinator = guest("coordinator").display(),
    );
    Rig::new().with_file("c.toml", config)
}

#[test]
fn a_message_is_answered_and_who_says_what_is_in_the_events() {
    let rig = echo(WEB);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    assert_eq!(
        served.send(&room, "a", "Good morning.").body,
        json!({ "index": 0, "duplicate": false })
    );
    let mut events = served.events(&room, None);
    let (user, answer) = (events.entry(), events.entry());
    assert_eq!((&user["kind"], &user["text"]), (&json!("user"), &json!("Good morning.")));
    assert_eq!(
        (&answer["kind"], &answer["from"], &answer["text"]),
        (&json!("answer"), &json!("main"), &json!("Good morning."))
    );
    let idle = events.status(|status| status["is_working"] == false);
    assert_eq!((&idle["can_send"], &idle["can_receive"]), (&json!(true), &json!(true)));
    // A second conversation knows nothing of the first.
    let other = served.post("/api/conversations", &json!({}));
    assert_eq!(other.status, 201, "{}", other.body);
    let other = other.body["id"].as_str().expect("it has an id").to_owned();
    assert_eq!(other, format!("{room}.2"));
    served.send(&other, "a", "And here?");
    let mut elsewhere = served.events(&other, None);
    assert_eq!(elsewhere.entry()["text"], "And here?");
    let list = served.get("/api/conversations").body;
    let titles: Vec<_> = list["conversations"].as_array().into_iter().flatten().collect();
    assert_eq!(
        titles.iter().map(|row| &row["title"]).collect::<Vec<_>>(),
        ["And here?", "Good morning."]
    );
}

#[test]
fn a_new_conversation_greets_with_the_words_of_its_config() {
    for description in ["Answers from the library.", ""] {
        let config = stepping("agent_echo", "", &format!("description = {}", json!(description)));
        let rig = Rig::new().with_file("c.toml", config + WEB);
        let served = Served::start(&rig, &[]);
        let room = served.only_room();
        let status = served.events(&room, None).status(|status| status["task"] != Value::Null);
        let task = json!({ "name": "main", "description": description, "agent": "subject" });
        assert_eq!(status["task"], task);
        // What the conversation began with is its own, and is shown again after a restart.
        let served = served.killed().start_again(&rig);
        let status = served.events(&room, None).status(|status| status["task"] != Value::Null);
        assert_eq!(status["task"], task);
    }
    let rig = echo(WEB);
    let served = Served::start(&rig, &[]);
    let page = served.get("/").text;
    for id in ["task", "description", "agent", "usage"] {
        assert!(page.contains(&format!(" id=\"{id}\"")), "the script fills {id}: {page}");
    }
}

#[test]
fn a_question_waits_for_the_next_message_as_its_answer() {
    let config = stepping("agent_echo", "", "interactive = true") + WEB;
    let rig = Rig::new().with_file("c.toml", config);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    served.send(&room, "a", "Which lighthouse?");
    let mut events = served.events(&room, None);
    events.entry();
    let question = events.entry();
    assert_eq!(
        (&question["kind"], &question["text"]),
        (&json!("question"), &json!("Which lighthouse?"))
    );
    events.status(|status| status["is_asking"] == true && status["is_working"] == false);
    served.send(&room, "b", "Skerryvore");
    assert_eq!(events.entry()["text"], "Skerryvore");
    let next = events.entry();
    assert_eq!((&next["kind"], &next["text"]), (&json!("question"), &json!("Skerryvore")));
}

#[test]
fn a_result_that_a_strategy_delivers_is_on_the_page() {
    let rig = delegating();
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    served.send(&room, "a", "hello");
    let mut events = served.events(&room, None);
    // The terminal of a server has no reader, so the strategy prefers the page.
    let result = events.entry_so(|entry| entry["kind"] == "result");
    assert_eq!(result["from"], "digest");
    let status = served.events(&room, None).status(|_| true);
    assert_eq!(status["background"], json!([]), "it ended before it was delivered");
    let all = served.entries(&room);
    let notes: Vec<_> = all.iter().filter(|entry| entry["kind"] == "note").collect();
    assert_eq!(notes.len(), 2, "its start and its end: {notes:?}");
}

#[test]
fn a_call_waits_for_the_operator_and_no_browser_can_approve_it() {
    let config = format!(
        "entry = \"desk\"\n[tasks.desk]\nagent = \"actor\"\n[plugins.actor]\nsource = \"{}\"\ngrants.tools = [\"echo.*\"]\n\
         config = {{ script = [{{ call = \"echo.run\", arguments = {{ text = \"it ran\" }} }}] }}\n\
         [plugins.echo]\nsource = \"{}\"\n[[policy]]\ntool = \"echo.run\"\ndecide = \"ask\"\n{WEB}",
        guest("acting_agent").display(),
        guest("echo").display()
    );
    let rig = Rig::new().with_file("c.toml", config);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    served.send(&room, "a", "go");
    let mut events = served.events(&room, None);
    let waiting = events.status(|status| status["approvals"] != json!([]));
    assert_eq!(waiting["approvals"][0]["tool"], "echo.run");
    let id = waiting["approvals"][0]["id"].as_str().expect("it has an id").to_owned();
    // It still waits in another process, and on another page.
    let served = served.killed().start_again(&rig);
    let mut events = served.events(&room, None);
    let waiting = events.status(|status| status["approvals"] != json!([]));
    assert_eq!(waiting["approvals"][0]["id"], id.as_str());
    let approved = conclave(&rig, &["approve", &id, "--yes"]);
    assert_eq!(approved.status.code(), Some(0), "{}", text(&approved.stderr));
    let answer = events.entry_so(|entry| entry["kind"] == "answer");
    let status = served.events(&room, None).status(|_| true);
    assert_eq!(status["approvals"], json!([]), "it was decided");
    assert!(answer["text"].as_str().is_some_and(|text| text.contains("it ran")), "{answer}");
}

#[test]
fn what_cannot_be_served_is_said_with_the_lines_that_help() {
    let rig = echo("");
    let without = conclave(&rig, &["serve", "c.toml", "--channel", "web"]);
    let said = text(&without.stderr);
    assert_eq!(without.status.code(), Some(2), "{said}");
    assert!(said.contains("[channels.web]\nkind = \"web\""), "{said}");
    let rig = echo(WEB);
    let public = conclave(&rig, &["serve", "c.toml", "--listen", "0.0.0.0:0"]);
    let said = text(&public.stderr);
    assert_eq!(public.status.code(), Some(2), "{said}");
    assert!(said.contains("--public HOST"), "{said}");
    let served = Served::start(&rig, &[]);
    let twice = conclave(&rig, &["serve", "c.toml", "--listen", "127.0.0.1:0"]);
    assert_eq!(twice.status.code(), Some(1), "{}", text(&twice.stderr));
    assert!(text(&twice.stderr).contains("in use"), "{}", text(&twice.stderr));
    let port = served.address().to_owned();
    let taken = conclave(&rig, &["serve", "c.toml", "--room", "other", "--listen", &port]);
    assert!(text(&taken.stderr).contains("cannot be listened on"), "{}", text(&taken.stderr));
    let room = served.only_room();
    drop(served.killed());
    let resumed = conclave(&rig, &["resume", &room]);
    let said = text(&resumed.stderr);
    assert_eq!(resumed.status.code(), Some(2), "{said}");
    assert!(said.contains("conclave serve "), "{said}");
}

/// Returns the config of a chat agent with a model server.
fn chatting(url: &str) -> Rig {
    let config = format!(
        "entry = \"desk\"\n[models.default]\nkind = \"openai\"\nurl = \"{url}\"\nmodel = \"m\"\n\
         [plugins.chat]\nsource = \"{}\"\ngrants.model = [\"default\"]\n[tasks.desk]\nagent = \"chat\"\n{WEB}",
        stock().join("chat.wasm").display()
    );
    Rig::new().with_file("c.toml", config)
}

#[test]
fn the_page_counts_the_files_that_wait_in_an_overlay() {
    let config = format!(
        "entry = \"desk\"\n[plugins.desk]\nsource = {:?}\ngrants.tools = [\"writer.*\"]\n\
         config = {{ tool = \"writer.forge\", arguments = {{}} }}\n\
         [plugins.writer]\nsource = {:?}\ngrants.files = [{{ dir = \"data\", at = \"/folder\", mode = \"overlay\" }}]\n\
         [tasks.desk]\nagent = \"desk\"\n{WEB}",
        guest("agent_caller").display().to_string(),
        guest("overlay_escape").display().to_string(),
    );
    let rig = Rig::new().with_file("c.toml", config).with_file("data/a.txt", "inside");
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let mut events = served.events(&room, None);
    events.status(|status| status["pending_changes"] == 0);
    served.send(&room, "a", "Change it.");
    events.status(|status| status["pending_changes"] == 7 && status["is_working"] == false);
    // A page that is opened later reads the same.
    served.events(&room, None).status(|status| status["pending_changes"] == 7);
}
