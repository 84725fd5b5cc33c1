//! `cargo xtask counts`: the instructions of the core's hot paths and of a task in its sandboxes,
//! counted by callgrind and held against `tests/counts/counts.txt`. Counts do not vary with the load
//! of a machine, so a test can fail on them, where it never fails on time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, ExitCode};
use std::{fs, str};

use crate::components::{self, Optimised};
use crate::failure::XtaskFailure;
use crate::layers;
use crate::needs;
use crate::phase::{Phases, not_started};
use crate::place::Checkout;
use crate::test;

const PROGRAM: &str = "conclave-counts";
/// The program of the sandboxes. It is not optimised, as nothing of the tests is: optimising the
/// engine takes ten minutes, and what the host does more shows all the same.
const SANDBOX: &str = "conclave-counts-sandbox";
/// The row of the sandboxes: a step, a tool call and a step, each in a fresh one.
const SANDBOX_ROW: &str = "task-in-sandboxes-dev";
/// The numbers of tasks whose counts are compared; the difference has no start of the program.
const TASKS: [u64; 2] = [2, 12];
const RECORDED: &str = "tests/counts/counts.txt";
/// The difference from the recorded count, in percent, that is no change.
const TOLERANCE: u64 = 5;

type Counts = BTreeMap<String, u64>;

pub(crate) fn run(place: Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let (mut verbose, mut record) = (false, false);
    for word in arguments {
        match word.as_str() {
            "--verbose" | "-v" => verbose = true,
            "--record" => record = true,
            other => {
                return Err(XtaskFailure::usage(format!(
                    "cargo xtask counts does not know `{other}`: it takes --record and --verbose"
                )));
            }
        }
    }
    needs::check(&place)?;
    if !has_valgrind() {
        return Err(XtaskFailure::new(MISSING));
    }
    let mut phases = Phases::new(&place, 4, verbose);
    components::build_guests(&place, &mut phases, Optimised::Little)?;
    let tested = layers::tested(&place)?;
    let packages = test::names(&tested);
    build_core(&place, &mut phases, &packages)?;
    let sandboxes = test::program(&place, &packages, SANDBOX);
    phases.run("building the sandboxes", "counts-sandbox", sandboxes)?;
    let mut counts = Counts::new();
    phases.check("counting instructions", || {
        counts = count(&place)?;
        Ok(())
    })?;
    let recorded = if record { read(&place).unwrap_or_default() } else { read(&place)? };
    print!("{}", table(&counts, &recorded));
    if record {
        let file = place.root.join(RECORDED);
        fs::write(&file, written(&counts))
            .map_err(|error| XtaskFailure::io("write", &file, &error))?;
        return Ok(ExitCode::SUCCESS);
    }
    compare(&counts, &recorded).map(|()| ExitCode::SUCCESS)
}

const MISSING: &str = "valgrind is not here, which counts instructions: apt-get install valgrind";

/// Builds the program of the core, out of the packages of the tests.
pub(crate) fn build_core(
    place: &Checkout,
    phases: &mut Phases,
    packages: &[&str],
) -> Result<(), XtaskFailure> {
    let mut command =
        place.cargo(["build", "--config", "host/xtask/counts.toml", "--bin", PROGRAM]);
    command.args(test::selection(packages));
    phases.run("building the core, optimised", "counts", command)
}

/// Compares counts of programs that were built before. Fails if a hot path takes more or fewer instructions than recorded. Returns why nothing was
/// counted, if this machine cannot.
pub(crate) fn check(place: &Checkout) -> Result<Option<&'static str>, XtaskFailure> {
    if !has_valgrind() {
        return Ok(Some(MISSING));
    }
    compare(&count(place)?, &read(place)?).map(|()| None)
}

fn has_valgrind() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|out| out.status.success())
}

fn count(place: &Checkout) -> Result<Counts, XtaskFailure> {
    let program = place.program("debug", PROGRAM);
    let mut list = Command::new(&program);
    let names = list.output().map_err(|error| not_started(&list, &error))?.stdout;
    let names = String::from_utf8_lossy(&names).into_owned();
    let mut counts = Counts::new();
    for name in names.lines() {
        let mut command = callgrind();
        // The function in `tests/counts/src/main.rs`; everything outside of it is not counted.
        command.args(["--collect-atstart=no", "--toggle-collect=*counted*"]);
        command.arg(&program).arg(name);
        counts.insert(name.to_owned(), count_of(name, command)?);
    }
    counts.insert(SANDBOX_ROW.to_owned(), count_in_sandboxes(place)?);
    Ok(counts)
}

/// Counts a task of three calls. Guests change stacks, so callgrind cannot tell where a function of
/// the host ends; the difference of two whole runs can.
fn count_in_sandboxes(place: &Checkout) -> Result<u64, XtaskFailure> {
    let (program, code) = (place.program("debug", SANDBOX), place.stock_code("counts"));
    let mut compile = Command::new(&program);
    compile.arg("compile").arg(place.guests()).arg(&code);
    let compiled = compile.output().map_err(|error| not_started(&compile, &error))?;
    if !compiled.status.success() {
        let text = String::from_utf8_lossy(&compiled.stderr);
        return Err(XtaskFailure::new(format!(
            "the guests of {SANDBOX_ROW} do not compile: {text}"
        )));
    }
    let count = |tasks: u64| {
        let mut command = callgrind();
        command.arg(&program).arg("run").arg(place.guests()).arg(&code).arg(tasks.to_string());
        count_of(SANDBOX_ROW, command)
    };
    let [few, many] = TASKS;
    Ok((count(many)?).saturating_sub(count(few)?) / (many - few))
}

fn callgrind() -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command
}

/// Returns the instructions that callgrind counts in a program.
fn count_of(name: &str, mut command: Command) -> Result<u64, XtaskFailure> {
    let output = command.output().map_err(|error| not_started(&command, &error))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = collected(&text).filter(|count| output.status.success() && *count > 0);
    collected.ok_or_else(|| {
        XtaskFailure::new(format!("{name} was not counted. Callgrind said:\n\n{text}"))
    })
}

/// Returns the number behind `Collected :`.
fn collected(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("Collected :")?;
    rest.split_whitespace().next()?.parse().ok()
}

fn read(place: &Checkout) -> Result<Counts, XtaskFailure> {
    let file = place.root.join(RECORDED);
    let text =
        fs::read_to_string(&file).map_err(|error| XtaskFailure::io("read", &file, &error))?;
    Ok(parsed(&text))
}

/// Returns the rows of a file of figures: a name and a number on each line.
pub(crate) fn parsed(text: &str) -> Counts {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let rows = lines.filter_map(|line| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.trim().replace('_', "").parse().ok()?))
    });
    rows.collect()
}

fn written(counts: &Counts) -> String {
    let mut text =
        "# Instructions of the core's hot paths and of a task in its sandboxes, written by `cargo \
         xtask counts --record`.\n"
            .to_owned();
    for (name, count) in counts {
        let _ = writeln!(text, "{name:<24}{:>14}", spelled(*count));
    }
    text
}

/// Returns a number with `_` between thousands.
pub(crate) fn spelled(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| str::from_utf8(group).unwrap_or_default())
        .collect();
    groups.join("_")
}

fn table(counts: &Counts, recorded: &Counts) -> String {
    let mut text = format!("{:<24}{:>14}{:>14}\n", "path", "instructions", "recorded");
    for (name, count) in counts {
        let before = recorded.get(name).map_or("–".to_owned(), |count| spelled(*count));
        let _ = writeln!(text, "{name:<24}{:>14}{before:>14}", spelled(*count));
    }
    text
}

fn compare(counts: &Counts, recorded: &Counts) -> Result<(), XtaskFailure> {
    let mut lines = Vec::new();
    for (name, count) in counts {
        let Some(before) = recorded.get(name) else {
            lines.push(format!("    {name} is not recorded"));
            continue;
        };
        if count.abs_diff(*before) * 100 > before * TOLERANCE {
            let sign = if count > before { "more" } else { "fewer" };
            let percent = count.abs_diff(*before) * 100 / before.max(&1);
            lines.push(format!(
                "    {name} takes {} instructions, {percent} % {sign} than the {} recorded",
                spelled(*count),
                spelled(*before)
            ));
        }
    }
    let uncounted = recorded.keys().filter(|name| !counts.contains_key(*name));
    lines.extend(
        uncounted.map(|name| format!("    {name} is recorded, and is not counted any more")),
    );
    if lines.is_empty() {
        return Ok(());
    }
    Err(XtaskFailure::new(format!(
        "\n{}\n\nFind out why with `valgrind --tool=callgrind`. If it is meant, \
         write {RECORDED} anew (`cargo xtask counts --record`) and say why in the commit.",
        lines.join("\n")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, u64)]) -> Counts {
        pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn a_count_is_read_from_what_callgrind_says() {
        let text = "==1== Events    : Ir\n==1== Collected : 346893\n==1== \n";
        assert_eq!(collected(text), Some(346_893));
        assert_eq!(collected("valgrind: no such file"), None);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let all = counts(&[("a-path", 1_234_567), ("b", 12), ("c", 999), ("d", 1_000)]);
        assert!(written(&all).contains("1_234_567"), "{}", written(&all));
        assert_eq!(parsed(&written(&all)), all);
    }

    #[test]
    fn a_step_of_more_than_five_percent_fails_in_both_directions() {
        let recorded = counts(&[("step", 1_000), ("gone", 1)]);
        let refused = |count| {
            compare(&counts(&[("step", count), ("gone", 1)]), &recorded).err().map(|it| it.text)
        };
        assert_eq!(refused(1_050), None);
        assert_eq!(refused(950), None);
        assert!(refused(1_100).unwrap().contains("step takes 1_100 instructions, 10 % more"));
        assert!(refused(900).unwrap().contains("10 % fewer"));
        let other = compare(&counts(&[("step", 1_000), ("new", 5)]), &recorded);
        let text = other.unwrap_err().text;
        assert!(
            text.contains("new is not recorded") && text.contains("gone is recorded"),
            "{text}"
        );
    }
}
