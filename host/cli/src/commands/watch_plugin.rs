//! `conclave plugin watch [FOLDER]`: builds a plugin and plays its cases, again after each change of
//! its files, until Ctrl-C.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::args::{OutputArgs, TestPlugin, WatchPlugin};
use crate::commands::{build, cases};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::watch;
use crate::ui::interrupt::Interrupts;
use crate::ui::show::{BAD, FAINT, paint, printable};

/// Files of a plugin's folder that count, beside all of `src`.
const FILES: [&str; 5] =
    ["Cargo.toml", "conclave-plugin.toml", "cases.json", "conclave.toml", "replies.json"];

pub(crate) async fn watch(
    args: &WatchPlugin,
    output: OutputArgs,
    mut interrupts: Interrupts,
) -> Result<u8, CliError> {
    loop {
        // Taken first, so that a change during the build counts.
        let changed = watch::changes_of({
            let folder = args.folder.clone();
            move || files(&folder)
        });
        let code = match once(args, output).await {
            Ok(code) => code,
            // The author mends it and saves, which begins the next build.
            Err(error) => {
                let error_text = printable(&error.to_string());
                let _ =
                    writeln!(crate::ui::output::stderr(), "{} {error_text}", paint(BAD, "error:"));
                error.code()
            }
        };
        if !output.quiet {
            let waits = paint(FAINT, "waiting for a file to change; Ctrl-C ends");
            let _ = writeln!(crate::ui::output::stderr(), "{waits}\n");
        }
        tokio::select! {
            () = changed => {}
            () = interrupts.next() => return Ok(code),
        }
    }
}

/// Builds the plugin, plays its cases and, if there is a message, runs its config.
async fn once(args: &WatchPlugin, output: OutputArgs) -> Result<u8, CliError> {
    let folder = args.folder.clone();
    build::cargo(&folder, output)?;
    build::embed_missing(&folder, output)?;
    let tests = TestPlugin { folder: folder.clone(), cases: None, only: None, yes: args.yes };
    let code = cases::test(&tests, output).await?;
    let Some(message) = args.message.as_ref().filter(|_| code == exit::OK) else {
        return Ok(code);
    };
    let program = std::env::current_exe().map_err(|error| CliError::internal(error.to_string()))?;
    let status = Command::new(program)
        .arg("run")
        .arg(folder.join(crate::args::CONFIG))
        .arg(message)
        .stdin(Stdio::null())
        .status()
        .map_err(|error| CliError::internal(error.to_string()))?;
    Ok(u8::try_from(status.code().unwrap_or_default()).unwrap_or(exit::FAILED))
}

/// Returns the files that a build, a case or a run reads.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = FILES.iter().map(|file| folder.join(file)).collect();
    let mut folders = vec![folder.join("src")];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let kept = if path.is_dir() { &mut folders } else { &mut files };
            kept.push(path);
        }
    }
    files.sort();
    files
}
