//! An agent that addresses a task that does not exist, and finishes with the result.

use conclave_sdk::{Agent, Result, Turn, View, finish, say};

struct Lost;

impl Agent for Lost {
    fn step(view: &View) -> Result<Turn> {
        if view.iteration() == 0 {
            return Ok(say("is anybody there?").to("nobody"));
        }
        Ok(finish(view.pending().map_or_else(|| "nothing".into(), |message| message.content)))
    }
}

conclave_sdk::export!(agent: Lost, asks: [route?]);
