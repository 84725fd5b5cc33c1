//! Cannot do without `fetch`, a capability of a later version.

use conclave_sdk::tool;

/// Is never called: the plugin is refused at load.
#[tool]
fn run() -> &'static str {
    "loaded"
}

conclave_sdk::export!(tools: [run], asks: [fetch]);
