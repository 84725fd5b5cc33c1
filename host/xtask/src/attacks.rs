//! `cargo xtask attacks`: runs the table of docs/reference/security.md. It runs every test that a
//! row names, and counts the rows. Each row is an attack by a malicious plugin, server or client
//! that must be stopped.

use std::collections::BTreeSet;
use std::process::ExitCode;

use crate::arguments;
use crate::failure::XtaskFailure;
use crate::needs;
use crate::nextest;
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
    if report.is_broken || report.tests.is_empty() {
        eprintln!("an attack was not stopped, or could not be tried: see above");
        return Ok(ExitCode::FAILURE);
    }
    println!(
        "{} attacks tried by {} tests: each was stopped as {PAGE} says",
        attacks.len(),
        tests.len()
    );
    Ok(ExitCode::SUCCESS)
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
}
