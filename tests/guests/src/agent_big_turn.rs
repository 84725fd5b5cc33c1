//! An agent that returns 64 MiB.

use conclave_sdk::{Agent, Result, Turn, View, say};

struct Big;

impl Agent for Big {
    fn step(_view: &View) -> Result<Turn> {
        Ok(say("x".repeat(64 * 1024 * 1024)))
    }
}

conclave_sdk::export!(agent: Big, asks: []);
