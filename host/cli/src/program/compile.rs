//! `conclave compile-component MEMORY SECONDS`: the child process that compiles plugins for another
//! process of this program. It is internal, so no help text lists it. It reads only its two numbers
//! and its pipes.

use std::ffi::OsString;
use std::process::ExitCode;

use conclave_runtime::plugin::{Compiler, compile_component};

/// The first argument.
const NAME: &str = "compile-component";

/// This program as the compiler of untrusted plugins.
pub(crate) fn compiler() -> Compiler {
    // If the program cannot be found, nothing is compiled. Compiling in this process would silently
    // drop the limits.
    let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    Compiler::Child { program, args: vec![NAME.into()] }
}

/// Compiles, if this process was started for that.
pub(crate) fn run_if_requested(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    arguments.next().filter(|name| name == NAME)?;
    let mut number = || arguments.next()?.to_str()?.parse::<u64>().ok();
    let (Some(memory), Some(seconds)) = (number(), number()) else {
        return Some(ExitCode::from(2));
    };
    Some(ExitCode::from(compile_component(
        memory,
        seconds,
        std::io::stdin().lock(),
        std::io::stdout().lock(),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_internal_command_compiles() {
        let is_requested =
            |words: &[&str]| run_if_requested(words.iter().map(OsString::from)).is_some();
        assert!(!is_requested(&["conclave"]));
        assert!(!is_requested(&["conclave", "run", "compile-component"]));
        assert!(is_requested(&["conclave", "compile-component", "many", "1"]), "and refused");
    }
}
