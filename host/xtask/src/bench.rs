//! `cargo xtask bench`: builds the benchmark program with its own profile and runs it.

use std::process::{Command, ExitCode};

use crate::arguments;
use crate::components::{self, Optimised};
use crate::demo;
use crate::failure::XtaskFailure;
use crate::languages;
use crate::needs;
use crate::phase::Phases;
use crate::place::Checkout;

/// The profile in the root Cargo.toml: fast at run time, and built in minutes.
const PROFILE: &str = "bench-host";

pub(crate) fn run(place: &Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let (verbose, passed) = arguments::passed_on(arguments);
    needs::check(place)?;
    let program = place.program(PROFILE, "conclave-bench");
    if !program.is_file() {
        eprintln!("The first build with optimisation takes some minutes; later ones take seconds.");
    }
    let mut phases = Phases::new(place, 6, verbose);
    components::build_stock(place, &mut phases, Optimised::Fully)?;
    components::build_guests(place, &mut phases, Optimised::Fully)?;
    languages::build(place, &mut phases)?;
    phases.run(
        "building the measurements",
        "bench",
        place.cargo(["build", "--profile", PROFILE, "-p", "conclave-bench"]),
    )?;
    let mut command = Command::new(program);
    command.arg("--guests").arg(place.guests()).arg("--stock").arg(place.stock());
    command.arg("--languages").arg(place.languages());
    command.arg("--json").arg(place.bench_json()).args(passed).current_dir(&place.root);
    demo::become_program(command)
}
