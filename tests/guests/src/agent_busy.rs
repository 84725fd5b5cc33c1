//! An agent for the kill tests: asks models, sends a request, writes, counts, calls tools of every
//! kind, starts a background task, and finishes with all results.

use std::collections::BTreeMap;

use conclave_sdk::{
    Agent, Error, Result, Turn, View, call, delegate, fetch, files, finish, kv, model, scratch,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The message that it gets.
#[derive(Deserialize, Serialize)]
struct Work {
    /// Where the world is.
    url: String,
    /// Begins the name of everything that it does.
    id: String,
    /// One step, and nothing started.
    #[serde(default)]
    short: bool,
}

struct Busy;

impl Agent for Busy {
    fn step(view: &View) -> Result<Turn> {
        let work: Work = serde_json::from_str(&view.latest_user_message().unwrap_or_default())
            .map_err(|error| Error::other(error.to_string()))?;
        let mut notes: BTreeMap<String, String> = scratch::get()?.unwrap_or_default();
        if let Some(told) = view.tool_outputs().first() {
            let tool =
                CALLS.get(view.iteration().saturating_sub(1) as usize).copied().unwrap_or("other");
            notes.insert(tool.to_owned(), told.content.clone());
        }
        let turn = step(view.iteration() as usize, &work, &mut notes);
        scratch::set(&notes)?;
        Ok(turn)
    }
}

/// One call in each step, in this order.
const CALLS: [&str; 5] = ["once.do", "probe.run", "many.do", "pay.do", "counter.count"];

fn step(number: usize, work: &Work, notes: &mut BTreeMap<String, String>) -> Turn {
    let Work { url, id, short } = work;
    if number == 0 {
        notes.insert("model-0".to_owned(), asked(true));
        notes.insert("fetch".to_owned(), sent(&format!("{url}/effect/{id}/fetch")));
        notes.insert(
            "file".to_owned(),
            came(files::write(&format!("/data/{}.txt", id.replace('/', "-")), id.as_bytes())),
        );
        let name = id.replace('/', "-");
        let deep = format!("/data/{name}/deep/a.txt");
        notes.insert(
            "deep".to_owned(),
            came(files::write(&deep, id.as_bytes()).and_then(|()| files::remove(&deep))),
        );
        notes.insert("again".to_owned(), came(files::write(&deep, b"again")));
        notes.insert("std".to_owned(), came(lines(&format!("/data/{name}.log"), id)));
        notes.insert("kv".to_owned(), came(kv::set(id, id.as_bytes())));
        notes.insert("read".to_owned(), came(kv::get(id).map(drop)));
        notes.insert("model-1".to_owned(), asked(false));
    }
    match CALLS.get(number) {
        _ if *short => finish(json!(notes)),
        Some(tool @ &"probe.run") => {
            call(*tool, json!({ "method": "POST", "url": format!("{url}/effect/{id}/probe") }))
        }
        Some(tool @ &"counter.count") => call(*tool, json!({})),
        Some(tool) => call(*tool, json!({ "id": format!("{id}/{tool}") })),
        None if number == CALLS.len() => {
            let task = json!({ "url": url, "id": format!("{id}/child"), "short": true });
            delegate("child").task(task.to_string()).start()
        }
        None => finish(json!(notes)),
    }
}

/// Writes piece by piece, like a program that knows nothing of the contract.
fn lines(path: &str, id: &str) -> std::io::Result<()> {
    use std::io::Write;
    let mut file = std::fs::File::create(path)?;
    for line in 0..3 {
        file.write_all(format!("{line} {id}\n").as_bytes())?;
    }
    file.sync_all()
}

fn asked(stream: bool) -> String {
    match model::complete(&model::Request { stream, ..model::Request::default() }) {
        Ok(completion) => format!("ok {}", completion.content.unwrap_or_default()),
        Err(error) => format!("{error:?}"),
    }
}

fn sent(url: &str) -> String {
    match fetch::post(url).send() {
        Ok(response) => format!("ok {}", response.status()),
        Err(error) => format!("{error:?}"),
    }
}

fn came<E: std::fmt::Debug>(result: std::result::Result<(), E>) -> String {
    result.map_or_else(|error| format!("{error:?}"), |()| "ok".to_owned())
}

conclave_sdk::export!(agent: Busy, asks: [model, fetch, files, kv, scratch, tools?, delegate?]);
