//! `conclave run-program FOLDER`: the process that confines itself and then starts a program of the
//! machine, for `grants.exec`. It is internal, so no help text lists it.

use std::ffi::OsString;
use std::process::ExitCode;

use conclave_runtime::exec::ProgramLauncher;

/// The first argument.
const NAME: &str = "run-program";

/// Returns this program as the launcher of programs.
pub(crate) fn launcher() -> ProgramLauncher {
    let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    ProgramLauncher { program, args: vec![NAME.into()], folder: std::env::temp_dir() }
}

/// Starts a program, if this process was started for that.
pub(crate) fn asked(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    arguments.next().filter(|name| name == NAME)?;
    Some(ExitCode::from(conclave_runtime::exec::run_confined(arguments)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_internal_command_starts_a_program() {
        let asked = |words: &[&str]| asked(words.iter().map(OsString::from)).is_some();
        assert!(!asked(&["conclave"]));
        assert!(!asked(&["conclave", "run", "run-program"]));
        assert!(asked(&["conclave", "run-program", "/nowhere"]), "and refused");
    }
}
