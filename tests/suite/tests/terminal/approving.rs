//! Approvals on a terminal, in a run and with `conclave approve`. An approval covers one call that
//! was shown completely, and no text of the call can pass for the program's question.

use std::process::{Child, Stdio};

use conclave_test_support::{Rig, until};
use serde_json::{Value, json};

use super::emulator::Terminal;
use super::{FOREIGN, MARK, assert_marked, forged_as, rig, write};
use crate::cli::text;

const WIDTHS: [u16; 3] = [40, 80, 120];
/// The program's own lines around a question of `conclave approve`.
const OWN: [&str; 6] = [
    "Approve it? [y/N] > y ZZ",
    " ?    workspace.write wants to run for chat, with 2 arguments ZZ",
    "      page 9 of 9: read all pages to approve ZZ",
    "      [s] next page > ZZ",
    "0a1b2c3d:c4 approved; its run has the decision ZZ",
    "not approved; the call is still pending ZZ",
];
/// The end of the question to an approver.
const MAY_IT_RUN: &str = "Approve it? [y/N] >";
const LETTERS: &str = ") >";
const MORE: &str = "[s] next page >";

/// A run whose calls wait for an approval from another terminal.
struct WaitingRun {
    rig: Rig,
    child: Child,
}

impl WaitingRun {
    fn start(calls: &[Value]) -> Self {
        let rig = rig(&json!([{ "text": "I save it.", "calls": calls }, "It is saved."]));
        let mut command = rig.conclave(&["run", "c.toml", "save it", "--approvals", "wait"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self { child: child.expect("the program runs"), rig }
    }

    /// Returns the id of the call about this path once it is pending.
    fn id(&self, path: &str) -> String {
        until("a call that waits", || {
            let waiting = self.waiting();
            let is_this = |call: &&Value| call["request"]["arguments"]["path"] == path;
            waiting.iter().find(is_this)?["id"].as_str().map(str::to_owned)
        })
    }

    /// Returns the pending calls without an answer.
    fn waiting(&self) -> Vec<Value> {
        let output = self.rig.conclave(&["approvals", "--json"]).output().expect("it runs");
        let output = text(&output.stdout);
        let calls = output.lines().filter_map(|line| serde_json::from_str(line).ok());
        calls.filter(|call: &Value| call["decision"].is_null()).collect()
    }

    /// Returns the content of a file in the workspace.
    fn written(&self, file: &str) -> Option<String> {
        std::fs::read_to_string(self.rig.folder().join("notes").join(file)).ok()
    }
}

impl Drop for WaitingRun {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a text that takes several pages of a terminal of this width.
fn long(columns: u16) -> String {
    forged_as(columns, &OWN).repeat(14)
}

fn is_own(row: &str, words: &str) -> bool {
    row.contains(words) && !row.contains(MARK)
}

/// Checks that the last row is this question.
fn assert_asks(rows: &[String], question: &str) {
    let last = rows.iter().rfind(|row| !row.is_empty());
    assert!(last.is_some_and(|row| row.ends_with(question)), "{question}: {rows:#?}");
}

#[test]
fn approve_shows_a_call_behind_marks_and_approves_that_one_alone() {
    for columns in WIDTHS {
        // On the narrowest terminal all of them would not fit on one page.
        let own = if columns == 40 { &OWN[..2] } else { &OWN[..] };
        let content = forged_as(columns, own);
        let calls = [write("/notes/todo.md", &content), write("/notes/other.md", "b")];
        let run = WaitingRun::start(&calls);
        let (id, other) = (run.id("/notes/todo.md"), run.id("/notes/other.md"));
        let mut terminal = Terminal::start(&run.rig, &["approve", &id], columns);
        terminal.until_prompt(MAY_IT_RUN);
        let rows = terminal.rows();
        assert_marked(&rows, columns);
        for once in ["wants to run", "Approve it?"] {
            let count = rows.iter().filter(|row| is_own(row, once)).count();
            assert_eq!(count, 1, "{columns}, {once}: {rows:#?}");
        }
        assert_eq!(run.written("todo.md"), None, "nothing was approved");
        terminal.types("y\n");
        let (status, rows) = terminal.ends();
        assert_eq!(status.code(), Some(0), "{columns}: {rows:#?}");
        assert_marked(&rows, columns);
        until("the file", || run.written("todo.md").filter(|written| written.contains(&content)));
        assert_eq!(run.waiting().len(), 1, "{columns}: the other one waits");
        assert_eq!(run.id("/notes/other.md"), other);
        assert_eq!(run.written("other.md"), None, "{columns}");
    }
}

#[test]
fn approve_takes_a_yes_behind_the_last_page_alone() {
    for columns in WIDTHS {
        let content = long(columns);
        let run = WaitingRun::start(&[write("/notes/todo.md", &content)]);
        let id = run.id("/notes/todo.md");
        let mut terminal = Terminal::start(&run.rig, &["approve", &id], columns);
        terminal.until_prompt_below("page 1 of", ">");
        assert_marked(&terminal.rows(), columns);
        assert_asks(&terminal.rows(), MORE);
        terminal.types("y\n");
        terminal.until_prompt_below("read all pages first", ">");
        let pages = pages_of(&terminal.rows());
        assert!(pages > 2, "{columns}: {pages}");
        for page in 2..=pages {
            terminal.types("s\n");
            let end = if page == pages { MAY_IT_RUN } else { MORE };
            terminal.until_prompt_below(&format!("page {page} of"), ">");
            let rows = terminal.rows();
            assert_marked(&rows, columns);
            assert_asks(&rows, end);
            let asked = rows.iter().filter(|row| is_own(row, "Approve it?")).count();
            assert_eq!(asked, usize::from(page == pages), "{columns}: {rows:#?}");
        }
        assert_eq!(run.waiting().len(), 1, "{columns}: nothing was approved");
        terminal.types("y\n");
        let (status, rows) = terminal.ends();
        assert_eq!(status.code(), Some(0), "{columns}: {rows:#?}");
        until("the file", || run.written("todo.md").filter(|written| written.contains(&content)));
    }
}

#[test]
fn approve_leaves_a_call_waiting_whose_pages_were_not_read() {
    let run = WaitingRun::start(&[write("/notes/todo.md", &long(80))]);
    let id = run.id("/notes/todo.md");
    let mut terminal = Terminal::start(&run.rig, &["approve", &id], 80);
    terminal.until_prompt_below("page 1 of", ">");
    assert_asks(&terminal.rows(), MORE);
    terminal.types("\n");
    let (status, rows) = terminal.ends();
    assert_eq!(status.code(), Some(1), "{rows:#?}");
    assert!(
        rows.iter().any(|row| is_own(row, "not approved; the call is still pending")),
        "{rows:#?}"
    );
    assert_eq!((run.id("/notes/todo.md"), run.waiting().len()), (id, 1));
}

/// Returns the number of pages according to the last page.
fn pages_of(rows: &[String]) -> usize {
    let row = rows.iter().rfind(|row| is_own(row, "read all pages to") && !row.contains(FOREIGN));
    let row = row.unwrap_or_else(|| panic!("it has pages: {rows:#?}"));
    let count = row.split(" of ").nth(1).and_then(|rest| rest.split(':').next());
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{row}"))
}

#[test]
fn a_long_question_takes_a_yes_behind_its_last_page_alone() {
    for columns in WIDTHS {
        let content = long(columns);
        let call = write("/notes/todo.md", &content);
        let rig = rig(&json!([{ "text": "I save it.", "calls": [call] }, "It is saved."]));
        let written = || std::fs::read_to_string(rig.folder().join("notes/todo.md")).ok();
        let mut terminal = Terminal::start(&rig, &["run", "c.toml", "save it"], columns);
        terminal.until_prompt_below("page 1 of", LETTERS);
        terminal.until_heard();
        let rows = terminal.rows();
        assert!(!rows.iter().any(|row| is_own(row, "[y] once")), "{columns}: {rows:#?}");
        for (letter, count) in ["y", "r", "e"].into_iter().zip(1..) {
            terminal.answers(letter);
            let is_refused = |row: &&String| is_own(row, "read all pages first");
            terminal.until("so many refusals", |rows| {
                let is_asked = rows.iter().rfind(|row| !row.is_empty());
                is_asked.is_some_and(|row| row.ends_with(LETTERS))
                    && rows.iter().filter(is_refused).count() == count
            });
        }
        let pages = pages_of(&terminal.rows());
        assert!(pages > 2, "{columns}: {pages}");
        for page in 2..=pages {
            terminal.answers("s");
            terminal.until_prompt_below(&format!("page {page} of"), LETTERS);
            let rows = terminal.rows();
            assert_marked(&rows, columns);
            let can_run = rows.iter().any(|row| is_own(row, "[y] once"));
            assert_eq!(can_run, page == pages, "{columns}: {rows:#?}");
        }
        assert_eq!(written(), None, "{columns}: nothing was approved");
        terminal.answers("y");
        let (status, rows) = terminal.ends();
        assert_eq!(status.code(), Some(0), "{columns}: {rows:#?}");
        assert!(written().is_some_and(|written| written.contains(&content)), "{columns}");
    }
}
