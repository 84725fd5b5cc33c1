//! Programs: tools that run programs of the operator's machine. They run outside the sandbox, with the
//! commands that the operator granted:
//!
//! ```toml
//! [plugins.programs]
//! source = "stock:programs"
//! grants.exec = ["/usr/bin/git status", "/usr/bin/git log *"]
//! grants.files = [{ dir = "project", at = "/workspace", mode = "read" }]
//! ```

use std::time::Duration;

use conclave_sdk::exec::{self, Command, Ending, Output};
use conclave_sdk::{Error, Json, Result, files, tool};
use schemars::JsonSchema;
use serde::Serialize;

/// The end and the output of a program, as the model reads them.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct Ran {
    /// The exit code; absent if the program was stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
    /// Why the program was stopped, such as a time limit; absent if it ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<String>,
    stdout: String,
    stderr: String,
    /// Bytes of output that were dropped because there was too much.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped_bytes: Option<u64>,
}

/// Runs a program of the machine and returns its exit code and output. It is no shell: there are no
/// pipes, variables or patterns. Only granted commands run; `programs.list` returns them.
#[tool]
fn run(
    /// The program's name or path, such as `git`.
    program: String,
    /// Its arguments, one each: `["log", "main"]`.
    arguments: Option<Vec<String>>,
    /// The working directory, such as `/workspace`; the first folder that this tool may use when absent.
    directory: Option<String>,
    /// The text on its standard input.
    input: Option<String>,
    /// The time limit in seconds; the operator sets the largest.
    timeout_seconds: Option<u32>,
) -> Result<Json<Ran>> {
    let mut command = Command::new(&program).args(arguments.unwrap_or_default());
    if let Some(directory) =
        directory.or_else(|| files::roots().into_iter().next().map(|root| root.path))
    {
        command = command.directory(directory);
    }
    if let Some(input) = input {
        command = command.input(input);
    }
    if let Some(seconds) = timeout_seconds {
        command = command.timeout(Duration::from_secs(seconds.into()));
    }
    match command.run() {
        Ok(output) => Ok(Json(report(output))),
        Err(Error::Denied(denial)) if denial.capability == "exec" => Err(refused(&denial.target)),
        Err(error) => Err(error),
    }
}

/// Returns the commands that may run, one on a line: the path of a program, and a word for each argument. `*` stands
/// for any characters, but not for an option, and a last word `**` for any further arguments.
#[tool]
fn list() -> String {
    match exec::commands() {
        commands if commands.is_empty() => "No command is granted.".to_owned(),
        commands => commands.join("\n"),
    }
}

fn report(output: Output) -> Ran {
    let (stdout, stderr) = (output.stdout().into_owned(), output.stderr().into_owned());
    let (exit_code, stopped) = match output.ending {
        Ending::ExitCode(code) => (Some(code), None),
        Ending::Signal(signal) => (None, Some(format!("signal {signal}"))),
        Ending::LimitExceeded(limit) => (None, Some(format!("its limit {limit}"))),
    };
    let dropped_bytes = Some(output.dropped).filter(|bytes| *bytes > 0);
    Ran { exit_code, stopped, stdout, stderr, dropped_bytes }
}

/// The refusal, with the granted commands, so that the model need not guess them.
fn refused(command: &str) -> Error {
    let commands = exec::commands();
    if commands.is_empty() {
        return Error::other(format!("`{command}` may not run: no command is granted"));
    }
    Error::other(format!("`{command}` may not run. These commands may: {}", commands.join("; ")))
}

conclave_sdk::export!(tools: [run, list]);

#[cfg(test)]
mod tests {
    use conclave_sdk::testing::FakeHost;

    use super::*;

    fn status(directory: Option<&str>) -> Result<Ran> {
        let directory = directory.map(str::to_owned);
        run("git".to_owned(), Some(vec!["status".to_owned()]), directory, None, None)
            .map(|Json(ran)| ran)
    }

    #[test]
    fn a_program_runs_in_the_named_folder_or_the_first_one() {
        let mut host = FakeHost::new().file("/project/a", "").file("/other/a", "").program(
            "git status",
            1,
            "clean\n",
        );
        let ran = host.run(|| status(None)).unwrap();
        assert_eq!((ran.exit_code, ran.stdout.as_str()), (Some(1), "clean\n"));
        host.run(|| status(Some("/other"))).unwrap();
        let folders: Vec<_> = host.ran().iter().map(|(_, folder, _)| folder.as_deref()).collect();
        assert_eq!(folders, [Some("/project"), Some("/other")]);
    }

    #[test]
    fn a_refusal_lists_what_may_run() {
        let mut host = FakeHost::new().program("git log", 0, "");
        assert_eq!(
            host.run(|| status(None)).unwrap_err().to_string(),
            "`git status` may not run. These commands may: git log"
        );
        let none = FakeHost::new().run(|| status(None)).unwrap_err();
        assert_eq!(none.to_string(), "`git status` may not run: no command is granted");
    }
}
