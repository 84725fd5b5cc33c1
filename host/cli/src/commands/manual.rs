//! `conclave completions SHELL` and `conclave man FOLDER`: the command line in the forms that other
//! programs read.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::{Cli, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::shell;
use crate::ui::show::show_path;
use crate::ui::{stderr, stdout};

/// Writes a shell's completions to stdout.
pub(crate) fn completions(shell: Shell) -> Result<u8, CliError> {
    // Into memory first: the generators panic if a write to their target fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "conclave", &mut script);
    stdout::write(&String::from_utf8_lossy(&script))?;
    Ok(exit::OK)
}

/// Writes a page for each command into a folder.
pub(crate) fn man(folder: &Path, output: OutputArgs) -> Result<u8, CliError> {
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    written.map_err(|error| {
        CliError::internal(format!(
            "the pages could not be written to {}: {error}",
            show_path(folder)
        ))
    })?;
    if !output.quiet {
        stderr::line(format_args!(
            "wrote the man pages to {}; `man -l {}` shows one",
            show_path(folder),
            shell(&folder.join("conclave.1").display().to_string())
        ));
    }
    Ok(exit::OK)
}
