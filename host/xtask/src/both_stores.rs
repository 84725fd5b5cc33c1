//! The tests of any store: they run with a store in a folder as part of their layers, and once more
//! on PostgreSQL as the layer `postgres`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::nextest::{TestReport, TimedTest};

/// The variable that has tests of any store play on PostgreSQL, with its value
/// (`tests/servers/src/postgres.rs`).
pub(crate) const ON_POSTGRES: (&str, &str) = ("CONCLAVE_TEST_STORE", "postgres");

/// The tests of any store, as nextest selects them. Of the runtime's tests of stores, these modules
/// are about the files of SQLite, and `engines` has both stores at once.
pub(crate) const OF_ANY_STORE: &str = "
    package(=conclave-runtime) & binary(=store)
        - test(/^(chain|derived|disk|engines|fixtures)::/) - test(/::files::/)
    + package(=conclave-conformance) & test(=scenarios_show_what_they_should)
    + package(=conclave-suite) - test(/::files::/)
        & test(/^(cli_batch|delivery|questions|resume_cli|rooms::killed|steering_cli|tasks_cli)::/)";

/// Returns the number of passed tests of each module that ran on PostgreSQL, beside the number of
/// the same tests that passed in the other layers. Empty if none ran there.
pub(crate) fn compared(on_sqlite: &[&TestReport], on_postgres: &TestReport) -> String {
    let of_both: BTreeMap<&str, bool> = on_sqlite
        .iter()
        .flat_map(|report| &report.tests)
        .map(|test| (test.name.as_str(), test.has_passed()))
        .collect();
    let mut modules: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for test in &on_postgres.tests {
        let (sqlite, postgres) = modules.entry(module_of(test)).or_default();
        *sqlite += usize::from(of_both.get(test.name.as_str()).copied().unwrap_or_default());
        *postgres += usize::from(test.has_passed());
    }
    if modules.is_empty() {
        return String::new();
    }
    let mut text =
        format!("\n{:<44}{:>8}{:>12}\n", "passed tests of any store", "SQLite", "PostgreSQL");
    let mut total = (0, 0);
    for (module, (sqlite, postgres)) in modules {
        total = (total.0 + sqlite, total.1 + postgres);
        let _ = writeln!(text, "{module:<44}{sqlite:>8}{postgres:>12}");
    }
    let _ = writeln!(text, "{:<44}{:>8}{:>12}", "together", total.0, total.1);
    text
}

/// The binary of a test and its module there, if it is in one.
fn module_of(test: &TimedTest) -> &str {
    test.name.split_once("::").map_or(test.name.as_str(), |(package, rest)| {
        let path = rest.find("::").or_else(|| rest.find(' ')).unwrap_or(rest.len());
        &test.name[..package.len() + 2 + path]
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn report(tests: &[(&str, bool)]) -> TestReport {
        let test = |(name, has_failed): &(&str, bool)| TimedTest {
            took: Duration::ZERO,
            name: (*name).to_owned(),
            is_skipped: false,
            has_failed: *has_failed,
        };
        TestReport { tests: tests.iter().map(test).collect(), ..TestReport::default() }
    }

    #[test]
    fn the_counts_of_both_stores_are_of_the_same_tests() {
        let sqlite = report(&[
            ("conclave-runtime::store disk::a", false),
            ("conclave-runtime::store lists::a", false),
            ("conclave-runtime::store lists::b", false),
            ("conclave-conformance::cases c", false),
        ]);
        let postgres = report(&[
            ("conclave-runtime::store lists::a", false),
            ("conclave-runtime::store lists::b", true),
            ("conclave-conformance::cases c", false),
        ]);
        let lines = compared(&[&sqlite], &postgres);
        let rows: Vec<Vec<&str>> =
            lines.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            rows,
            [
                vec!["conclave-conformance::cases", "1", "1"],
                vec!["conclave-runtime::store", "lists", "2", "1"],
                vec!["together", "3", "2"],
            ]
        );
        assert_eq!(compared(&[&sqlite], &TestReport::default()), "");
    }
}
