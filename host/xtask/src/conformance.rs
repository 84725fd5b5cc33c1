//! `cargo xtask conformance`: builds the guests that scenarios need and the program that plays
//! them, then becomes that program.

use std::process::{Command, ExitCode};

use crate::arguments;
use crate::components::{self, Optimised};
use crate::demo;
use crate::failure::XtaskFailure;
use crate::needs;
use crate::phase::Phases;
use crate::place::Checkout;

/// The components that act as agents, tools and a failing strategy, besides the stock workspace and
/// strategies.
const GUESTS: [&str; 7] = [
    "script_agent",
    "script_tools",
    "acting_agent",
    "stub_terminal",
    "spin",
    "hostile_analyzer",
    "strategy_spin",
];
const PROGRAM: &str = "conclave-conformance";

/// Runs the command. Arguments are passed on unchanged; relative files in them start at the present
/// folder.
pub(crate) fn run(place: &Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let (verbose, passed) = arguments::passed_on(arguments);
    needs::check(place)?;
    let mut phases = Phases::new(place, 3, verbose);
    components::build_stock(place, &mut phases, Optimised::Fully)?;
    components::build_some_guests(place, &mut phases, &GUESTS)?;
    phases.run(
        "building the program that plays scenarios",
        "conformance",
        place.cargo(["build", "-p", PROGRAM]),
    )?;
    demo::become_program(player(place, verbose, &passed))
}

/// The program that plays scenarios. It has a `--verbose` of its own.
fn player(place: &Checkout, verbose: bool, passed: &[&String]) -> Command {
    let mut command = Command::new(place.program("debug", PROGRAM));
    command.arg("--guests").arg(place.guests()).arg("--cache").arg(place.compiled());
    command.args(verbose.then_some("--verbose")).args(passed);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_verbose_too() {
        let place = Checkout::find().unwrap_or_else(|failure| panic!("{}", failure.text));
        let list = ["-v", "--quick"].map(str::to_owned);
        let (verbose, passed) = arguments::passed_on(&list);
        let command = player(&place, verbose, &passed);
        let words: Vec<_> = command.get_args().skip(4).collect();
        assert_eq!(words, ["--verbose", "--quick"]);
    }
}
