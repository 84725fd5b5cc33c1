//! Chat: the smallest agent with a model behind it. The prompt names the history instead of copying
//! it, so a step costs the same however long the conversation is; tools, formats and budgets are
//! the host's business.

use conclave_sdk::{Agent, Result, Turn, View, model};

struct Chat;

impl Agent for Chat {
    fn step(_view: &View) -> Result<Turn> {
        // The default prompt: the task's system text and all that was said. The turn carries what
        // the model said, the tools it wants to call, and the completion's id.
        let completion = model::answer()?;
        Ok(completion.into())
    }
}

conclave_sdk::export!(agent: Chat);
