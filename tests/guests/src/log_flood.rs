//! Writes a million log lines.

use conclave_sdk::{log, tool};

/// Talks too much.
#[tool]
fn run() -> &'static str {
    for line in 0..1_000_000 {
        log::info!("line {line}");
    }
    "wrote a million lines"
}

conclave_sdk::export!(tools: [run], asks: []);
