//! Panics; the message goes to stderr, the call ends in a trap.

use conclave_sdk::tool;

/// Panics.
#[tool]
fn run() -> String {
    panic!("this guest panics on purpose")
}

conclave_sdk::export!(tools: [run], asks: []);
