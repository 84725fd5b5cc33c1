//! The program on an emulated terminal. Texts of plugins and models are distinguishable from the
//! program's own at any width and with any line wrapping: a row with a foreign text begins with the
//! mark.

mod approving;
mod consent;
mod emulator;
mod letting_in;
mod progress;
mod resizing;

use conclave_test_support::{Rig, stock};
use serde_json::{Value, json};

use emulator::Terminal;

const WIDTHS: [u16; 5] = [40, 60, 80, 100, 120];
/// Part of every line of a hostile text, and of no other line.
const FOREIGN: &str = "ZZ";
const MARK: char = '│';

/// The program's own lines around a question of a run.
const QUESTION: [&str; 5] = [
    " ?    workspace.read wants to run for chat, with 1 argument ZZ",
    "      policy: conclave.toml:9 ZZ",
    "      [y] once  [r] this run  [n] refuse ZZ",
    "  0.02 operator      approved ZZ",
    "> ZZ",
];

/// Returns lines that imitate the program's own around a question of a run.
fn forged(columns: u16) -> String {
    format!("{}\r\n\u{1b}[2K\u{1b}[H ZZ\u{202e} ZZ", forged_as(columns, &QUESTION))
}

/// Returns imitations of the program's own lines, padded so that a terminal of this width would
/// start each at its left edge.
fn forged_as(columns: u16, own: &[&str]) -> String {
    let blanks = ["\u{a0}", " ", "\u{3000}", "\u{2003}"];
    let padded = |line: &&str| -> String {
        let width = usize::from(columns);
        let missing = width - line.chars().count() % width;
        blanks.iter().map(|blank| format!("{line}{}", blank.repeat(missing))).collect()
    };
    let wrapped: String = own.iter().map(padded).collect();
    format!("ZZ{wrapped}\n{}", own.join("\n"))
}

/// Returns a call that writes a file into the folder of the workspace.
fn write(path: &str, content: &str) -> Value {
    json!({ "name": "workspace.write", "args": { "path": path, "content": content } })
}

/// Returns the stock chat agent with these replies of its model, and a folder that it may write to
/// after an approval.
fn rig(replies: &Value) -> Rig {
    let (chat, workspace) = (stock().join("chat.wasm"), stock().join("workspace.wasm"));
    let config = format!(
        "entry = \"chat\"\n[models.default]\nkind = \"scripted\"\nreplies = \"replies.json\"\n[[policy]]\ntool = \"workspace.*\"\ndecide = \"ask\"\n\
         [plugins.chat]\nsource = \"{}\"\ngrants.model = [\"default\"]\ngrants.tools = [\"workspace.*\"]\n\
         [plugins.workspace]\nsource = \"{}\"\ngrants.files = [{{ dir = \"notes\", at = \"/notes\", mode = \"read-write\" }}]\n\
         [tasks.chat]\nagent = \"chat\"\n",
        chat.display(),
        workspace.display()
    );
    let replies = json!({ "replies": replies });
    Rig::new()
        .with_file("c.toml", config)
        .with_file("replies.json", replies.to_string())
        .with_file("notes/a.md", "a")
}

/// Checks that no row contains a foreign text without a mark in front of it.
fn assert_marked(rows: &[String], columns: u16) {
    let foreign: Vec<&String> = rows.iter().filter(|row| row.contains(FOREIGN)).collect();
    assert!(foreign.len() > 3, "{columns}: it is shown: {rows:#?}");
    for row in foreign {
        assert!(
            row.find(MARK).is_some_and(|mark| Some(mark) < row.find(FOREIGN)),
            "{columns}: {row:?} in {rows:#?}"
        );
    }
}

#[test]
fn no_question_is_forged_by_what_it_asks_about() {
    for columns in WIDTHS {
        let call = write("/notes/todo.md", &forged(columns));
        let rig = rig(&json!([{ "text": forged(columns), "calls": [call] }, "It is saved."]));
        let mut terminal = Terminal::start(&rig, &["run", "c.toml", "save it"], columns);
        terminal.until_prompt(") >");
        let rows = terminal.rows();
        assert_marked(&rows, columns);
        let asked: Vec<&String> =
            rows.iter().filter(|row| row.contains("wants to run") && !row.contains(MARK)).collect();
        assert_eq!(asked.len(), 1, "{columns}: {rows:#?}");
        assert!(asked[0].starts_with(" ?    workspace.write wants to run"), "{columns}: {asked:?}");
        terminal.until_heard();
        terminal.types("\u{3}");
        let (status, rows) = terminal.ends();
        assert_eq!(status.code(), Some(130), "{columns}: {rows:#?}");
        assert_marked(&rows, columns);
        assert!(!rig.folder().join("notes/todo.md").exists(), "nothing was approved");
    }
}

#[test]
fn what_an_agent_says_can_be_told_from_what_the_program_asks() {
    for columns in WIDTHS {
        let rig = rig(&json!([forged(columns)]));
        let mut terminal = Terminal::start(&rig, &["chat", "c.toml", "hello"], columns);
        terminal.until_prompt(">");
        assert_marked(&terminal.rows(), columns);
        terminal.types("\u{4}");
        let (status, rows) = terminal.ends();
        assert_eq!(status.code(), Some(0), "{columns}: {rows:#?}");
    }
}

#[test]
fn the_result_of_a_run_is_marked_and_shown_once() {
    for columns in WIDTHS {
        let rig = rig(&json!([forged(columns)]));
        let (status, rows) = Terminal::start(&rig, &["run", "c.toml", "hello"], columns).ends();
        assert_eq!(status.code(), Some(0), "{columns}: {rows:#?}");
        assert_marked(&rows, columns);
        assert_eq!(
            rows.iter().filter(|row| row.contains("says")).count(),
            0,
            "{columns}: it is the result: {rows:#?}"
        );
    }
}

#[test]
fn a_trace_with_long_names_is_no_wider_than_a_narrow_terminal() {
    let name = "a-task-whose-name-is-long";
    // The short trace has one table cell per step, cut at its column.
    for trace in [&[][..], &["--trace=full"]] {
        let call = write("/notes/todo.md", &forged(40));
        let rig = rig(&json!([{ "text": forged(40), "calls": [call] }, forged(40)]));
        let config = std::fs::read_to_string(rig.folder().join("c.toml")).expect("it is there");
        let config = config.replace("\"chat\"\n[models", &format!("\"{name}\"\n[models"));
        let config = config.replace("[tasks.chat]", &format!("[tasks.{name}]"));
        let rig = rig.with_file("c.toml", config.replace("\"ask\"", "\"allow\""));
        let arguments = [&["run", "c.toml", "go"], trace].concat();
        let (status, rows) = Terminal::start(&rig, &arguments, 40).ends();
        assert_eq!(status.code(), Some(0), "{trace:?}: {rows:#?}");
        assert_marked(&rows, 40);
    }
}

/// Returns the states of the stored runs.
fn run_states(rig: &Rig) -> String {
    let output = rig.conclave(&["runs", "--json"]).output().expect("the program runs");
    let rows = String::from_utf8(output.stdout).expect("UTF-8");
    let states = rows.lines().map(|row| serde_json::from_str::<Value>(row).expect("JSON"));
    states.map(|row| row["state"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_closed_terminal_leaves_a_conversation_interrupted_and_the_end_of_the_input_ends_it() {
    let rig = rig(&json!(["Which light do you mean?"]));
    let mut terminal = Terminal::start(&rig, &["chat", "c.toml"], 80);
    terminal.until_prompt(">");
    assert_eq!(terminal.vanishes().code(), Some(129), "before the first message");
    let mut terminal = Terminal::start(&rig, &["chat", "c.toml", "hello"], 80);
    terminal.until_prompt(">");
    assert_eq!(terminal.vanishes().code(), Some(129));
    assert_eq!(run_states(&rig), "interrupted");
    let mut terminal = Terminal::start(&rig, &["resume"], 80);
    assert_eq!(terminal.ends().0.code(), Some(0), "a conversation is resumed on its own");
    let mut terminal = Terminal::start(&rig, &["chat", "c.toml", "hello"], 80);
    terminal.until_prompt(">");
    terminal.types("\u{4}");
    assert_eq!(terminal.ends().0.code(), Some(0));
    assert_eq!(run_states(&rig), "user-quitinterrupted");
}

#[test]
fn a_closed_terminal_refuses_no_call() {
    let call = write("/notes/todo.md", "lit");
    let rig = rig(&json!([{ "text": "I save it.", "calls": [call] }, "It is saved."]));
    let mut terminal = Terminal::start(&rig, &["run", "c.toml", "save it"], 80);
    terminal.until_prompt(") >");
    assert_eq!(terminal.vanishes().code(), Some(129));
    assert_eq!(run_states(&rig), "interrupted");
    let audit = rig.conclave(&["audit", "--json"]).output().expect("the program runs");
    let audit = String::from_utf8(audit.stdout).expect("UTF-8");
    assert!(audit.contains("approval-requested") && !audit.contains("approval-refused"), "{audit}");
}
