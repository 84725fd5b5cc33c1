//! A single component that is a tool plugin and an agent. Its tool `peek` reads the agent's task,
//! which a tool call does not have; its agent reads the facts of a tool call when it is told to.

use conclave_sdk::bindings::agent::conclave::plugin::state;
use conclave_sdk::bindings::tool::conclave::plugin::{call, history};
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
        // A step has a task, and no tool call.
        let fact = match view.pending().map(|message| message.content).as_deref() {
            Some("call-id") => call::call_id(),
            Some("attempt") => call::attempt().to_string(),
            Some("task-name") => call::task_name(),
            Some("room-id") => call::room_id(),
            Some("caller") => call::caller(),
            Some("deadline-ms") => call::deadline_ms().to_string(),
            Some("traceparent") => call::traceparent(),
            Some("calling-message") => format!("{:?}", history::calling_message()),
            Some("inputs") => format!("{:?}", history::inputs()),
            Some("length") => format!("{:?}", history::length()),
            Some("messages") => format!("{:?}", history::messages(0, 1)),
            _ => format!("stepped in {}", view.task_name()),
        };
        Ok(finish(fact))
    }
}

conclave_sdk::export!(tools: [run, peek], agent: Both, asks: []);
