//! An agent that never finishes: it says something different each time, so that no repetition gives
//! it away.

use conclave_sdk::{Agent, Result, Turn, View, say};

struct Loop;

impl Agent for Loop {
    fn step(view: &View) -> Result<Turn> {
        Ok(say(format!("thought number {}", view.iteration())))
    }
}

conclave_sdk::export!(agent: Loop, asks: []);
