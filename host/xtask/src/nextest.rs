//! nextest runs the tests: the commands for it, and what it reports in JUnit's format. Layers,
//! slots and the time after which a test that hangs is ended are in `host/xtask/nextest.toml`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::failure::XtaskFailure;
use crate::layers::TESTED;
use crate::phase;
use crate::place::Checkout;

/// What decides how tests are run, from the root of the repository.
pub(crate) const CONFIG: &str = "host/xtask/nextest.toml";
/// The report of the last run, in nextest's own folder, which does not follow cargo's.
const REPORT: &str = "target/nextest/default/junit.xml";
/// What a test that this machine cannot run prints before the reason (`tests/servers/src/skip.rs`).
const SKIPPED: &str = "skipped on this machine: ";
/// Output of failures only. No test is tried again, whatever `NEXTEST_RETRIES` says.
const ARGUMENTS: [&str; 8] = [
    "--no-fail-fast",
    "--status-level",
    "fail",
    "--final-status-level",
    "fail",
    "--hide-progress-bar",
    "--retries",
    "0",
];
/// What stands for a test that failed, also if it passed when it was tried again.
const FAILED: [&str; 4] = ["<failure", "<error", "<flakyFailure", "<rerunFailure"];

/// `cargo nextest run` for these packages, as cargo selects them. Doc examples are left out.
pub(crate) fn command(place: &Checkout, packages: &[&str]) -> Command {
    let mut command = place.linted_cargo(["nextest", "run", "--cargo-quiet"]);
    command.args(["--profile", "default", "--config-file"]).arg(place.root.join(CONFIG));
    command.args(["--lib", "--bins", "--tests"]).args(packages);
    command
}

/// What nextest does if no test is selected: a layer or a program without tests is a mistake, unless
/// the filters are meant for another one.
pub(crate) fn without_tests(filters: &[String]) -> [&'static str; 2] {
    ["--no-tests", if filters.is_empty() { "fail" } else { "pass" }]
}

/// Runs the tests of exactly these names, in any module.
pub(crate) fn run_named(
    place: &Checkout,
    test_names: &BTreeSet<&str>,
) -> Result<TestReport, XtaskFailure> {
    let any: Vec<String> = test_names.iter().map(|name| format!("test(/(^|::){name}$/)")).collect();
    let mut command = command(place, &TESTED);
    command.args(without_tests(&[])).arg("-E").arg(any.join(" + "));
    run(place, command)
}

/// Runs a command of nextest, which prints what failed.
pub(crate) fn run(place: &Checkout, mut command: Command) -> Result<TestReport, XtaskFailure> {
    let file = place.root.join(REPORT);
    // That of an earlier run is not taken for that of one which does not come to its end.
    let _ = fs::remove_file(&file);
    let status = command.args(ARGUMENTS).stdin(Stdio::null()).status();
    let status = status.map_err(|error| phase::not_started(&command, &error))?;
    let mut report = TestReport::parse(&fs::read_to_string(&file).unwrap_or_default());
    report.is_broken = !status.success();
    Ok(report)
}

/// The results of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestReport {
    /// The number of passed tests, without the skipped ones.
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// The reasons of the tests that this machine cannot run, one for each.
    pub(crate) skips: Vec<String>,
    pub(crate) tests: Vec<TimedTest>,
    /// Whether a test or something other than a test failed.
    pub(crate) is_broken: bool,
}

/// A test that was run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimedTest {
    pub(crate) took: Duration,
    /// Its binary, a space, and its path.
    pub(crate) name: String,
    /// Whether this machine cannot run it.
    pub(crate) is_skipped: bool,
    pub(crate) has_failed: bool,
}

impl TestReport {
    /// Reads a report in JUnit's format.
    fn parse(report: &str) -> Self {
        let mut results = Self::default();
        for case in report.split("<testcase ").skip(1) {
            // The output of tests is escaped, so it has no such marks.
            let has_failed = FAILED.iter().any(|mark| case.contains(mark));
            let skip = skip_reason(case).filter(|_| !has_failed);
            results.tests.extend(TimedTest::parse(case, skip.is_some(), has_failed));
            match skip {
                Some(reason) => results.skips.push(reason),
                None if has_failed => results.failed += 1,
                None => results.passed += 1,
            }
        }
        results
    }

    /// The results of two runs.
    pub(crate) fn plus(mut self, mut other: Self) -> Self {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skips.append(&mut other.skips);
        self.tests.append(&mut other.tests);
        self.is_broken |= other.is_broken;
        self
    }
}

/// The reason in the output of a test that this machine cannot run.
fn skip_reason(case: &str) -> Option<String> {
    let lines = case.lines().map(|line| line.rsplit("<system-err>").next().unwrap_or(line));
    let reason = lines.filter_map(|line| line.strip_prefix(SKIPPED)).next()?;
    let reason = reason.split('<').next().unwrap_or(reason);
    let marks = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    Some(marks.iter().fold(reason.to_owned(), |text, (name, mark)| text.replace(name, mark)))
}

impl TimedTest {
    fn parse(case: &str, is_skipped: bool, has_failed: bool) -> Option<Self> {
        let took = Duration::try_from_secs_f64(attribute(case, "time")?.parse().ok()?).ok()?;
        let name = format!("{} {}", attribute(case, "classname")?, attribute(case, "name")?);
        Some(Self { took, name, is_skipped, has_failed })
    }

    pub(crate) fn has_passed(&self) -> bool {
        !self.is_skipped && !self.has_failed
    }

    /// The name of the function, without its module.
    pub(crate) fn function(&self) -> &str {
        self.name.rsplit([':', ' ']).next().unwrap_or_default()
    }
}

/// An attribute of the element that begins the text.
fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let (start, _) = element.split_once('>')?;
    let mut parts = start.split('"');
    while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
        if key.trim_start().strip_suffix('=') == Some(name) {
            return Some(value);
        }
    }
    None
}

/// The `count` slowest tests as text for the terminal, and their share of the time of all.
pub(crate) fn slowest(mut tests: Vec<&TimedTest>, count: usize) -> String {
    let all: Duration = tests.iter().map(|test| test.took).sum();
    tests.sort_by(|a, b| b.took.cmp(&a.took).then_with(|| a.name.cmp(&b.name)));
    tests.truncate(count);
    let these: Duration = tests.iter().map(|test| test.took).sum();
    let mut text = format!(
        "\nthe slowest {} tests took {:.1} of {:.1} s:\n",
        tests.len(),
        these.as_secs_f64(),
        all.as_secs_f64()
    );
    for TimedTest { took, name, .. } in tests {
        let _ = writeln!(text, "{:>8.1} s  {name}", took.as_secs_f64());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="5" failures="2" time="9.5">
    <testsuite name="conclave-suite::suite" tests="5">
        <testcase name="kv::a" classname="conclave-suite::suite" timestamp="2026" time="0.250">
        </testcase>
        <testcase name="kv::b" classname="conclave-suite::suite" time="3.500"><system-out>&lt;failure</system-out></testcase>
        <testcase name="kv::c" classname="conclave-suite::suite" time="0.750"/>
        <testcase name="kv::d" classname="conclave-suite::suite" time="0.001">
            <failure message="it panicked" type="test failure">no</failure>
        </testcase>
        <testcase name="kv::e" classname="conclave-suite::suite" time="0.001">
            <system-out>
running 1 test
</system-out>
            <system-err>skipped on this machine: `&lt;fuse&gt;` isn&apos;t here
</system-err>
        </testcase>
    </testsuite>
</testsuites>"#;

    #[test]
    fn a_report_tells_what_passed_failed_or_was_skipped() {
        let report = TestReport::parse(REPORT);
        assert_eq!((report.passed, report.failed, report.tests.len()), (3, 1, 5));
        assert_eq!(report.skips, ["`<fuse>` isn't here"]);
        let functions: Vec<&str> = report.tests.iter().map(TimedTest::function).collect();
        assert_eq!(functions, ["a", "b", "c", "d", "e"]);
        let skipped = report.tests.iter().filter(|test| test.is_skipped).map(TimedTest::function);
        assert_eq!(skipped.collect::<Vec<_>>(), ["e"]);
        assert_eq!(TestReport::parse(""), TestReport::default());
    }

    #[test]
    fn a_test_that_passes_only_when_it_is_tried_again_has_failed() {
        for mark in ["<flakyFailure ", "<rerunFailure "] {
            let report = TestReport::parse(&REPORT.replace("<failure ", mark));
            assert_eq!(report.failed, 1, "{mark}");
        }
    }

    #[test]
    fn only_a_filter_may_leave_a_layer_without_tests() {
        assert_eq!(without_tests(&[]), ["--no-tests", "fail"]);
        assert_eq!(without_tests(&["budget".to_owned()]), ["--no-tests", "pass"]);
    }

    #[test]
    fn the_slowest_come_first_with_their_share() {
        assert_eq!(
            slowest(TestReport::parse(REPORT).tests.iter().collect(), 2),
            "\nthe slowest 2 tests took 4.2 of 4.5 s:\n     3.5 s  conclave-suite::suite kv::b\n     0.8 s  conclave-suite::suite kv::c\n"
        );
    }

    #[test]
    fn an_attribute_is_that_of_its_own_name() {
        assert_eq!(attribute("classname=\"a\" name=\"b\">", "name"), Some("b"));
        assert_eq!(attribute("name=\"b\"/> time=\"2\"", "time"), None);
    }

    #[test]
    fn tests_skip_themselves_in_the_same_words() {
        let place = Checkout::find().unwrap_or_else(|failure| panic!("{}", failure.text));
        let source = place
            .read("tests/servers/src/skip.rs")
            .unwrap_or_else(|failure| panic!("{}", failure.text));
        assert!(source.contains(SKIPPED), "the tests say it in other words");
    }
}
