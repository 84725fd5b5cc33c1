//! `cargo xtask dist`: packs the program with its files, man pages, completions and schema into an
//! archive for each target. It runs on machines without Rust.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::failure::XtaskFailure;
use crate::files;
use crate::needs;
use crate::phase::Phases;
use crate::place::Checkout;
use crate::program::{self, BuiltProgram, CodeTarget, ProgramBuild};
use crate::toml;

/// The second target of a Linux host: its programs need no libraries of the machine.
const STATIC: (&str, &str) = ("x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl");
/// The completions, each with the file name that its shell looks for.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "conclave.bash"), ("zsh", "_conclave"), ("fish", "conclave.fish")];
/// The documents in the archive besides the program.
const PAPERS: [&str; 3] = ["LICENSE", "README.md", "CHANGELOG.md"];

/// The options of the command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct DistOptions {
    verbose: bool,
    /// The targets; those of this host if empty.
    targets: Vec<String>,
    /// A program to pack instead of building one.
    program: Option<PathBuf>,
    out: Option<PathBuf>,
}

impl DistOptions {
    fn read(arguments: &[String]) -> Result<Self, XtaskFailure> {
        let mut options = Self::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().ok_or_else(|| XtaskFailure::usage(format!("{word} needs a value")));
            match word.as_str() {
                "--verbose" | "-v" => options.verbose = true,
                "--target" => options.targets.push(value()?.clone()),
                "--program" => options.program = Some(PathBuf::from(value()?)),
                "--out" => options.out = Some(PathBuf::from(value()?)),
                other => {
                    return Err(XtaskFailure::usage(format!(
                        "cargo xtask dist does not know `{other}`: it takes --target TRIPLE, \
                         --program FILE, --out FOLDER and --verbose"
                    )));
                }
            }
        }
        Ok(options)
    }

    /// Returns the targets, of which a host on Linux has two.
    fn targets(&self, host: &str) -> Vec<String> {
        match (&self.targets, &self.program) {
            (named, _) if !named.is_empty() => named.clone(),
            (_, None) if host == STATIC.0 => vec![host.to_owned(), STATIC.1.to_owned()],
            _ => vec![host.to_owned()],
        }
    }
}

/// Runs `cargo xtask dist`.
pub(crate) fn run(place: &Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let options = DistOptions::read(arguments)?;
    let host = needs::host_triple()?;
    let targets = options.targets(&host);
    let folder = match &options.out {
        Some(out) => files::absolute(out)?,
        None => place.target.join("conclave/dist"),
    };
    let builds = if options.program.is_some() { 0 } else { program::PHASES };
    if builds > 0 {
        needs::check(place)?;
        targets.iter().try_for_each(|target| needs::check_target(place, target))?;
        eprintln!("The first build takes 25 to 30 minutes on two cores for each target.");
    }
    let mut phases = Phases::new(place, targets.len() * (builds + 1), options.verbose);
    let mut archives = Vec::new();
    for target in &targets {
        if targets.len() > 1 {
            eprintln!("{target}");
        }
        let built = match &options.program {
            Some(program) => BuiltProgram::at(program),
            None => {
                // A named target has a folder of its own; the host's is shared with `install`.
                let cross_target = Some(target.as_str()).filter(|target| *target != host);
                let (profile, code) = (program::OPTIMISED, CodeTarget::AnyMachine);
                ProgramBuild { profile, target: cross_target, code }.run(place, &mut phases)?
            }
        };
        archives.push(pack(place, &mut phases, &built, target, &folder)?);
    }
    for Archive { file, sha256, bytes } in &archives {
        println!("{}", folder.join(file).display());
        eprintln!("  {} MiB, sha256 {sha256}", bytes >> 20);
    }
    if let Some(Archive { file, .. }) = archives.first() {
        eprintln!("check: `sha256sum -c {file}.sha256`; unpack: `tar -xzf {file}`");
    }
    Ok(ExitCode::SUCCESS)
}

/// A packed program.
struct Archive {
    /// The name in its folder.
    file: String,
    sha256: String,
    bytes: u64,
}

/// One phase: packs a program, and writes the checksum beside the archive.
fn pack(
    place: &Checkout,
    phases: &mut Phases,
    built: &BuiltProgram,
    target: &str,
    folder: &Path,
) -> Result<Archive, XtaskFailure> {
    let version = toml::string(&place.read("Cargo.toml")?, "[workspace.package]", "version")
        .unwrap_or_default();
    let name = format!("conclave-{version}-{target}");
    let staged = folder.join(&name);
    files::remove_folder(&staged)?;
    let program = built.install(&staged)?;
    furnish(place, &staged, &program)?;
    let file = format!("{name}.tar.gz");
    // Sorted by name and with a fixed date, so that equal files give an equal archive. Only GNU tar
    // has these options.
    let mut tar = Command::new("tar");
    tar.current_dir(folder);
    if is_gnu_tar() {
        tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]);
    }
    tar.args(["-czf", &file, &name]).env("GZIP", "-n");
    phases.run(&format!("packing {file}"), "tar", tar)?;
    files::remove_folder(&staged)?;
    let sha256 = checksum(folder, &file)?;
    let sum = folder.join(format!("{file}.sha256"));
    files::write(&sum, format!("{sha256}  {file}\n").as_bytes())?;
    let bytes = fs::metadata(folder.join(&file)).map_or(0, |file| file.len());
    Ok(Archive { file, sha256, bytes })
}

/// Writes everything that accompanies the program.
fn furnish(place: &Checkout, staged: &Path, program: &Path) -> Result<(), XtaskFailure> {
    program::write_manual(program, &staged.join("share/man/man1"))?;
    let completions = staged.join("share/completions");
    files::make_folder(&completions)?;
    for (shell, file) in COMPLETIONS {
        let script = program::output_of(Command::new(program).args(["completions", shell]))?;
        files::write(&completions.join(file), script)?;
    }
    let schema = program::output_of(Command::new(program).arg("schema"))?;
    files::write(&staged.join("conclave.schema.json"), schema)?;
    for paper in PAPERS {
        files::copy(&place.root.join(paper), &staged.join(paper))?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(words: &[&str], host: &str) -> Option<Vec<String>> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Some(DistOptions::read(&words).ok()?.targets(host))
    }

    #[test]
    fn a_linux_host_packs_for_two_targets_unless_one_is_named() {
        let both = [STATIC.0.to_owned(), STATIC.1.to_owned()];
        assert_eq!(targets(&[], STATIC.0), Some(both.to_vec()));
        assert_eq!(targets(&["--target", STATIC.1], STATIC.0), Some(both[1..].to_vec()));
        assert_eq!(targets(&["--program", "conclave"], STATIC.0), Some(both[..1].to_vec()));
        assert_eq!(targets(&[], "aarch64-apple-darwin").map(|targets| targets.len()), Some(1));
        assert_eq!(targets(&["--target"], STATIC.0), None);
    }
}
