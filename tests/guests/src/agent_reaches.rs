//! An agent that tries every access that it may have been granted, through the contract and past
//! it, and finishes with the results.

use conclave_sdk::{Agent, Result, Turn, View, fetch, files, finish, kv, secrets};
use serde_json::json;

struct Reaches;

fn came(ok: bool) -> &'static str {
    if ok { "DONE" } else { "refused" }
}

impl Agent for Reaches {
    fn step(view: &View) -> Result<Turn> {
        // The message is the address to send a request to.
        let url = view.latest_user_message().unwrap_or_default();
        let tried = json!({
            "read": came(files::read("/data/a.txt").is_ok()),
            "write": came(files::write("/data/b.txt", "b").is_ok()),
            "std-read": came(std::fs::read("/data/a.txt").is_ok()),
            "std-write": came(std::fs::write("/data/c.txt", "c").is_ok()),
            "fetch": came(fetch::get(url).send().is_ok()),
            "secret": came(secrets::placeholder("token_of_test").is_ok()),
            "kv": came(kv::set("k", "v").is_ok()),
        });
        Ok(finish(tried))
    }
}

conclave_sdk::export!(agent: Reaches, asks: [files?, fetch?, secrets?, kv?]);
