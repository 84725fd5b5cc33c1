//! Looks for environment variables, arguments and a working directory.

use conclave_sdk::{Json, tool};

#[derive(schemars::JsonSchema, serde::Serialize)]
struct Found {
    variables: usize,
    arguments: usize,
    directory: String,
}

/// Looks around.
#[tool]
fn run() -> Json<Found> {
    let directory = std::env::current_dir()
        .map_or_else(|error| error.to_string(), |path| path.display().to_string());
    Json(Found {
        variables: std::env::vars_os().count(),
        arguments: std::env::args_os().count(),
        directory,
    })
}

conclave_sdk::export!(tools: [run], asks: []);
