//! Sleeps for an hour inside the host.

use std::time::Duration;

use conclave_sdk::tool;

/// Sleeps.
#[tool]
fn run() -> &'static str {
    std::thread::sleep(Duration::from_secs(3_600));
    "slept"
}

conclave_sdk::export!(tools: [run], asks: []);
