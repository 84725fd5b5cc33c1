//! Tests that this machine cannot do, and how whoever runs them learns of it: a test that returns
//! at once has passed as far as its runner knows.

use std::fs::File;
use std::io::Write;

/// The file that `cargo xtask test` reads afterwards; every skipped test appends one line, its
/// reason.
const FILE: &str = "CONCLAVE_TEST_SKIPS";

/// Whether a test cannot be done here, which is then said to the runner.
///
/// # Panics
/// When the file that the runner named cannot be written.
#[must_use]
pub fn is_skipped(possible: Result<(), String>) -> bool {
    let Err(why) = possible else { return false };
    eprintln!("skipped: {why}");
    if let Some(file) = std::env::var_os(FILE) {
        let line = format!("{}\n", why.replace('\n', " "));
        // At once: other tests write into it, too.
        let written = File::options()
            .append(true)
            .create(true)
            .open(&file)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("{} cannot be written: {error}", file.display()));
    }
    true
}
