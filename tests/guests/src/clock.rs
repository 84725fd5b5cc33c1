//! Reads both clocks twice.

use std::time::{SystemTime, UNIX_EPOCH};

use conclave_sdk::{Json, Result, tool};
use wasip2::clocks::monotonic_clock;

#[derive(schemars::JsonSchema, serde::Serialize)]
struct Times {
    /// Since the Unix epoch.
    wall_ns: [u128; 2],
    monotonic_ns: [u64; 2],
}

/// Tells the time.
#[tool]
fn run() -> Result<Json<Times>> {
    let start = monotonic_clock::now();
    let first = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let second = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let monotonic_ns = [start, monotonic_clock::now()];
    Ok(Json(Times { wall_ns: [first, second], monotonic_ns }))
}

conclave_sdk::export!(tools: [run], asks: []);
