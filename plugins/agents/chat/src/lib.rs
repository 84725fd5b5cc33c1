//! Chat: the smallest agent with a model. The prompt names the history instead of copying it, so a
//! step costs the same however long the conversation is. Tools, formats and budgets are left to the
//! host.

use conclave_sdk::{Agent, Result, Turn, View, model};

struct Chat;

impl Agent for Chat {
    fn step(_view: &View) -> Result<Turn> {
        // The default prompt: the task's system text and the whole history. The turn carries the
        // model's text, its tool calls, and the completion's id.
        let completion = model::answer()?;
        Ok(completion.into())
    }
}

conclave_sdk::export!(agent: Chat);
