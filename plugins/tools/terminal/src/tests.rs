//! The terminal as a host calls it, with a host in memory.

mod background;
mod bash;
mod hostile;
mod network;
mod state;

use conclave_sdk::testing::FakeHost;
use conclave_sdk::{Call, Outcome, Toolset};
use serde_json::{Value, json};

use crate::Terminal;

/// Bytes of a stack: frames of an unoptimised build are many times those of the component.
const STACK: usize = 256 << 20;

/// Calls a tool and returns its outcome.
fn call(host: &mut FakeHost, tool: &str, arguments: Value) -> Outcome {
    let called = std::thread::scope(|scope| {
        let call = || host.run(|| Terminal::call(tool, arguments, &Call::default()));
        let thread = std::thread::Builder::new().stack_size(STACK);
        thread.spawn_scoped(scope, call).expect("a thread starts").join()
    });
    let outcome = called.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    outcome.unwrap_or_else(|error| panic!("{tool} failed: {error}"))
}

/// Runs a command, and returns its output and exit code.
fn run(host: &mut FakeHost, command: &str) -> (String, i64) {
    observed(&call(host, "run", json!({ "command": command })))
}

/// Returns the text and the exit code of an observation.
fn observed(outcome: &Outcome) -> (String, i64) {
    let value: Value =
        serde_json::from_str(outcome.value.as_deref().unwrap_or_default()).unwrap_or_default();
    let observation = &value["observation"];
    let content = observation["content"].as_str().unwrap_or_default().to_owned();
    let code = observation["extras"]["exit_code"].as_i64().unwrap_or(-100);
    let end = format!("[Command finished with exit code {code}]");
    let text = outcome.content.as_deref().unwrap_or_default();
    assert_eq!(text.trim_end_matches(&end).trim_end(), content.trim_end());
    // An error has no exit code.
    assert_eq!(text.ends_with(&end), ![0, -100].contains(&code), "{text}");
    (content, code)
}
