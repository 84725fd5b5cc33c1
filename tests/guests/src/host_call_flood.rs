//! Calls the host a million times.

use conclave_sdk::bindings::imports::conclave::plugin::config;
use conclave_sdk::tool;

/// Asks for its settings again and again.
#[tool]
fn run() -> String {
    let bytes: usize = (0..1_000_000).map(|_| config::get().len()).sum();
    format!("read {bytes} bytes in a million calls")
}

conclave_sdk::export!(tools: [run], asks: []);
