//! `cargo xtask test`: everything that CI checks. The cheap checks run first, then the tests in
//! layers, and the totals come last.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use crate::cases;
use crate::changed;
use crate::components::{self, Optimised};
use crate::counts;
use crate::doc_openings;
use crate::failure::XtaskFailure;
use crate::gates;
use crate::identifiers;
use crate::imports;
use crate::layers::{self, DOCS, FOREIGN, LAYERS, Needs, Package, SUITE, TestLayer};
use crate::locks;
use crate::needs;
use crate::phase::{self, Phases, spelled};
use crate::place::Checkout;
use crate::servers;
use crate::size;
use crate::skips::{self, Skips};
use crate::slowest::{self, TimedTest};
use crate::type_size;
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

pub(crate) fn run(place: Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let options = TestOptions::read(arguments)?;
    needs::check(&place)?;
    let tested = layers::tested(&place)?;
    let surroundings = Surroundings::of(&place, &options)?;
    let tests = Tests {
        place: &place,
        tested: &tested,
        surroundings: &surroundings,
        filters: &options.filters,
    };
    if let Some(base) = &options.changed_since {
        return reached(&tests, base, &options);
    }
    if !options.layers.is_empty() {
        return some_layers(&tests, &options);
    }
    if options.filters.is_empty() {
        needs::check_companions(&place)?;
        let total = CHECKS + LAYERS.iter().map(phases_of).sum::<usize>();
        let mut phases = Phases::new(&place, total, options.verbose);
        return run_all(&tests, &mut phases, options.slowest);
    }
    let mut phases = Phases::new(&place, 5, options.verbose);
    prepare(&place, &mut phases)?;
    let mut command = tests.runner(&names(&tested));
    tests.quietly(&mut command);
    phases.announce("running the tests");
    let status = command.status().map_err(|error| phase::not_started(&command, &error))?;
    eprint!("{}", surroundings.skips.explained());
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The number of phases of `run_all` before the layers.
const CHECKS: usize = 18;

fn run_all(
    tests: &Tests<'_>,
    phases: &mut Phases,
    listed: usize,
) -> Result<ExitCode, XtaskFailure> {
    let place = tests.place;
    phases.check("looking up the rules and pages that code cites", || {
        gates::cited_rules_resolve(place)?;
        gates::cited_pages_exist(place)
    })?;
    phases.check("looking for guests without a test", || gates::guests_are_tested(place))?;
    phases.check("looking for tests that wait for time", || gates::tests_wait_for_facts(place))?;
    phases.check("looking for lines of cases that are too long", || {
        cases::cases_are_readable(place)
    })?;
    phases.check("looking for imports that point up", || imports::imports_point_down(place))?;
    phases.check("looking for locks that are held over IO", || {
        locks::no_lock_is_held_over_io(place)
    })?;
    phases.check("looking for types of many methods", || type_size::types_stay_small(place))?;
    phases.check("looking at the names of functions, fields and variables", || {
        identifiers::names_say_what_things_are(place)
    })?;
    phases.check("looking at how documentation begins", || {
        doc_openings::docs_begin_with_the_thing(place)
    })?;
    phases.check("looking at the size of each crate", || size::growth_has_a_reason(place))?;
    phases.check("looking at the lock file of the fuzzer", || gates::fuzzer_is_locked(place))?;
    phases.run_or(
        "checking the format",
        "rustfmt",
        place.cargo(["fmt", "--all", "--check", "--", "--color", "never"]),
        Some("`cargo fmt --all`"),
    )?;
    build_components(place, phases)?;
    // After the components, which conclave-stock's build script looks for.
    phases.check("weighing the build", || weight::check_build(place))?;
    let built = names(tests.tested);
    phases.run("building the program and the tests", "tests", all_targets(place, &built))?;
    phases.check("looking at clippy's findings, and weighing the libraries", || {
        weight::check_libraries(place, &no_findings(all_targets(place, &built))?)
    })?;
    counts::build_core(place, phases, &built)?;
    phases.check("counting instructions", || {
        let skipped = counts::check(place)?;
        skipped.map_or(Ok(()), |reason| tests.surroundings.skips.add(reason))
    })?;
    let mut rows = Vec::new();
    for layer in &LAYERS {
        rows.push(tests.layer(layer, phases, &built)?);
    }
    Ok(report(&rows, &tests.surroundings.skips, listed))
}

/// Runs the tests that the changes since a commit can reach, without the examples in the
/// documentation and the layer `foreign`.
fn reached(tests: &Tests<'_>, base: &str, options: &TestOptions) -> Result<ExitCode, XtaskFailure> {
    let place = tests.place;
    let reach = changed::reach(place, &layers::members(place)?, base)?;
    if reach.is_empty() {
        eprintln!("nothing changed since {base} that a test could see");
        return Ok(ExitCode::SUCCESS);
    }
    let mut phases = Phases::new(place, 5, options.verbose);
    prepare(place, &mut phases)?;
    // Without nextest all tests run, because cargo has no filter for packages and modules at once.
    let mut command = tests.runner(&names(tests.tested));
    if needs::has_nextest(place) {
        command.arg("-E").arg(reach.expression()).args(["--no-tests", "pass"]);
    }
    tests.quietly(&mut command);
    phases.announce(&format!("running the tests of {}", reach.described()));
    let began = Instant::now();
    slowest::forget(place);
    let (count, is_well) = counted_run(&mut command)?;
    let mut row = LayerRow::new("changed");
    row.add(count, !is_well);
    row.tests = slowest::of_last_run(place);
    row.skip(tests.surroundings.skips.count());
    row.took = began.elapsed();
    Ok(report(&[row], &tests.surroundings.skips, options.slowest))
}

/// Builds all targets of these packages, with clippy as the compiler.
fn all_targets(place: &Checkout, built: &[&str]) -> Command {
    let mut command = place.linted_cargo(["build", "--all-targets", "--keep-going"]);
    command.args(selection(built));
    command
}

/// Returns cargo's messages about all that the tests are built of, as lines of JSON. It is built
/// if it is not there.
pub(crate) fn built_artifacts(place: &Checkout) -> Result<String, XtaskFailure> {
    let tested = layers::tested(place)?;
    no_findings(all_targets(place, &names(&tested)))
}

/// Fails with the warnings of a build that is done. Cargo repeats those of crates that it does not
/// compile again. Returns cargo's messages, as lines of JSON.
fn no_findings(mut built: Command) -> Result<String, XtaskFailure> {
    // Without cargo's own messages, such as the warnings of build scripts.
    built.args(["--quiet", "--message-format", "json-render-diagnostics"]);
    let output = built.output().map_err(|error| phase::not_started(&built, &error))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() && text.trim().is_empty() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(XtaskFailure::new(format!("\n{}", text.trim_end())))
}

/// Runs only these layers, and builds only what they need.
fn some_layers(tests: &Tests<'_>, options: &TestOptions) -> Result<ExitCode, XtaskFailure> {
    let most = options.layers.iter().map(|layer| layer.needs).max().unwrap_or(Needs::Nothing);
    let prepared = match most {
        Needs::Nothing => 1,
        Needs::Stock => 2,
        Needs::All => 4,
    };
    let own: usize = options.layers.iter().map(|layer| phases_of(layer)).sum();
    let mut phases = Phases::new(tests.place, prepared + own, options.verbose);
    // Cargo selects features by the packages that are built together. If the host is needed, all
    // tested packages are built together, so that nothing is built twice with different features.
    let binaries: Vec<&str> = match most {
        Needs::Nothing => {
            options.layers.iter().flat_map(|layer| layer.packages(tests.tested)).collect()
        }
        Needs::Stock | Needs::All => names(tests.tested),
    };
    match most {
        Needs::Nothing => build_binaries(tests.place, &mut phases, &binaries)?,
        Needs::Stock => {
            components::build_stock(tests.place, &mut phases, Optimised::Little)?;
            build_binaries(tests.place, &mut phases, &binaries)?;
        }
        Needs::All => {
            build_components(tests.place, &mut phases)?;
            build_tests(tests.place, &mut phases, &binaries)?;
        }
    }
    let mut rows = Vec::new();
    for layer in &options.layers {
        rows.push(tests.layer(layer, &mut phases, &binaries)?);
    }
    Ok(report(&rows, &tests.surroundings.skips, options.slowest))
}

/// Returns the number of phases of a layer.
fn phases_of(layer: &TestLayer) -> usize {
    match layer.name {
        DOCS => 2,
        FOREIGN => 4,
        _ => 1,
    }
}

/// The counts of tests that were run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    /// The number of passed tests, without the skipped ones.
    passed: u64,
    failed: u64,
}

/// The result of a layer.
struct LayerRow {
    name: &'static str,
    /// The counts; `None` if the layer was left out.
    count: Option<Count>,
    /// The number of tests that this machine cannot run.
    skipped: u64,
    took: Duration,
    /// Whether something other than a test failed.
    is_broken: bool,
    tests: Vec<TimedTest>,
}

/// Prints the table, and the totals in a line of their own at the end.
fn report(rows: &[LayerRow], skips: &Skips, most: usize) -> ExitCode {
    let mut sum = Count::default();
    eprintln!("\n{:<10}{:>8}{:>8}{:>9}   time", "layer", "passed", "failed", "skipped");
    for LayerRow { name, count, skipped, took, .. } in rows {
        let Some(Count { passed, failed }) = count else {
            eprintln!("{name:<10}{:>8}{:>8}{:>9}   left out", "–", "–", "–");
            continue;
        };
        eprintln!("{name:<10}{passed:>8}{failed:>8}{skipped:>9}   {}", spelled(*took));
        sum.passed += passed;
        sum.failed += failed;
    }
    let is_broken = rows.iter().any(|row| row.is_broken);
    let is_empty = sum == Count::default()
        && rows.iter().all(|row| row.skipped == 0)
        && rows.iter().any(|row| row.count.is_some());
    if is_empty {
        eprintln!("\nno test has such a name");
    }
    if is_broken && sum.failed == 0 {
        eprintln!("\na layer did not come to its end: see above");
    }
    if most > 0 {
        let tests = rows.iter().flat_map(|row| row.tests.iter().cloned());
        eprint!("{}", slowest::listed(tests.collect(), most));
    }
    eprint!("\n{}", skips.explained());
    eprintln!("{} passed, {} failed", sum.passed, sum.failed);
    if is_broken || is_empty || sum.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The tests of the workspace, and the parameters of running them.
struct Tests<'a> {
    place: &'a Checkout,
    tested: &'a [Package],
    surroundings: &'a Surroundings,
    filters: &'a [String],
}

impl Tests<'_> {
    /// Runs a layer with binaries that were built with these packages.
    fn layer(
        &self,
        layer: &'static TestLayer,
        phases: &mut Phases,
        built: &[&str],
    ) -> Result<LayerRow, XtaskFailure> {
        let mut row = LayerRow::new(layer.name);
        let commands = match layer.name {
            FOREIGN => self.foreign(phases)?,
            _ => self.commands(layer, built)?,
        };
        let skipped = self.surroundings.skips.count();
        let began = Instant::now();
        if layer.name == DOCS {
            self.examples(&mut row, phases)?;
        }
        phases.announce(&format!("running the tests of {}: {}", layer.name, layer.holds));
        if commands.is_empty() {
            row.count = None;
        }
        for mut command in commands {
            self.quietly(&mut command);
            if needs::has_nextest(self.place) {
                // A filter may be meant for another layer; a filter without any test is reported at
                // the end.
                command.args(["--no-tests", "pass"]);
            }
            slowest::forget(self.place);
            let (count, is_well) = counted_run(&mut command)?;
            row.add(count, !is_well);
            row.tests.extend(slowest::of_last_run(self.place));
        }
        row.skip(self.surroundings.skips.count() - skipped);
        row.took = began.elapsed();
        Ok(row)
    }

    /// Runs the examples in the documentation of the code, as a phase.
    fn examples(&self, row: &mut LayerRow, phases: &mut Phases) -> Result<(), XtaskFailure> {
        let mut command = self.place.linted_cargo(["test", "--doc", "--no-fail-fast"]);
        command.args(selection(&names(self.tested))).arg("--").args(self.filters);
        self.surroundings.put_around(&mut command);
        let log = "doc-tests";
        let outcome = phases.run("testing the examples in the documentation", log, command);
        let text =
            fs::read_to_string(self.place.own().join(format!("{log}.log"))).unwrap_or_default();
        let count = text.lines().filter_map(counted).fold(Count::default(), Count::plus);
        if let Err(failure) = &outcome {
            eprintln!("{}", failure.text.trim_end());
        }
        row.add(count, outcome.is_err());
        Ok(())
    }

    /// Returns one command with nextest. Without it, returns one for packages and one for tests of
    /// the suite, with the same tests.
    fn commands(&self, layer: &TestLayer, built: &[&str]) -> Result<Vec<Command>, XtaskFailure> {
        if needs::has_nextest(self.place) {
            let mut command = self.runner(built);
            command.arg("-E").arg(layer.expression(self.tested));
            return Ok(vec![command]);
        }
        let mut commands = Vec::new();
        let own = layer.packages(self.tested);
        if !own.is_empty() {
            commands.push(self.runner(&own));
        }
        if layer.has_suite() {
            commands.extend(self.exactly(|name| layer.has_test(name), false)?);
        }
        Ok(commands)
    }

    /// Returns a command without nextest that runs these tests of the suite, as far as the filters
    /// accept them; `None` if there are none. The tests are passed by their whole names, because
    /// `cargo test` matches every argument after `--` as a part of a name.
    fn exactly(
        &self,
        is_selected: impl Fn(&str) -> bool,
        is_ignored: bool,
    ) -> Result<Option<Command>, XtaskFailure> {
        let mut list = self.runner(&[SUITE]);
        list.args(["--", "--list", "--format", "terse"]).args(is_ignored.then_some("--ignored"));
        let listed = list
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| phase::not_started(&list, &error))?;
        if !listed.status.success() {
            return Err(XtaskFailure::new(format!(
                "the tests of {SUITE} cannot be listed: cargo ended with {}",
                listed.status
            )));
        }
        let listed = String::from_utf8_lossy(&listed.stdout);
        let names: Vec<&str> =
            names_of_tests(&listed, self.filters).filter(|name| is_selected(name)).collect();
        let mut command = self.runner(&[SUITE]);
        command
            .args(["--no-fail-fast", "--", EXACT])
            .args(is_ignored.then_some("--ignored"))
            .args(&names);
        Ok((!names.is_empty()).then_some(command))
    }

    /// Three phases for the foreign programs. Returns commands for the tests that talk to them, which
    /// the other layers leave out.
    fn foreign(&self, phases: &mut Phases) -> Result<Vec<Command>, XtaskFailure> {
        let (litellm, mcp) =
            (servers::litellm(self.place, phases)?, servers::mcp(self.place, phases)?);
        let command = |filter: &str,
                       name: &str,
                       value: &std::path::Path|
         -> Result<Option<Command>, XtaskFailure> {
            let command = if needs::has_nextest(self.place) {
                let mut command = self.runner(&names(self.tested));
                command
                    .args(["--run-ignored", "only"])
                    .args(["-E", &format!("package(={SUITE}) & test(/^{filter}::/)")]);
                Some(command)
            } else {
                self.exactly(|name| name.starts_with(&format!("{filter}::")), true)?
            };
            Ok(command.map(|mut command| {
                command.env(name, value);
                command
            }))
        };
        let servers =
            litellm.map(|program| command("servers", "CONCLAVE_LITELLM", &program)).transpose()?;
        let peers = mcp.map(|python| command("mcp", "CONCLAVE_MCP_PYTHON", &python)).transpose()?;
        let languages = servers::languages(self.place, phases)?
            .map(|python| command("languages", "CONCLAVE_LANGUAGES", &python))
            .transpose()?;
        Ok([servers, peers, languages].into_iter().flatten().flatten().collect())
    }

    fn runner(&self, packages: &[&str]) -> Command {
        let mut command = runner(self.place, packages);
        self.surroundings.put_around(&mut command);
        command
    }

    /// Limits the output to failures, and the tests to those that the filters accept.
    fn quietly(&self, command: &mut Command) {
        if needs::has_nextest(self.place) {
            command.args(QUIET).args(self.filters);
        } else if command.get_args().all(|word| word != EXACT) {
            if !command.get_args().any(|word| word == "--") {
                command.args(["--no-fail-fast", "--"]);
            }
            command.args(self.filters);
        }
    }
}

/// libtest's flag for matching whole names.
const EXACT: &str = "--exact";

/// nextest's flags for output of failures only.
const QUIET: [&str; 6] = [
    "--no-fail-fast",
    "--status-level",
    "fail",
    "--final-status-level",
    "fail",
    "--hide-progress-bar",
];

impl LayerRow {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            count: Some(Count::default()),
            skipped: 0,
            took: Duration::ZERO,
            is_broken: false,
            tests: Vec::new(),
        }
    }

    fn add(&mut self, count: Count, is_broken: bool) {
        self.count = Some(self.count.unwrap_or_default().plus(count));
        self.is_broken |= is_broken;
    }

    /// Subtracts skipped tests from those counted as passed.
    fn skip(&mut self, skipped: u64) {
        self.skipped += skipped;
        if let Some(count) = &mut self.count {
            count.passed = count.passed.saturating_sub(skipped);
        }
    }
}

impl Count {
    fn plus(self, other: Self) -> Self {
        Self { passed: self.passed + other.passed, failed: self.failed + other.failed }
    }
}

/// Runs a command, passes on its output and returns the counts of tests in it, and whether the
/// command succeeded.
fn counted_run(command: &mut Command) -> Result<(Count, bool), XtaskFailure> {
    if io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let started =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.map_err(|error| phase::not_started(command, &error))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let count = thread::scope(|scope| {
        let out = scope
            .spawn(move || out.map_or_else(Count::default, |out| passed_on(out, io::stdout())));
        let err = err.map_or_else(Count::default, |err| passed_on(err, io::stderr()));
        err.plus(out.join().unwrap_or_default())
    });
    let status = child.wait().map_err(|error| phase::not_started(command, &error))?;
    Ok((count, status.success()))
}

fn passed_on(from: impl Read, mut to: impl Write) -> Count {
    let mut count = Count::default();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let _ = to.write_all(&line);
        count = count.plus(counted(&plain(&String::from_utf8_lossy(&line))).unwrap_or_default());
        line.clear();
    }
    let _ = to.flush();
    count
}

/// Returns the line without colours.
fn plain(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or("", |(_, rest)| rest))
}

/// Returns the counts in a summary line of nextest or cargo; `None` for any other line.
fn counted(line: &str) -> Option<Count> {
    // An indented line was printed by a failed test, which nextest has counted.
    let of_cargo = line.strip_prefix("test result: ");
    let line = line.trim();
    let before = |text: &str, word: &str| {
        let number = text.split_once(word)?.0.rsplit(' ').next()?;
        number.split('/').next()?.parse::<u64>().ok()
    };
    if let Some(summary) = of_cargo {
        return Some(Count {
            passed: before(summary, " passed")?,
            failed: before(summary, " failed")?,
        });
    }
    let (_, summary) = line.strip_prefix("Summary [")?.split_once(']')?;
    // `12 tests run`, or `3/12 tests run` after a stop.
    let run = before(summary, " tests run").or_else(|| before(summary, " test run"))?;
    let passed = before(summary, " passed")?;
    Some(Count { passed, failed: run.saturating_sub(passed) })
}

/// Returns the names in a list of libtest that contain one of the filters; all names without
/// filters.
fn names_of_tests<'a>(listed: &'a str, filters: &[String]) -> impl Iterator<Item = &'a str> {
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    names.filter(|name| {
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
    })
}

/// The environment that the tests get.
struct Surroundings {
    variables: Vec<(&'static str, std::ffi::OsString)>,
    skips: Skips,
    _busy: BusyLoops,
}

/// Loops that keep the machine busy until this is dropped.
struct BusyLoops(Vec<Child>);

impl Drop for BusyLoops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Surroundings {
    fn of(place: &Checkout, options: &TestOptions) -> Result<Self, XtaskFailure> {
        let skips = Skips::new(place)?;
        let mut variables = if options.is_crowded { crowded(place)? } else { Vec::new() };
        variables.push((skips::VARIABLE, skips.file().into()));
        let mut busy = BusyLoops(Vec::new());
        for _ in 0..options.busy {
            // Lower priority than the tests, so that the tests still finish.
            let mut command = Command::new("nice");
            command.args(["-n", "5", "sh", "-c", "while :; do :; done"]).stdin(Stdio::null());
            let child = command.spawn().map_err(|error| phase::not_started(&command, &error))?;
            busy.0.push(child);
        }
        Ok(Self { variables, skips, _busy: busy })
    }

    fn put_around(&self, command: &mut Command) {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
    }
}

/// Creates a home folder with unreadable stores, locks, keys and configs, and a folder for
/// temporary files below it.
fn crowded(place: &Checkout) -> Result<Vec<(&'static str, std::ffi::OsString)>, XtaskFailure> {
    let home = place.own().join("crowded/home");
    let state = home.join(".local/state/conclave");
    let files = [
        (home.join("conclave.toml"), "entry = \"nobody\"\n[this is no config\n"),
        (home.join("conclave.lock"), "this is no lock\n"),
        (home.join("tmp/conclave.toml"), "entry = \"nobody\"\n[this is no config\n"),
        (home.join("tmp/conclave.lock"), "this is no lock\n"),
        (home.join("tmp/.ssh/id"), "this is no key\n"),
        (home.join(".ssh/id"), "this is no key\n"),
        (state.join("stores/1/log.db"), "this is no database\n"),
        (home.join(".config/conclave/conclave.toml"), "[this is no config\n"),
        (home.join(".cache/conclave/this"), "this is no component\n"),
    ];
    for (file, text) in files {
        let folder = file.parent().unwrap_or(&home);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&file, text))
            .map_err(|error| XtaskFailure::io("write", &file, &error))?;
    }
    // Cargo and rustup keep their own folders.
    let own = |name: &str, folder: &str| {
        env::var_os(name).unwrap_or_else(|| {
            std::path::PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(folder).into()
        })
    };
    Ok(vec![
        ("CARGO_HOME", own("CARGO_HOME", ".cargo")),
        ("RUSTUP_HOME", own("RUSTUP_HOME", ".rustup")),
        ("HOME", home.clone().into()),
        ("TMPDIR", home.join("tmp").into()),
        ("CONCLAVE_STATE", state.clone().into()),
        ("CONCLAVE_CACHE", home.join(".cache/conclave").into()),
        ("XDG_STATE_HOME", home.join(".local/state").into()),
        ("XDG_CONFIG_HOME", home.join(".config").into()),
        ("XDG_CACHE_HOME", home.join(".cache").into()),
        ("COLUMNS", "43".into()),
        ("LANG", "tr_TR.UTF-8".into()),
        ("TZ", "Pacific/Apia".into()),
        ("CLICOLOR_FORCE", "1".into()),
    ])
}

/// Four phases: components, the program, the tests' binaries.
pub(crate) fn prepare(place: &Checkout, phases: &mut Phases) -> Result<(), XtaskFailure> {
    build_components(place, phases)?;
    build_tests(place, phases, &names(&layers::tested(place)?))
}

fn build_components(place: &Checkout, phases: &mut Phases) -> Result<(), XtaskFailure> {
    components::build_stock(place, phases, Optimised::Little)?;
    components::build_guests(place, phases, Optimised::Little)
}

/// Two phases. The program is built for the tests that start it, in any package.
fn build_tests(
    place: &Checkout,
    phases: &mut Phases,
    packages: &[&str],
) -> Result<(), XtaskFailure> {
    let command = program(place, packages, "conclave");
    phases.run("building the program conclave", "conclave", command)?;
    build_binaries(place, phases, packages)
}

/// Builds a program as the tests are built: of crates with the features that all packages together
/// select, so that no crate is compiled twice.
pub(crate) fn program(place: &Checkout, packages: &[&str], name: &str) -> Command {
    let mut command = place.linted_cargo(["build", "--bin", name]);
    command.args(selection(packages));
    command
}

fn build_binaries(
    place: &Checkout,
    phases: &mut Phases,
    packages: &[&str],
) -> Result<(), XtaskFailure> {
    let mut command = runner(place, packages);
    command.arg("--no-run");
    phases.run("building the tests", "tests", command)
}

/// Returns `cargo nextest run`, or `cargo test` without nextest. Doc examples are left out.
fn runner(place: &Checkout, names: &[&str]) -> Command {
    let mut command = if needs::has_nextest(place) {
        let mut command = place.linted_cargo(["nextest", "run", "--cargo-quiet"]);
        // It has the time after which a test that hangs is ended.
        command
            .arg("--tool-config-file")
            .arg(format!("conclave:{}", place.root.join("host/xtask/nextest.toml").display()));
        command
    } else {
        place.linted_cargo(["test"])
    };
    command.args(["--lib", "--bins", "--tests"]).args(selection(names));
    command
}

/// Returns the runner for tests of exactly these names, in any module.
pub(crate) fn runner_of(
    place: &Checkout,
    test_names: &BTreeSet<&str>,
) -> Result<Command, XtaskFailure> {
    let mut command = runner(place, &names(&layers::tested(place)?));
    if needs::has_nextest(place) {
        let any: Vec<String> =
            test_names.iter().map(|name| format!("test(/(^|::){name}$/)")).collect();
        command.args(QUIET).arg("-E").arg(any.join(" + "));
    } else {
        command.args(["--no-fail-fast", "--quiet", "--"]).args(test_names);
    }
    Ok(command)
}

pub(crate) fn names(tested: &[Package]) -> Vec<&str> {
    tested.iter().map(|package| package.name.as_str()).collect()
}

/// Selects packages with all their features. Cargo unifies the features of the packages that are
/// selected together: builds share their crates only if they select the same ones.
pub(crate) fn selection<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let packages = names.iter().flat_map(|name| ["-p", *name]);
    ["--all-features"].into_iter().chain(packages).collect()
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
    fn a_filter_takes_from_a_layer_and_adds_nothing_to_it() {
        let listed = "kv::a_quota: test\nkv::a_budget: test\nchat::a_budget: test\n\n3 tests, 0 benchmarks\n";
        let guests = TestLayer::by_name("guests").unwrap_or_else(|| panic!("it is a layer"));
        let of = |filters: &[&str]| {
            let filters: Vec<String> = filters.iter().map(|filter| (*filter).to_owned()).collect();
            names_of_tests(listed, &filters)
                .filter(|name| guests.has_test(name))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&[]), ["kv::a_quota", "kv::a_budget"]);
        assert_eq!(of(&["budget"]), ["kv::a_budget"]);
        assert_eq!(of(&["chat"]), [""; 0]);
    }

    #[test]
    fn a_skipped_test_has_not_passed() {
        let mut row = LayerRow {
            name: "suite",
            count: Some(Count { passed: 5, failed: 1 }),
            skipped: 0,
            took: Duration::ZERO,
            is_broken: true,
            tests: Vec::new(),
        };
        row.skip(2);
        assert_eq!((row.count, row.skipped), (Some(Count { passed: 3, failed: 1 }), 2));
    }

    #[test]
    fn what_a_runner_says_at_its_end_is_counted() {
        let count = |passed, failed| Some(Count { passed, failed });
        assert_eq!(
            counted("     Summary [  79.244s] 3 tests run: 3 passed (1 slow), 2070 skipped\n"),
            count(3, 0)
        );
        assert_eq!(
            counted("     Summary [   0.1s] 1 test run: 0 passed, 1 failed, 2070 skipped"),
            count(0, 1)
        );
        assert_eq!(
            counted(
                "     Summary [   9.0s] 4/12 tests run: 2 passed, 1 failed, 1 timed out, 0 skipped"
            ),
            count(2, 2)
        );
        assert_eq!(
            counted(
                "test result: FAILED. 12 passed; 1 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.1s"
            ),
            count(12, 1)
        );
        assert_eq!(counted("test result: whatever"), None);
        assert_eq!(counted("tests::a_test_that_prints 3 passed"), None);
        assert_eq!(
            counted(
                "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 24 filtered out"
            ),
            None,
            "a test printed it"
        );
        assert_eq!(plain("\u{1b}[32;1m     Summary\u{1b}[0m [ 1s]"), "     Summary [ 1s]");
    }
}
