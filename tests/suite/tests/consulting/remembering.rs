//! `recall`: a memory's entries reach the agent, within a limit; its failures are observations.

use conclave_core::protocol::event::Record;
use conclave_core::protocol::notice::Notice;
use conclave_core::trajectory::Era;
use conclave_models::test_server::{SeenRequest, Server, TestReply};
use conclave_test_support::block_on;
use serde_json::{Value, json};

use super::world::{World, acting, hostile, seen, steps, stocked};

const NOTES: &str = "grants.kv = { bytes = \"1 MiB\", keys = 200 }\nlimits.at_once = 1";
const ALLOW: &str = "[[policy]]\ntool = \"*\"\ndecide = \"allow\"\n";

fn recall(query: &str) -> Value {
    json!({ "action": "recall", "args": { "query": query } })
}

fn remember(text: &str) -> Value {
    json!({ "call": "notes.remember", "arguments": { "text": text } })
}

#[test]
fn what_was_remembered_is_recalled_in_this_run_and_in_the_next() {
    let script = json!([
        remember("The lamp of Skerryvore was lit in 1844."),
        remember("Tea is at four."),
        recall("When was the lamp lit?"),
        recall("zeppelins")
    ]);
    let notes = stocked("notes", NOTES);
    let config = acting(
        &script,
        "grants.tools = [\"notes.*\"]",
        "memory = \"notes\"",
        &format!("{notes}{ALLOW}"),
    );
    let next = acting(&json!([recall("Skerryvore")]), "", "memory = \"notes\"", &notes);
    block_on(async {
        let world = World::new();
        let told = steps(&world.run(&config, "go").await);
        assert_eq!(
            seen(&told, 3),
            json!({ "memories": ["The lamp of Skerryvore was lit in 1844."] }),
            "{told:#?}"
        );
        assert_eq!(seen(&told, 4), json!({ "memories": [] }));
        assert!(
            told[4]["pending"].as_str().is_some_and(|text| text.contains("No memory fits")),
            "{:#?}",
            told[4]
        );
        let told = steps(&world.run(&next, "go").await);
        assert_eq!(
            seen(&told, 1),
            json!({ "memories": ["The lamp of Skerryvore was lit in 1844."] }),
            "notes outlive their run"
        );
    });
}

/// A server for embeddings that understands dogs and tea.
fn embeddings() -> Server {
    Server::answering(|request: &SeenRequest| {
        let means = |text: &str, words: &[&str]| -> f32 {
            if words.iter().any(|word| text.contains(word)) { 1.0 } else { 0.1 }
        };
        let vector = |text: &str| [means(text, &["dog", "animal"]), means(text, &["tea", "drink"])];
        let asked = request.json();
        assert_eq!(asked["model"], "small");
        let data: Vec<Value> = asked["input"]
            .as_array()
            .expect("texts")
            .iter()
            .enumerate()
            .map(|(index, text)| {
                json!({ "index": index, "embedding": vector(text.as_str().expect("a text")) })
            })
            .collect();
        TestReply::json(200, &json!({ "data": data }))
    })
}

#[test]
fn with_a_server_for_embeddings_notes_are_found_by_their_meaning() {
    let server = embeddings();
    let script = json!([
        remember("The dog is ill."),
        remember("The tea is cold."),
        recall("animals that are unwell")
    ]);
    let notes = |grant: &str| {
        let url = server.url();
        let lines = format!(
            "{NOTES}\nconfig.embeddings = {{ url = \"{url}/v1/embeddings\", model = \"small\" }}{grant}"
        );
        let rest = stocked("notes", &lines);
        acting(&script, "grants.tools = [\"notes.*\"]", "memory = \"notes\"", &(rest + ALLOW))
    };
    let url = server.url();
    let grant = format!(
        "\ngrants.fetch = {{ urls = [\"{url}/*\"], methods = [\"POST\"], private = [\"127.0.0.1\"] }}"
    );
    block_on(async {
        let told = steps(&World::new().run(&notes(&grant), "go").await);
        let memories = seen(&told, 3)["memories"].clone();
        assert_eq!(memories[0], "The dog is ill.", "{told:#?}");
        // Without the grant the host sends nothing and reports a denial; the search uses words only.
        let (world, sent) = (World::new(), server.requests().len());
        let told = steps(&world.run(&notes(""), "go").await);
        assert_eq!(seen(&told, 3), json!({ "memories": [] }), "{told:#?}");
        assert_eq!(server.requests().len(), sent);
        let is_of_fetch = |notice: &Notice| matches!(notice, Notice::Denied { record, .. } if record.denial.capability == "fetch");
        assert!(world.told().iter().any(is_of_fetch), "{:#?}", world.told());
    });
}

#[test]
fn without_a_memory_there_is_nothing_and_it_is_said() {
    block_on(async {
        let told =
            steps(&World::new().run(&acting(&json!([recall("anything")]), "", "", ""), "go").await);
        assert_eq!(seen(&told, 1), json!({ "null": true }), "{told:#?}");
        let said = told[1]["pending"].as_str().expect("it is said");
        assert!(said.contains("There is no memory to search: the task main has none."), "{said}");
    });
}

#[test]
fn a_memory_that_misbehaves_is_bounded_or_an_error_that_the_agent_reads() {
    let queries = ["many", "spin", "trap", "refuse", "fail", "huge", "lamps"];
    let script: Vec<Value> = queries.iter().map(|query| recall(query)).collect();
    let config = acting(
        &json!(script),
        "",
        "memory = \"bad\"\nstuck_detection = false",
        &hostile("hostile_memory", "bad", "limits = { cpu = \"50 ms\" }"),
    );
    block_on(async {
        let world = World::new();
        let told = steps(&world.run(&config, "go").await);
        let of = |query: &str| {
            seen(&told, 1 + queries.iter().position(|asked| *asked == query).expect("it was asked"))
        };
        let many = of("many")["memories"].as_array().map(Vec::len).expect("memories");
        assert!(many > 0 && many <= 20, "{many} memories");
        for query in ["spin", "trap", "refuse", "fail", "huge"] {
            let error = of(query)["error"]
                .as_str()
                .unwrap_or_else(|| panic!("{query} is an error: {}", of(query)))
                .to_owned();
            assert!(
                error.starts_with("The memory failed: ") && error.len() < 5_000,
                "{query}: {error}"
            );
        }
        assert!(
            of("lamps")["memories"][0]
                .as_str()
                .is_some_and(|memory| memory.ends_with("about lamps")),
            "it works as before"
        );
        let faults = world
            .told()
            .into_iter()
            .filter(|notice| matches!(notice, Notice::PluginFaulted { .. }))
            .count();
        assert_eq!(faults, 5, "each is told");
    });
}

#[test]
fn a_long_memory_is_cut_in_its_middle() {
    let script = acting(
        &json!([recall("long")]),
        "",
        "memory = \"bad\"",
        &hostile("hostile_memory", "bad", ""),
    );
    // The memory is longer than the limit of the agent's report.
    let config = script.replacen("config = {", "config = { report = false,", 1);
    block_on(async {
        let world = World::new();
        world.run(&config, "go").await;
        let log = conclave_core::inspect::export::log(
            world.records().iter().map(|record| Record::clone(record)),
            Era::V2024,
        );
        let recalled = log
            .iter()
            .find(|event| event["observation"] == "recall")
            .unwrap_or_else(|| panic!("it recalled: {log:#?}"));
        let bytes = recalled.to_string().len();
        assert!(
            (30_000..35_000).contains(&bytes),
            "one of 200 000 bytes comes with its two ends: {bytes}"
        );
    });
}
