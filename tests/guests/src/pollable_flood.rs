//! Keeps a million host resources of WASI: timers. It needs no grant.

use conclave_sdk::tool;
use wasip2::clocks::monotonic_clock::subscribe_duration;

/// Makes timers and drops none; says how many it got.
#[tool]
fn run() -> String {
    let kept: Vec<_> = (0..1_000_000).map(|_| subscribe_duration(3_600_000_000_000)).collect();
    format!("KEPT {}", kept.len())
}

conclave_sdk::export!(tools: [run], asks: []);
