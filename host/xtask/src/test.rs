//! `cargo xtask test`: everything that CI checks. The cheap checks run first, then the tests in
//! layers, and the totals come last.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::both_stores;
use crate::changed;
use crate::checks;
use crate::components::{self, Optimised};
use crate::counts;
use crate::failure::XtaskFailure;
use crate::features;
use crate::layers::{
    self, DOCS, FOREIGN, FOREIGN_MODULES, LAYERS, Needs, POSTGRES, SUITE, TESTED, TestLayer,
};
use crate::needs;
use crate::nextest::{self, TestReport};
use crate::phase::{self, Phases, spelled};
use crate::place::Checkout;
use crate::servers;
use crate::surroundings::Surroundings;
use crate::weight;

/// The parsed arguments.
#[derive(Debug, Default)]
struct TestOptions {
    verbose: bool,
    layers: Vec<&'static TestLayer>,
    /// Parts of test names.
    filters: Vec<String>,
    /// The number of loops that keep the machine busy meanwhile.
    busy: u32,
    /// Whether the tests get a home folder that is not empty.
    is_crowded: bool,
    /// The number of slow tests to list.
    slowest: usize,
    /// The commit from which on changes choose the tests.
    changed_since: Option<String>,
}

impl TestOptions {
    fn read(arguments: &[String]) -> Result<Self, XtaskFailure> {
        let mut options = Self::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--verbose" | "-v" => options.verbose = true,
                "--crowded" => options.is_crowded = true,
                "--changed" => options.changed_since = Some("HEAD".to_owned()),
                "--busy" => options.busy = number(word, words.next())?,
                "--slowest" => options.slowest = number(word, words.next())?,
                option if option.starts_with("--changed=") => {
                    options.changed_since = option.split_once('=').map(|(_, base)| base.to_owned());
                }
                option if option.starts_with('-') => {
                    return Err(XtaskFailure::usage(format!(
                        "cargo xtask test does not know `{option}`: it takes --verbose, --busy N, --slowest N, --crowded, --changed, layers ({}) and parts of tests' names",
                        LAYERS.map(|layer| layer.name).join(", ")
                    )));
                }
                // The name of a layer selects the layer, even if tests have the same name.
                word => match TestLayer::by_name(word) {
                    Some(layer) if options.layers.iter().any(|known| known.name == layer.name) => {}
                    Some(layer) => options.layers.push(layer),
                    None => options.filters.push(word.to_owned()),
                },
            }
        }
        if options.changed_since.is_some() && !options.layers.is_empty() {
            return Err(XtaskFailure::usage(
                "cargo xtask test --changed chooses tests of all layers: leave the layers out",
            ));
        }
        Ok(options)
    }
}

fn number<N: FromStr>(option: &str, value: Option<&String>) -> Result<N, XtaskFailure> {
    value.and_then(|value| value.parse().ok()).ok_or_else(|| {
        XtaskFailure::usage(format!(
            "cargo xtask test {option} needs a number, such as `{option} 8`"
        ))
    })
}

pub(crate) fn run(place: &Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let options = TestOptions::read(arguments)?;
    needs::check(place)?;
    needs::check_nextest(place)?;
    let surroundings = Surroundings::new(place, options.busy, options.is_crowded)?;
    let tests = Tests { place, surroundings: &surroundings, options: &options };
    let mut skipped_check = None;
    let rows = if let Some(base) = &options.changed_since {
        let reach = changed::reach(place, &layers::members(place)?, base)?;
        if reach.is_empty() {
            eprintln!("nothing changed since {base} that a test could see");
            return Ok(ExitCode::SUCCESS);
        }
        let label = format!("running the tests of {}", reach.described());
        vec![tests.of_all_layers("changed", &label, Some(&reach.expression()))?]
    } else if !options.layers.is_empty() {
        tests.some_layers()?
    } else if !options.filters.is_empty() {
        vec![tests.of_all_layers("named", "running the tests", None)?]
    } else {
        let (rows, reason) = tests.all_layers()?;
        skipped_check = reason;
        rows
    };
    Ok(report(&rows, skipped_check, options.slowest))
}

/// The tests of the workspace, and the parameters of running them.
struct Tests<'a> {
    place: &'a Checkout,
    surroundings: &'a Surroundings,
    options: &'a TestOptions,
}

/// The phases of `Tests::all_layers` between the checks of texts and the layers.
const BUILDS: usize = 10;

impl Tests<'_> {
    /// Makes all checks and runs all layers. Returns also why instructions were not counted, if
    /// this machine cannot.
    fn all_layers(&self) -> Result<(Vec<LayerRow>, Option<&'static str>), XtaskFailure> {
        let place = self.place;
        needs::check_companions(place)?;
        let own: usize = LAYERS.iter().map(phases_of).sum();
        let total = checks::ALL.len() + BUILDS + own;
        let phases = &mut Phases::new(place, total, self.options.verbose);
        checks::run(place, phases)?;
        phases.run_or(
            "checking the format",
            "rustfmt",
            place.cargo(["fmt", "--all", "--check", "--", "--color", "never"]),
            Some("`cargo fmt --all`"),
        )?;
        build_components(place, phases)?;
        // After the components, which conclave-stock's build script looks for.
        phases.check("weighing the build", || weight::check_build(place))?;
        phases.run("building the program and the tests", "tests", all_targets(place))?;
        phases.check("looking at clippy's findings, and weighing the libraries", || {
            weight::check_libraries(place, &built_artifacts(place)?)
        })?;
        phases.check("compiling the program of the demo", || features::check_demo(place))?;
        counts::build_core(place, phases)?;
        let mut skipped_check = None;
        phases.check("counting instructions", || {
            skipped_check = counts::check(place)?;
            Ok(())
        })?;
        self.surroundings.start_postgres(place, phases)?;
        let rows = LAYERS.iter().map(|layer| self.layer(layer, phases, &TESTED));
        Ok((rows.collect::<Result<_, _>>()?, skipped_check))
    }

    /// Runs the layers that were named, and builds only what they need.
    fn some_layers(&self) -> Result<Vec<LayerRow>, XtaskFailure> {
        let layers = &self.options.layers;
        let most = layers.iter().map(|layer| layer.needs).max().unwrap_or(Needs::Nothing);
        let prepared = match most {
            Needs::Nothing => 1,
            Needs::Stock => 3,
            Needs::All => PREPARED + 1,
        };
        let own: usize = layers.iter().map(|layer| phases_of(layer)).sum();
        let phases = &mut Phases::new(self.place, prepared + own, self.options.verbose);
        let packages = most.packages();
        match most {
            Needs::Nothing => build_tests(self.place, phases, &packages)?,
            Needs::Stock => {
                components::build_stock(self.place, phases, Optimised::Little)?;
                build_tests(self.place, phases, &packages)?;
            }
            Needs::All => prepare(self.place, phases)?,
        }
        if most > Needs::Nothing {
            self.surroundings.start_postgres(self.place, phases)?;
        }
        layers.iter().map(|layer| self.layer(layer, phases, &packages)).collect()
    }

    /// Runs tests of any layer, without the examples in the documentation and the layer `foreign`.
    fn of_all_layers(
        &self,
        name: &'static str,
        label: &str,
        expression: Option<&str>,
    ) -> Result<LayerRow, XtaskFailure> {
        let mut phases = Phases::new(self.place, PREPARED + 2, self.options.verbose);
        prepare(self.place, &mut phases)?;
        self.surroundings.start_postgres(self.place, &mut phases)?;
        phases.announce(label);
        let began = Instant::now();
        let mut command = self.command(&TESTED);
        command.args(expression.map(|it| ["-E", it]).iter().flatten());
        let report = nextest::run(self.place, command)?;
        Ok(LayerRow { name, report: Some(report), took: began.elapsed() })
    }

    /// Runs a layer with binaries that were built of these packages.
    fn layer(
        &self,
        layer: &TestLayer,
        phases: &mut Phases,
        packages: &[&str],
    ) -> Result<LayerRow, XtaskFailure> {
        let commands = match layer.name {
            FOREIGN => self.foreign(phases)?,
            POSTGRES => self.on_postgres(packages).into_iter().collect(),
            name => {
                let mut command = self.command(packages);
                command.arg("-E").arg(format!("group({name})"));
                vec![command]
            }
        };
        let began = Instant::now();
        let mut reports = Vec::new();
        if layer.name == DOCS {
            reports.push(self.examples(phases));
        }
        phases.announce(&format!("running the tests of {}: {}", layer.name, layer.holds));
        for command in commands {
            reports.push(nextest::run(self.place, command)?);
        }
        let report = reports.into_iter().reduce(TestReport::plus);
        Ok(LayerRow { name: layer.name, report, took: began.elapsed() })
    }

    /// Runs the examples in the documentation of the code, as a phase. nextest runs none.
    fn examples(&self, phases: &mut Phases) -> TestReport {
        let mut command = self.place.linted_cargo(["test", "--doc", "--no-fail-fast"]);
        command.args(TESTED).arg("--").args(&self.options.filters);
        self.surroundings.put_around(&mut command);
        let log = "doc-tests";
        // To the log also with `--verbose`: it is where the examples are counted.
        let outcome = phases.check("testing the examples in the documentation", || {
            phase::to_log(self.place, log, command)
        });
        let text =
            fs::read_to_string(self.place.own().join(format!("{log}.log"))).unwrap_or_default();
        if self.options.verbose {
            eprint!("{text}");
        }
        if let Err(failure) = &outcome {
            eprintln!("{}", failure.text.trim_end());
        }
        TestReport { is_broken: outcome.is_err(), ..counted(&text) }
    }

    /// Four phases for the foreign programs. Returns commands for the tests that talk to them,
    /// which the other layers leave out.
    fn foreign(&self, phases: &mut Phases) -> Result<Vec<Command>, XtaskFailure> {
        let place = self.place;
        let programs = [
            ("CONCLAVE_LITELLM", servers::litellm(place, phases)?),
            ("CONCLAVE_MCP_PYTHON", servers::mcp(place, phases)?),
            ("CONCLAVE_LANGUAGES", servers::languages(place, phases)?),
            ("CONCLAVE_WEB", servers::web(place, phases)?),
        ];
        let command = |module: &str, variable: &str, program: &Path| {
            let mut command = self.command(&TESTED);
            command.args(["--run-ignored", "only", "-E"]);
            command.arg(format!("package(={SUITE}) & test(/^{module}::/)"));
            command.env(variable, program);
            command
        };
        let present = FOREIGN_MODULES
            .into_iter()
            .zip(programs)
            .filter_map(|(module, (name, program))| Some(command(module, name, &program?)));
        Ok(present.collect())
    }

    /// Returns the command for the tests of any store on PostgreSQL; `None` without a server.
    fn on_postgres(&self, packages: &[&str]) -> Option<Command> {
        let (variable, value) = both_stores::ON_POSTGRES;
        let mut command = self.command(packages);
        command.arg("-E").arg(both_stores::OF_ANY_STORE).env(variable, value);
        self.surroundings.has_postgres().then_some(command)
    }

    /// nextest for the tests of these packages that the filters accept.
    fn command(&self, packages: &[&str]) -> Command {
        let mut command = nextest::command(self.place, packages);
        let filters = &self.options.filters;
        command.args(nextest::without_tests(filters)).args(filters);
        self.surroundings.put_around(&mut command);
        command
    }
}

/// The number of phases of a layer.
fn phases_of(layer: &TestLayer) -> usize {
    match layer.name {
        DOCS => 2,
        FOREIGN => 5,
        _ => 1,
    }
}

/// The passed and failed examples in what `cargo test` prints.
fn counted(text: &str) -> TestReport {
    let mut report = TestReport::default();
    // An indented line was printed by a failed test.
    for summary in text.lines().filter_map(|line| line.strip_prefix("test result: ")) {
        let before = |word: &str| {
            let number = summary.split_once(word).and_then(|(start, _)| start.rsplit(' ').next());
            number.and_then(|number| number.parse::<usize>().ok()).unwrap_or_default()
        };
        report.passed += before(" passed");
        report.failed += before(" failed");
    }
    report
}

/// The result of a layer.
struct LayerRow {
    name: &'static str,
    /// `None` if the layer was left out.
    report: Option<TestReport>,
    took: Duration,
}

/// Prints the table, and the totals in a line of their own at the end.
fn report(rows: &[LayerRow], skipped_check: Option<&str>, most: usize) -> ExitCode {
    eprintln!("\n{:<10}{:>8}{:>8}{:>9}   time", "layer", "passed", "failed", "skipped");
    for LayerRow { name, report, took } in rows {
        let Some(TestReport { passed, failed, skips, .. }) = report else {
            eprintln!("{name:<10}{:>8}{:>8}{:>9}   left out", "–", "–", "–");
            continue;
        };
        let skipped = skips.len();
        eprintln!("{name:<10}{passed:>8}{failed:>8}{skipped:>9}   {}", spelled(*took));
    }
    let is_postgres = |row: &&LayerRow| row.name == POSTGRES;
    if let Some(on_postgres) = rows.iter().find(is_postgres).and_then(|row| row.report.as_ref()) {
        let others = rows.iter().filter(|row| !is_postgres(row));
        let others: Vec<&TestReport> = others.filter_map(|row| row.report.as_ref()).collect();
        eprint!("{}", both_stores::compared(&others, on_postgres));
    }
    let reports = || rows.iter().filter_map(|row| row.report.as_ref());
    let passed: usize = reports().map(|report| report.passed).sum();
    let failed: usize = reports().map(|report| report.failed).sum();
    let skips: Vec<&str> = reports()
        .flat_map(|report| &report.skips)
        .map(String::as_str)
        .chain(skipped_check)
        .collect();
    let is_broken = reports().any(|report| report.is_broken);
    let is_empty = passed + failed + skips.len() == 0 && reports().next().is_some();
    if is_broken && failed == 0 {
        eprintln!("\na layer did not come to its end, or has no tests: see above");
    } else if is_empty {
        eprintln!("\nno test has such a name");
    }
    if most > 0 {
        let tests = reports().flat_map(|report| &report.tests);
        eprint!("{}", nextest::slowest(tests.collect(), most));
    }
    eprint!("\n{}", explained(&skips));
    eprintln!("{passed} passed, {failed} failed");
    if is_broken || is_empty || failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The reasons why tests were skipped, as text for the terminal.
pub(crate) fn explained(skips: &[&str]) -> String {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in skips {
        *reasons.entry(reason).or_default() += 1;
    }
    let line = |(reason, count): (&str, usize)| {
        format!("      skipped, {count} {}: {reason}\n", if count == 1 { "test" } else { "tests" })
    };
    reasons.into_iter().map(line).collect()
}

/// The phases of `prepare`.
pub(crate) const PREPARED: usize = 4;

/// Builds the components, the program that tests start, and the tests' binaries.
pub(crate) fn prepare(place: &Checkout, phases: &mut Phases) -> Result<(), XtaskFailure> {
    build_components(place, phases)?;
    phases.run("building the program conclave", "conclave", program(place, "conclave"))?;
    build_tests(place, phases, &TESTED)
}

/// Two phases.
fn build_components(place: &Checkout, phases: &mut Phases) -> Result<(), XtaskFailure> {
    components::build_stock(place, phases, Optimised::Little)?;
    components::build_guests(place, phases, Optimised::Little)
}

/// Builds a program as the tests are built: of crates with the features that all packages together
/// select, so that no crate is compiled twice.
pub(crate) fn program(place: &Checkout, name: &str) -> Command {
    let mut command = place.linted_cargo(["build", "--bin", name]);
    command.args(TESTED);
    command
}

fn build_tests(
    place: &Checkout,
    phases: &mut Phases,
    packages: &[&str],
) -> Result<(), XtaskFailure> {
    let mut command = nextest::command(place, packages);
    command.arg("--no-run");
    phases.run("building the tests", "tests", command)
}

/// Builds all targets of the tested packages, with clippy as the compiler.
fn all_targets(place: &Checkout) -> Command {
    let mut command = place.linted_cargo(["build", "--all-targets", "--keep-going"]);
    command.args(TESTED);
    command
}

/// Cargo's messages about all that the tests are built of, as lines of JSON. It is built if it is
/// not there. Fails with the warnings of the build.
pub(crate) fn built_artifacts(place: &Checkout) -> Result<String, XtaskFailure> {
    let mut build = all_targets(place);
    // Without cargo's own messages, such as the warnings of build scripts.
    build.args(["--quiet", "--message-format", "json-render-diagnostics"]);
    phase::without_warnings(&mut build)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options_of(words: &[&str]) -> Result<TestOptions, XtaskFailure> {
        TestOptions::read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_word_is_a_layer_or_part_of_a_name() {
        let Ok(options) =
            options_of(&["core", "budget", "--busy", "8", "cli", "core", "--crowded"])
        else {
            panic!("it is understood")
        };
        assert_eq!(
            options.layers.iter().map(|layer| layer.name).collect::<Vec<_>>(),
            ["core", "cli"]
        );
        assert_eq!(
            (options.filters, options.busy, options.is_crowded),
            (vec!["budget".to_owned()], 8, true)
        );
        let since = |words: &[&str]| options_of(words).ok().and_then(|it| it.changed_since);
        assert_eq!(since(&["--changed", "budget"]).as_deref(), Some("HEAD"));
        assert_eq!(since(&["--changed=main~2"]).as_deref(), Some("main~2"));
        for words in [&["--busy"][..], &["--busy", "much"], &["--fast"], &["--changed", "core"]] {
            assert!(options_of(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn each_reason_for_skipping_is_printed_once_with_its_tests() {
        assert_eq!(explained(&[]), "");
        assert_eq!(
            explained(&["no disk", "no net", "no disk"]),
            "      skipped, 2 tests: no disk\n      skipped, 1 test: no net\n"
        );
    }

    #[test]
    fn examples_are_counted_by_the_last_lines_of_their_crates() {
        let text = "test result: FAILED. 12 passed; 1 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
                    \n    test result: FAILED. 0 passed; 1 failed; 0 ignored\n\
                    test result: ok. 2 passed; 0 failed; 0 ignored\n";
        let TestReport { passed, failed, .. } = counted(text);
        assert_eq!((passed, failed), (14, 1), "one was printed by a test");
    }
}
