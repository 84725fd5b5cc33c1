//! What the runs of a person may spend in a day: counted from the store, so also after a restart,
//! and refused with what is spent, of what, and when it is free again.

use conclave_core::protocol::event::Event;
use conclave_runtime::ids::{Millis, RoomId};
use conclave_runtime::store::StoreReader;
use conclave_test_support::{Rig, until};
use serde_json::{Value, json};

use super::WEB;
use super::acting::Client;
use super::client::Served;
use super::people::{begin, token};
use super::reload::{log, reload};
use crate::cli::{conclave, text};

/// A config whose agent asks a model, 600 tokens each time, with these lines.
fn asking(lines: &str) -> Rig {
    let replies = json!({
        "replies": vec!["noted"; 20], "usage": { "input_tokens": 500, "output_tokens": 100 },
    });
    Rig::new().with_file("replies.json", replies.to_string()).with_file("c.toml", config(lines))
}

fn config(lines: &str) -> String {
    format!(
        "entry = \"desk\"\n[models.default]\nkind = \"scripted\"\nreplies = \"replies.json\"\n\
         [plugins.chat]\nsource = \"stock:chat\"\ngrants.model = [\"default\"]\n\
         [tasks.desk]\nagent = \"chat\"\n{WEB}{lines}"
    )
}

fn start(client: &Client<'_>, key: &str) -> (u16, Value) {
    let started = client.post("/runs", Some(key), &json!({ "text": "go" }));
    (started.status, started.body)
}

/// Starts a run, and waits for its end.
fn spend(client: &Client<'_>, key: &str) -> String {
    let (status, run) = start(client, key);
    assert_eq!(status, 201, "{run}");
    let run = run["run"].as_str().expect("a run").to_owned();
    until("its end", || {
        let state = client.get(&format!("/runs/{run}"))["state"].clone();
        (state != "running").then_some(())
    });
    run
}

#[test]
fn a_person_who_has_spent_the_budget_of_the_day_starts_no_run_and_others_do() {
    let lines = "[server.daily_budget]\ntokens = 1_000\n[server.daily_budget.people.lea]\n";
    let rig = asking(lines);
    let [ada, bob, lea] = ["ada", "bob", "lea"].map(|name| token(&rig, name, "user"));
    let served = Served::start(&rig, &[]);
    let of = |token| Client { served: &served, token };
    spend(&of(&ada), "a");
    let today = of(&ada).get("/budgets")["today"].clone();
    assert_eq!((&today["person"], &today["uses"][0]["used"]), (&json!("ada"), &json!(600)));
    let last = spend(&of(&ada), "b");
    let (status, refusal) = start(&of(&ada), "c");
    assert_eq!((status, &refusal["code"]), (429, &json!("budget_used_up")), "{refusal}");
    assert_eq!(
        [&refusal["person"], &refusal["budget"], &refusal["used"], &refusal["limit"]],
        [&json!("ada"), &json!("tokens"), &json!(1_200), &json!(1_000)]
    );
    assert_eq!(refusal["free_at"].as_u64().map(|at| at % 86_400_000), Some(0), "midnight");
    assert!(log(&rig).contains("a new run of ada was refused: the budget of ada"), "{}", log(&rig));
    // A request that was sent before is answered as before, and changes nothing.
    let (status, again) = start(&of(&ada), "b");
    assert_eq!((status, &again["run"]), (200, &json!(last)));
    spend(&of(&bob), "a");
    for key in ["a", "b", "c"] {
        spend(&of(&lea), key);
    }
    assert_eq!(of(&lea).get("/budgets")["today"], Value::Null, "an empty entry is no limit");
    // The store has the figures, and not the process.
    let served = served.killed().start_again(&rig);
    let ada = Client { served: &served, token: &ada };
    assert_eq!(start(&ada, "d").0, 429);
    let page = served.request(
        "GET",
        "/budgets",
        &[
            ("Host", served.address().to_owned()),
            ("Authorization", format!("Bearer {}", ada.token)),
        ],
        "",
    );
    assert!(
        page.text.contains("Your runs today") && page.text.contains("is used up"),
        "{}",
        page.text
    );
    // Another budget counts with the next reading.
    let rig = rig.with_file("c.toml", config("[server.daily_budget]\ntokens = 9_000\n"));
    reload(&rig, &served, "c was read again: server.daily_budget");
    spend(&ada, "e");
}

#[test]
fn a_run_spends_no_more_than_the_rest_of_the_day() {
    let rig = asking("[server.daily_budget]\ntokens = 640\n");
    let ada = token(&rig, "ada", "user");
    let served = Served::start(&rig, &[]);
    let client = Client { served: &served, token: &ada };
    spend(&client, "a");
    let capped = spend(&client, "b");
    assert_eq!(client.get(&format!("/runs/{capped}/budget"))["limits"]["tokens"], 40);
    assert_eq!(client.get(&format!("/runs/{capped}"))["state"], "max-tokens");
}

#[test]
fn a_refused_message_is_in_the_journal_with_its_sender_and_one_sent_twice_is_none() {
    let rig = asking("[server.daily_budget]\ntokens = 1_200\n");
    let ada = token(&rig, "ada", "user");
    let mut served = Served::start(&rig, &[]);
    let cookie = served.log_in(&ada);
    served.with_cookie(&cookie);
    let room = begin(&served);
    for key in ["a", "b"] {
        assert_eq!(served.send(&room, key, &format!("hello {key}")).status, 200);
        served.events(&room, None).status(|status| status["is_working"] == false);
        until("an answer", || {
            let entries = served.entries(&room);
            let answers = entries.iter().filter(|entry| entry["kind"] == "answer").count();
            (answers == if key == "a" { 1 } else { 2 }).then_some(())
        });
    }
    let refused = served.send(&room, "c", "once more");
    assert_eq!((refused.status, &refused.body["error"]), (429, &json!("budget_used_up")));
    assert_eq!(served.send(&room, "b", "hello b").body["duplicate"], true, "it was accepted");
    // Its journal says who wanted what, and the audit chain has the journal.
    let listed = conclave(&rig, &["runs", "--json"]);
    let rows = text(&listed.stdout);
    let rows = rows.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let row = rows.into_iter().find(|row| row["run"] == room.as_str()).expect("it is listed");
    let store = std::path::PathBuf::from(row["store"].as_str().expect("a store"));
    let reader = StoreReader::open(store).expect("it is there");
    let id = RoomId::from(room.as_str());
    let records = reader.records(&id).expect("they are read");
    let inbound = records.iter().filter_map(|record| {
        let value = json!(record.event);
        let value = value.to_string();
        value.contains("over_budget").then_some(value)
    });
    let inbound: Vec<String> = inbound.collect();
    let [refused, repeated] = &inbound[..] else { panic!("{inbound:?}") };
    assert!(refused.contains("ada") && refused.contains("once more"), "{refused}");
    assert!(repeated.contains("hello b"), "{repeated}");
    let shown = conclave(&rig, &["show", &room]);
    assert!(text(&shown.stdout).contains("budget of ada"), "{}", text(&shown.stdout));
    // What a run had spent at a moment follows from its records.
    let asked: Vec<Millis> = records
        .iter()
        .filter(|record| matches!(record.event, Event::ModelAnswered { .. }))
        .map(|record| record.at)
        .collect();
    let spent = |at: Millis| reader.spent_before(&id, at).expect("they are read").tokens;
    assert_eq!((spent(asked[0]), spent(Millis(asked[1].0 + 1))), (0, 1_200));
}

#[test]
fn a_webhook_has_the_budget_of_its_own_principal() {
    let rig = super::hooks::rig("");
    let replies = json!({
        "replies": vec!["noted"; 20], "usage": { "input_tokens": 30, "output_tokens": 10 },
    });
    let hook = "[channels.ops]\nkind = \"webhook\"\naccess = \"write-only\"\n\
                secret = { file = \"ops.secret\" }\n\
                [server.daily_budget.people.\"webhook:ops\"]\ntokens = 40\n";
    let rig = rig.with_file("replies.json", replies.to_string()).with_file("c.toml", config(hook));
    let served = Served::start(&rig, &[]);
    let first = super::hooks::send(&served, "m1", "The lamp is out.");
    assert_eq!(first.status, 202, "{}", first.text);
    let mut number = 1;
    let refused = until("the budget", || {
        number += 1;
        let next = super::hooks::send(&served, &format!("m{number}"), "And now?");
        (next.status == 429).then_some(next)
    });
    assert_eq!(refused.body["code"], "budget_used_up", "{}", refused.text);
    assert_eq!(refused.body["person"], "webhook:ops");
}
