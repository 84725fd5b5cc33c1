//! Tests that this machine does not support. A test that returns early counts as passed, so the
//! reason is printed, and `cargo xtask test` finds it in the output.

/// Returns whether a test is impossible here, and reports that to the runner.
#[must_use]
pub fn is_skipped(possible: Result<(), String>) -> bool {
    let Err(why) = possible else { return false };
    // The runner looks for a line that begins so (`host/xtask/src/nextest.rs`).
    eprintln!("skipped on this machine: {}", why.replace('\n', " "));
    true
}
