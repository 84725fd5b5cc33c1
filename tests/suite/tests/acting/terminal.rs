//! Commands in the stock terminal: bash's answers, state per task, and limits of the host.

use conclave_core::protocol::notice::Notice;
use conclave_core::types::outcome::Status;
use conclave_test_support::{Rig, guest, stock, toml_inline};
use serde_json::{Map, Value, json};

use super::{acting, allowed, observations};

/// Returns a config whose agent runs this script of actions in a terminal on the folder `work`.
fn config(script: &Value, lines: &str) -> String {
    let terminal = format!(
        "[plugins.terminal]\nsource = \"{}\"\n{lines}\n{}",
        stock().join("terminal.wasm").display(),
        allowed("terminal.*")
    );
    acting(
        script,
        "grants.tools = [\"terminal.*\"]\nlimits = { scratch = \"16 MiB\", output = \"16 MiB\" }",
        "action_plugins = [\"terminal\"]\nstuck_detection = false",
        &terminal,
    )
}

const WORK: &str = "grants.files = [{ dir = \"work\", at = \"/work\", mode = \"read-write\" }]\nlimits = { scratch = \"1 MiB\" }";

fn run(command: &str) -> Value {
    json!({ "action": "run", "args": { "command": command } })
}

/// Returns the output and the exit code of each observation.
fn ended(observations: &[Value]) -> Vec<(String, i64)> {
    let text =
        |seen: &Value| seen["content"].as_str().or(seen["error"].as_str()).map(str::to_owned);
    let each = observations.iter();
    each.map(|seen| (text(seen).unwrap_or_default(), seen["exit_code"].as_i64().unwrap_or(-100)))
        .collect()
}

fn rig() -> Rig {
    Rig::new().with_file("work/lines.txt", "first line\nsecond line\n")
}

/// Plays snippets of the corpus, each in a subshell, so that none changes the next.
#[test]
fn the_component_answers_as_bash_does() {
    let data = |name: &str| {
        let path = format!("{}/../data/shell/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let recorded: Map<String, Value> =
        serde_json::from_str(&data("bash.json")).expect("it is JSON");
    let snippets: Value = toml::from_str(&data("snippets.toml")).expect("it is TOML");
    let groups = ["variables", "arrays", "arithmetic", "conditionals"];
    let mut names = Vec::new();
    let mut script = Vec::new();
    for group in groups {
        for (name, snippet) in snippets[group].as_object().into_iter().flatten() {
            // An option that changes how the script is read has no effect inside a subshell.
            if let Some(text) = snippet.as_str().filter(|text| !text.contains("extglob")) {
                names.push(format!("{group}.{name}"));
                script.push(run(&format!("(\n{text}\n)")));
            }
        }
    }
    let mut rig = Rig::new();
    for file in ["lines.txt", "numbers.txt", "words.txt", "pairs.csv", "empty.txt", "dir/one.md"] {
        rig = rig.with_file(&format!("work/{file}"), data(&format!("files/{file}")));
    }
    let ran = rig.run(&config(&Value::Array(script), WORK), "go");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let answers = ended(&observations(&ran));
    assert_eq!(answers.len(), names.len());
    let differ = |((output, code), name): &((String, i64), &String)| {
        let bash = &recorded[*name];
        let expected = bash["output"].as_str().unwrap_or_default().trim_end_matches('\n');
        (output != expected || bash["exit_code"].as_i64() != Some(*code))
            .then(|| format!("{name}: {output:?} ({code}), bash {bash}"))
    };
    let problems: Vec<String> =
        answers.into_iter().zip(&names).filter_map(|pair| differ(&pair)).collect();
    assert!(names.len() > 60 && problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn state_lives_on_in_the_task_and_files_in_the_folder() {
    let script = json!([
        run(
            "cd /work && mkdir -p sub && cd sub; greet() { echo \"hi $1\"; }; set -o pipefail; n=1"
        ),
        run("greet you; ((n++)); echo $n; pwd; false | true; echo $?; echo made > file"),
        run("cat /work/sub/file; ls -l /work | wc -l"),
    ]);
    let rig = rig();
    let ran = rig.run(&config(&script, WORK), "go");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let expected = [("", 0), ("hi you\n2\n/work/sub\n1", 0), ("made\n3", 0)];
    let expected: Vec<(String, i64)> =
        expected.into_iter().map(|(text, code)| (text.to_owned(), code)).collect();
    assert_eq!(ended(&observations(&ran)), expected);
    let made = std::fs::read_to_string(rig.folder().join("work/sub/file"));
    assert_eq!(made.ok().as_deref(), Some("made\n"));
}

/// Returns a config whose tool makes these calls of a terminal at the same time.
fn at_once(commands: &[&str]) -> String {
    let call =
        |command: &&str| json!({ "tool": "terminal.run", "arguments": { "command": command } });
    let calls: Vec<Value> = commands.iter().map(call).collect();
    let calls = json!({ "tool": "nested.at_once", "arguments": { "calls": calls } });
    format!(
        "entry = \"desk\"\n[plugins.desk]\nsource = \"{}\"\n\
         grants.tools = [\"nested.*\", \"terminal.*\"]\nconfig = {}\n\
         [plugins.nested]\nsource = \"{}\"\ngrants.tools = [\"terminal.*\"]\n\
         [plugins.terminal]\nsource = \"{}\"\n{WORK}\n[tasks.desk]\nagent = \"desk\"\n{}",
        guest("agent_caller").display(),
        toml_inline(&calls),
        guest("nested").display(),
        stock().join("terminal.wasm").display(),
        allowed("*"),
    )
}

#[test]
fn commands_that_are_called_at_once_take_turns_and_lose_nothing() {
    let rig = rig();
    let commands = [
        "x=1; echo one >> log; echo one >> /tmp/log",
        "y=2; echo two >> log; echo two >> /tmp/log",
        "echo $x $y $(cat log) $(cat /tmp/log)",
    ];
    let ran = rig.run(&at_once(&commands), "go");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let answers: Vec<String> = serde_json::from_str(ran.content()).expect("a list of texts");
    assert_eq!(answers, ["", "", "1 2 one two one two"]);
}

#[test]
fn a_state_above_the_limit_of_scratch_is_an_exit_code_and_the_shell_stays() {
    let script = json!([
        run("x=before"),
        run("x=after; seq 100000 > /tmp/large; echo wrote"),
        run("echo $x; ls /tmp"),
    ]);
    let limits = "limits = { cpu = \"1 h\", scratch = \"512 KiB\" }";
    let ran = rig().run(&config(&script, limits), "go");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let ended = ended(&observations(&ran));
    let (output, code) = &ended[1];
    assert!(output.starts_with("wrote\n") && output.contains("`limits.scratch`"), "{output}");
    assert_eq!((*code, ended[2].0.as_str()), (1, "before"));
}

/// Each task has a shell of its own, also in the same room and with the same plugin.
#[test]
fn another_task_cannot_read_the_state() {
    let first = json!([
        run("secret=skerryvore; echo kept > /tmp/kept"),
        { "action": "delegate", "args": { "agent": "other", "inputs": { "task": "look" } } },
        run("echo $secret; cat /tmp/kept"),
    ]);
    let other = json!([run("echo \"[$secret]\"; ls /tmp; set | grep -c skerryvore")]);
    let config = format!(
        "{}\n[plugins.second]\nsource = \"{}\"\nconfig = {}\ngrants.tools = [\"terminal.*\"]\n[tasks.other]\nagent = \"second\"\naction_plugins = [\"terminal\"]\n",
        config(&first, WORK).replace(
            "grants.tools = [\"terminal.*\"]\nlimits",
            "grants.tools = [\"terminal.*\"]\ngrants.delegate = [\"other\"]\nlimits"
        ),
        guest("acting_agent").display(),
        toml_inline(&json!({ "script": other })),
    );
    let ran = rig().run(&config, "go");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let answers: Vec<String> = ran
        .notices()
        .filter_map(|notice| match notice {
            Notice::ToolAnswered { name, content, .. } if name == "terminal.run" => {
                Some(content.clone())
            }
            _ => None,
        })
        .collect();
    assert_eq!(answers[1..], ["[]\n0\n[exit code 1]", "skerryvore\nkept"]);
}

#[test]
fn a_command_that_computes_without_end_is_stopped_and_the_shell_before_it_stays() {
    let script = json!([
        run("x=before"),
        run("x=after; while :; do :; done"),
        run("x=after; :(){ :|:& };:"),
        run("echo $x"),
    ]);
    let lines = WORK.replace("limits = { ", "limits = { cpu = \"200 ms\", ");
    let ran = rig().run(&config(&script, &lines), "go");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let answers = ended(&observations(&ran));
    assert_eq!(
        (answers[0].clone(), answers[3].clone()),
        ((String::new(), 0), ("before".to_owned(), 0))
    );
    for (text, _) in &answers[1..3] {
        assert!(text.contains("limits.cpu"), "{text}");
    }
}

#[test]
fn a_background_command_is_killed_by_its_id() {
    let script = json!([
        { "action": "run", "args": { "command": "while :; do sleep 60; done", "background": true } },
        { "action": "kill", "args": { "command_id": 42 } },
        { "action": "kill", "args": { "command_id": 42 } },
    ]);
    let ran = rig().run(&config(&script, WORK), "go");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let answers: Vec<String> =
        ended(&observations(&ran)).into_iter().map(|(text, _)| text).collect();
    assert_eq!(
        answers,
        [
            "Background command started. To stop it, send a `kill` action with command_id 42",
            "Background command with id 42 has been killed.",
            "There is no background command with id 42.",
        ]
    );
}
