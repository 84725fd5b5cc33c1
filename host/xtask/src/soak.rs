//! `cargo xtask soak`: builds the guests of a busy host and the program that kills the host, then
//! becomes that program.

use std::process::{Command, ExitCode};

use crate::arguments;
use crate::components::{self, Optimised};
use crate::demo;
use crate::failure::XtaskFailure;
use crate::needs;
use crate::phase::Phases;
use crate::place::Checkout;
use crate::servers;

/// The components that the host runs, besides the stock plugins.
const GUESTS: [&str; 5] = ["agent_busy", "fetch_probe", "kv_quota", "acting_agent", "echo"];
/// The option with which the program `conclave` is killed instead of a host in a test.
const SERVER: &str = "--server";
const PROGRAM: &str = "conclave-soak";

pub(crate) fn run(place: &Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let (verbose, passed) = arguments::passed_on(arguments);
    needs::check(place)?;
    let is_server = passed.iter().any(|word| *word == SERVER);
    let mut phases = Phases::new(place, if is_server { 4 } else { 3 }, verbose);
    components::build_stock(place, &mut phases, Optimised::Fully)?;
    components::build_some_guests(place, &mut phases, &GUESTS)?;
    if is_server {
        components::build_conclave(place, &mut phases, false)?;
    }
    phases.run("building the program that kills", "soak", place.cargo(["build", "-p", PROGRAM]))?;
    let mut command = Command::new(place.program("debug", PROGRAM));
    command
        .arg("--guests")
        .arg(place.guests())
        .arg("--stock")
        .arg(place.stock())
        .arg("--cache")
        .arg(place.compiled())
        .arg("--conclave")
        .arg(place.conclave());
    // With a browser it also measures how a page scrolls.
    if let Some(python) = servers::installed_web(place).filter(|_| is_server) {
        command.env("CONCLAVE_WEB", python);
    }
    command.args(passed).current_dir(&place.root);
    demo::become_program(command)
}
