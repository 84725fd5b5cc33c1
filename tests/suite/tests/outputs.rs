//! The program's output, compared with `tests/data/corpus/cli`: the help of every command, and the
//! keys and types of `--json`. `CONCLAVE_CORPUS=record cargo nextest run -p conclave-suite -E
//! 'test(outputs)'` writes the files anew; the diff lists the changes for users.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use conclave_test_support::{Rig, calling, guest, stepping};
use serde_json::{Value, json};

use crate::cli::text;
use crate::resume_cli::{conclave, start, until};

/// Compares a text with a file of the corpus, or writes that file.
pub(crate) fn compare(name: &str, now: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/corpus").join(name);
    if std::env::var("CONCLAVE_CORPUS").as_deref() == Ok("record") {
        std::fs::create_dir_all(file.parent().expect("it has a folder")).expect("a folder");
        std::fs::write(&file, now).expect("it is written");
        return;
    }
    let recorded = std::fs::read_to_string(&file).expect("it was recorded");
    let [before, after]: [Vec<&str>; 2] = [&recorded, now].map(|text| text.lines().collect());
    let differ = before.iter().zip(&after).position(|(before, after)| before != after);
    let line = differ.unwrap_or_else(|| before.len().min(after.len()));
    let [was, is] =
        [before, after].map(|lines| lines.get(line).copied().unwrap_or("(no line)").to_owned());
    assert!(
        recorded == now,
        "tests/data/corpus/{name} differs from line {} on:\n  recorded: {was}\n  now:      {is}\n\
         If that is meant, record it anew with CONCLAVE_CORPUS=record.",
        line + 1
    );
}

/// Returns every command, from the row of `docs/reference/status.md` that the program's own tests
/// compare with its commands.
fn commands() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/status.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let (_, row) = page.split_once("| **Command line** ").expect("the page has the row");
    let (row, _) = row.split_once("; `--watch`").expect("the row has an end");
    row.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_help_of_every_command_is_as_it_was_recorded() {
    let rig = Rig::new();
    let mut all = String::new();
    for command in std::iter::once(String::new()).chain(commands()) {
        let words: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let output = conclave(&rig, &words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
        writeln!(all, "$ conclave {}\n{}", words.join(" "), text(&output.stdout))
            .expect("a string takes it");
    }
    assert!(all.lines().count() > 500, "{all}");
    compare("cli/help.txt", &all);
}

/// The shapes of the output, by command and by the kind of line.
#[derive(Default)]
struct Shapes(BTreeMap<String, BTreeMap<String, BTreeSet<&'static str>>>);

impl Shapes {
    /// Runs a command with `--json`, adds the shape of each line of its output, and returns the
    /// lines.
    fn of(&mut self, rig: &Rig, name: &str, arguments: &[&str]) -> Vec<Value> {
        let output = conclave(rig, &[arguments, &["--json"]].concat());
        let (written, told) = (text(&output.stdout), text(&output.stderr));
        let lines: Vec<Value> = written
            .lines()
            .map(|line| {
                serde_json::from_str(line)
                    .unwrap_or_else(|_| panic!("{arguments:?}: {written}{told}"))
            })
            .collect();
        assert!(!lines.is_empty(), "{arguments:?} writes no JSON: {told}");
        lines.iter().for_each(|line| self.add(name, line));
        lines
    }

    fn add(&mut self, name: &str, line: &Value) {
        let kind = |value: &Value| {
            let word = ["type", "event", "notice"].iter().find_map(|key| value.get(key)?.as_str());
            word.map(|word| format!(" {word}")).unwrap_or_default()
        };
        let inner = ["record", "notice"]
            .iter()
            .filter_map(|key| line.get(key))
            .map(kind)
            .collect::<String>();
        let title = format!("{name}:{}{inner}", kind(line));
        add(self.0.entry(title).or_default(), String::new(), line);
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (title, shape) in &self.0 {
            writeln!(text, "{title}").expect("a string takes it");
            for (path, types) in shape {
                let types: Vec<&str> = types.iter().copied().collect();
                writeln!(text, "    {path}: {}", types.join(" or ")).expect("a string takes it");
            }
        }
        text
    }
}

fn add(shape: &mut BTreeMap<String, BTreeSet<&'static str>>, path: String, value: &Value) {
    let type_of = match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                // The journal defines the form of a setup, and a plugin that of its schema.
                let is_opaque = ["setup", "input_schema", "schema"].contains(&key.as_str())
                    && value.is_object();
                let value = if is_opaque { &json!({}) } else { value };
                add(shape, format!("{path}.{key}"), value);
            }
            return;
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().for_each(|item| add(shape, format!("{path}[]"), item));
            return;
        }
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
    };
    shape.entry(path).or_default().insert(type_of);
}

#[test]
fn what_json_holds_has_the_shape_that_was_recorded() {
    let mut shapes = Shapes::default();
    editing(&mut shapes);
    looking(&mut shapes);
    steering(&mut shapes);
    compare("cli/json.txt", &shapes.text());
}

/// Covers configs and plugins.
fn editing(shapes: &mut Shapes) {
    let rig = Rig::new();
    assert_eq!(conclave(&rig, &["init"]).status.code(), Some(0));
    shapes.of(&rig, "check", &["check"]);
    shapes.of(&rig, "add", &["add", "stock:notes", "--as", "notes", "--grant", "kv = true"]);
    shapes.of(&rig, "revoke", &["revoke", "notes", "kv"]);
    shapes.of(&rig, "grant", &["grant", "notes", "kv = true"]);
    shapes.of(&rig, "plugin lock", &["plugin", "lock"]);
    shapes.of(&rig, "plugin upgrade", &["plugin", "upgrade"]);
    shapes.of(&rig, "plugin inspect", &["plugin", "inspect", "stock:search"]);
    let echo = guest("echo").display().to_string();
    shapes.of(&rig, "plugin call", &["plugin", "call", &echo, "run", "{\"text\": \"it ran\"}"]);
    shapes.of(
        &rig,
        "plugin call (fails)",
        &["plugin", "call", "stock:search", "read", "{\"path\": \"/b.txt\"}"],
    );
    shapes.of(&rig, "can (yes)", &["can", "notes", "kv"]);
    shapes.of(&rig, "can (no)", &["can", "notes", "files"]);
}

/// Returns the config of a desk that passes a question on, and has it answered from a folder.
fn desk() -> Rig {
    let config = format!(
        "entry = \"desk\"\n[plugins.coordinator]\nsource = \"{}\"\ngrants.route = [\"answer\"]\n\
         [plugins.librarian]\nsource = \"{}\"\ngrants.tools = [\"search.find\"]\n\
         [plugins.search]\nsource = \"stock:search\"\n\
         grants.files = [{{ dir = \"library\", at = \"/library\", mode = \"read\" }}]\n\
         limits = {{ memory = \"64 MiB\", cpu = \"5 s\", wall = \"10 s\" }}\n\
         [tasks.desk]\nagent = \"coordinator\"\nsubtasks = [\"answer\"]\n\
         [tasks.answer]\nagent = \"librarian\"\ntools = [\"search.find\"]\n\
         [limits.run]\nwall = \"2 min\"\nturns = 40\n",
        guest("coordinator").display(),
        guest("librarian").display(),
    );
    let page = "A grant is what the operator lets a plugin do.\n\nThe config grants the plugin search to read this folder.\n\n\
                An ask is a capability that a plugin's manifest asks for; it is a ceiling, never a grant.\n";
    Rig::new().with_file("conclave.toml", config).with_file("library/grants.txt", page)
}

/// Covers finished runs, one of them with a denial.
fn looking(shapes: &mut Shapes) {
    let rig = desk();
    shapes.of(&rig, "run", &["run", "conclave.toml", "What is a grant?"]);
    let refused = shapes.of(&rig, "audit", &["audit"]);
    shapes.of(&rig, "audit verify", &["audit", "verify"]);
    shapes.of(&rig, "audit head", &["audit", "head"]);
    for entry in refused.iter().take(2) {
        shapes.of(&rig, "why", &["why", entry["event"].as_str().expect("an address")]);
    }
    shapes.of(&rig, "runs", &["runs"]);
    shapes.of(&rig, "show", &["show"]);
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/trajectory/pairs-2024-07.json");
    shapes.of(&rig, "trajectory show", &["trajectory", "show", &log.display().to_string()]);
    shapes.of(&rig, "store check", &["store", "check"]);
    shapes.of(&rig, "store gc", &["store", "gc"]);
    let rig = Rig::new()
        .with_file("c.toml", stepping("agent_echo", "", ""))
        .with_file("in.txt", "a\nb\n");
    let folder = r#"grants.files = [{ dir = "data", at = "/folder", mode = "overlay" }]"#;
    let rig = rig
        .with_file("data/a.txt", "inside")
        .with_file("o.toml", calling("overlay_escape", "forge", &json!({}), folder));
    let ran = text(&conclave(&rig, &["run", "o.toml", "go"]).stderr);
    let run = ran.trim().rsplit(' ').next().expect("the last line names the run").to_owned();
    shapes.of(&rig, "diff", &["diff", &run]);
    shapes.of(&rig, "diff --drop", &["diff", &run, "lock", "--drop", "--yes"]);
    shapes.of(&rig, "diff --apply", &["diff", &run, "--apply", "--yes"]);
    shapes.of(&rig, "batch", &["batch", "in.txt", "--config", "c.toml", "--concurrency", "1"]);
    shapes.of(&rig, "runs", &["runs"]);
}

/// Covers runs that wait for an approval.
fn steering(shapes: &mut Shapes) {
    let rule = "[[policy]]\ntool = \"subject.run\"\ndecide = \"ask\"\n";
    let rig = Rig::new()
        .with_file("c.toml", calling("echo", "run", &json!({ "text": "it ran" }), "") + rule);
    let child = start(&rig, &["run", "c.toml", "go", "--approvals", "wait"]);
    until("a call that waits", || {
        (!text(&conclave(&rig, &["approvals", "--json"]).stdout).is_empty()).then_some(())
    });
    let waiting = shapes.of(&rig, "approvals", &["approvals"]);
    shapes.of(&rig, "runs (one waits)", &["runs"]);
    let call = waiting[0]["id"].as_str().expect("an id").to_owned();
    shapes.of(&rig, "approve", &["approve", &call, "--yes"]);
    child.wait_with_output().expect("it ends");
    shapes.of(&rig, "show (approved)", &["show"]);
    let child = start(&rig, &["run", "c.toml", "go", "--approvals", "wait"]);
    until("a call that waits", || {
        (!text(&conclave(&rig, &["approvals", "--json"]).stdout).is_empty()).then_some(())
    });
    let runs = shapes.of(&rig, "runs (one waits)", &["runs"]);
    let run = runs[0]["run"].as_str().expect("a name").to_owned();
    shapes.of(&rig, "tell", &["tell", &run, "make haste"]);
    shapes.of(&rig, "pause", &["pause", &run]);
    shapes.of(&rig, "stop", &["stop", &run]);
    child.wait_with_output().expect("it ends");
}
