//! Asks a model without a grant.

use conclave_sdk::{Json, model, tool};

/// Completes and starts; each entry is what came of it.
#[tool]
fn run() -> Json<[String; 2]> {
    let completed = format!("{:?}", model::answer().map(|completion| completion.content));
    let started = format!("{:?}", model::start(&model::Request::default()).map(|_| "STARTED"));
    Json([completed, started])
}

conclave_sdk::export!(tools: [run], asks: [model?]);
