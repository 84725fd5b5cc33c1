//! An agent that never finishes. Each message is different, so that loop detection does not end it.

use conclave_sdk::{Agent, Result, Turn, View, say};

struct Loop;

impl Agent for Loop {
    fn step(view: &View) -> Result<Turn> {
        Ok(say(format!("thought number {}", view.iteration())))
    }
}

conclave_sdk::export!(agent: Loop, asks: []);
