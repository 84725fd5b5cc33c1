//! Keeps a million host resources of the contract: pending completions.

use conclave_sdk::{model, tool};

/// Starts completions and drops none; says how many it got.
#[tool]
fn run() -> String {
    let mut kept = Vec::new();
    while kept.len() < 1_000_000 {
        match model::start(&model::Request::default()) {
            Ok(pending) => kept.push(pending),
            Err(error) => return format!("{} kept, then {error:?}", kept.len()),
        }
    }
    format!("KEPT {}", kept.len())
}

conclave_sdk::export!(tools: [run], asks: [model?]);
