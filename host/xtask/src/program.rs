//! Builds the program `conclave` for use, with the files that belong to it, for `cargo xtask
//! install` and `dist`: the machine code of the stock plugins, and large components.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::components::{self, Optimised};
use crate::failure::XtaskFailure;
use crate::files;
use crate::phase::{CargoBuild, Phases};
use crate::place::{Checkout, executable};

/// The profile of the optimised program; see Cargo.toml.
pub(crate) const OPTIMISED: &str = "optimised";
/// The profile that builds sooner, for a slower program.
pub(crate) const FAST: &str = "program";
pub(crate) const PROGRAM: &str = "conclave";
/// The phases of a build.
pub(crate) const PHASES: usize = 4;
/// The folder of the program's files, from the one above the program's own; see
/// `host/cli/src/state/stock.rs`.
const FILES: &str = "lib/conclave";
/// The endings of the program's files.
const ENDINGS: [&str; 2] = ["cwasm", "wasm"];
/// The program that compiles the stock plugins; see `host/cli/precompile.rs`.
const PRECOMPILER: &str = "conclave-precompile";
/// The variable with the folder of machine code for `host/stock/build.rs`.
const CODE: &str = "CONCLAVE_STOCK_CODE";

/// The machines that can use the stock plugins' machine code. On others the program compiles them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeTarget {
    ThisMachine,
    AnyMachine,
}

impl CodeTarget {
    /// Returns the word for it on the precompiler's command line.
    fn word(self) -> &'static str {
        match self {
            Self::ThisMachine => "this",
            Self::AnyMachine => "any",
        }
    }
}

/// A build of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramBuild<'a> {
    pub(crate) profile: &'a str,
    /// The target triple; `None` for this machine, which shares its folder with other builds.
    pub(crate) target: Option<&'a str>,
    pub(crate) code: CodeTarget,
}

impl ProgramBuild<'_> {
    /// Returns where the program is once it was built.
    pub(crate) fn program(&self, place: &Checkout) -> PathBuf {
        self.built(place, PROGRAM)
    }

    /// Returns the program that the last such build left; `None` if there was none.
    pub(crate) fn last(&self, place: &Checkout) -> Option<BuiltProgram> {
        let (program, files) = (self.program(place), self.code(place).join("lib"));
        program.is_file().then_some(BuiltProgram { program, files: Some(files) })
    }

    /// Four phases. The second builds what both programs are made of, which takes longest. The
    /// fourth builds `conclave` with the digests of the machine code that the first of them made.
    pub(crate) fn run(
        &self,
        place: &Checkout,
        phases: &mut Phases,
    ) -> Result<BuiltProgram, XtaskFailure> {
        components::build_stock(place, phases, Optimised::Fully)?;
        let code = self.code(place);
        // The build script watches the folder, so it exists before there is any code.
        files::make_folder(&code)?;
        let mut command = self.cargo(place, PRECOMPILER, &code);
        command.args(["--features", "precompile"]);
        let build = CargoBuild { log: "precompiler", command };
        phases.build("building the host and its compiler", vec![build])?;
        let mut command = Command::new(self.built(place, PRECOMPILER));
        command.arg(place.stock()).arg(&code).arg(self.code.word());
        phases.run("compiling the stock plugins", "precompile", command)?;
        let command = self.cargo(place, PROGRAM, &code);
        let build = CargoBuild { log: "conclave", command };
        phases.build("building the program conclave", vec![build])?;
        Ok(BuiltProgram { program: self.program(place), files: Some(code.join("lib")) })
    }

    /// Returns the folder of what the precompiler makes.
    pub(crate) fn code(&self, place: &Checkout) -> PathBuf {
        let kind = self.target.unwrap_or("host");
        place.stock_code(&format!("{kind}-{}", self.code.word()))
    }

    fn built(&self, place: &Checkout, name: &str) -> PathBuf {
        match self.target {
            Some(target) => place.program_for(target, self.profile, name),
            None => place.program(self.profile, name),
        }
    }

    fn cargo(&self, place: &Checkout, name: &str, code: &Path) -> Command {
        let mut command = place.cargo(["build", "-p", "conclave-host", "--profile", self.profile]);
        command.args(["--bin", name]).env(CODE, code);
        if let Some(target) = self.target {
            command.args(["--target", target]);
        }
        command
    }
}

/// A program with the files that belong to it.
#[derive(Clone, Debug)]
pub(crate) struct BuiltProgram {
    program: PathBuf,
    /// The folder of the files; `None` for a program without any.
    files: Option<PathBuf>,
}

impl BuiltProgram {
    /// Returns a program that was built before. An installed one has its files beside it.
    pub(crate) fn at(program: &Path) -> Self {
        let root = program.canonicalize().unwrap_or_else(|_| program.to_owned());
        let files = root.ancestors().nth(2).map(|root| root.join(FILES));
        Self { program: program.to_owned(), files: files.filter(|files| files.is_dir()) }
    }

    /// Copies the program and its files below `root`, and removes the files of another build.
    /// Returns where the program is.
    pub(crate) fn install(&self, root: &Path) -> Result<PathBuf, XtaskFailure> {
        let (program, folder) = (root.join("bin").join(executable(PROGRAM)), root.join(FILES));
        let files = self.files.as_deref().map(program_files).unwrap_or_default();
        // The files first: a new program never lacks them, and an old one knows others.
        for file in &files {
            copy(file, &folder.join(file.file_name().unwrap_or_default()))?;
        }
        copy(&self.program, &program)?;
        for other in program_files(&folder) {
            if !files.iter().any(|file| file.file_name() == other.file_name()) {
                files::remove(&other)?;
            }
        }
        Ok(program)
    }

    /// Returns the bytes of the program and of its files.
    pub(crate) fn weight(&self) -> (u64, u64) {
        let size = |file: &Path| fs::metadata(file).map_or(0, |file| file.len());
        let files = self.files.as_deref().map(program_files).unwrap_or_default();
        (size(&self.program), files.iter().map(|file| size(file)).sum())
    }
}

/// Returns the program's files in a folder, by name.
fn program_files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_own = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known))
    };
    let mut files: Vec<_> = paths.filter(is_own).collect();
    files.sort();
    files
}

/// Copies a file in two steps: a running program cannot be written to, but it can be replaced.
fn copy(built: &Path, program: &Path) -> Result<(), XtaskFailure> {
    let folder = program.parent().unwrap_or(program);
    files::make_folder(folder)?;
    let draft = program.with_extension("new");
    files::copy(built, &draft)?;
    files::rename(&draft, program)
}

/// Writes the program's man pages, which it makes itself.
pub(crate) fn write_manual(program: &Path, folder: &Path) -> Result<(), XtaskFailure> {
    files::make_folder(folder)?;
    output_of(Command::new(program).arg("--quiet").arg("man").arg(folder)).map(drop)
}

/// Returns a program's output on stdout; on failure its own error message.
pub(crate) fn output_of(command: &mut Command) -> Result<Vec<u8>, XtaskFailure> {
    let output = command.output().map_err(|error| {
        XtaskFailure::new(format!("{} could not be started: {error}", command_line(command)))
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(XtaskFailure::new(format!(
        "{} failed: {}",
        command_line(command),
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

fn command_line(command: &Command) -> String {
    let words =
        command.get_args().map(|word| format!(" {}", word.to_string_lossy())).collect::<String>();
    format!("{}{words}", command.get_program().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_installed_with_its_own_files_alone() {
        let temp = std::env::temp_dir().join(format!("conclave-install-{}", std::process::id()));
        let (built, root) = (temp.join("built"), temp.join("root"));
        fs::create_dir_all(built.join("files")).expect("a test can make a folder");
        let write = |file: &Path| fs::write(file, b"bytes").expect("a test can write");
        for name in ["files/1.cwasm", "files/2.wasm", "files/note.txt", "conclave"] {
            write(&built.join(name));
        }
        let program =
            BuiltProgram { program: built.join("conclave"), files: Some(built.join("files")) };
        assert_eq!(program.weight(), (5, 10));
        fs::create_dir_all(root.join(FILES)).expect("a test can make a folder");
        for other in ["0.cwasm", "kept.txt"] {
            write(&root.join(FILES).join(other));
        }
        let installed = program.install(&root).expect("it can be installed");
        let names = |folder: &Path| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let mut names: Vec<_> =
                entries.map(|entry| entry.file_name().into_string().unwrap_or_default()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&root.join(FILES)), ["1.cwasm", "2.wasm", "kept.txt"]);
        let found = BuiltProgram::at(&installed);
        assert_eq!(found.weight(), (5, 10), "its files are beside it");
        let without_files = BuiltProgram::at(&built.join("conclave"));
        assert_eq!(without_files.weight(), (5, 0));
        without_files.install(&root).expect("it can be installed");
        assert_eq!(names(&root.join(FILES)), ["kept.txt"], "the files of the other are gone");
        fs::remove_dir_all(temp).expect("a test can clean up");
    }
}
