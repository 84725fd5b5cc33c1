//! Returns 64 MiB of text.

use conclave_sdk::tool;

/// Says too much.
#[tool]
fn run() -> String {
    "x".repeat(64 * 1024 * 1024)
}

conclave_sdk::export!(tools: [run], asks: []);
