//! A window that becomes narrower while a question is open. The terminal breaks the visible rows
//! without marks, so no answer to them counts: the question is printed again.

use conclave_test_support::Rig;
use serde_json::json;

use super::emulator::Terminal;
use super::{FOREIGN, MARK, assert_marked, forged_as, rig, write};

const WIDE: u16 = 120;
const NARROW: u16 = 60;
const RESIZED: &str = "the terminal's size has changed";
const LETTERS: &str = ") >";

/// Lines of the program that a narrower terminal must break.
const OWN: [&str; 2] = [
    " ?    workspace.read wants to run for chat, with 1 argument, which is a path in notes/ ZZ ZZ ZZ",
    "      [y] once  [r] this run  [a] always  [e] edit  [n] refuse  [x] refuse for this run ZZ ZZ",
];

fn written(rig: &Rig) -> Option<String> {
    std::fs::read_to_string(rig.folder().join("notes/todo.md")).ok()
}

/// Returns whether a row contains a foreign text without a mark, as after a break by the terminal.
fn is_broken(rows: &[String]) -> bool {
    rows.iter().any(|row| row.contains(FOREIGN) && !row.contains(MARK))
}

#[test]
fn a_question_on_a_terminal_that_was_resized_is_laid_out_anew_before_a_yes_counts() {
    let content = forged_as(WIDE, &OWN);
    let call = write("/notes/todo.md", &content);
    let rig = rig(&json!([{ "text": "I save it.", "calls": [call] }, "It is saved."]));
    let mut terminal = Terminal::start(&rig, &["run", "c.toml", "save it"], WIDE);
    terminal.until_prompt(LETTERS);
    assert_marked(&terminal.rows(), WIDE);
    terminal.until_heard();
    terminal.resizes(NARROW);
    assert!(is_broken(&terminal.rows()), "{:#?}", terminal.rows());
    terminal.answers("y");
    terminal.until_prompt_below(RESIZED, LETTERS);
    let rows = terminal.rows();
    assert_marked(&rows, NARROW);
    assert_eq!(rows.iter().filter(|row| row.starts_with(" ?  ")).count(), 1, "{rows:#?}");
    assert_eq!(written(&rig), None, "nothing was approved");
    terminal.answers("y");
    let (status, rows) = terminal.ends();
    assert_eq!(status.code(), Some(0), "{rows:#?}");
    assert!(written(&rig).is_some_and(|written| written.contains(&content)));
}
