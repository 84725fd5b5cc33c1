//! Counts its calls in its scratch.

use conclave_sdk::{Error, Result, scratch, tool};

/// Counts one further.
#[tool]
fn run() -> Result<u32> {
    let count = scratch::get::<u32>()?.unwrap_or(0) + 1;
    scratch::set(&count)?;
    Ok(count)
}

/// Counts, and fails: what was set must then be forgotten.
#[tool]
fn fail() -> Result<u32> {
    scratch::set(&1_000)?;
    Err(Error::other("failed after it had set its scratch"))
}

conclave_sdk::export!(tools: [run, fail], asks: [scratch]);
