//! Checks of the tools that plugin authors need, for each language.

use std::path::Path;
use std::process::Command;

use super::Finding;

const TARGET: &str = "wasm32-wasip2";

/// Runs each tool with its version option only.
pub(crate) fn authors_tools() -> Vec<Finding> {
    vec![rust(), python(), javascript()]
}

fn rust() -> Finding {
    const WHAT: &str = "plugins in Rust";
    let Some(version) = said_by("rustc", &["--version"]) else {
        return Finding::note(WHAT, "rustc was not found", "only plugin authors need it");
    };
    let sysroot = said_by("rustc", &["--print", "sysroot"]).unwrap_or_default();
    if Path::new(&sysroot).join("lib/rustlib").join(TARGET).is_dir() {
        return Finding::ok(WHAT, format!("{version}, with the target {TARGET}"));
    }
    Finding::note(
        WHAT,
        format!("{version}, without the target {TARGET}"),
        format!("rustup target add {TARGET}"),
    )
}

fn python() -> Finding {
    const WHAT: &str = "plugins in Python";
    match said_by("componentize-py", &["--version"]) {
        Some(version) => Finding::ok(WHAT, version),
        None => Finding::note(
            WHAT,
            "componentize-py was not found",
            "pip install componentize-py; only plugin authors need it",
        ),
    }
}

fn javascript() -> Finding {
    const WHAT: &str = "plugins in JavaScript";
    match said_by("node", &["--version"]) {
        Some(version) => Finding::ok(
            WHAT,
            format!("node {version}; each project brings its own componentize-js"),
        ),
        None => Finding::note(WHAT, "node was not found", "only plugin authors need it"),
    }
}

/// Returns the first line that a program prints.
fn said_by(program: &str, words: &[&str]) -> Option<String> {
    let output =
        Command::new(program).args(words).output().ok().filter(|output| output.status.success())?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}
