//! Tests that this machine cannot run. Such a test returns early and counts as passed. It also
//! writes the reason to a file, from which xtask reports it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::failure::XtaskFailure;
use crate::place::Checkout;

/// The variable that names the file to the tests (`tests/soak/src/skip.rs`).
pub(crate) const VARIABLE: &str = "CONCLAVE_TEST_SKIPS";

/// The file with one line for each skipped test.
pub(crate) struct Skips(PathBuf);

impl Skips {
    pub(crate) fn new(place: &Checkout) -> Result<Self, XtaskFailure> {
        let file = place.own().join("skipped");
        fs::create_dir_all(place.own())
            .and_then(|()| fs::write(&file, ""))
            .map_err(|error| XtaskFailure::io("write", &file, &error))?;
        Ok(Self(file))
    }

    pub(crate) fn file(&self) -> &PathBuf {
        &self.0
    }

    /// Adds a check that this machine cannot do.
    pub(crate) fn add(&self, reason: &str) -> Result<(), XtaskFailure> {
        let text = self.text() + reason + "\n";
        fs::write(&self.0, text).map_err(|error| XtaskFailure::io("write", &self.0, &error))
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap_or_default()
    }

    /// Returns the number of tests skipped so far.
    pub(crate) fn count(&self) -> u64 {
        self.text().lines().count() as u64
    }

    /// Returns the reasons as text for the terminal.
    pub(crate) fn explained(&self) -> String {
        explained(&self.text())
    }
}

fn explained(text: &str) -> String {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for reason in text.lines() {
        *reasons.entry(reason).or_default() += 1;
    }
    let line = |(reason, count): (&str, u64)| {
        format!("      skipped, {count} {}: {reason}\n", if count == 1 { "test" } else { "tests" })
    };
    reasons.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_told_once_with_its_tests() {
        assert_eq!(explained(""), "");
        assert_eq!(
            explained("no disk\nno net\nno disk\n"),
            "      skipped, 2 tests: no disk\n      skipped, 1 test: no net\n"
        );
    }

    #[test]
    fn tests_know_the_file_by_the_same_variable() {
        let place = Checkout::find().unwrap_or_else(|failure| panic!("{}", failure.text));
        let source = place
            .read("tests/soak/src/skip.rs")
            .unwrap_or_else(|failure| panic!("{}", failure.text));
        assert!(source.contains(&format!("\"{VARIABLE}\"")), "the tests look for another name");
    }
}
