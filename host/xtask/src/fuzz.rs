//! `cargo xtask fuzz`: builds the targets of `tests/fuzz` and runs them. With a C++ compiler libFuzzer chooses what to change by the code
//! that was reached: the counters that it needs are flags of stable rustc. Without one, or with `--plain`, the driver in conclave-fuzz.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use crate::demo;
use crate::failure::Failure;
use crate::needs;
use crate::phase::{self, Phases};
use crate::place::Place;

const PACKAGE: &str = "conclave-fuzz";
const PROGRAM: &str = "conclave-libfuzzer";
/// Names the target for libFuzzer's program, which keeps its arguments for itself.
const TARGET: &str = "CONCLAVE_FUZZ_TARGET";
const SECONDS: u64 = 60;

/// What cargo-fuzz passes too, less the sanitizer, which only a nightly compiler has and which finds nothing in code without `unsafe`.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// An input that takes longer hangs; memory that no input of these sizes needs.
const LIMITS: [&str; 3] = ["-timeout=120", "-rss_limit_mb=2048", "-print_final_stats=1"];

#[derive(Debug, Default)]
struct Wanted {
    names: Vec<String>,
    seconds: Option<u64>,
    replay: Option<PathBuf>,
    plain: bool,
    keep: bool,
    verbose: bool,
}

/// What one run came to.
#[derive(Debug, Default)]
struct Outcome {
    executions: u64,
    seconds: u64,
    corpus: usize,
    new: usize,
    finding: Option<PathBuf>,
    /// The program ended with an error.
    failed: bool,
}

pub(crate) fn run(place: Place, arguments: &[String]) -> Result<ExitCode, Failure> {
    let known = names(&place);
    let wanted = read(arguments, &known)?;
    if wanted.names.is_empty() {
        known.iter().for_each(|name| println!("{name}"));
        return Ok(ExitCode::SUCCESS);
    }
    needs::check(&place)?;
    if let Some(file) = &wanted.replay {
        return replay(&place, &wanted, file);
    }
    let engine = Engine::build(&place, &wanted)?;
    let mut is_clean = true;
    for name in &wanted.names {
        let outcome = fuzz(&place, &engine, name, &wanted)?;
        is_clean &= outcome.finding.is_none() && !outcome.failed;
        println!("{}", row(name, &outcome));
        if let Some(finding) = &outcome.finding {
            println!("finding: {}", place.shown(finding));
            println!("replay:  cargo xtask fuzz {name} --replay {}", place.shown(finding));
        } else if outcome.failed {
            println!("the program failed without a finding: {}", place.shown(&log_of(&place, name)));
        }
    }
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The targets are the folders of the corpus; a test of conclave-fuzz says so.
fn names(place: &Place) -> Vec<String> {
    let entries = fs::read_dir(corpus_of(place, "")).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn read(arguments: &[String], known: &[String]) -> Result<Wanted, Failure> {
    let mut wanted = Wanted::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--verbose" | "-v" => wanted.verbose = true,
            "--plain" => wanted.plain = true,
            "--keep" => wanted.keep = true,
            "--replay" => {
                let file = words.next().ok_or_else(|| Failure::usage("--replay takes a file".to_owned()))?;
                wanted.replay = Some(PathBuf::from(file));
            }
            "all" => wanted.names.extend(known.iter().cloned()),
            name if known.iter().any(|known| known == name) => wanted.names.push(name.to_owned()),
            word => {
                let seconds = word.parse().ok().filter(|seconds| *seconds > 0 && !wanted.names.is_empty());
                let problem = || Failure::usage(format!("cargo xtask fuzz does not know `{word}`. Targets: all, {}", known.join(", ")));
                wanted.seconds = Some(seconds.ok_or_else(problem)?);
            }
        }
    }
    if wanted.replay.is_some() && wanted.names.len() != 1 {
        return Err(Failure::usage("--replay wants the name of one target".to_owned()));
    }
    Ok(wanted)
}

fn row(name: &str, outcome: &Outcome) -> String {
    let rate = outcome.executions / outcome.seconds.max(1);
    format!(
        "{name:<12}  {:>10} executions in {} s  {rate:>6}/s  corpus {:>5}  new {:>5}  findings {}",
        outcome.executions,
        outcome.seconds,
        outcome.corpus,
        outcome.new,
        u8::from(outcome.finding.is_some())
    )
}

fn replay(place: &Place, wanted: &Wanted, file: &Path) -> Result<ExitCode, Failure> {
    let file = std::path::absolute(file).map_err(|error| Failure::io("find", file, &error))?;
    let program = plain_program(place, wanted)?;
    let mut command = Command::new(program);
    command.args(&wanted.names).arg("--replay").arg(file);
    demo::become_program(command)
}

/// The program of the dev profile, which needs nothing but Rust.
fn plain_program(place: &Place, wanted: &Wanted) -> Result<PathBuf, Failure> {
    let mut phases = Phases::new(place, 1, wanted.verbose);
    phases.run("building the targets", "fuzz-build", place.cargo(["build", "-p", PACKAGE, "--bins"]))?;
    Ok(place.program("debug", PACKAGE))
}

/// What runs a target.
enum Engine {
    LibFuzzer(PathBuf),
    Plain(PathBuf),
}

impl Engine {
    fn build(place: &Place, wanted: &Wanted) -> Result<Self, Failure> {
        if wanted.plain || !has_compiler() {
            if !wanted.plain {
                eprintln!("There is no C++ compiler (`c++`), so inputs are changed without knowing what they reach.");
            }
            return Ok(Self::Plain(plain_program(place, wanted)?));
        }
        let host = host(place)?;
        let folder = place.target.join("fuzz");
        let mut command = place.cargo(["build", "--release", "--locked", "--features", "component", "--target", &host]);
        // With `--target` the flags do not reach build scripts and macros, which have no libFuzzer to link with.
        command.arg("--manifest-path").arg(place.root.join("tests/fuzz/libfuzzer/Cargo.toml"));
        command.arg("--target-dir").arg(&folder).env("RUSTFLAGS", COVERAGE).env_remove("CARGO_ENCODED_RUSTFLAGS");
        let mut phases = Phases::new(place, 1, wanted.verbose);
        phases.run("building the targets with coverage", "fuzz-build", command)?;
        Ok(Self::LibFuzzer(folder.join(host).join("release").join(PROGRAM)))
    }
}

fn has_compiler() -> bool {
    let ran = Command::new("c++").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    ran.is_ok_and(|status| status.success())
}

fn host(place: &Place) -> Result<String, Failure> {
    let output = Command::new("rustc").arg("-vV").current_dir(&place.root).output();
    let output = output.map_err(|error| Failure::new(format!("rustc does not start: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Failure::new("rustc does not say for which machine it compiles".to_owned()))
}

fn corpus_of(place: &Place, name: &str) -> PathBuf {
    place.root.join("tests/fuzz/corpus").join(name)
}

fn log_of(place: &Place, name: &str) -> PathBuf {
    place.own().join(format!("fuzz-{name}.log"))
}

fn fuzz(place: &Place, engine: &Engine, name: &str, wanted: &Wanted) -> Result<Outcome, Failure> {
    let own = place.own().join("fuzz").join(name);
    let (grown, findings) = (own.join("corpus"), own.join("findings"));
    for folder in [&grown, &findings] {
        fs::create_dir_all(folder).map_err(|error| Failure::io("create", folder, &error))?;
    }
    let before = files(&findings);
    let seconds = wanted.seconds.unwrap_or(SECONDS);
    let mut command = match engine {
        Engine::LibFuzzer(program) => {
            let mut command = Command::new(program);
            command.env(TARGET, name).args(LIMITS).arg(format!("-max_total_time={seconds}")).arg("-max_len=65536");
            command.arg(format!("-artifact_prefix={}/", findings.display())).args([&grown, &corpus_of(place, name)]);
            command
        }
        Engine::Plain(program) => {
            let mut command = Command::new(program);
            command.arg(name).arg("--corpus").arg(corpus_of(place, name)).arg("--findings").arg(&findings);
            command.args(["--seconds", &seconds.to_string()]);
            command
        }
    };
    let began = Instant::now();
    let (status, executions, new) = watched(place, name, &mut command)?;
    let seconds = began.elapsed().as_secs();
    let finding = files(&findings).into_iter().find(|path| !before.contains(path)).map(kept_apart).transpose()?;
    if let (Engine::LibFuzzer(program), true) = (engine, wanted.keep && status && finding.is_none()) {
        keep(place, program, name, &grown)?;
    }
    let corpus = files(&corpus_of(place, name)).len() + files(&grown).len();
    Ok(Outcome { executions, seconds, corpus, new, finding, failed: !status })
}

/// Runs the program; its words go to a log, and on a terminal the newest is shown.
fn watched(place: &Place, name: &str, command: &mut Command) -> Result<(bool, u64, usize), Failure> {
    let path = log_of(place, name);
    let mut log = File::create(&path).map_err(|error| Failure::io("write", &path, &error))?;
    let is_live = std::io::stderr().is_terminal();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| phase::not_started(command, &error))?;
    let errors = child.stderr.take().ok_or_else(|| Failure::new(format!("{name} says nothing")))?;
    let (mut executions, mut new) = (0, 0);
    for line in BufReader::new(errors).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        let _ = writeln!(log, "{line}");
        let stat = |name: &str| line.strip_prefix("stat::")?.strip_prefix(name)?.trim_start_matches(':').trim().parse::<u64>().ok();
        executions = stat("number_of_executed_units").unwrap_or(executions);
        new = stat("new_units_added").and_then(|new| usize::try_from(new).ok()).unwrap_or(new);
        if is_live && line.starts_with('#') {
            eprint!("\r\x1b[2K{name}: {}", line.chars().take(100).collect::<String>());
        }
    }
    if is_live {
        eprint!("\r\x1b[2K");
    }
    let status = child.wait().map_err(|error| Failure::new(format!("{name} cannot be waited for: {error}")))?;
    Ok((status.success(), executions, new))
}

/// The plain driver leaves the input of an abort as `current`, which the next run would write over.
fn kept_apart(path: PathBuf) -> Result<PathBuf, Failure> {
    if path.file_name() != Some(OsStr::new("current")) {
        return Ok(path);
    }
    let number = (1..).find(|number| !path.with_file_name(format!("finding-{number}")).exists()).unwrap_or(0_u32);
    let apart = path.with_file_name(format!("finding-{number}"));
    fs::rename(&path, &apart).map_err(|error| Failure::io("rename", &path, &error))?;
    Ok(apart)
}

/// Takes into the repository's corpus what reaches code that nothing there reaches.
fn keep(place: &Place, program: &Path, name: &str, grown: &Path) -> Result<(), Failure> {
    let mut command = Command::new(program);
    command.env(TARGET, name).args(["-merge=1", "-max_len=4096"]).args([corpus_of(place, name).as_path(), grown]);
    let output = command.output().map_err(|error| phase::not_started(&command, &error))?;
    if output.status.success() { Ok(()) } else { Err(Failure::new(String::from_utf8_lossy(&output.stderr).into_owned())) }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}
