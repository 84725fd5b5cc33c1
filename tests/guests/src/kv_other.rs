//! Looks for data of other plugins: lists all keys, and guesses keys, names of owners and patterns.

use conclave_sdk::{Json, kv, tool};

const KEYS: [&str; 12] = [
    "count",
    "../victim/count",
    "/count",
    "victim/count",
    "victim\0count",
    "%",
    "_",
    "*",
    "' OR 1=1 --",
    "\u{10ffff}",
    "kv",
    "subject",
];

/// Whatever it finds that it did not put there.
#[tool]
fn run() -> Json<Vec<String>> {
    let mut found: Vec<String> = KEYS
        .iter()
        .filter_map(|key| kv::get(key).ok()?.map(|value| format!("FOUND {key} {value:?}")))
        .collect();
    for prefix in ["", "c", "%", "\0"] {
        found.extend(
            kv::all_keys(prefix).unwrap_or_default().into_iter().map(|key| format!("LISTED {key}")),
        );
    }
    KEYS.iter().for_each(|key| drop(kv::delete(key)));
    Json(found)
}

conclave_sdk::export!(tools: [run], asks: [kv]);
