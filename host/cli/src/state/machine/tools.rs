//! Checks of the tools that plugin authors need, for each language.

use std::path::Path;
use std::process::Command;

use super::Finding;
use crate::args::Language;
use crate::state::toolchain;
use crate::ui::show::show_path;

const TARGET: &str = "wasm32-wasip2";

/// Runs each tool with its version option only.
pub(crate) fn authors_tools() -> Vec<Finding> {
    vec![
        rust(),
        scripted("plugins in Python", Language::Python),
        scripted("plugins in JavaScript", Language::Js),
    ]
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

/// Asks as a build does. A build installs the other tools itself.
fn scripted(what: &'static str, language: Language) -> Finding {
    match toolchain::interpreter(language) {
        Ok(found) => {
            let (program, version) = (show_path(found.program), found.version);
            Finding::ok(what, format!("{program} {version}; a build installs the other tools once"))
        }
        Err(error) => {
            let (why, remedy) = error.into_texts();
            let remedy = remedy.unwrap_or_default();
            Finding::note(what, why, format!("{remedy}; only plugin authors need it"))
        }
    }
}

/// The first line that a program prints.
fn said_by(program: &str, words: &[&str]) -> Option<String> {
    let output =
        Command::new(program).args(words).output().ok().filter(|output| output.status.success())?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}
