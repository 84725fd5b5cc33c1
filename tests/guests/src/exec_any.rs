//! Runs the program that its arguments name, and returns the result, or the refusal.

use conclave_sdk::exec::{self, Command, Ending};
use conclave_sdk::{Error, Json, tool};
use serde::Serialize;

/// What came of one program.
#[derive(Default, Serialize, schemars::JsonSchema)]
struct Came {
    ending: String,
    stdout: String,
    stderr: String,
    dropped: u64,
}

/// Runs a program.
#[tool]
fn run(
    program: String,
    arguments: Option<Vec<String>>,
    directory: Option<String>,
    input: Option<String>,
) -> Json<Came> {
    let mut command =
        Command::new(program).args(arguments.unwrap_or_default()).input(input.unwrap_or_default());
    if let Some(directory) = directory {
        command = command.directory(directory);
    }
    Json(match command.run() {
        Ok(output) => Came {
            ending: match output.ending {
                Ending::ExitCode(code) => format!("exit {code}"),
                Ending::Signal(signal) => format!("signal {signal}"),
                Ending::LimitExceeded(ref limit) => format!("limit {limit}"),
            },
            stdout: output.stdout().into_owned(),
            stderr: output.stderr().into_owned(),
            dropped: output.dropped,
        },
        Err(Error::Denied(denial)) => {
            Came { ending: format!("denied {}", denial.target), ..Came::default() }
        }
        Err(error) => Came { ending: format!("error {error}"), ..Came::default() },
    })
}

/// Returns the granted commands.
#[tool]
fn granted() -> String {
    exec::commands().join("\n")
}

conclave_sdk::export!(tools: [run, granted], asks: [exec?, files?]);
