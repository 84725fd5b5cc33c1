//! Tests that this machine does not support. A test that returns early counts as passed, so the
//! reason is written to a file.

use std::fs::File;
use std::io::Write;

/// The environment variable with a file's path. Every skipped test appends its reason to the file
/// as one line, and `cargo xtask test` reads it afterwards.
const FILE: &str = "CONCLAVE_TEST_SKIPS";

/// Returns whether a test is impossible here, and reports that to the runner.
///
/// # Panics
/// If the runner's file cannot be written.
#[must_use]
pub fn is_skipped(possible: Result<(), String>) -> bool {
    let Err(why) = possible else { return false };
    eprintln!("skipped: {why}");
    if let Some(file) = std::env::var_os(FILE) {
        let line = format!("{}\n", why.replace('\n', " "));
        // With a single write, because other tests append to it too.
        let written = File::options()
            .append(true)
            .create(true)
            .open(&file)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("{} cannot be written: {error}", file.display()));
    }
    true
}
