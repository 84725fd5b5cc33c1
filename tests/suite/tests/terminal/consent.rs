//! Approvals at a terminal and their number: `confirm` asks despite a rule that allows, and an
//! answer can apply to the rest of a run.

use conclave_test_support::{Rig, guest, stock};
use serde_json::{Value, json};

use super::emulator::Terminal;
use super::{MARK, rig, write};

const LETTERS: &str = ") >";

fn is_own(row: &str, words: &str) -> bool {
    row.contains(words) && !row.contains(MARK)
}

/// Returns an agent that writes a file by an action and another one by a tool call. A rule allows
/// both, and `confirm` asks about both.
fn confirming() -> Rig {
    let config = format!(
        "entry = \"main\"\n[[policy]]\ntool = \"*\"\ndecide = \"allow\"\n[tasks.main]\n\
         agent = \"actor\"\naction_plugins = [\"workspace\"]\nstuck_detection = false\nconfirm = \"always\"\n\
         [plugins.actor]\nsource = \"{}\"\ngrants.tools = [\"workspace.*\"]\n[plugins.actor.config]\n\
         script = [\n  {{ action = \"write\", args = {{ path = \"/notes/action.md\", content = \"a\", start = 0, end = -1 }} }},\n  \
         {{ call = \"workspace.write\", arguments = {{ path = \"/notes/call.md\", content = \"b\" }} }},\n]\n\
         [plugins.workspace]\nsource = \"{}\"\n\
         grants.files = [{{ dir = \"notes\", at = \"/notes\", mode = \"read-write\" }}]\n",
        guest("acting_agent").display(),
        stock().join("workspace.wasm").display()
    );
    Rig::new().with_file("c.toml", config).with_file("notes/a.md", "a")
}

#[test]
fn what_confirm_asks_about_is_asked_at_a_terminal_though_a_rule_allows_it() {
    let rig = confirming();
    let is_written = |file: &str| rig.folder().join("notes").join(file).exists();
    let mut terminal = Terminal::start(&rig, &["run", "c.toml", "go"], 100);
    terminal.until_prompt_below("?    write wants to run for actor", LETTERS);
    let rows = terminal.rows();
    assert!(rows.iter().any(|row| is_own(row, "carried out by workspace, in notes")), "{rows:#?}");
    assert!(
        !rows.iter().any(|row| is_own(row, "[a] always")),
        "no rule is about actions: {rows:#?}"
    );
    assert!(!is_written("action.md"), "nobody has said yes");
    terminal.answers("y");
    terminal.until_prompt_below("?    workspace.write wants to run for actor", LETTERS);
    let rows = terminal.rows();
    assert!(!rows.iter().any(|row| is_own(row, "[a] always")), "no rule answers it: {rows:#?}");
    assert!(is_written("action.md") && !is_written("call.md"), "{rows:#?}");
    terminal.answers("n");
    terminal.until_prompt_below("the reason, which", ">");
    terminal.answers("");
    let (_, rows) = terminal.ends();
    assert!(!is_written("call.md"), "it was refused: {rows:#?}");
}

#[test]
fn a_refusal_for_this_run_answers_every_further_question_of_its_kind() {
    let calls: Vec<Value> = (0..30).map(|id| write(&format!("/notes/{id}.md"), "again")).collect();
    let rig = rig(&json!([{ "text": "I save them.", "calls": calls }, "None is saved."]));
    let mut terminal = Terminal::start(&rig, &["run", "c.toml", "save them"], 100);
    terminal.until_prompt_below("workspace.write wants to run", LETTERS);
    terminal.answers("x");
    terminal.until_prompt_below("the reason, which", ">");
    terminal.answers("not today");
    terminal.until("the result", |rows| {
        let questions = rows.iter().filter(|row| is_own(row, "wants to run")).count();
        assert!(questions <= 1, "nobody is asked again: {rows:#?}");
        rows.iter().any(|row| row.contains("None is saved."))
    });
    let (_, rows) = terminal.ends();
    let files = std::fs::read_dir(rig.folder().join("notes")).expect("the folder is there");
    assert_eq!(files.count(), 1, "nothing was written: {rows:#?}");
}

/// B16: edited text is shown as it is, including characters that hide or change the reading
/// direction.
#[test]
fn arguments_are_edited_as_escapes() {
    let call = write("/notes/\u{202e}txt.\u{200b}md", "a\u{7f}\u{a0}b");
    let rig = rig(&json!([{ "text": "I save it.", "calls": [call] }, "None is saved."]));
    let mut terminal = Terminal::start(&rig, &["run", "c.toml", "save it"], 120);
    terminal.until_prompt_below("workspace.write wants to run", LETTERS);
    terminal.answers("e");
    let shown = r#"{"content":"a\u007f\u00a0b","path":"/notes/\u202etxt.\u200bmd"}"#;
    terminal.until_prompt_below("as JSON; Ctrl-C goes back", "}");
    let rows = terminal.rows();
    assert!(rows.iter().any(|row| row.ends_with(shown)), "{rows:#?}");
    terminal.until_heard();
    terminal.types("\u{3}");
    terminal.until_prompt_below("workspace.write wants to run", LETTERS);
    terminal.answers("n");
    terminal.until_prompt_below("the reason, which", ">");
    terminal.answers("");
    let (_, rows) = terminal.ends();
    let files = std::fs::read_dir(rig.folder().join("notes")).expect("the folder is there");
    assert_eq!(files.count(), 1, "nothing was written: {rows:#?}");
}
