//! `cargo xtask fuzz`: builds the targets of `tests/fuzz` and runs them. With a C++ compiler
//! libFuzzer chooses mutations by code coverage; the counters that it needs are flags of stable
//! rustc. Without one, or with `--plain`, the driver in conclave-fuzz is used.

mod keep;
mod watch;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use crate::failure::XtaskFailure;
use crate::files;
use crate::needs;
use crate::phase::{self, Phases};
use crate::place::Checkout;

const PACKAGE: &str = "conclave-fuzz";
const PROGRAM: &str = "conclave-libfuzzer";
/// The variable that names the target for libFuzzer's program, whose arguments belong to libFuzzer.
const TARGET: &str = "CONCLAVE_FUZZ_TARGET";
const SECONDS: u64 = 60;

/// Printed on stderr, so that stdout contains only the names.
const HINT: &str = "\
cargo xtask fuzz NAME [SECONDS]   one of them, for 60 s when not said
cargo xtask fuzz all [SECONDS]    one after the other, so long each
What each reads and what must hold: docs/internals/fuzzing.md";

const INSTALL: &str = "Debian, Ubuntu: `apt install g++`. Fedora: `dnf install gcc-c++`. macOS: `xcode-select --install`.";

/// The flags that cargo-fuzz passes, without the sanitizer: it needs a nightly compiler and finds
/// nothing in code without `unsafe`.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// The time in seconds after which an input counts as a hang, and a memory limit that no input of
/// these sizes needs.
const LIMITS: [&str; 3] = ["-timeout=120", "-rss_limit_mb=2048", "-print_final_stats=1"];

/// The maximum length of an input that a target reads.
const LONGEST: &str = "-max_len=65536";

#[derive(Debug, Default)]
struct FuzzOptions {
    names: Vec<String>,
    seconds: Option<u64>,
    replay: Option<PathBuf>,
    plain: bool,
    keep: bool,
    verbose: bool,
}

/// The outcome of one run.
#[derive(Debug, Default)]
struct FuzzOutcome {
    executions: u64,
    seconds: u64,
    corpus: usize,
    new: usize,
    finding: Option<PathBuf>,
    /// Whether the program ended with an error.
    failed: bool,
    /// The program's message when it failed, in a line or two.
    reason: Option<String>,
    /// The number of inputs that were added to the repository's corpus.
    added_inputs: usize,
}

pub(crate) fn run(place: &Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let known = names(place);
    let options = read(arguments, &known)?;
    if options.names.is_empty() {
        known.iter().for_each(|name| println!("{name}"));
        eprintln!("\n{HINT}");
        return Ok(ExitCode::SUCCESS);
    }
    needs::check(place)?;
    if let Some(file) = &options.replay {
        return replay(place, &options, file);
    }
    let engine = FuzzEngine::build(place, &options)?;
    let mut is_clean = true;
    for name in &options.names {
        let outcome = fuzz(place, &engine, name, &options)?;
        is_clean &= outcome.finding.is_none() && !outcome.failed;
        println!("{}", row(name, &outcome));
        report(place, name, &outcome);
    }
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the consequences of an outcome: a finding with its reproduction, and the inputs added to
/// the corpus.
fn report(place: &Checkout, name: &str, outcome: &FuzzOutcome) {
    if let Some(reason) = &outcome.reason {
        println!("  reason:  {}", reason.replace('\n', "\n           "));
    }
    let log = place.relative(&log_of(place, name));
    match (&outcome.finding, outcome.failed) {
        (Some(finding), _) => {
            let finding = place.relative(finding);
            println!(
                "  finding: {finding}\n  replay:  cargo xtask fuzz {name} --replay {finding}\n  log:     {log}"
            );
        }
        (None, true) => {
            println!("  the program ended with an error, and no input is to blame; log: {log}")
        }
        (None, false) => {}
    }
    if outcome.added_inputs > 0 {
        println!(
            "  {} of the new inputs are in tests/fuzz/corpus/{name} now",
            outcome.added_inputs
        );
    }
}

/// Returns the targets, which are the folders of the corpus; a test of conclave-fuzz checks that.
fn names(place: &Checkout) -> Vec<String> {
    let entries = fs::read_dir(corpus_of(place, "")).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn read(arguments: &[String], known: &[String]) -> Result<FuzzOptions, XtaskFailure> {
    let mut options = FuzzOptions::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--verbose" | "-v" => options.verbose = true,
            "--plain" => options.plain = true,
            "--keep" => options.keep = true,
            "--replay" => {
                let file = words
                    .next()
                    .ok_or_else(|| XtaskFailure::usage("--replay takes a file".to_owned()))?;
                options.replay = Some(PathBuf::from(file));
            }
            "all" => options.names.extend(known.iter().cloned()),
            name if known.iter().any(|known| known == name) => options.names.push(name.to_owned()),
            word => match word.parse::<u64>() {
                Ok(0) => {
                    return Err(XtaskFailure::usage(
                        "A target runs for 1 s at least, not for 0.".to_owned(),
                    ));
                }
                Ok(_) if options.names.is_empty() => {
                    return Err(XtaskFailure::usage(format!(
                        "`{word}` seconds of which target? cargo xtask fuzz NAME {word}"
                    )));
                }
                Ok(seconds) => options.seconds = Some(seconds),
                Err(_) => return Err(unknown(word, known)),
            },
        }
    }
    if options.replay.is_some() && options.names.len() != 1 {
        return Err(XtaskFailure::usage(
            "--replay needs the name of one target: cargo xtask fuzz NAME --replay FILE".to_owned(),
        ));
    }
    if options.keep && options.plain {
        return Err(XtaskFailure::usage(
            "--keep needs libFuzzer, which knows what reached new code; leave out --plain."
                .to_owned(),
        ));
    }
    Ok(options)
}

fn unknown(word: &str, known: &[String]) -> XtaskFailure {
    if word.starts_with('-') {
        return XtaskFailure::usage(format!(
            "cargo xtask fuzz has no option `{word}`; it takes --replay FILE, --plain, --keep and --verbose."
        ));
    }
    let names: Vec<String> = known.iter().map(|name| format!("  {name}\n")).collect();
    XtaskFailure::usage(format!("There is no target `{word}`. Targets:\n  all\n{}", names.concat()))
}

/// Returns a row that fits the width of a terminal.
fn row(name: &str, outcome: &FuzzOutcome) -> String {
    let rate = outcome.executions / outcome.seconds.max(1);
    format!(
        "{name:<11}{:>10} runs  {:>4} s {rate:>6}/s  corpus {:>5}  new {:>5}  findings {}",
        outcome.executions,
        outcome.seconds,
        outcome.corpus,
        outcome.new,
        u8::from(outcome.finding.is_some())
    )
}

fn replay(place: &Checkout, options: &FuzzOptions, file: &Path) -> Result<ExitCode, XtaskFailure> {
    let file = files::absolute(file)?;
    let program = plain_program(place, options)?;
    let mut command = Command::new(program);
    command.args(&options.names).arg("--replay").arg(file);
    let status = phase::status(&mut command)?;
    match status.code() {
        Some(0) => Ok(ExitCode::SUCCESS),
        // The file cannot be read.
        Some(2) => Ok(ExitCode::from(2)),
        _ => {
            eprintln!("\n{} does not hold for this input.", options.names.concat());
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Builds the program in the dev profile, which needs nothing but Rust.
fn plain_program(place: &Checkout, options: &FuzzOptions) -> Result<PathBuf, XtaskFailure> {
    let mut phases = Phases::new(place, 1, options.verbose);
    phases.run(
        "building the targets",
        "fuzz-build",
        place.cargo(["build", "-p", PACKAGE, "--bins"]),
    )?;
    Ok(place.program("debug", PACKAGE))
}

/// The program that runs a target.
enum FuzzEngine {
    LibFuzzer(PathBuf),
    Plain(PathBuf),
}

impl FuzzEngine {
    fn build(place: &Checkout, options: &FuzzOptions) -> Result<Self, XtaskFailure> {
        if options.plain || !has_compiler() {
            if !options.plain {
                eprintln!("{}", without_compiler(options)?);
            }
            return Ok(Self::Plain(plain_program(place, options)?));
        }
        let host = needs::host_triple()?;
        let folder = place.target.join("fuzz");
        let mut command = place.cargo([
            "build",
            "--release",
            "--locked",
            "--features",
            "component",
            "--target",
            &host,
        ]);
        // With `--target` the flags do not reach build scripts and macros, which have no libFuzzer
        // to link with.
        command.arg("--manifest-path").arg(place.root.join("tests/fuzz/libfuzzer/Cargo.toml"));
        command
            .arg("--target-dir")
            .arg(&folder)
            .env("RUSTFLAGS", COVERAGE)
            .env_remove("CARGO_ENCODED_RUSTFLAGS");
        let mut phases = Phases::new(place, 1, options.verbose);
        phases.run(
            "building the targets with coverage, minutes at first",
            "fuzz-build",
            command,
        )?;
        Ok(Self::LibFuzzer(folder.join(host).join("release").join(PROGRAM)))
    }
}

/// Returns the C++ compiler that the crate `cc` uses, or its wrapper (`ccache g++`).
fn compiler() -> String {
    let variable = env::var("CXX").unwrap_or_default();
    variable.split_whitespace().next().unwrap_or("c++").to_owned()
}

fn has_compiler() -> bool {
    let ran = Command::new(compiler())
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    ran.is_ok_and(|status| status.success())
}

/// Returns the message for a missing compiler when the plain driver was not requested.
fn without_compiler(options: &FuzzOptions) -> Result<String, XtaskFailure> {
    let compiler = compiler();
    if options.keep {
        let text = format!(
            "--keep needs libFuzzer, which knows what reached new code, and it needs a C++ compiler: `{compiler}` does not run."
        );
        return Err(XtaskFailure::new(text));
    }
    Ok(format!(
        "There is no C++ compiler (`{compiler}` does not run), so libFuzzer cannot be built.\n\
         The plain driver changes inputs without knowing which code they reach.\n{INSTALL}"
    ))
}

fn corpus_of(place: &Checkout, name: &str) -> PathBuf {
    place.root.join("tests/fuzz/corpus").join(name)
}

fn log_of(place: &Checkout, name: &str) -> PathBuf {
    place.own().join(format!("fuzz-{name}.log"))
}

fn fuzz(
    place: &Checkout,
    engine: &FuzzEngine,
    name: &str,
    options: &FuzzOptions,
) -> Result<FuzzOutcome, XtaskFailure> {
    let own = place.own().join("fuzz").join(name);
    let (grown, findings) = (own.join("corpus"), own.join("findings"));
    for folder in [&grown, &findings] {
        files::make_folder(folder)?;
    }
    // Compared afterwards, for drivers that do not print the path of their finding.
    let before = files_in(&findings);
    let seconds = options.seconds.unwrap_or(SECONDS);
    let mut command = match engine {
        FuzzEngine::LibFuzzer(program) => {
            let mut command = Command::new(program);
            command
                .env(TARGET, name)
                .args(LIMITS)
                .arg(format!("-max_total_time={seconds}"))
                .arg(LONGEST);
            command
                .arg(format!("-artifact_prefix={}/", findings.display()))
                // libFuzzer writes new inputs to the first folder, so the repository's corpus is
                // the second.
                .args([&grown, &corpus_of(place, name)]);
            command
        }
        FuzzEngine::Plain(program) => {
            let mut command = Command::new(program);
            command
                .arg(name)
                .arg("--corpus")
                .arg(corpus_of(place, name))
                .arg("--findings")
                .arg(&findings);
            command.args(["--seconds", &seconds.to_string()]);
            command
        }
    };
    let began = Instant::now();
    let mut seen = watch::watched(&log_of(place, name), name, seconds, &mut command)?;
    let took = began.elapsed().as_secs();
    // A finding of an earlier run is reported again but not written again.
    let known_finding = seen.finding.take().filter(|path| path.is_file());
    let new = || {
        files_in(&findings)
            .into_iter()
            .find(|path| !before.contains(path))
            .map(kept_apart)
            .transpose()
    };
    let finding = if known_finding.is_some() { known_finding } else { new()? };
    let mut added_inputs = 0;
    if let (FuzzEngine::LibFuzzer(program), true) =
        (engine, options.keep && seen.is_success && finding.is_none())
    {
        added_inputs = keep::keep(&corpus_of(place, name), &own, || {
            let mut command = Command::new(program);
            command.env(TARGET, name).arg(LONGEST);
            command
        })?;
    }
    let corpus = files_in(&corpus_of(place, name)).len() + files_in(&grown).len();
    let watch::DriverReport { executions, new, reason, is_success, .. } = seen;
    Ok(FuzzOutcome {
        executions,
        seconds: took,
        corpus,
        new,
        finding,
        failed: !is_success,
        reason,
        added_inputs,
    })
}

/// Renames the input of an abort, which the plain driver leaves as `current`: the next run would
/// overwrite it.
fn kept_apart(path: PathBuf) -> Result<PathBuf, XtaskFailure> {
    if path.file_name() != Some(OsStr::new("current")) {
        return Ok(path);
    }
    let number = (1..)
        .find(|number| !path.with_file_name(format!("finding-{number}")).exists())
        .unwrap_or(0_u32);
    let apart = path.with_file_name(format!("finding-{number}"));
    files::rename(&path, &apart)?;
    Ok(apart)
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options_of(words: &str) -> Result<FuzzOptions, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        read(&words, &["sse".to_owned(), "urls".to_owned()]).map_err(|failure| failure.text)
    }

    #[test]
    fn names_and_seconds_are_told_apart() {
        let options = options_of("urls 20 --keep").expect("it is right");
        assert_eq!(
            (options.names, options.seconds, options.keep),
            (vec!["urls".to_owned()], Some(20), true)
        );
        assert_eq!(options_of("all 5").expect("it is right").names, ["sse", "urls"]);
        assert!(options_of("").expect("it is right").names.is_empty());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (words, says) in [
            ("url", "There is no target `url`. Targets:\n  all\n  sse\n  urls\n"),
            ("20", "cargo xtask fuzz NAME 20"),
            ("urls 0", "1 s at least"),
            ("urls --keeep", "no option `--keeep`"),
            ("urls --keep --plain", "leave out --plain"),
            ("all --replay x", "the name of one target"),
            ("urls --replay", "takes a file"),
        ] {
            let message = options_of(words).expect_err(words);
            assert!(message.contains(says), "{words}: {message}");
        }
    }

    #[test]
    fn a_row_fits_a_terminal() {
        let outcome = FuzzOutcome {
            executions: 123_456_789,
            seconds: 3_600,
            corpus: 12_345,
            new: 12_345,
            ..FuzzOutcome::default()
        };
        assert!(row("config-edit", &outcome).len() <= 80, "{}", row("config-edit", &outcome));
    }
}
