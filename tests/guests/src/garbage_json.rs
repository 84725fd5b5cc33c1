//! Returns a structured value that is not JSON.

use conclave_sdk::{Outcome, tool};

/// Breaks the promise that `value` is JSON.
#[tool]
fn run() -> Outcome {
    Outcome { value: Some("not json".into()), ..Outcome::text("fine") }
}

conclave_sdk::export!(tools: [run], asks: []);
