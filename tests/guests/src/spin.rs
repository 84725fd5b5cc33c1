//! Never returns from a call.

use conclave_sdk::tool;

/// Computes for ever.
#[tool]
fn run() -> String {
    loop {
        std::hint::black_box(0);
    }
}

conclave_sdk::export!(tools: [run], asks: []);
