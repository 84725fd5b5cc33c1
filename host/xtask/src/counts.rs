//! `cargo xtask counts`: the instructions of the core's hot paths and of a task in its sandboxes,
//! counted by callgrind and held against `tests/counts/counts.txt`. Counts do not vary with the load
//! of a machine, so a test can fail on them, where it never fails on time.

use std::process::{Command, ExitCode};

use crate::arguments;
use crate::components::{self, Optimised};
use crate::failure::XtaskFailure;
use crate::figures::{FigureFile, Figures};
use crate::layers::TESTED;
use crate::needs;
use crate::phase::{self, Phases};
use crate::place::Checkout;
use crate::program;
use crate::test;

const PROGRAM: &str = "conclave-counts";
/// The program of the sandboxes. It is not optimised, as nothing of the tests is: optimising the
/// engine takes ten minutes, and what the host does more shows all the same.
const SANDBOX: &str = "conclave-counts-sandbox";
/// The row of the sandboxes: a step, a tool call and a step, each in a fresh one.
const SANDBOX_ROW: &str = "task-in-sandboxes-dev";
/// The numbers of tasks whose counts are compared; the difference has no start of the program.
const TASKS: [u64; 2] = [2, 12];
const RECORDED: FigureFile = FigureFile {
    path: "tests/counts/counts.txt",
    title: "Instructions of the core's hot paths and of a task in its sandboxes, written by `cargo \
            xtask counts --record`.",
    heads: ["path", "instructions"],
    tolerance: 5,
    is_two_sided: true,
    remedy: "Find out why with `valgrind --tool=callgrind`. If it is meant, write \
             tests/counts/counts.txt anew (`cargo xtask counts --record`) and say why in the commit.",
};

pub(crate) fn run(place: &Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let known = ["--verbose", "--record"];
    let [verbose, record] = arguments::flags("counts", known, arguments)?;
    needs::check(place)?;
    if !has_valgrind() {
        return Err(XtaskFailure::new(MISSING));
    }
    let mut phases = Phases::new(place, 4, verbose);
    components::build_guests(place, &mut phases, Optimised::Little)?;
    build_core(place, &mut phases)?;
    let sandboxes = test::program(place, SANDBOX);
    phases.run("building the sandboxes", "counts-sandbox", sandboxes)?;
    let mut counts = Figures::new();
    phases.check("counting instructions", || {
        counts = count(place)?;
        Ok(())
    })?;
    RECORDED.record_or_compare(place, counts, record).map(|()| ExitCode::SUCCESS)
}

const MISSING: &str = "valgrind is not here, which counts instructions: apt-get install valgrind";

/// Builds the program of the core, out of the packages of the tests.
pub(crate) fn build_core(place: &Checkout, phases: &mut Phases) -> Result<(), XtaskFailure> {
    let mut command =
        place.cargo(["build", "--config", "host/xtask/counts.toml", "--bin", PROGRAM]);
    command.args(TESTED);
    phases.run("building the core, optimised", "counts", command)
}

/// Compares counts of programs that were built before. Fails if a hot path takes more or fewer
/// instructions than recorded. Returns why nothing was counted, if this machine cannot.
pub(crate) fn check(place: &Checkout) -> Result<Option<&'static str>, XtaskFailure> {
    if !has_valgrind() {
        return Ok(Some(MISSING));
    }
    RECORDED.compare(&count(place)?, &RECORDED.read(place)?).map(|()| None)
}

fn has_valgrind() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|out| out.status.success())
}

fn count(place: &Checkout) -> Result<Figures, XtaskFailure> {
    let program = place.program("debug", PROGRAM);
    let mut list = Command::new(&program);
    let names = phase::output(&mut list)?.stdout;
    let names = String::from_utf8_lossy(&names).into_owned();
    let mut counts = Figures::new();
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
    program::output_of(&mut compile)?;
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
    let output = phase::output(&mut command)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_read_from_what_callgrind_says() {
        let text = "==1== Events    : Ir\n==1== Collected : 346893\n==1== \n";
        assert_eq!(collected(text), Some(346_893));
        assert_eq!(collected("valgrind: no such file"), None);
    }
}
