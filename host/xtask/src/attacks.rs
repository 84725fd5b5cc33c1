//! `cargo xtask attacks`: runs the table of docs/reference/security.md. It runs every test that a
//! row names, and counts the rows. Each row is an attack by a malicious plugin, server or client
//! that must be stopped.

use std::collections::BTreeSet;
use std::process::ExitCode;

use crate::arguments;
use crate::failure::XtaskFailure;
use crate::needs;
use crate::nextest::{self, TestReport, TimedTest};
use crate::phase::Phases;
use crate::place::Checkout;
use crate::test;

const PAGE: &str = "docs/reference/security.md";

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
struct Attack {
    what: String,
    tests: Vec<String>,
}

pub(crate) fn run(place: &Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let [verbose] = arguments::flags("attacks", ["--verbose"], arguments)?;
    let attacks = attacks(&place.read(PAGE)?);
    let tests: BTreeSet<&str> =
        attacks.iter().flat_map(|attack| &attack.tests).map(String::as_str).collect();
    needs::check_nextest(place)?;
    let mut phases = Phases::new(place, test::PREPARED + 1, verbose);
    test::prepare(place, &mut phases)?;
    phases.announce(&format!("trying {} attacks with {} tests", attacks.len(), tests.len()));
    let report = nextest::run_named(place, &tests)?;
    print!("{}", verdict(&attacks, &report)?);
    Ok(ExitCode::SUCCESS)
}

/// The result for the terminal. Fails if an attack was not stopped, or if one of its tests was not
/// run. An attack counts as tried if this machine could run all its tests.
fn verdict(attacks: &[Attack], report: &TestReport) -> Result<String, XtaskFailure> {
    if report.is_broken {
        return Err(XtaskFailure::new("an attack was not stopped: see above"));
    }
    let run: BTreeSet<&str> = report.tests.iter().map(TimedTest::function).collect();
    let skipped: BTreeSet<&str> =
        report.tests.iter().filter(|test| test.is_skipped).map(TimedTest::function).collect();
    let test_names = attacks.iter().flat_map(|attack| &attack.tests).map(String::as_str);
    let missing: BTreeSet<&str> = test_names.filter(|test| !run.contains(test)).collect();
    // Elsewhere than on Linux some tests are not compiled.
    if attacks.is_empty() || (cfg!(target_os = "linux") && !missing.is_empty()) {
        let missing = missing.into_iter().collect::<Vec<_>>().join(", ");
        return Err(XtaskFailure::new(format!("{PAGE} names tests that were not run: {missing}")));
    }
    let is_untried = |test: &str| skipped.contains(test) || !run.contains(test);
    let is_tried = |attack: &&Attack| !attack.tests.iter().any(|test| is_untried(test));
    let tried: Vec<&Attack> = attacks.iter().filter(is_tried).collect();
    let tests: BTreeSet<&str> =
        tried.iter().flat_map(|attack| &attack.tests).map(String::as_str).collect();
    let mut text = format!(
        "{} attacks tried by {} tests: each was stopped as {PAGE} says\n",
        tried.len(),
        tests.len()
    );
    let untried = attacks.len() - tried.len();
    if untried > 0 {
        let skips: Vec<&str> = report.skips.iter().map(String::as_str).collect();
        text += &format!("{untried} attacks could not be tried in full on this machine:\n");
        text += &test::explained(&skips);
    }
    Ok(text)
}

/// Returns the rows that name a test.
fn attacks(page: &str) -> Vec<Attack> {
    let rows = page.lines().filter(|line| line.starts_with("| "));
    rows.filter_map(|row| {
        let cells: Vec<&str> = row.trim().trim_matches('|').split(" | ").map(str::trim).collect();
        let [what, .., last] = cells.as_slice() else { return None };
        let tests: Vec<String> = last.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (!tests.is_empty()).then(|| Attack { what: (*what).to_owned(), tests })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_name_tests_are_attacks() {
        let page = "| a plugin tries to … | what happens | test |\n|---|---|---|\n| climb with `..` | refused | `one`, `two` |\n| link | read | – |\n";
        let attacks = attacks(page);
        assert_eq!(
            attacks,
            [Attack {
                what: "climb with `..`".to_owned(),
                tests: vec!["one".to_owned(), "two".to_owned()]
            }]
        );
    }

    #[test]
    fn an_attack_counts_as_stopped_if_all_its_tests_were_run() {
        let attack = |tests: &[&str]| Attack {
            what: "climb".to_owned(),
            tests: tests.iter().map(|test| (*test).to_owned()).collect(),
        };
        let run = |name: &str, is_skipped| {
            let name = format!("conclave-suite::suite kv::{name}");
            TimedTest { name, is_skipped, ..TimedTest::default() }
        };
        let attacks = [attack(&["one", "two"]), attack(&["one"])];
        let stopped = "1 attacks tried by 1 tests: each was stopped";
        let mut report = TestReport {
            skips: vec!["no net".to_owned()],
            tests: vec![run("one", false), run("two", true)],
            ..TestReport::default()
        };
        let text = verdict(&attacks, &report).unwrap_or_else(|failure| panic!("{}", failure.text));
        assert!(text.starts_with(stopped) && text.ends_with("skipped, 1 test: no net\n"), "{text}");
        let refused = |attacks: &[Attack], report: &TestReport| {
            verdict(attacks, report).err().map(|failure| failure.text).unwrap_or_default()
        };
        assert!(refused(&[attack(&["one", "three"])], &report).ends_with("not run: three"));
        assert!(!refused(&[], &report).is_empty(), "the table is not found");
        report.is_broken = true;
        assert!(refused(&attacks, &report).contains("not stopped"));
    }
}
