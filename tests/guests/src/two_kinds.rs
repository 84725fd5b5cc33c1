//! A single component that is a tool plugin and an agent. Its tool `peek` reads the agent's task,
//! which a tool call does not have.

use conclave_sdk::bindings::agent::conclave::plugin::state;
use conclave_sdk::{Agent, Result, Turn, View, finish, tool};

/// Returns the text.
#[tool]
fn run(text: String) -> String {
    text
}

/// Returns the message that waits for the agent's answer.
#[tool]
fn peek() -> Option<String> {
    state::pending().map(|message| message.content)
}

struct Both;

impl Agent for Both {
    fn step(view: &View) -> Result<Turn> {
        Ok(finish(format!("stepped in {}", view.task_name())))
    }
}

conclave_sdk::export!(tools: [run, peek], agent: Both, asks: []);
