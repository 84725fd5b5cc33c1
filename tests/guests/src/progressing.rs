//! Reports its progress three times.

use conclave_sdk::{progress, tool};

/// Works in three parts.
#[tool]
fn run() -> &'static str {
    for (done, part) in (1..).zip(["first", "second", "third"]) {
        progress::report(done, 3, part);
    }
    "done"
}

conclave_sdk::export!(tools: [run], asks: [progress]);
