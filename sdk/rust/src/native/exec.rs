//! Programs with fixed results.

use super::{denied, fake};
use crate::bindings::tool::conclave::plugin::exec::{Command, Ending, ExecError, Output};

/// The granted commands, such as `/usr/bin/git log *`: the path of a program and a word for each
/// argument. Empty without the grant.
pub fn commands() -> Vec<String> {
    fake(|fake| fake.programs.keys().cloned().collect())
}

pub(crate) fn run(command: &Command) -> Result<Output, ExecError> {
    let words = [&command.program].into_iter().chain(&command.arguments);
    let words: Vec<&str> = words.map(String::as_str).collect();
    let command_line = words.join(" ");
    fake(|fake| {
        let Some((code, stdout)) = fake.programs.get(&command_line).cloned() else {
            return Err(ExecError::Denied(denied("exec", &command_line)));
        };
        fake.ran.push((command_line, command.directory.clone(), command.input.clone()));
        Ok(Output {
            ending: Ending::ExitCode(code),
            stdout: stdout.into_bytes(),
            stderr: Vec::new(),
            dropped: 0,
        })
    })
}
