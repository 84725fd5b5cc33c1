//! A model server that others wrote, for the tests that talk to one: LiteLLM from pip, in a virtual environment below the target folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::phase::Phases;
use crate::place::Place;

/// Held to a version: what it does is compared with what was seen.
const PACKAGE: &str = "litellm[proxy]==1.106.2";

/// One phase. The program of the server; none, after saying why, where there is no Python, no pip or no way to the package.
pub(crate) fn litellm(place: &Place, phases: &mut Phases) -> Result<Option<PathBuf>, Failure> {
    let folder = place.own().join("litellm");
    let (program, installed) = (folder.join("bin/litellm"), folder.join("installed"));
    let has_it = fs::read_to_string(&installed).is_ok_and(|found| found == PACKAGE) && program.is_file();
    let mut why_not = None;
    phases.check("getting LiteLLM, a model server that others wrote", || {
        if !has_it {
            why_not = install(&folder).err();
        }
        Ok(())
    })?;
    if let Some(reason) = why_not {
        eprintln!("      skipped, and with it the tests that talk to it: {reason}");
        return Ok(None);
    }
    fs::write(&installed, PACKAGE).map_err(|error| Failure::io("write", &installed, &error))?;
    Ok(Some(program))
}

fn install(folder: &Path) -> Result<(), String> {
    let _ = fs::remove_dir_all(folder);
    succeeds(Command::new("python3").args(["-m", "venv"]).arg(folder)).map_err(|reason| format!("python3 -m venv: {reason}"))?;
    let mut pip = Command::new(folder.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", PACKAGE]);
    succeeds(&mut pip).map_err(|reason| format!("pip install {PACKAGE}: {reason}"))
}

fn succeeds(command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("it says nothing").to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
