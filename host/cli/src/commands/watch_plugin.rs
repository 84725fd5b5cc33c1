//! `conclave plugin watch [FOLDER]`: builds a plugin and plays its cases, again after each change of
//! its files, until Ctrl-C.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::args::{Engine, OutputArgs, TestPlugin, WatchPlugin};
use crate::commands::{build, cases};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::project::Project;
use crate::state::toolchain::SDK;
use crate::state::watch;
use crate::ui::interrupt::Interrupts;
use crate::ui::show::{FAINT, paint};
use crate::ui::stderr;

/// Time for a Ctrl-C to arrive here after it has stopped the build.
const GRACE: Duration = Duration::from_millis(100);
/// Folders that builds write, and the SDK.
const MADE: [&str; 5] = ["target", "build", "node_modules", "__pycache__", SDK];

pub(crate) async fn watch(
    args: &WatchPlugin,
    output: OutputArgs,
    mut interrupts: Interrupts,
) -> Result<u8, CliError> {
    // Without this, a build that Ctrl-C stopped would be reported as a failed one.
    interrupts.run_begins();
    loop {
        // Taken first, so that a change during the build counts.
        let changed = watch::changes_of({
            let folder = args.folder.clone();
            move || files(&folder)
        });
        // The author mends a failure and saves, which begins the next build.
        if let Err(error) = once(args, output).await {
            // Ctrl-C stops the build and this program, in any order.
            if tokio::time::timeout(GRACE, interrupts.next()).await.is_ok() {
                // cargo leaves its progress bar in the row of the cursor.
                stderr::line("");
                return Ok(exit::INTERRUPTED);
            }
            stderr::error(&error);
        }
        if !output.quiet {
            let waits = paint(FAINT, "waiting for a file to change; Ctrl-C ends");
            stderr::line(format_args!("{waits}\n"));
        }
        tokio::select! {
            () = changed => {}
            () = interrupts.next() => return Ok(exit::INTERRUPTED),
        }
    }
}

/// Builds the plugin, plays its cases and, if there is a message, runs its config.
async fn once(args: &WatchPlugin, output: OutputArgs) -> Result<u8, CliError> {
    let folder = args.folder.clone();
    build::make(&Project::open(&folder)?, Engine::default(), output)?;
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

/// The files that a build, a case or a run can read.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with('.') || MADE.contains(&&*name) {
                continue;
            }
            // A link could lead out of the folder, or around in it.
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let list = if is_folder { &mut folders } else { &mut files };
            list.push(entry.path());
        }
    }
    files.sort();
    files
}
