//! `cargo xtask test`: everything that CI checks, the cheap things first, the tests' own summary last.

use std::collections::BTreeSet;
use std::process::{Command, ExitCode};

use crate::components;
use crate::failure::Failure;
use crate::gates;
use crate::needs;
use crate::phase::{self, Phases};
use crate::place::Place;
use crate::servers;

/// Packages whose tests run. The plugins' and guests' own behaviour is tested through conclave-suite.
const TESTED: [&str; 17] = [
    "conclave-core",
    "conclave-mcp",
    "conclave-models",
    "conclave-runtime",
    "conclave-stock",
    "conclave-host",
    "conclave-sdk",
    "conclave-sdk-macros",
    "conclave-script",
    "conclave-soak",
    "conclave-fuzz",
    "conclave-conformance",
    "conclave-suite",
    "conclave-xtask",
    "conclave-trajectory",
    "conclave-plugin-*",
    "conclave-condensing",
];

/// Clippy reads this one besides.
const BENCH: &str = "conclave-bench";

pub(crate) fn run(place: Place, arguments: &[String]) -> Result<ExitCode, Failure> {
    let mut verbose = false;
    let mut filters = Vec::new();
    for word in arguments {
        match word.as_str() {
            "--verbose" | "-v" => verbose = true,
            option if option.starts_with('-') => {
                return Err(Failure::usage(format!(
                    "cargo xtask test does not know `{option}`: it takes --verbose and parts of tests' names"
                )));
            }
            filter => filters.push(filter),
        }
    }
    needs::check(&place)?;
    if filters.is_empty() {
        needs::check_companions(&place)?;
        return everything(&place, &mut Phases::new(&place, 14, verbose));
    }
    let mut phases = Phases::new(&place, 5, verbose);
    prepare(&place, &mut phases)?;
    run_tests(&place, &mut phases, &filters)
}

fn everything(place: &Place, phases: &mut Phases) -> Result<ExitCode, Failure> {
    phases.check("looking up the rules that code cites", || gates::cited_rules_resolve(place))?;
    phases.check("looking for guests without a test", || gates::guests_are_tested(place))?;
    phases.run_or(
        "checking the format",
        "rustfmt",
        place.cargo(["fmt", "--all", "--check", "--", "--color", "never"]),
        Some("`cargo fmt --all`"),
    )?;
    build_components(place, phases)?;
    // After the components, which conclave-stock's build script looks for.
    let mut clippy = place.cargo(["clippy", "--all-targets", "--all-features", "--keep-going"]);
    clippy.args(packages(&TESTED)).args(["-p", BENCH, "--", "-D", "warnings"]);
    phases.run("asking clippy", "clippy", clippy)?;
    build_tests(place, phases)?;
    let mut examples = place.cargo(["test", "--doc", "--all-features"]);
    examples.args(packages(&[
        "conclave-core",
        "conclave-mcp",
        "conclave-models",
        "conclave-runtime",
        "conclave-stock",
        "conclave-sdk",
        "conclave-sdk-macros",
        "conclave-trajectory",
    ]));
    phases.run("testing the examples in the documentation", "doc-tests", examples)?;
    let litellm = servers::litellm(place, phases)?;
    if let Some(program) = litellm {
        let mut command = foreign(place, "servers::");
        command.env("CONCLAVE_LITELLM", program);
        phases.run("talking to LiteLLM", "servers", command)?;
    }
    if let Some(python) = servers::mcp(place, phases)? {
        let mut command = foreign(place, "mcp::");
        command.env("CONCLAVE_MCP_PYTHON", python);
        phases.run("talking to MCP servers and clients", "mcp", command)?;
    }
    run_tests(place, phases, &[])
}

/// The tests that talk to a program that others wrote; the others leave them out.
fn foreign(place: &Place, filter: &str) -> Command {
    if needs::has_nextest(place) {
        place.cargo(["nextest", "run", "-p", "conclave-suite", "--all-features", "--run-ignored", "only", filter])
    } else {
        place.cargo(["test", "-p", "conclave-suite", "--all-features", "--tests", "--", "--ignored", filter])
    }
}

/// Four phases: components, the program, the tests' binaries.
pub(crate) fn prepare(place: &Place, phases: &mut Phases) -> Result<(), Failure> {
    build_components(place, phases)?;
    build_tests(place, phases)
}

fn build_components(place: &Place, phases: &mut Phases) -> Result<(), Failure> {
    components::build_stock(place, phases)?;
    components::build_guests(place, phases)
}

/// Two phases. The program is built for the tests that start it, whichever package they are in.
fn build_tests(place: &Place, phases: &mut Phases) -> Result<(), Failure> {
    components::build_conclave(place, phases, false)?;
    let mut command = runner(place);
    command.arg("--no-run");
    phases.run("building the tests", "tests", command)
}

/// The last phase. The runner writes to the terminal, so its summary is the last thing there.
fn run_tests(place: &Place, phases: &mut Phases, filters: &[&str]) -> Result<ExitCode, Failure> {
    let mut command = runner(place);
    if needs::has_nextest(place) {
        command.args(["--no-fail-fast", "--status-level", "fail", "--final-status-level", "fail", "--hide-progress-bar"]);
    } else {
        command.args(["--no-fail-fast", "--quiet", "--"]);
    }
    command.args(filters);
    phases.announce("running the tests");
    let status = command.status().map_err(|error| phase::not_started(&command, &error))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `cargo nextest run`, or `cargo test` where nextest is not installed, without the examples in the documentation.
fn runner(place: &Place) -> Command {
    let mut command = if needs::has_nextest(place) {
        let mut command = place.cargo(["nextest", "run", "--lib", "--bins", "--tests", "--all-features", "--cargo-quiet"]);
        command.arg("--tool-config-file").arg(format!("conclave:{}", place.root.join("host/xtask/nextest.toml").display()));
        command
    } else {
        place.cargo(["test", "--lib", "--bins", "--tests", "--all-features"])
    };
    command.args(packages(&TESTED));
    command
}

/// The runner for tests of exactly these names, in whatever module they are.
pub(crate) fn runner_of(place: &Place, names: &BTreeSet<&str>) -> Command {
    let mut command = runner(place);
    if needs::has_nextest(place) {
        let any: Vec<String> = names.iter().map(|name| format!("test(/(^|::){name}$/)")).collect();
        command.args(["--no-fail-fast", "--status-level", "fail", "--final-status-level", "fail", "--hide-progress-bar", "-E"]);
        command.arg(any.join(" + "));
    } else {
        command.args(["--no-fail-fast", "--quiet", "--"]).args(names);
    }
    command
}

fn packages(names: &[&'static str]) -> impl Iterator<Item = &'static str> {
    names.iter().flat_map(|name| ["-p", *name]).collect::<Vec<_>>().into_iter()
}
