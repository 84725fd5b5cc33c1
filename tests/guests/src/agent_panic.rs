//! An agent that panics in its step.

use conclave_sdk::{Agent, Result, Turn, View};

struct Panic;

impl Agent for Panic {
    fn step(_view: &View) -> Result<Turn> {
        panic!("this agent panics on purpose")
    }
}

conclave_sdk::export!(agent: Panic, asks: []);
