//! The audit: no access bypasses a check, every denial has an address in the journal, and `conclave
//! why` and `conclave can` explain it.

use std::path::{Path, PathBuf};
use std::process::Output;

use conclave_core::protocol::event::Event;
use conclave_test_support::{Ran, Rig, calling};
use serde_json::{Value, json};

use crate::cli::text;

const CONTRACT: [&str; 2] =
    [include_str!("../../../wit/capabilities.wit"), include_str!("../../../wit/tools.wit")];
/// Imports that need no grant, with the reason.
const FREE: [(&str, &str); 17] = [
    ("log.log", "the plugin's own"),
    ("progress.report", "the plugin's own"),
    ("config.get", "the plugin's own"),
    ("scratch.get", "the plugin's own"),
    ("scratch.set", "the plugin's own"),
    ("blobs.read", "of what its call was given, and what it kept"),
    ("blobs.put", "the plugin's own"),
    ("files.roots", "an empty list without a grant"),
    ("toolbox.list-tools", "an empty list without a grant"),
    ("exec.commands", "an empty list without a grant"),
    ("model.next-text", "of what model.start gave"),
    ("model.wait", "of what model.start gave"),
    ("fetch.status", "of what fetch.send gave"),
    ("fetch.headers", "of what fetch.send gave"),
    ("fetch.url", "of what fetch.send gave"),
    ("fetch.length", "of what fetch.send gave"),
    ("fetch.read", "of what fetch.send gave"),
];

/// Returns `interface.function` of everything that a plugin can import from the host.
fn imports() -> Vec<String> {
    let (mut interface, mut found) = ("", Vec::new());
    for line in CONTRACT.iter().flat_map(|file| file.lines()).map(str::trim) {
        if let Some(rest) = line.strip_prefix("interface ") {
            interface = rest.trim_end_matches(" {");
        } else if let Some((name, _)) = line.split_once(": func(") {
            found.push(format!("{interface}.{name}"));
        }
    }
    // Facts about the call, which need no grant, and what a tool plugin exports.
    found.retain(|name| !name.starts_with("call.") && !name.starts_with("tools."));
    found
}

fn everything(lines: &str) -> Ran {
    Rig::new()
        .with_file("folder/a.txt", "inside")
        .run(&calling("everything_denied", "run", &json!({}), lines), "go")
}

/// Returns a list of pairs from the guest's output.
fn tried(ran: &Ran) -> Vec<(String, String)> {
    serde_json::from_str(ran.content()).unwrap_or_else(|error| panic!("{error}: {}", ran.content()))
}

#[test]
fn every_import_that_needs_a_grant_is_refused_without_one() {
    let ran = everything("");
    let tried = tried(&ran);
    let imports = imports();
    assert!(imports.len() > 25, "the contract was read: {imports:?}");
    for import in &imports {
        let is_free = FREE.iter().any(|(free, _)| free == import);
        let came = tried.iter().find(|(name, _)| name == import).map(|(_, came)| came);
        assert!(
            is_free || came.is_some(),
            "{import} is new: the guest must try it, or this test say why it needs no grant"
        );
    }
    for (name, came) in &tried {
        assert!(!came.contains("DONE"), "{name} passed the check by: {came}");
        assert!(
            came.to_ascii_lowercase().contains("denied")
                || came.contains("Denial")
                || name == "files.roots",
            "{name}: {came}"
        );
    }
    // The operator reads about each capability that was tried.
    let denied: Vec<String> =
        ran.denials().into_iter().map(|record| record.denial.capability).collect();
    for capability in ["model", "files", "kv", "secrets", "fetch", "history", "tools", "exec"] {
        assert!(denied.iter().any(|known| known == capability), "{capability}: {denied:?}");
    }
}

#[test]
fn a_grant_of_one_thing_is_no_grant_of_another() {
    let ran = everything("grants.kv = true");
    for (name, came) in tried(&ran).iter().filter(|(name, _)| !name.starts_with("kv.")) {
        assert!(!came.contains("DONE"), "{name}: {came}");
    }
    let ran =
        everything("grants.files = [{ dir = \"folder\", at = \"/folder\", mode = \"read\" }]");
    let done: Vec<String> = tried(&ran)
        .into_iter()
        .filter(|(_, came)| came.contains("DONE"))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(done, ["files.list-entries", "files.read", "files.roots"], "read-only is read-only");
}

#[test]
fn what_was_granted_decided_and_refused_is_in_the_journal() {
    let ran = everything("");
    let events = ran.events("test");
    let Some(Event::RoomOpened { setup, .. }) = events.first() else {
        panic!("a journal begins with every grant")
    };
    assert!(
        setup.plugins["caller"].grants.tools.is_some()
            && setup.plugins["subject"].grants.files.is_empty()
    );
    let refused = events.iter().filter(|event| matches!(event, Event::Refused { .. })).count();
    assert!(refused >= 4, "what an import refuses is recorded when it happens: {refused}");
    // Each published denial has the number of a record.
    let told = ran.happenings.iter().filter(|happening| {
        serde_json::to_string(happening).unwrap_or_default().contains("\"denied\"")
    });
    for happening in told.filter(|happening| {
        matches!(happening.what, conclave_runtime::subscribe::RunEvent::Notice { .. })
    }) {
        let seq = happening.seq.expect("what is told follows from a record");
        assert!((seq as usize) < events.len());
    }
}

fn run(rig: &Rig, state: &Path, arguments: &[&str]) -> Output {
    rig.conclave(arguments).env("CONCLAVE_STATE", state).output().expect("the program runs")
}

/// Returns a run that tried to read a key file, the folder of its journals and its address.
fn denied() -> (Rig, PathBuf, String) {
    let config = calling(
        "files_read",
        "run",
        &json!({ "path": "/folder/../root/.ssh/id_ed25519" }),
        "grants.files = [\"data\"]",
    );
    let rig = Rig::new().with_file("data/a.txt", "inside").with_file("conclave.toml", config);
    let state = rig.folder().join("state");
    let output = run(&rig, &state, &["run", "conclave.toml", "go"]);
    let stderr = text(&output.stderr);
    let address =
        stderr.split("conclave why ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let address =
        address.unwrap_or_else(|| panic!("a refusal says where to look: {stderr}")).to_owned();
    (rig, state, address)
}

#[test]
fn a_run_that_cannot_be_read_hides_no_other() {
    let (rig, state, address) = denied();
    let second = run(&rig, &state, &["run", "conclave.toml", "go"]);
    assert!(text(&second.stderr).contains("conclave why"), "{}", text(&second.stderr));
    let listed = || run(&rig, &state, &["audit", "--json"]);
    let entries = |output: &Output| {
        let lines = text(&output.stdout);
        lines.lines().filter(|line| line.contains("\"type\":\"audit\"")).count()
    };
    let whole = listed();
    let room = address.split(':').next().expect("an address begins with its room");
    let store =
        rusqlite::Connection::open(state.join("stores").join("1").join("log.db")).expect("a store");
    let changed = store.execute("UPDATE events SET principal = 'x' WHERE room = ?", [room]);
    assert!(changed.expect("the statement is run") > 0);
    drop(store);
    let output = listed();
    assert_eq!((whole.status.code(), output.status.code()), (Some(0), Some(1)));
    assert_eq!((entries(&output) * 2, entries(&output) > 0), (entries(&whole), true));
}

#[test]
fn json_holds_no_character_that_steers_a_terminal() {
    let config = calling(
        "files_read",
        "run",
        &json!({ "path": "/data/a.txt" }),
        "grants.files = [\"data\"]",
    );
    let rig = Rig::new().with_file("data/a.txt", "inside").with_file("conclave.toml", config);
    let state = rig.folder().join("state");
    let message = "a\u{9b}2J\u{9d}0;x\u{9c}\u{202e}b\u{7f}";
    let streamed = text(&run(&rig, &state, &["run", "conclave.toml", message, "--json"]).stdout);
    let listed = text(&run(&rig, &state, &["runs", "--json"]).stdout);
    let shown = text(&run(&rig, &state, &["show", "--json"]).stdout);
    for json in [&streamed, &listed, &shown] {
        assert!(!json.contains(['\u{9b}', '\u{9c}', '\u{9d}', '\u{202e}', '\u{7f}']), "{json}");
        assert!(json.contains("a\\u009b2J\\u009d0;x\\u009c\\u202eb\\u007f"), "{json}");
        let is_json = |line: &str| serde_json::from_str::<Value>(line).is_ok();
        assert!(!json.is_empty() && json.lines().all(is_json), "{json}");
    }
    let row: Value = serde_json::from_str(listed.trim()).expect("one run");
    assert_eq!(row["message"], message, "a parser reads what was written");
}

#[test]
fn a_refusal_says_where_to_look_and_why_says_what_each_layer_said() {
    let (rig, state, address) = denied();
    let output = run(&rig, &state, &["why", &address]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for part in [
        "DENIED",
        "files: /folder/../root/.ssh/id_ed25519",
        "✓ manifest",
        "✓ config",
        "✗ grant",
        "no grant is suggested",
        "conclave.toml:",
    ] {
        assert!(shown.contains(part), "{part} is missing:\n{shown}");
    }
    let head = shown.lines().next().unwrap_or_default();
    assert!(head.contains("subject was refused files /folder/../root/.ssh/id_ed25519"), "{head}");
    assert!(!shown.contains("conclave grant"), "no ready-made line for a key file:\n{shown}");
    assert!(
        shown.contains("asked by subject")
            && shown.contains("for the task main")
            && shown.contains("on behalf of operator"),
        "{shown}"
    );

    // Three spellings: the first digits, the newest run, and JSON for a program.
    let (name, seq) = address.split_once(':').expect("an address is a run and a record");
    let short = format!("{}:{seq}", &name[..4]);
    assert_eq!(text(&run(&rig, &state, &["why", &short]).stdout), shown);
    let list = text(&run(&rig, &state, &["why"]).stdout);
    assert_eq!(list, shown, "a single event is explained at once");
    let line = text(&run(&rig, &state, &["why", &address, "--json"]).stdout);
    let value: Value = serde_json::from_str(&line).expect("one line of JSON");
    assert_eq!(
        (&value["type"], &value["explanations"][0]["denied_by"]),
        (&json!("why"), &json!("runtime"))
    );

    for wrong in ["ffffffffff:1", &format!("{name}:9999"), "../x:1"] {
        assert_eq!(run(&rig, &state, &["why", wrong]).status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn the_end_of_a_run_counts_refused_calls_and_why_lists_them() {
    let config = calling("echo", "absent", &json!({}), "");
    let rig = Rig::new().with_file("conclave.toml", config);
    let state = rig.folder().join("state");
    let stderr = text(&run(&rig, &state, &["run", "conclave.toml", "go"]).stderr);
    let end: Vec<&str> = stderr.lines().rev().take(2).collect();
    assert!(end[1].contains(" · 1 call refused · ") && !end[1].contains("denial"), "{stderr}");
    let command = end[0].strip_prefix("refused: conclave ").expect("the command comes last");
    let listed = run(&rig, &state, &command.split(' ').collect::<Vec<_>>());
    let listed = text(&listed.stdout);
    assert!(listed.contains("subject.absent was refused: "), "{listed}");
}

#[test]
fn why_without_refusals_names_the_command_for_refused_starts() {
    let config = calling("echo", "run", &json!({ "text": "hi" }), "");
    let rig = Rig::new().with_file("conclave.toml", config);
    let state = rig.folder().join("state");
    run(&rig, &state, &["run", "conclave.toml", "go"]);
    let newest = text(&run(&rig, &state, &["why"]).stdout);
    assert!(newest.contains("no denials") && newest.contains("conclave check"), "{newest}");
    let run_row: Value =
        serde_json::from_str(text(&run(&rig, &state, &["runs", "--json"]).stdout).trim())
            .expect("one run");
    let named = text(&run(&rig, &state, &["why", run_row["run"].as_str().expect("a name")]).stdout);
    assert!(named.contains("no denials") && !named.contains("conclave check"), "{named}");
}

#[test]
fn what_is_not_kept_has_no_address() {
    let (rig, state, _) = denied();
    let output = run(&rig, &state, &["run", "conclave.toml", "go", "--no-journal"]);
    assert!(
        !text(&output.stderr).contains("conclave why"),
        "there is nothing to look at: {}",
        text(&output.stderr)
    );
}

#[test]
fn can_answers_as_a_run_would() {
    let lines = "grants.files = [{ dir = \"data\", at = \"/data\", mode = \"read\" }]";
    let config = calling("files_write", "run", &json!({}), lines);
    let rig = Rig::new().with_file("data/a.txt", "inside").with_file("conclave.toml", config);
    let state = rig.folder().join("state");
    let can = |arguments: &[&str]| {
        let output = run(&rig, &state, &[&["can"], arguments].concat());
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, shown) = can(&["subject", "files", "/data/a.txt"]);
    assert!(
        code == Some(0)
            && shown.contains("subject may read /data/a.txt")
            && shown.contains("conclave.toml:"),
        "{shown}"
    );
    let (code, shown) = can(&["subject", "files", "/data/a.txt", "--write"]);
    assert!(
        code == Some(1)
            && shown.contains("✗ config")
            && shown.contains("conclave grant subject")
            && shown.contains("read-write"),
        "{shown}"
    );
    let (code, shown) = can(&["subject", "model", "default"]);
    assert!(
        code == Some(1) && shown.contains("✗ manifest") && shown.contains("only its author"),
        "{shown}"
    );
    let (code, shown) = can(&["caller", "tools", "subject.run", "--task", "main"]);
    assert!(code == Some(0) && shown.contains("runs without asking"), "{shown}");
    let (code, shown) = can(&["caller", "tools", "subject.none"]);
    assert!(code == Some(2) && shown.contains("the tools are: "), "{shown}");
    for (wrong, names) in [
        (&["nobody", "files"][..], "its plugins are: caller, subject\n"),
        (&["subjct", "files"], "did you mean `subject`?"),
        (&["subject", "levitation"], "the capabilities are: model, "),
        (&["caller", "delegate", "mian"], "the tasks are: main; did you mean `main`?"),
        (&["caller", "tools", "--task", "mian"], "its tasks are: main; did you mean `main`?"),
        (&["caller", "tools", "subject.rnu"], "did you mean `subject.run`?"),
        (&["subject", "history", "5"], "the capability history has no target, such as 5"),
        (&["subject", "log", "debug"], "the capability log has no target"),
        (&["caller", "tools", "--write"], "--write has no meaning for the capability tools"),
        (&["subject", "files", "--method", "GET"], "it is for `conclave can PLUGIN fetch`"),
        (&["subject", "files", "--arguments", "[]"], "--arguments has no meaning for"),
        (&["caller", "tools", "subject.run", "--arguments", "7"], "is not a JSON object"),
    ] {
        let (code, shown) = can(wrong);
        assert!(code == Some(2) && shown.contains(names), "{wrong:?}: {shown}");
    }
}

#[test]
fn can_answers_before_it_counts_the_warnings() {
    let unused = "[plugins.idle]\nsource = \"stock:window\"\n";
    let config = calling("echo", "run", &json!({}), "") + unused;
    let rig = Rig::new().with_file("conclave.toml", config);
    let path = rig.folder().join("both");
    let both = std::fs::File::create(&path).expect("it can be written");
    let ended = rig
        .conclave(&["can", "caller", "tools", "subject.run"])
        .env("CONCLAVE_STATE", rig.folder().join("state"))
        .stdout(both.try_clone().expect("it can be shared"))
        .stderr(both)
        .status();
    assert_eq!(ended.expect("the program runs").code(), Some(0));
    let shown = std::fs::read_to_string(&path).expect("it can be read");
    // A plugin that is not in the cache is compiled first, with a line for it.
    let lines = shown.lines().skip_while(|line| line.starts_with("compil"));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.first(), Some(&"caller may call subject.run"), "{shown}");
    let is_count = |line: &&&str| line.contains("conclave check");
    assert_eq!(lines.iter().filter(is_count).count(), 1, "{shown}");
    assert!(lines.last().as_ref().is_some_and(is_count), "{shown}");
    assert!(!shown.contains("[config/unused]"), "{shown}");
}
