//! Returns its settings.

use conclave_sdk::{Json, Result, config, tool};

/// What the operator wrote in this plugin's `config` table.
#[tool]
fn run() -> Result<Json<serde_json::Value>> {
    config::get().map(Json)
}

conclave_sdk::export!(tools: [run], manifest: "manifests/config_read.toml");
