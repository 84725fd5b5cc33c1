//! Logs in the forms of OpenHands: shown, exported from a run, and replayed with a config.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use conclave_core::trajectory::{Era, load};
use conclave_test_support::{Rig, guest, stock};
use serde_json::{Value, json};

use crate::cli::text;
use crate::resume_cli::{command, conclave};

fn log(name: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/trajectory");
    let path: PathBuf = data.join(name);
    assert!(path.exists(), "{} is there", path.display());
    path.display().to_string()
}

fn show(name: &str, filters: &[&str]) -> Output {
    conclave(&Rig::new(), &[&["trajectory", "show", &log(name)], filters].concat())
}

/// Returns the numbers and kinds of the shown events.
fn found(name: &str, filters: &[&str]) -> Vec<String> {
    let output = show(name, &[filters, &["--json"]].concat());
    let lines: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let kind = |event: &Value| {
        event["action"]
            .as_str()
            .or(event["observation"].as_str())
            .or(event["kind"].as_str())
            .map(str::to_owned)
    };
    let events = lines.iter().filter(|line| line["type"] == "event");
    events.map(|line| format!("{} {}", line["n"], kind(&line["event"]).expect("a kind"))).collect()
}

#[test]
fn logs_of_every_form_are_shown_a_line_for_each_event() {
    for (name, lines, says) in [
        (
            "pairs-2024-07.json",
            8,
            vec![
                "Put the height of the tower",
                "Skerryvore: 48 m",
                "run ‹5›",
                "4 height.txt",
                "2024-07-10 09:00:03",
            ],
        ),
        (
            "list-2024-07.json",
            6,
            vec!["Running command: ls lamps", "cannot access", "finish", "add_task"],
        ),
        (
            "list-2025-11.json",
            6,
            vec![
                "Note down who kept the light.",
                "The log of the station says it.",
                "write ‹2›",
                "environment",
                "agent_state: finished",
            ],
        ),
        ("sdk.jsonl", 5, vec!["How many steps", "cat stair.txt", "151 steps", "PauseEvent"]),
    ] {
        let output = show(name, &[]);
        let stdout = text(&output.stdout);
        assert_eq!(
            (output.status.code(), text(&output.stderr).as_str()),
            (Some(0), ""),
            "{name}: {stdout}"
        );
        assert_eq!(stdout.lines().count(), lines, "{name}:\n{stdout}");
        for said in says {
            assert!(stdout.contains(said), "{name} says {said:?}:\n{stdout}");
        }
        assert!(stdout.lines().all(|line| line.chars().count() <= 120), "{stdout}");
    }
}

#[test]
fn filters_say_which_events() {
    let name = "list-2024-07.json";
    for (filters, expected) in [
        (vec!["--type", "run"], vec!["2 run", "3 run"]),
        (vec!["--type", "run-observation"], vec!["3 run"]),
        (vec!["--type", "CmdRunAction"], vec!["2 run"]),
        (
            vec!["--not-type", "observation", "--not-type", "message"],
            vec!["1 add_task", "2 run", "4 finish"],
        ),
        (vec!["--source", "user"], vec!["0 message"]),
        (vec!["--text", "CANNOT ACCESS"], vec!["3 run"]),
        (vec!["--since", "2024-07-11"], vec!["4 finish"]),
        (vec!["--until", "2024-07-10 09:00:01"], vec!["0 message", "1 add_task"]),
        (vec!["--from", "3"], vec!["3 run", "4 finish"]),
        (vec!["--to", "1", "--reverse"], vec!["1 add_task", "0 message"]),
        (vec!["--limit", "1"], vec!["0 message"]),
        (vec!["--type", "browse"], vec![]),
    ] {
        assert_eq!(found(name, &filters), expected, "{filters:?}");
    }
    assert_eq!(found("sdk.jsonl", &["--type", "ActionEvent"]), ["1 ActionEvent"]);
    let some = text(&show(name, &["--limit", "2"]).stdout);
    assert!(some.contains("2 of 5 events"), "{some}");
    for wrong in [["--type", "rnu"], ["--since", "yesterday"]] {
        let output = show(name, &wrong);
        assert_eq!(
            (output.status.code(), text(&output.stdout).as_str()),
            (Some(2), ""),
            "{wrong:?}"
        );
        assert!(text(&output.stderr).contains(wrong[1]), "{}", text(&output.stderr));
    }
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_shown() {
    let output = show("torn.jsonl", &[]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stdout.contains("Look around.") && stdout.contains("Running command: ls"), "{stdout}");
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
    assert!(
        stderr.contains("line 2") && stderr.contains("dance") && stderr.contains("line 4"),
        "{stderr}"
    );
    let json = show("torn.jsonl", &["--json"]);
    assert_eq!(text(&json.stderr), "", "with --json it is on stdout");
    let lines: Vec<Value> = text(&json.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let problems: Vec<&Value> = lines.iter().filter(|line| line["type"] == "problem").collect();
    assert_eq!(
        (problems.len(), &problems[0]["at"], &problems[0]["raw"]["action"]),
        (2, &json!("line 2"), &json!("dance"))
    );
    for (file, says) in [("nowhere.json", "could not be read"), (".", "contains no events")] {
        let output = conclave(&Rig::new(), &["trajectory", "show", file]);
        assert_eq!(output.status.code(), Some(2), "{file}");
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
}

#[test]
fn a_log_is_read_from_stdin_and_from_a_folder_of_events() {
    let bytes = std::fs::read(log("list-2024-07.json")).expect("it is read");
    let rig = Rig::new();
    let mut child =
        command(&rig, &["trajectory", "show", "-"]).stdin(Stdio::piped()).spawn().expect("it runs");
    child.stdin.take().expect("it is piped").write_all(&bytes).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(
        (output.status.code(), text(&output.stdout).lines().count()),
        (Some(0), 6),
        "{}",
        text(&output.stderr)
    );

    // One file per event, with the tenth behind the second.
    let events: Vec<Value> = serde_json::from_slice(&bytes).expect("it is JSON");
    let files = events.iter().zip([0, 1, 2, 10, 11]);
    let rig = files.fold(Rig::new(), |rig, (event, number)| {
        rig.with_file(&format!("session/events/{number}.json"), event.to_string())
    });
    let output = conclave(&rig, &["trajectory", "show", "session", "--json"]);
    assert_eq!(
        (output.status.code(), text(&output.stdout).lines().count()),
        (Some(0), 5),
        "{}",
        text(&output.stderr)
    );
    assert!(text(&output.stdout).lines().last().is_some_and(|line| line.contains("finish")));
}

const PLUGINS: &str = "grants.files = [{ dir = \"box\", at = \"/box\", mode = \"read-write\" }]\nconfig.root = \"/box\"";

/// Returns an agent that writes, thinks and finishes, with files.
fn acting(script: &str) -> Rig {
    let config = format!(
        "entry = \"main\"\n[tasks.main]\nagent = \"actor\"\naction_plugins = [\"workspace\"]\n[plugins.actor]\nsource = \"{}\"\n\
         grants.tools = [\"workspace.*\"]\nconfig = {{ script = [{script}] }}\n[plugins.workspace]\nsource = \"{}\"\n{PLUGINS}\n\
         [[policy]]\ntool = \"*\"\ndecide = \"allow\"\n",
        guest("acting_agent").display(),
        stock().join("workspace.wasm").display()
    );
    Rig::new().with_file("c.toml", config).with_file("box/tower.txt", "Skerryvore: 48 m\n")
}

const WORK: &str = "{ action = \"write\", args = { path = \"/box/note.txt\", content = \"in the run\", start = 0, end = -1 } }, \
    { action = \"read\", args = { path = \"/box/note.txt\", start = 0, end = -1 } }, { action = \"think\", args = { thought = \"well\" } }, \
    { action = \"run\", args = { command = \"ls\" } }";

#[test]
fn a_run_is_written_as_a_log_of_either_era_and_read_again() {
    let rig = acting(WORK);
    let ran = conclave(&rig, &["run", "c.toml", "Write a note."]);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let runs = text(&conclave(&rig, &["runs", "--json"]).stdout);
    let run =
        serde_json::from_str::<Value>(runs.lines().next().expect("a run")).expect("JSON")["run"]
            .as_str()
            .expect("a name")
            .to_owned();
    for (era, form) in [("2024-07", Era::V2024), ("2025-11", Era::V2025)] {
        let output = conclave(&rig, &["trajectory", "export", &run, "--era", era]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let written = text(&output.stdout);
        let loaded = load(&written);
        assert!(loaded.problems.is_empty(), "{era}: {:?}\n{written}", loaded.problems);
        let again: Vec<Value> = loaded.events.iter().map(|event| event.to_json(form)).collect();
        assert_eq!(
            json!(again),
            serde_json::from_str::<Value>(&written).expect("JSON"),
            "{era}: what is read is what was written"
        );
        let kinds: Vec<&str> = loaded.events.iter().map(|event| event.kind()).collect();
        for kind in ["message", "write", "read", "think", "run", "error", "finish"] {
            assert!(kinds.contains(&kind), "{era} has {kind}: {kinds:?}");
        }
        let read = loaded
            .events
            .iter()
            .find(|event| event.kind() == "read" && event.observation().is_some())
            .expect("what was read");
        assert!(
            read.cause.is_some()
                && read.observation().is_some_and(|read| read.content().contains("in the run")),
            "{read:?}"
        );
        // An existing file is not overwritten.
        let file = format!("{era}.json");
        let arguments = ["trajectory", "export", &run, "--era", era, "-o", &file];
        assert_eq!(conclave(&rig, &arguments).status.code(), Some(0));
        assert_eq!(
            std::fs::read_to_string(rig.folder().join(&file)).expect("it is there"),
            written
        );
        let twice = conclave(&rig, &arguments);
        assert!(
            twice.status.code() == Some(2) && text(&twice.stderr).contains("already exists"),
            "{}",
            text(&twice.stderr)
        );
        let shown = conclave(&rig, &["trajectory", "show", &file]);
        assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    }
    let unknown = conclave(&rig, &["trajectory", "export", "ffffffffff"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", text(&unknown.stderr));
}

#[test]
fn what_a_log_did_is_done_anew_and_then_the_live_agent_goes_on() {
    // The turns of the log count as steps, so the script continues at its fourth line.
    let read = "{ action = \"read\", args = { path = \"height.txt\", start = 0, end = -1 } }";
    let rig = acting(&format!("{}{read}", "{ error = \"not reached\" }, ".repeat(3)));
    let output = conclave(&rig, &["trajectory", "replay", &log("pairs-2024-07.json"), "c.toml"]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let file = std::fs::read_to_string(rig.folder().join("box/height.txt"))
        .expect("the log's write was done anew");
    assert_eq!(file.trim_end(), "48 m");
    assert!(stderr.contains("replaying 3 actions of the log"), "{stderr}");
    // There is no executor for commands, so that action failed and no result was taken over. The
    // agent then read the file itself.
    assert!(!stdout.contains("4 height.txt") && stdout.contains("48 m"), "{stdout}");
    let shown = text(&conclave(&rig, &["show"]).stdout);
    assert!(
        shown.contains("Put the height of the tower into height.txt."),
        "the task is the log's: {shown}"
    );
    // A log of the run holds each replayed action once, with its observation, and the live ones.
    let runs = text(&conclave(&rig, &["runs", "--json"]).stdout);
    let newest: Value = serde_json::from_str(runs.lines().next().expect("a run")).expect("JSON");
    let run = newest["run"].as_str().expect("a name");
    let exported = load(&text(&conclave(&rig, &["trajectory", "export", run]).stdout));
    let actions: Vec<&str> = exported
        .events
        .iter()
        .filter(|event| event.observation().is_none())
        .filter(|event| event.source.as_ref().is_some_and(|source| source.name() == "agent"))
        .map(|event| event.kind())
        .collect();
    assert_eq!(actions, ["read", "write", "run", "read", "finish"]);
    let answered = exported.events.iter().filter(|event| event.cause.is_some()).count();
    assert!(answered >= 3, "{answered}");
}

#[test]
fn a_replay_is_held_by_the_rules_of_the_config() {
    let rig = acting("");
    let config = std::fs::read_to_string(rig.folder().join("c.toml")).expect("it is there");
    let rig = rig.with_file(
        "c.toml",
        config.replace(
            "[[policy]]\ntool = \"*\"\ndecide = \"allow\"",
            "[[policy]]\ntool = \"workspace.write\"\ndecide = \"deny\"",
        ),
    );
    let output = conclave(&rig, &["trajectory", "replay", &log("list-2025-11.json"), "c.toml"]);
    assert!(!rig.folder().join("box/keeper.txt").exists(), "{}", text(&output.stderr));
    let nothing = Rig::new().with_file("empty.json", "[]").with_file("c.toml", &config);
    let output = conclave(&nothing, &["trajectory", "replay", "empty.json", "c.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no message of a user"), "{}", text(&output.stderr));
}

/// Returns a rig with the folder that both logs begin with, and a config whose entry task has a
/// shell and files. Its agent must not be called.
fn station() -> Rig {
    let config = format!(
        "entry = \"main\"\n[tasks.main]\nagent = \"actor\"\naction_plugins = [\"terminal\", \"workspace\"]\n\
         [plugins.actor]\nsource = \"{}\"\ngrants.tools = [\"terminal.*\", \"workspace.*\"]\n\
         config = {{ script = [{{ error = \"the agent was called\" }}] }}\n\
         [plugins.terminal]\nsource = \"{}\"\n{FOLDER}\nlimits = {{ scratch = \"512 KiB\" }}\n\
         [plugins.workspace]\nsource = \"{}\"\n{FOLDER}\nconfig.root = \"/workspace\"\n\
         [[policy]]\ntool = \"*\"\ndecide = \"allow\"\n",
        guest("acting_agent").display(),
        stock().join("terminal.wasm").display(),
        stock().join("workspace.wasm").display(),
    );
    let files = ["lights.csv", "lights.py", "notes/keepers.md"];
    files.iter().fold(Rig::new().with_file("c.toml", config), |rig, file| {
        let content = std::fs::read(log(&format!("station/{file}"))).expect("a file of the data");
        rig.with_file(&format!("work/{file}"), content)
    })
}

const FOLDER: &str = "grants.files = [{ dir = \"work\", at = \"/workspace\", mode = \"overlay\" }]";

/// Returns the number and the verdict of each compared action, and its difference or reason.
fn verdicts(output: &Output) -> Vec<(i64, String, Value)> {
    let lines = text(&output.stdout);
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let compared = lines.filter(|line| line["type"] == "compared").map(|line| {
        let verdict = line["verdict"].as_str().expect("a verdict").to_owned();
        (line["n"].as_i64().expect("a number"), verdict, line)
    });
    compared.collect()
}

/// Commands, files and cells as runs of OpenHands have them, recorded with bash.
#[test]
fn logs_of_both_eras_are_compared_with_what_the_executors_of_a_config_do() {
    for (name, others) in [
        (
            "station-2024-07.json",
            vec![
                (7, "not-run", "reason", "run_ipython"),
                (11, "differs", "replayed", "git: command not found"),
                (13, "not-run", "reason", "git: command not found"),
                (15, "differs", "replayed", "agent"),
            ],
        ),
        (
            "station-2025-11.json",
            vec![
                (17, "not-run", "reason", "python3: command not found"),
                (19, "not-run", "reason", "python3: command not found"),
                (21, "not-run", "reason", "no program is running"),
                (23, "differs", "recorded", "2025"),
                (27, "not-run", "reason", "run_ipython"),
            ],
        ),
    ] {
        let replay = ["trajectory", "replay", &log(name), "c.toml", "--compare"];
        let rig = station();
        let output = conclave(&rig, &[&replay[..], &["--json"]].concat());
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let verdicts = verdicts(&output);
        let found: Vec<(i64, &str)> = verdicts
            .iter()
            .filter(|(_, verdict, _)| verdict != "same")
            .map(|(n, verdict, _)| (*n, verdict.as_str()))
            .collect();
        let expected: Vec<(i64, &str)> =
            others.iter().map(|(n, verdict, ..)| (*n, *verdict)).collect();
        assert_eq!(found, expected, "{name}: {verdicts:#?}");
        assert!(verdicts.len() >= others.len() + 7, "{name}: {verdicts:#?}");
        for (n, _, key, says) in others {
            let line = &verdicts.iter().find(|(number, ..)| *number == n).expect("the action").2;
            assert!(line[key].as_str().is_some_and(|it| it.contains(says)), "{line}");
        }
        let stdout = text(&output.stdout);
        let last: Value =
            serde_json::from_str(stdout.lines().last().expect("a line")).expect("JSON");
        assert_eq!(last["type"], "result");
        // The same for people. The overlay keeps the folder as it was.
        let output = conclave(&rig, &replay);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        let count = format!("{} actions: ", verdicts.len());
        assert!(stdout.contains(&count) && stdout.contains("not run"), "{stdout}");
        assert!(!stderr.contains("the agent was called"), "{stderr}");
    }
}

#[test]
fn a_comparison_in_which_all_agrees_succeeds_and_one_that_ends_early_says_why() {
    let run = |id: i64, command: &str| json!({ "id": id, "source": "agent", "action": "run", "args": { "command": command } });
    let told = |cause: i64, content: &str| json!({ "source": "agent", "cause": cause, "observation": "run", "content": content, "extras": { "command": "", "command_id": -1, "exit_code": 0 } });
    let task =
        json!({ "id": 0, "source": "user", "action": "message", "args": { "content": "Look." } });
    let events = json!([
        task,
        run(1, "echo a"),
        told(1, "a"),
        run(2, "echo b"),
        told(2, "b\r\n"),
        run(3, "ls")
    ]);
    let rig = station().with_file("log.json", events.to_string());
    let replay = ["trajectory", "replay", "log.json", "c.toml", "--compare"];
    let output = conclave(&rig, &replay);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}{}", text(&output.stderr));
    assert!(stdout.contains("3 actions: 2 same, 1 unrecorded"), "{stdout}");

    let config = std::fs::read_to_string(rig.folder().join("c.toml")).expect("the config");
    let rig = rig.with_file("c.toml", format!("{config}[limits.run]\nturns = 2\n"));
    let output = conclave(&rig, &[&replay[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let verdicts = verdicts(&output);
    let second = &verdicts[1].2;
    assert_eq!(
        (verdicts[0].1.as_str(), verdicts[1].1.as_str()),
        ("same", "not-run"),
        "{verdicts:?}"
    );
    assert!(
        second["reason"].as_str().is_some_and(|it| it.starts_with("the run ended before: ")),
        "{second}"
    );
}
