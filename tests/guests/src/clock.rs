//! Reads both clocks of `std` twice.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use conclave_sdk::{Json, Result, tool};

#[derive(schemars::JsonSchema, serde::Serialize)]
struct Times {
    /// Since the Unix epoch.
    wall_ns: [u128; 2],
    /// Between two readings of the monotonic clock.
    elapsed_ns: u128,
}

/// Tells the time.
#[tool]
fn run() -> Result<Json<Times>> {
    let start = Instant::now();
    let first = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let second = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    Ok(Json(Times { wall_ns: [first, second], elapsed_ns: start.elapsed().as_nanos() }))
}

conclave_sdk::export!(tools: [run], asks: []);
