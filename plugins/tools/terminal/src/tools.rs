//! The tools `run`, `poll` and `kill`: their descriptions, arguments and observations. Further
//! arguments of the actions' fixed JSON, such as a thought, are accepted.

use std::time::Duration;

use conclave_sdk::trajectory::observation::MAX_COMMAND_OUTPUT;
use conclave_sdk::trajectory::truncate;
use conclave_sdk::{Error, Outcome, Result, ToolSpec, config};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::background::Job;
use crate::shell::{self, End};
use crate::state::TerminalState;

/// The id of the first background command, as in the reference.
const FIRST_ID: i64 = 42;

#[derive(Deserialize)]
#[serde(default)]
struct Settings {
    timeout_s: u64,
    poll_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { timeout_s: 120, poll_ms: 500 }
    }
}

#[derive(Deserialize)]
pub(crate) struct Run {
    command: String,
    #[serde(default)]
    background: Option<bool>,
    #[serde(default)]
    timeout_s: Option<u64>,
    /// Whether the command is input for a running program, as in logs of 2025-11.
    #[serde(default)]
    is_input: Option<bool>,
}

#[derive(Deserialize)]
pub(crate) struct OfCommand {
    command_id: i64,
}

/// Parses the arguments of a tool.
pub(crate) fn arguments<T: DeserializeOwned>(arguments: Value) -> Result<T> {
    serde_json::from_value(arguments).map_err(|error| Error::invalid_arguments(error.to_string()))
}

/// Runs a command, or starts one in the background.
pub(crate) fn run(Run { command, background, timeout_s, is_input }: Run) -> Result<Outcome> {
    if is_input == Some(true) {
        // As a command it would do something else.
        return Err(Error::other(
            "no program is running that could read this input: a command ends before the next one begins",
        ));
    }
    let settings: Settings = config::get()?;
    let timeout = Duration::from_secs(timeout_s.unwrap_or(settings.timeout_s));
    let mut state = TerminalState::load();
    if background == Some(true) {
        return start(state, &command, settings.poll_ms);
    }
    let mut shell = state.shell.take();
    let ran = shell::run(&mut state, &mut shell, &command, timeout);
    state.shell = shell;
    let lost = state.lost.take().map(|lost| with_line(String::new(), &lost));
    let mut content = lost.unwrap_or_default() + &ran.output;
    if ran.end == End::TimedOut {
        // O-133
        content
            .push_str(&format!("Command: \"{command}\" timed out. Sent SIGINT to the process: "));
    }
    let mut exit_code = ran.end.code();
    if let Err(error) = state.store() {
        content = with_line(content, &error.to_string());
        exit_code = if exit_code == 0 { 1 } else { exit_code };
    }
    let content = shown(content.strip_suffix('\n').unwrap_or(&content));
    let observation = observation(-1, &command, exit_code, &content);
    // As a tool call it has no observation, only this text.
    let text = match exit_code {
        0 => content,
        code => {
            format!("{content}\n[Command finished with exit code {code}]").trim_start().to_owned()
        }
    };
    Outcome::text(text).with_value(&json!({ "observation": observation }))
}

fn start(mut state: TerminalState, command: &str, poll_ms: u64) -> Result<Outcome> {
    let lost = state.lost.take();
    let id = FIRST_ID + state.started;
    state.started += 1;
    state.jobs.insert(id, Job::new(command, state.shell.clone()));
    if let Err(error) = state.store() {
        let observation = observation(-1, command, 1, &error.to_string());
        return Outcome::text(error.to_string()).with_value(&json!({ "observation": observation }));
    }
    // O-094
    let mut content = lost.map(|lost| with_line(String::new(), &lost)).unwrap_or_default();
    content += &format!(
        "Background command started. To stop it, send a `kill` action with command_id {id}"
    );
    let background = json!({ "command_id": id, "poll_ms": poll_ms });
    let observation = observation(id, command, 0, &content);
    Outcome::text(content)
        .with_value(&json!({ "background": background, "observation": observation }))
}

/// Lets a background command continue, and returns its output since the last poll.
pub(crate) fn poll(OfCommand { command_id }: OfCommand) -> Result<Outcome> {
    let mut state = TerminalState::load();
    let Some(mut job) = state.jobs.remove(&command_id) else { return unknown(command_id) };
    let mut slice = job.advance(&mut state);
    if slice.exit_code.is_none() {
        state.jobs.insert(command_id, job);
    }
    if let Err(error) = state.store() {
        // Without its state it cannot continue, so it ends here.
        let mut state = TerminalState::load();
        state.jobs.remove(&command_id);
        drop(state.store());
        slice.output = with_line(slice.output, &error.to_string());
        slice.exit_code = Some(1);
    }
    let output = shown(&slice.output);
    let value = json!({ "output": output, "exit_code": slice.exit_code, "command_id": command_id });
    Outcome::text(output).with_value(&value)
}

/// Ends a background command.
pub(crate) fn kill(OfCommand { command_id }: OfCommand) -> Result<Outcome> {
    let mut state = TerminalState::load();
    let Some(job) = state.jobs.remove(&command_id) else { return unknown(command_id) };
    state.store().map_err(Error::other)?;
    // O-096
    let content = format!("Background command with id {command_id} has been killed.");
    let observation = observation(command_id, job.command(), 0, &content);
    Outcome::text(content).with_value(&json!({ "observation": observation }))
}

fn unknown(id: i64) -> Result<Outcome> {
    let content = format!("There is no background command with id {id}.");
    let observation = json!({ "observation": "error", "content": content, "extras": {} });
    Outcome::text(content).with_value(&json!({ "observation": observation }))
}

fn observation(id: i64, command: &str, exit_code: i32, content: &str) -> Value {
    let extras = json!({ "command_id": id, "command": command, "exit_code": exit_code });
    json!({ "observation": "run", "content": content, "extras": extras })
}

fn shown(text: &str) -> String {
    truncate(text, MAX_COMMAND_OUTPUT)
}

fn with_line(mut text: String, line: &str) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text + line + "\n"
}

/// The tools' descriptions for a model.
pub(crate) fn specs() -> Vec<ToolSpec> {
    let id = json!({
        "type": "object",
        "required": ["command_id"],
        "properties": { "command_id": { "type": "integer", "description": "The id that `run` returned." } },
    });
    let run = json!({
        "type": "object",
        "required": ["command"],
        "properties": {
            "command": { "type": "string", "description": "A script for bash; several lines are one script." },
            "background": { "type": ["boolean", "null"], "description": "Return at once; output follows later." },
            "timeout_s": { "type": ["integer", "null"], "minimum": 0, "description": "The seconds of waiting after which it is interrupted." },
        },
    });
    vec![
        ToolSpec::new(
            "run",
            "Runs a command in a shell compatible with bash. Working directory, variables, functions and options stay for the next \
             command. There are no programs besides the shell's own, and no compilers or interpreters of other languages: `help` and a \
             command that does not exist list them. Waiting takes no time: `sleep` returns at once.",
            run.to_string(),
        ),
        ToolSpec::new(
            "poll",
            "Returns the output of a background command since the last poll, and its exit code at its end.",
            id.to_string(),
        ),
        ToolSpec::new("kill", "Ends a background command.", id.to_string()),
    ]
}
