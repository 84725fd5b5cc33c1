//! The program whose instructions are counted, without callgrind: it must still compile its guests
//! and run its tasks.

use std::path::Path;
use std::process::Command;

fn run(words: &[&Path]) -> bool {
    Command::new(env!("CARGO_BIN_EXE_conclave-counts-sandbox"))
        .args(words)
        .status()
        .is_ok_and(|status| status.success())
}

#[test]
fn tasks_run_on_code_that_was_compiled_before() {
    let code = tempfile::tempdir().unwrap();
    let guests = conclave_test_support::guests();
    let tasks = |number| run(&["run".as_ref(), &guests, code.path(), Path::new(number)]);
    assert!(!tasks("1"), "there is no code yet");
    assert!(run(&["compile".as_ref(), &guests, code.path()]));
    assert!(tasks("3"));
}
