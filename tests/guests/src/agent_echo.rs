//! An agent that finishes with its input.

use conclave_sdk::{Agent, Result, Turn, View, finish};

struct Echo;

impl Agent for Echo {
    fn step(view: &View) -> Result<Turn> {
        Ok(finish(view.pending().map(|message| message.content).unwrap_or_default()))
    }
}

conclave_sdk::export!(agent: Echo, asks: []);
