//! A simulated shell over its scratch, for tests of `run`, `kill` and `run_ipython`. No process
//! ever runs, and time passes at once.
//!
//! It supports `echo`, `true`, `false`, `exit N`, `sleep N`, `cd`, `pwd`, `tick`, which counts, and
//! `srv`, which never ends. `sleep` and `srv` end at once, or time out if they would take longer
//! than `timeout_s`. Lines run one after another until one fails. In the background each poll runs
//! the next line.

use std::collections::BTreeMap;

use conclave_sdk::{Outcome, Result, config, scratch, tool};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(default)]
struct Settings {
    /// Of the first background command.
    first_id: i64,
    timeout_s: u64,
    /// How often a background command is asked.
    poll_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { first_id: 42, timeout_s: 120, poll_ms: 100 }
    }
}

/// The state between calls.
#[derive(Default, Deserialize, Serialize)]
struct Shell {
    /// The working folder; empty for `/workspace`.
    folder: String,
    jobs: BTreeMap<i64, Job>,
    started: i64,
    /// How many times `tick` ran.
    #[serde(default)]
    ticks: u64,
}

#[derive(Deserialize, Serialize)]
struct Job {
    command: String,
    /// Lines that have not run yet.
    rest: Vec<String>,
    exit_code: Option<i32>,
}

/// The result of a line.
enum Ran {
    Ended {
        output: String,
        exit_code: i32,
    },
    /// Runs for so many seconds, or without end.
    GoesOn(Option<u64>),
}

/// Runs a command in a shell that remembers where it is. Lines run one after another and stop at
/// the first that fails.
#[tool]
#[expect(clippy::too_many_arguments, reason = "all that the action has in its fixed JSON")]
fn run(
    /// The command.
    command: String,
    /// Answer at once and send output later.
    background: Option<bool>,
    /// After how many seconds it is interrupted.
    timeout_s: Option<u64>,
    thought: Option<Value>,
    is_input: Option<Value>,
    blocking: Option<Value>,
    is_static: Option<Value>,
    cwd: Option<Value>,
    hidden: Option<Value>,
    confirmation_state: Option<Value>,
    security_risk: Option<Value>,
) -> Result<Outcome> {
    let _ =
        (thought, is_input, blocking, is_static, cwd, hidden, confirmation_state, security_risk);
    let settings: Settings = config::get()?;
    let mut shell: Shell = scratch::get()?.unwrap_or_default();
    if background == Some(true) {
        let id = settings.first_id + shell.started;
        shell.started += 1;
        shell
            .jobs
            .insert(id, Job { rest: lines(&command), command: command.clone(), exit_code: None });
        scratch::set(&shell)?;
        // O-094
        let content = format!(
            "Background command started. To stop it, send a `kill` action with command_id {id}"
        );
        let value = json!({ "background": { "command_id": id, "poll_ms": settings.poll_ms }, "observation": observed(id, &command, 0, &content) });
        return Outcome::text(content).with_value(&value);
    }
    let (output, exit_code, ran) = shell.run_all(&command, timeout_s.unwrap_or(settings.timeout_s));
    scratch::set(&shell)?;
    let value = json!({ "observation": observed(-1, &command, exit_code, &output), "ran": ran });
    Outcome::text(output).with_value(&value)
}

/// Asks a background command what it said since it was asked last, and whether it has ended.
#[tool]
fn poll(
    /// Of the background command.
    command_id: i64,
) -> Result<Outcome> {
    let mut shell: Shell = scratch::get()?.unwrap_or_default();
    let Some(mut job) = shell.jobs.remove(&command_id) else { return unknown(command_id) };
    let mut output = String::new();
    if job.exit_code.is_none() {
        match job.rest.first().cloned().map(|line| shell.run_line(&line)) {
            None => job.exit_code = Some(0),
            Some(Ran::GoesOn(None)) => {}
            Some(Ran::GoesOn(Some(_))) => drop(job.rest.remove(0)),
            Some(Ran::Ended { output: said, exit_code }) => {
                // Chunks of one command are read one after another, so each ends with a line break.
                output = if said.is_empty() { said } else { said + "\n" };
                job.rest.remove(0);
                job.exit_code = (exit_code != 0).then_some(exit_code);
            }
        }
    }
    let value = json!({ "output": output, "exit_code": job.exit_code, "command_id": command_id });
    if job.exit_code.is_none() {
        shell.jobs.insert(command_id, job);
    }
    scratch::set(&shell)?;
    Outcome::text(output).with_value(&value)
}

/// Stops a background command.
#[tool]
fn kill(
    /// Of the background command.
    command_id: i64,
    thought: Option<Value>,
) -> Result<Outcome> {
    drop(thought);
    let mut shell: Shell = scratch::get()?.unwrap_or_default();
    let Some(job) = shell.jobs.remove(&command_id) else { return unknown(command_id) };
    scratch::set(&shell)?;
    // O-096
    let content = format!("Background command with id {command_id} has been killed.");
    let value = json!({ "observation": observed(command_id, &job.command, 0, &content) });
    Outcome::text(content).with_value(&value)
}

/// Runs Python code: knows `print(…)` of one text or number, sums of whole numbers, and `raise`.
#[tool]
fn run_ipython(
    /// The code.
    code: String,
    thought: Option<Value>,
    kernel_init_code: Option<Value>,
    include_extra: Option<Value>,
    confirmation_state: Option<Value>,
    security_risk: Option<Value>,
) -> Result<Outcome> {
    let _ = (thought, kernel_init_code, include_extra, confirmation_state, security_risk);
    // O-138: an error is text, never a failed status.
    let content = code.lines().filter_map(cell).collect::<Vec<_>>().join("\n");
    let observation =
        json!({ "observation": "run_ipython", "content": content, "extras": { "code": code } });
    Outcome::text(content).with_value(&json!({ "observation": observation }))
}

fn cell(line: &str) -> Option<String> {
    let line = line.trim();
    if let Some(printed) = line.strip_prefix("print(").and_then(|rest| rest.strip_suffix(')')) {
        return Some(printed.trim_matches(['"', '\'']).to_owned());
    }
    if let Some(raised) = line.strip_prefix("raise ") {
        return Some(format!("Traceback (most recent call last):\n{raised}"));
    }
    let numbers: Option<Vec<i64>> =
        line.split('+').map(|number| number.trim().parse().ok()).collect();
    numbers.map(|numbers| numbers.into_iter().fold(0_i64, i64::wrapping_add).to_string())
}

fn unknown(id: i64) -> Result<Outcome> {
    let content = format!("There is no background command with id {id}.");
    let value =
        json!({ "observation": { "observation": "error", "content": content, "extras": {} } });
    Outcome::text(content).with_value(&value)
}

fn observed(id: i64, command: &str, exit_code: i32, content: &str) -> Value {
    json!({ "observation": "run", "content": content, "extras": { "command_id": id, "command": command, "exit_code": exit_code } })
}

/// Splits at newlines outside of quotes (O-133).
fn lines(command: &str) -> Vec<String> {
    let (mut lines, mut quote) = (vec![String::new()], None);
    for letter in command.chars() {
        match letter {
            '\n' if quote.is_none() => lines.push(String::new()),
            _ => {
                if let '"' | '\'' = letter {
                    quote = if quote == Some(letter) { None } else { quote.or(Some(letter)) };
                }
                lines.iter_mut().last().into_iter().for_each(|line| line.push(letter));
            }
        }
    }
    lines.retain(|line| !line.trim().is_empty());
    lines
}

impl Shell {
    /// Returns the output, the last exit code, and the lines that ran.
    fn run_all(&mut self, command: &str, timeout_s: u64) -> (String, i32, Vec<String>) {
        let (mut said, mut ran) = (Vec::new(), Vec::new());
        for line in lines(command) {
            let came = self.run_line(&line);
            ran.push(line.clone());
            match came {
                Ran::GoesOn(seconds) if seconds.is_none_or(|seconds| seconds >= timeout_s) => {
                    said.push(format!(
                        "Command: \"{line}\" timed out. Sent SIGINT to the process: "
                    ));
                    return (said.join("\n"), -1, ran);
                }
                Ran::GoesOn(_) => {}
                Ran::Ended { output, exit_code } => {
                    said.extend(Some(output).filter(|output| !output.is_empty()));
                    if exit_code != 0 {
                        return (said.join("\n"), exit_code, ran);
                    }
                }
            }
        }
        (said.join("\n"), 0, ran)
    }

    fn run_line(&mut self, line: &str) -> Ran {
        let (program, rest) =
            line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
        let rest = rest.trim();
        let ended =
            |output: &str, exit_code: i32| Ran::Ended { output: output.to_owned(), exit_code };
        match program {
            "echo" => ended(rest.trim_matches(['"', '\'']), 0),
            "true" => ended("", 0),
            "false" => ended("", 1),
            "exit" => ended("", rest.parse().unwrap_or(0)),
            "sleep" => rest.parse().map_or_else(
                |_| ended("sleep: invalid time interval", 1),
                |seconds| Ran::GoesOn(Some(seconds)),
            ),
            "srv" => Ran::GoesOn(None),
            "tick" => {
                self.ticks += 1;
                ended(&self.ticks.to_string(), 0)
            }
            "cd" => {
                self.folder = rest.to_owned();
                ended("", 0)
            }
            "pwd" => ended(if self.folder.is_empty() { "/workspace" } else { &self.folder }, 0),
            _ => ended(&format!("sh: {program}: command not found"), 127),
        }
    }
}

conclave_sdk::export!(tools: [run, poll, kill, run_ipython], manifest: "manifests/stub_terminal.toml");
