//! Calls itself until the stack ends.

use std::hint::black_box;

use conclave_sdk::tool;

/// Dives without end.
#[tool]
fn run() -> u64 {
    deeper(0)
}

/// The frame is used after the call, so that no loop can replace it.
fn deeper(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    if black_box(false) { depth } else { deeper(depth + 1).wrapping_add(frame[black_box(0)]) }
}

conclave_sdk::export!(tools: [run], asks: []);
