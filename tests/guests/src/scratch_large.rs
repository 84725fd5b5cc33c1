//! Puts 100 MiB into its scratch.

use conclave_sdk::{scratch, tool};

/// Remembers too much.
#[tool]
fn run() -> String {
    format!("{:?}", scratch::set_bytes(&vec![1; 100 * 1024 * 1024]))
}

/// Remembers so many bytes.
#[tool]
fn some(bytes: usize) -> String {
    format!("{:?}", scratch::set_bytes(&vec![1; bytes]))
}

conclave_sdk::export!(tools: [run, some], asks: [scratch]);
