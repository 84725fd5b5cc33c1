//! Does everything possible within a call, as a tool and as an agent: reads keys, files, the clock
//! and random numbers, asks models, sends requests, writes files and keys. Its answer contains all
//! results.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use conclave_sdk::bindings::imports::conclave::plugin::types::Draft;
use conclave_sdk::model::{Completion, ModelError, Part, Request};
use conclave_sdk::{
    Agent, Result, Role, Turn, View, config, fetch, files, finish, kv, log, model, scratch, tool,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Settings {
    /// Of a server that counts.
    url: String,
    /// Computes before it asks: rounds of mixing.
    #[serde(default)]
    rounds: u64,
}

fn asking(text: &str) -> Request {
    let draft = Draft {
        role: Role::User,
        content: text.to_owned(),
        tool_calls: vec![],
        tool_results: vec![],
        attachments: vec![],
    };
    Request { prompt: vec![Part::Draft(draft)], stream: false, ..Request::default() }
}

fn said(answer: std::result::Result<Completion, ModelError>) -> String {
    answer.map_or_else(
        |error| format!("{error:?}"),
        |completion| completion.content.unwrap_or_default(),
    )
}

fn sent(request: fetch::Request) -> String {
    match request.send() {
        Ok(response) => format!(
            "{} {} {}",
            response.status(),
            response.url(),
            response.text().unwrap_or_default()
        ),
        Err(error) => error.to_string(),
    }
}

fn work() -> Result<String> {
    let settings: Settings = config::get()?;
    let mut told: Vec<String> = Vec::new();
    let mut tell = |what: &str, came: String| {
        log::info!("{what}: {came}");
        told.push(format!("{what}: {came}"));
    };
    tell("time", SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis().to_string());
    tell("dice", RandomState::new().hash_one(1_u8).to_string());
    tell(
        "mixed",
        (0..settings.rounds)
            .fold(1_u64, |mixed, round| {
                mixed.wrapping_mul(6_364_136_223_846_793_005).rotate_left(7) ^ round
            })
            .to_string(),
    );
    let before = kv::get_json::<u32>("count")?.unwrap_or(0);
    tell("count", before.to_string());
    tell(
        "file",
        format!(
            "{:?}",
            files::read("/box/in.txt").map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        ),
    );
    tell("no file", format!("{:?}", files::read("/box/none.txt").map(|bytes| bytes.len())));
    scratch::set(&before)?;
    tell("model", said(model::complete(&asking(&format!("after {before}")))));
    tell("set", format!("{:?}", kv::set_json("count", &(before + 1))));
    tell("count", format!("{:?}", kv::get_json::<u32>("count")?));
    let (one, other) = (model::start(&asking("one")), model::start(&asking("other")));
    tell(
        "write",
        format!(
            "{:?}",
            files::write("/box/out.txt", format!("{before} {}", RandomState::new().hash_one(2_u8)))
        ),
    );
    // Read through the standard library, past the contract.
    tell(
        "std",
        format!("{:?}", std::fs::read_to_string("/box/out.txt").map_err(|error| error.kind())),
    );
    tell(
        "listed",
        format!(
            "{:?}",
            files::list("/box")
                .map(|entries| entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>())
        ),
    );
    tell("other", said(other.and_then(|stream| stream.wait())));
    tell("fetch", sent(fetch::get(format!("{}/one", settings.url))));
    tell("one", said(one.and_then(|stream| stream.wait())));
    tell("led on", sent(fetch::post(format!("{}/away", settings.url)).body("x")));
    tell("refused", sent(fetch::get("https://elsewhere.example/")));
    tell("removed", format!("{:?}", files::remove("/box/out.txt")));
    tell("keys", format!("{:?}", kv::all_keys("")?));
    tell("last", said(model::complete(&asking("last"))));
    Ok(told.join("\n"))
}

/// Does it all.
#[tool]
fn run() -> Result<String> {
    work()
}

/// Does it all, and may be called twice.
#[tool(idempotent)]
fn again() -> Result<String> {
    work()
}

struct Busy;

impl Agent for Busy {
    fn step(_: &View) -> Result<Turn> {
        Ok(finish(work()?))
    }
}

conclave_sdk::export!(tools: [run, again], agent: Busy, manifest: "manifests/busy.toml");
