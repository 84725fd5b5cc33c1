//! `conclave-fuzz`: fuzzes one target without coverage, or replays an input. `cargo xtask fuzz`
//! starts it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use conclave_fuzz::drive::{self, End};
use conclave_fuzz::{Target, target_named, targets};

const USAGE: &str =
    "usage: conclave-fuzz TARGET --corpus FOLDER --findings FOLDER [--seconds N] [--seed N]
       conclave-fuzz TARGET --replay FILE
       conclave-fuzz --list";

/// The time after which an execution counts as hanging. The slowest input of any target takes less
/// than a second.
const HANGS: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[String]) -> Result<(), String> {
    if words.first().is_some_and(|word| word == "--list") {
        targets().iter().for_each(|target| println!("{:<12} {}", target.name, target.about));
        return Ok(());
    }
    let target = words.first().and_then(|name| target_named(name)).ok_or(USAGE)?;
    let option =
        |name: &str| words.iter().position(|word| word == name).and_then(|at| words.get(at + 1));
    let number = |name: &str, otherwise: u64| match option(name) {
        None => Ok(otherwise),
        Some(word) => word.parse().map_err(|_| format!("{name} takes a number, not `{word}`")),
    };
    if let Some(file) = option("--replay") {
        let input = fs::read(file).map_err(|error| format!("{file} cannot be read: {error}"))?;
        watch(&Arc::new(AtomicU64::new(0)));
        let cost = target.run(&input);
        println!(
            "{} holds: {} bytes, {} allocations of {} bytes",
            target.name,
            input.len(),
            cost.allocations,
            cost.bytes
        );
        return Ok(());
    }
    let folder = |name: &str| option(name).map(PathBuf::from).ok_or(USAGE);
    fuzz(
        target,
        &folder("--corpus")?,
        &folder("--findings")?,
        number("--seconds", 60)?,
        number("--seed", 1)?,
    )
}

/// Fuzzes a target. Every input is written down before it is run, because an abort or an exhausted
/// stack ends the process.
fn fuzz(
    target: &Target,
    corpus: &Path,
    findings: &Path,
    seconds: u64,
    seed: u64,
) -> Result<(), String> {
    let inputs =
        drive::inputs(corpus).map_err(|error| format!("the corpus cannot be read: {error}"))?;
    fs::create_dir_all(findings)
        .map_err(|error| format!("{} cannot be made: {error}", findings.display()))?;
    let current = findings.join("current");
    let executions = Arc::new(AtomicU64::new(0));
    watch(&executions);
    let report =
        drive::drive(target, inputs, seed, End::After(Duration::from_secs(seconds)), |input| {
            let number = executions.fetch_add(1, Ordering::Relaxed) + 1;
            // In the format of libFuzzer, so that both drivers can be read alike.
            if number.is_power_of_two() {
                eprintln!("#{number}\tpulse");
            }
            if let Err(error) = fs::write(&current, input) {
                eprintln!("{} cannot be written: {error}", current.display());
            }
        });
    let _ = fs::remove_file(&current);
    eprintln!("stat::number_of_executed_units: {}", report.executions);
    eprintln!("stat::new_units_added: {}", report.kept);
    Ok(())
}

/// Ends the process if an execution does not end.
fn watch(executions: &Arc<AtomicU64>) {
    let executions = Arc::clone(executions);
    thread::spawn(move || {
        loop {
            let before = executions.load(Ordering::Relaxed);
            thread::sleep(HANGS);
            if executions.load(Ordering::Relaxed) == before {
                eprintln!("one input takes longer than {} s", HANGS.as_secs());
                std::process::abort();
            }
        }
    });
}
