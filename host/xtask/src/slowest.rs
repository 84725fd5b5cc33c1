//! `cargo xtask test --slowest N`: the tests that took most time, from the reports that nextest
//! writes in JUnit's format (`host/xtask/nextest.toml`).

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::place::Checkout;

/// A test that was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimedTest {
    took: Duration,
    name: String,
}

/// Removes the report of an earlier run, so that it is not taken for that of the next one.
pub(crate) fn forget(place: &Checkout) {
    let _ = fs::remove_file(report(place));
}

/// Returns the tests of the last run; none without nextest, which writes the report.
pub(crate) fn of_last_run(place: &Checkout) -> Vec<TimedTest> {
    parsed(&fs::read_to_string(report(place)).unwrap_or_default())
}

fn report(place: &Checkout) -> PathBuf {
    place.target.join("nextest/default/junit.xml")
}

fn parsed(report: &str) -> Vec<TimedTest> {
    let cases = report.split("<testcase ").skip(1);
    let timed = cases.filter_map(|case| {
        let seconds = attribute(case, "time")?.parse().ok()?;
        let took = Duration::try_from_secs_f64(seconds).ok()?;
        let name = format!("{} {}", attribute(case, "classname")?, attribute(case, "name")?);
        Some(TimedTest { took, name })
    });
    timed.collect()
}

/// Returns an attribute of the element that begins the text.
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

/// Returns the `count` slowest tests as text for the terminal, and their share of the time of all.
pub(crate) fn listed(mut tests: Vec<TimedTest>, count: usize) -> String {
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
    for TimedTest { took, name } in tests {
        let _ = writeln!(text, "{:>8.1} s  {name}", took.as_secs_f64());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="3" time="9.5">
    <testsuite name="conclave-suite::suite" tests="3">
        <testcase name="kv::a" classname="conclave-suite::suite" timestamp="2026" time="0.250">
        </testcase>
        <testcase name="kv::b" classname="conclave-suite::suite" time="3.500"><system-out>x</system-out></testcase>
        <testcase name="kv::c" classname="conclave-suite::suite" time="0.750"/>
    </testsuite>
</testsuites>"#;

    #[test]
    fn the_slowest_come_first_with_their_share() {
        assert_eq!(
            listed(parsed(REPORT), 2),
            "\nthe slowest 2 tests took 4.2 of 4.5 s:\n     3.5 s  conclave-suite::suite kv::b\n     0.8 s  conclave-suite::suite kv::c\n"
        );
        assert_eq!(parsed(""), []);
    }

    #[test]
    fn an_attribute_is_that_of_its_own_name() {
        assert_eq!(attribute("classname=\"a\" name=\"b\">", "name"), Some("b"));
        assert_eq!(attribute("name=\"b\"/> time=\"2\"", "time"), None);
    }
}
