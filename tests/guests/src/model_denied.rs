//! Asks a model without a grant.

use conclave_sdk::{Draft, Json, Role, model, tool};

/// Completes and starts; each entry is what came of it.
#[tool]
fn run() -> Json<[String; 2]> {
    let completed = format!("{:?}", model::answer().map(|completion| completion.content));
    let started = format!("{:?}", model::start(&model::Request::default()).map(|_| "STARTED"));
    Json([completed, started])
}

/// Waits for an answer of the model.
#[tool]
fn wait() -> String {
    let draft = model::Part::Draft(Draft {
        role: Role::User,
        content: "Are you there?".to_owned(),
        tool_calls: Vec::new(),
        tool_results: Vec::new(),
        attachments: Vec::new(),
    });
    let request = model::Request { prompt: vec![draft], ..model::Request::default() };
    format!("{:?}", model::complete(&request).map(|completion| completion.content))
}

conclave_sdk::export!(tools: [run, wait], asks: [model?]);
