//! Returns its argument, or fails: the simplest tool.

use conclave_sdk::{Error, Result, tool};

/// Returns the text.
#[tool(idempotent)]
fn run(text: String) -> String {
    text
}

/// Fails with the text.
#[tool(idempotent)]
fn fail(text: String) -> Result<()> {
    Err(Error::Other(text))
}

conclave_sdk::export!(tools: [run, fail], asks: []);
