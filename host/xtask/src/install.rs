//! `cargo xtask install` and `cargo xtask dist`: installs the program for this user, or packs it
//! into an archive for another machine. The program itself writes its man pages, completions and
//! schema.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::components;
use crate::failure::XtaskFailure;
use crate::needs;
use crate::phase::Phases;
use crate::place::Checkout;
use crate::toml;

/// The profile that builds within minutes; see Cargo.toml.
const QUICK: &str = "program";
/// The fully optimised, stripped profile.
const WHOLE: &str = "dist";
const PROGRAM: &str = "conclave";
/// The completions, each with the file name that its shell looks for.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "conclave.bash"), ("zsh", "_conclave"), ("fish", "conclave.fish")];
/// The documents in the archive besides the program.
const PAPERS: [&str; 3] = ["LICENSE", "README.md", "CHANGELOG.md"];

/// Runs `cargo xtask install`.
pub(crate) fn run_install(place: Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let mut words = arguments.iter();
    let (mut verbose, mut profile, mut root) = (false, QUICK, None);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--verbose" | "-v" => verbose = true,
            "--release" => profile = WHOLE,
            "--root" => {
                root = Some(PathBuf::from(
                    words
                        .next()
                        .ok_or_else(|| XtaskFailure::usage("--root needs a folder".to_owned()))?,
                ))
            }
            other => {
                return Err(XtaskFailure::usage(format!(
                    "cargo xtask install does not know `{other}`: it takes --root FOLDER, --release and --verbose"
                )));
            }
        }
    }
    let root = match root {
        Some(root) => {
            std::path::absolute(&root).map_err(|error| XtaskFailure::io("find", &root, &error))?
        }
        None => default_root()?,
    };
    needs::check(&place)?;
    let built = build(&place, &mut Phases::new(&place, 2, verbose), profile)?;
    let program = root.join("bin").join(file_name());
    copy_program(&built, &program)?;
    let manual = root.join("share/man/man1");
    write_manual(&program, &manual)?;
    eprintln!("{}", program.display());
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
        "next: `conclave init`, `conclave doctor`; completions: `conclave completions --help`"
    );
    Ok(ExitCode::SUCCESS)
}

/// Runs `cargo xtask dist`.
pub(crate) fn run_dist(place: Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let (mut verbose, mut profile) = (false, WHOLE);
    for word in arguments {
        match word.as_str() {
            "--verbose" | "-v" => verbose = true,
            "--quick" => profile = QUICK,
            other => {
                return Err(XtaskFailure::usage(format!(
                    "cargo xtask dist does not know `{other}`: it takes --quick and --verbose"
                )));
            }
        }
    }
    needs::check(&place)?;
    let mut phases = Phases::new(&place, 3, verbose);
    let built = build(&place, &mut phases, profile)?;
    let version = toml::string(&place.read("Cargo.toml")?, "[workspace.package]", "version")
        .unwrap_or_default();
    let name = format!("conclave-host-{version}-{}", needs::host_triple()?);
    let folder = place.target.join("conclave/dist");
    let staged = folder.join(&name);
    if staged.exists() {
        fs::remove_dir_all(&staged).map_err(|error| XtaskFailure::io("remove", &staged, &error))?;
    }
    copy_program(&built, &staged.join("bin").join(file_name()))?;
    furnish(&place, &staged)?;
    let archive = format!("{name}.tar.gz");
    // Sorted by name and with a fixed date, so that equal files give an equal archive. Only GNU tar
    // has these options.
    let mut tar = Command::new("tar");
    tar.current_dir(&folder);
    if is_gnu_tar() {
        tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]);
    }
    tar.args(["-czf", &archive, &name]).env("GZIP", "-n");
    phases.run("packing the archive", "tar", tar)?;
    let sum = checksum(&folder, &archive)?;
    let file = folder.join(format!("{archive}.sha256"));
    fs::write(&file, format!("{sum}  {archive}\n"))
        .map_err(|error| XtaskFailure::io("write", &file, &error))?;
    println!("{}", folder.join(&archive).display());
    eprintln!("sha256 {sum}\nunpack: `tar -xzf {archive}`; check: `sha256sum -c {archive}.sha256`");
    Ok(ExitCode::SUCCESS)
}

/// Two phases: builds the stock plugins, and the program with them inside.
fn build(place: &Checkout, phases: &mut Phases, profile: &str) -> Result<PathBuf, XtaskFailure> {
    components::build_stock(place, phases)?;
    let command = place.cargo(["build", "-p", "conclave-host", "--profile", profile]);
    phases.run("building the program conclave", "conclave", command)?;
    Ok(place.program(profile, PROGRAM))
}

/// Copies in two steps: a running program cannot be written to, but it can be replaced.
fn copy_program(built: &Path, program: &Path) -> Result<(), XtaskFailure> {
    let folder = program.parent().unwrap_or(program);
    fs::create_dir_all(folder).map_err(|error| XtaskFailure::io("make", folder, &error))?;
    let draft = program.with_extension("new");
    fs::copy(built, &draft).map_err(|error| XtaskFailure::io("write", &draft, &error))?;
    fs::rename(&draft, program).map_err(|error| XtaskFailure::io("write", program, &error))
}

fn write_manual(program: &Path, folder: &Path) -> Result<(), XtaskFailure> {
    fs::create_dir_all(folder).map_err(|error| XtaskFailure::io("make", folder, &error))?;
    said_by(Command::new(program).arg("--quiet").arg("man").arg(folder)).map(drop)
}

/// Writes everything that accompanies the program.
fn furnish(place: &Checkout, staged: &Path) -> Result<(), XtaskFailure> {
    let program = staged.join("bin").join(file_name());
    write_manual(&program, &staged.join("share/man/man1"))?;
    let completions = staged.join("share/completions");
    fs::create_dir_all(&completions)
        .map_err(|error| XtaskFailure::io("make", &completions, &error))?;
    for (shell, file) in COMPLETIONS {
        write(
            &completions.join(file),
            &said_by(Command::new(&program).args(["completions", shell]))?,
        )?;
    }
    write(&staged.join("conclave.schema.json"), &said_by(Command::new(&program).arg("schema"))?)?;
    for paper in PAPERS {
        let copy = staged.join(paper);
        fs::copy(place.root.join(paper), &copy)
            .map_err(|error| XtaskFailure::io("write", &copy, &error))?;
    }
    Ok(())
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), XtaskFailure> {
    fs::write(file, bytes).map_err(|error| XtaskFailure::io("write", file, &error))
}

/// Returns a program's output on stdout; on failure its own error message.
fn said_by(command: &mut Command) -> Result<Vec<u8>, XtaskFailure> {
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

fn is_gnu_tar() -> bool {
    Command::new("tar")
        .arg("--version")
        .output()
        .is_ok_and(|answer| String::from_utf8_lossy(&answer.stdout).contains("GNU"))
}

fn checksum(folder: &Path, archive: &str) -> Result<String, XtaskFailure> {
    let tools: [(&str, &[&str]); 2] = [("sha256sum", &[]), ("shasum", &["-a", "256"])];
    for (tool, words) in tools {
        let Ok(answer) = Command::new(tool).args(words).arg(archive).current_dir(folder).output()
        else {
            continue;
        };
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        if let Some(sum) = text.split_whitespace().next().filter(|sum| sum.len() == 64) {
            return Ok(sum.to_owned());
        }
    }
    Err(XtaskFailure::new(
        "neither `sha256sum` nor `shasum` is here: the archive is made, its checksum is not"
            .to_owned(),
    ))
}

/// Returns the folder in which cargo installs programs.
fn default_root() -> Result<PathBuf, XtaskFailure> {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("CARGO_INSTALL_ROOT").or_else(|| named("CARGO_HOME")).or_else(|| named("HOME").map(|home| home.join(".cargo"))).ok_or_else(|| {
        XtaskFailure::usage("neither CARGO_INSTALL_ROOT, CARGO_HOME nor HOME is set: name a folder with --root FOLDER".to_owned())
    })
}

fn file_name() -> String {
    format!("{PROGRAM}{}", env::consts::EXE_SUFFIX)
}
