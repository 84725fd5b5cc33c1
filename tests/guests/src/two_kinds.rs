//! A single component that is a tool plugin and an agent.

use conclave_sdk::{Agent, Result, Turn, View, finish, tool};

/// Returns the text.
#[tool]
fn run(text: String) -> String {
    text
}

struct Both;

impl Agent for Both {
    fn step(view: &View) -> Result<Turn> {
        Ok(finish(format!("stepped in {}", view.task_name())))
    }
}

conclave_sdk::export!(tools: [run], agent: Both, asks: []);
