//! Fills its key-value store past the quota, and uses invalid keys.

use conclave_sdk::{Json, kv, tool};

/// Fills the store with keys, with bytes and with one value; each entry is what came of it.
#[tool]
fn run() -> Json<Vec<String>> {
    let fill = |value: &[u8]| {
        let refused = (0..5_000).find_map(|index| {
            kv::set(&format!("{index}"), value).err().map(|error| format!("{index}: {error:?}"))
        });
        kv::all_keys("").unwrap_or_default().iter().for_each(|key| drop(kv::delete(key)));
        refused.unwrap_or_else(|| "NEVER REFUSED".to_owned())
    };
    let (many, large) = (fill(b""), fill(&[0; 100]));
    let one = format!("{:?}", kv::set("one", vec![0; 500_000]));
    let long = format!("{:?}", kv::set(&"k".repeat(513), b""));
    Json(vec![many, large, one, long])
}

/// Counts its calls.
#[tool]
fn count() -> conclave_sdk::Result<u32> {
    let count = kv::get_json("count")?.unwrap_or(0) + 1;
    kv::set_json("count", &count)?;
    Ok(count)
}

conclave_sdk::export!(tools: [run, count], asks: [kv]);
