//! An agent that starts a background task without a grant, and finishes with the result.

use conclave_sdk::{Agent, Result, Turn, View, delegate, finish};

struct Delegator;

impl Agent for Delegator {
    fn step(view: &View) -> Result<Turn> {
        if view.iteration() == 0 {
            return Ok(delegate("vault").task("Open the vault.").start());
        }
        let outputs = view.tool_outputs();
        let observed = outputs.first().map(|output| output.content.clone());
        Ok(finish(
            observed.or_else(|| view.pending().map(|message| message.content)).unwrap_or_default(),
        ))
    }
}

conclave_sdk::export!(agent: Delegator, asks: [delegate?]);
