//! Builds the program `conclave` for use, with the machine code of the stock plugins inside, for
//! `cargo xtask install` and `dist`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::components;
use crate::failure::XtaskFailure;
use crate::phase::{CargoBuild, Phases};
use crate::place::Checkout;

/// The profile of the optimised program; see Cargo.toml.
pub(crate) const OPTIMISED: &str = "optimised";
/// The profile that builds sooner, for a slower program.
pub(crate) const FAST: &str = "program";
pub(crate) const PROGRAM: &str = "conclave";
/// The phases of a build.
pub(crate) const PHASES: usize = 4;
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

    /// Four phases. The second builds what both programs are made of, which takes longest. The
    /// fourth builds `conclave` around the machine code that the first of them made.
    pub(crate) fn run(
        &self,
        place: &Checkout,
        phases: &mut Phases,
    ) -> Result<PathBuf, XtaskFailure> {
        components::build_stock(place, phases)?;
        let kind = self.target.unwrap_or("host");
        let code = place.stock_code(&format!("{kind}-{}", self.code.word()));
        // The build script watches the folder, so it exists before there is any code.
        fs::create_dir_all(&code).map_err(|error| XtaskFailure::io("make", &code, &error))?;
        let mut command = self.cargo(place, PRECOMPILER, &code);
        command.args(["--features", "precompile"]);
        let build = CargoBuild { log: "precompiler", command };
        phases.build("building the host and its compiler", vec![build])?;
        let mut command = Command::new(self.built(place, PRECOMPILER));
        command.arg(place.stock()).arg(&code).arg(self.code.word());
        phases.run("compiling the stock plugins", "precompile", command)?;
        let command = self.cargo(place, PROGRAM, &code);
        phases.build(
            "building the program conclave",
            vec![CargoBuild { log: "conclave", command }],
        )?;
        Ok(self.program(place))
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

/// Copies a program in two steps: a running one cannot be written to, but it can be replaced.
pub(crate) fn copy(built: &Path, program: &Path) -> Result<(), XtaskFailure> {
    let folder = program.parent().unwrap_or(program);
    fs::create_dir_all(folder).map_err(|error| XtaskFailure::io("make", folder, &error))?;
    let draft = program.with_extension("new");
    fs::copy(built, &draft).map_err(|error| XtaskFailure::io("write", &draft, &error))?;
    fs::rename(&draft, program).map_err(|error| XtaskFailure::io("write", program, &error))
}

/// Writes the program's man pages, which it makes itself.
pub(crate) fn write_manual(program: &Path, folder: &Path) -> Result<(), XtaskFailure> {
    fs::create_dir_all(folder).map_err(|error| XtaskFailure::io("make", folder, &error))?;
    output_of(Command::new(program).arg("--quiet").arg("man").arg(folder)).map(drop)
}

/// Returns a program's output on stdout; on failure its own error message.
pub(crate) fn output_of(command: &mut Command) -> Result<Vec<u8>, XtaskFailure> {
    let output = command.output().map_err(|error| {
        XtaskFailure::new(format!("{} could not be started: {error}", shown(command)))
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(XtaskFailure::new(format!(
        "{} failed: {}",
        shown(command),
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

fn shown(command: &Command) -> String {
    let words =
        command.get_args().map(|word| format!(" {}", word.to_string_lossy())).collect::<String>();
    format!("{}{words}", command.get_program().to_string_lossy())
}

/// Returns the name of the program's file.
pub(crate) fn file_name() -> String {
    format!("{PROGRAM}{}", env::consts::EXE_SUFFIX)
}
