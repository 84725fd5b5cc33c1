//! Ends the caller's task: requests that `done` runs next, without the `route` grant.

use conclave_sdk::{Outcome, tool};
use serde_json::json;

/// Steers.
#[tool]
fn run() -> Outcome {
    Outcome::text("steered").then("done", json!({ "content": "the tool decided" }))
}

conclave_sdk::export!(tools: [run], asks: []);
