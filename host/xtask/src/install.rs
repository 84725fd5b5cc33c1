//! `cargo xtask install`: builds the program and installs it for this user. The program itself
//! writes its man pages.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::failure::XtaskFailure;
use crate::files;
use crate::needs;
use crate::phase::Phases;
use crate::place::Checkout;
use crate::program::{self, CodeTarget, PROGRAM, ProgramBuild};

/// The options of the command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct InstallOptions {
    verbose: bool,
    fast_build: bool,
    root: Option<PathBuf>,
}

impl InstallOptions {
    fn read(arguments: &[String]) -> Result<Self, XtaskFailure> {
        let mut options = Self::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--verbose" | "-v" => options.verbose = true,
                "--fast-build" => options.fast_build = true,
                "--root" => {
                    let folder = words.next();
                    let missing = || XtaskFailure::usage("--root needs a folder".to_owned());
                    options.root = Some(PathBuf::from(folder.ok_or_else(missing)?));
                }
                other => {
                    return Err(XtaskFailure::usage(format!(
                        "cargo xtask install does not know `{other}`: it takes --root FOLDER, \
                         --fast-build and --verbose"
                    )));
                }
            }
        }
        Ok(options)
    }
}

/// Runs `cargo xtask install`.
pub(crate) fn run(place: &Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let options = InstallOptions::read(arguments)?;
    let root = match options.root {
        Some(root) => files::absolute(&root)?,
        None => default_root()?,
    };
    needs::check(place)?;
    let profile = if options.fast_build { program::FAST } else { program::OPTIMISED };
    let build = ProgramBuild { profile, target: None, code: CodeTarget::ThisMachine };
    let mut phases = Phases::new(place, program::PHASES, options.verbose);
    if !build.program(place).is_file() {
        phases.announce_first_build(if options.fast_build {
            "install --fast-build"
        } else {
            "install"
        });
    }
    let built = build.run(place, &mut phases)?;
    let program = built.install(&root)?;
    program::write_manual(&program, &root.join("share/man/man1"))?;
    let (size, files) = built.weight();
    eprintln!("{} ({} MiB, and {} MiB in lib)", program.display(), size >> 20, files >> 20);
    let folder = root.join("bin");
    if !env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|known| known == folder))
    {
        eprintln!(
            "{} is not in your PATH. Type:\n\n    export PATH=\"{}:$PATH\"\n",
            folder.display(),
            folder.display()
        );
    }
    eprintln!(
        "next: `{PROGRAM} init`, `{PROGRAM} doctor`; completions: `{PROGRAM} completions --help`"
    );
    Ok(ExitCode::SUCCESS)
}

/// Returns the folder in which cargo installs programs.
fn default_root() -> Result<PathBuf, XtaskFailure> {
    let folder_in =
        |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder_in("CARGO_INSTALL_ROOT").or_else(|| folder_in("CARGO_HOME")).or_else(|| folder_in("HOME").map(|home| home.join(".cargo"))).ok_or_else(|| {
        XtaskFailure::usage("neither CARGO_INSTALL_ROOT, CARGO_HOME nor HOME is set: name a folder with --root FOLDER".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<InstallOptions, XtaskFailure> {
        InstallOptions::read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_program_is_optimised_unless_a_fast_build_is_named() {
        let fast = |words: &[&str]| read(words).map(|options| options.fast_build).ok();
        assert_eq!((fast(&[]), fast(&["--fast-build"])), (Some(false), Some(true)));
        assert_eq!((fast(&["--release"]), fast(&["--root"])), (None, None));
    }
}
