//! `conclave run-program FOLDER`: the process that confines itself and then starts a program of the
//! machine, for `grants.exec`. `conclave supervise-program PROGRAM ARGUMENTS`: the process that
//! starts an MCP server, and ends it with its host. They are internal, so no help text lists them.

use std::ffi::OsString;
use std::process::ExitCode;

#[cfg(feature = "mcp")]
use conclave_mcp::source::ServerSupervisor;
use conclave_runtime::exec::ProgramLauncher;

/// The first argument.
const NAME: &str = "run-program";
const SUPERVISE: &str = "supervise-program";

/// This program as the launcher of programs.
pub(crate) fn launcher() -> ProgramLauncher {
    let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    ProgramLauncher { program, args: vec![NAME.into()], folder: std::env::temp_dir() }
}

/// This program as the supervisor of MCP servers, on Linux, which has the system calls for it.
#[cfg(feature = "mcp")]
pub(crate) fn supervisor() -> Option<ServerSupervisor> {
    let program = std::env::current_exe().ok().filter(|_| cfg!(target_os = "linux"))?;
    Some(ServerSupervisor { program, args: vec![SUPERVISE.into()] })
}

/// Starts a program, if this process was started for that.
pub(crate) fn run_if_requested(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    let name = arguments.next()?;
    let run = match name.to_str()? {
        NAME => conclave_runtime::exec::run_confined(arguments),
        SUPERVISE => conclave_runtime::exec::run_supervised(arguments),
        _ => return None,
    };
    Some(ExitCode::from(run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_internal_command_starts_a_program() {
        let is_requested =
            |words: &[&str]| run_if_requested(words.iter().map(OsString::from)).is_some();
        assert!(!is_requested(&["conclave"]));
        assert!(!is_requested(&["conclave", "run", "run-program"]));
        assert!(is_requested(&["conclave", "run-program", "/nowhere"]), "and refused");
        assert!(is_requested(&["conclave", "supervise-program"]), "and refused");
    }
}
