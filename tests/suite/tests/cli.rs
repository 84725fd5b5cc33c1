//! The program: its stdout and stderr, exit codes, `--json`. Few tests, because they only check the
//! wiring.

use std::process::{Command, Output, Stdio};

use conclave_test_support::{Rig, calling, guest, stepping, until};
use serde_json::{Value, json};

pub(crate) fn conclave(rig: &Rig, arguments: &[&str]) -> Output {
    rig.conclave(arguments).output().expect("the program runs")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_answer_goes_to_stdout_and_everything_else_to_stderr() {
    let rig = Rig::new().with_file("c.toml", stepping("agent_echo", "", ""));
    let output = conclave(&rig, &["run", "c.toml", "hello"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "hello\n"));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("data can leave to: nowhere") && stderr.contains("done in"),
        "{stderr}"
    );
    assert!(!stderr.contains('\u{1b}'), "no colors where stderr is no terminal: {stderr}");
}

#[test]
fn quiet_says_nothing_but_the_answer() {
    let rig = Rig::new().with_file("c.toml", stepping("agent_echo", "", ""));
    let output = conclave(&rig, &["run", "--quiet", "c.toml", "hello"]);
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("hello\n", ""));
}

#[test]
fn json_is_one_object_a_line_and_ends_with_the_result() {
    let rig = Rig::new().with_file("c.toml", calling("echo", "run", &json!({ "text": "hi" }), ""));
    let output = conclave(&rig, &["run", "--json", "c.toml", "go"]);
    let lines: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let types: Vec<&str> =
        lines.iter().map(|line| line["type"].as_str().expect("each has a type")).collect();
    assert!(types.contains(&"recorded") && types.contains(&"notice"), "{types:?}");
    let last = lines.last().expect("there is a last line");
    assert_eq!(
        (&last["type"], &last["exit_code"], &last["outcome"]["content"]),
        (&json!("result"), &json!(0), &json!("hi"))
    );
}

#[test]
fn exit_codes_say_how_it_ended() {
    let spin = stepping("agent_spin", "limits = { cpu = \"20 ms\" }", "");
    let turns = stepping("agent_loop", "", "on_no_tool_call = { nudge = \"go on\" }")
        + "[limits.run]\nturns = 2\n";
    let stalled = stepping("agent_loop", "", "on_no_tool_call = \"nothing\"");
    let wall = calling("sleepy", "run", &json!({}), "limits = { wall = \"1 h\" }")
        + "[limits.run]\nwall = \"100 ms\"\n";
    let broken = "entry = 5\n".to_owned();
    let missing =
        "entry = \"t\"\n[plugins.p]\nsource = \"none.wasm\"\n[tasks.t]\nagent = \"p\"\n".to_owned();
    let refused = stepping("no_manifest", "", "");
    for (config, code) in
        [(spin, 5), (turns, 7), (stalled, 1), (wall, 124), (broken, 2), (missing, 2), (refused, 5)]
    {
        let rig = Rig::new().with_file("c.toml", &config);
        let output = conclave(&rig, &["run", "c.toml", "go"]);
        assert_eq!(output.status.code(), Some(code), "{config}\n{}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "no answer on stdout: {}", text(&output.stdout));
    }
}

#[test]
fn every_ending_says_why() {
    let turns = stepping("agent_loop", "", "on_no_tool_call = { nudge = \"go on\" }")
        + "[limits.run]\nturns = 2\n";
    let stalled = stepping("agent_loop", "", "on_no_tool_call = \"nothing\"");
    let circle = stepping(
        "agent_loop",
        "",
        "on_no_tool_call = \"nothing\"\nmax_stalled_steps = 1000\nallow_null_result = true",
    );
    let wall = calling("sleepy", "run", &json!({}), "limits = { wall = \"1 h\" }")
        + "[limits.run]\nwall = \"100 ms\"\n";
    let failed = stepping("agent_error", "", "");
    let empty = calling("echo", "run", &json!({ "text": "" }), "");
    let endings = [
        (turns, "MAX_TURNS"),
        (stalled, "STALLED"),
        (circle, "INF_LOOP"),
        (wall, "TIMEOUT"),
        (failed, "ERROR"),
        (empty, "DONE"),
    ];
    for (config, status) in endings {
        let rig = Rig::new().with_file("c.toml", &config);
        let output = conclave(&rig, &["run", "--quiet", "c.toml", "go"]);
        let told = text(&output.stderr);
        let reason = told
            .lines()
            .find_map(|line| line.strip_prefix(status)?.strip_prefix(" │ "))
            .unwrap_or_default()
            .to_owned();
        assert!(reason.len() > 5 && output.stdout.is_empty(), "{status}: {told}");
        let output = conclave(&rig, &["run", "--json", "c.toml", "go"]);
        let last =
            text(&output.stdout).lines().next_back().map(str::to_owned).expect("there is a result");
        let outcome = &serde_json::from_str::<Value>(&last).expect("a line of JSON")["outcome"];
        assert_eq!(
            (&outcome["status"], &outcome["reason"]),
            (&json!(status), &json!(reason)),
            "{config}"
        );
    }
}

#[test]
fn a_hint_names_the_limit_that_ended_the_run() {
    for key in ["turns", "task_turns"] {
        let config = stepping("agent_loop", "", "on_no_tool_call = { nudge = \"go on\" }")
            + &format!("[limits.run]\n{key} = 2\n");
        let output = conclave(&Rig::new().with_file("c.toml", config), &["run", "c.toml", "go"]);
        let told = text(&output.stderr);
        assert!(
            told.contains(&format!("limits.run.{key} allows"))
                && told.contains(&format!("raise `{key}` under")),
            "{told}"
        );
    }
}

#[test]
fn a_task_that_asks_where_nobody_answers_says_what_to_do() {
    let rig = Rig::new().with_file("c.toml", stepping("agent_echo", "", "interactive = true"));
    let output = conclave(&rig, &["run", "c.toml", "Which lighthouse?"]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(9), "{told}");
    assert!(
        told.ends_with("\n") && told.contains("\nmain asks:\n│ Which lighthouse?\nhelp: "),
        "{told}"
    );
    let help = "write `interactive = false` in [tasks.main], or start a conversation: conclave chat c.toml";
    assert!(told.contains(help), "{told}");
    assert!(!told.contains("\n\n\n"), "nothing was shown between the head and the end: {told}");
    assert!(told.contains("\nended after "), "it did not go well: {told}");
    assert!(!told.contains("valid answer"), "it is asked once: {told}");
    let helped = std::fs::read_to_string(rig.folder().join("c.toml")).expect("it was written");
    let helped = helped.replace("interactive = true", "interactive = false");
    let helped =
        conclave(&Rig::new().with_file("c.toml", helped), &["run", "c.toml", "Which lighthouse?"]);
    assert_eq!(text(&helped.stdout), "Which lighthouse?\n", "what the help says helps");
    let output = conclave(&rig, &["run", "--json", "c.toml", "Which lighthouse?"]);
    let lines: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let questions: Vec<&Value> =
        lines.iter().filter(|line| line["notice"]["notice"] == "question-unanswered").collect();
    assert_eq!(
        questions.iter().map(|line| &line["notice"]["question"]).collect::<Vec<_>>(),
        ["Which lighthouse?"]
    );
    let last = lines.last().expect("there is a result");
    assert_eq!(
        (&last["exit_code"], &last["outcome"]["cause"]["code"]),
        (&json!(9), &json!("nobody-to-ask"))
    );
    let stalled = stepping("agent_loop", "", "on_no_tool_call = \"nothing\"");
    let told =
        text(&conclave(&Rig::new().with_file("c.toml", stalled), &["run", "c.toml", "go"]).stderr);
    assert!(told.contains("STALLED") && !told.contains("conclave chat"), "{told}");
}

/// Returns a config that starts a background task without an end.
pub(crate) fn stalling() -> Rig {
    let config = format!(
        "entry = \"desk\"\n[plugins.coordinator]\nsource = \"{coordinator}\"\n\
         grants.route = [\"answer\"]\ngrants.delegate = [\"digest\"]\n\
         [plugins.echo]\nsource = \"{}\"\n[plugins.loop]\nsource = \"{}\"\n\
         [plugins.immediate]\nsource = \"stock:immediate\"\ngrants.channels = [\"terminal\"]\n\
         [tasks.desk]\nagent = \"coordinator\"\nsubtasks = [\"answer\"]\n\
         [tasks.answer]\nagent = \"echo\"\n\
         [tasks.digest]\nagent = \"loop\"\non_no_tool_call = \"nothing\"\n\
         max_stalled_steps = 2\ndelivery_strategy = \"immediate\"\n",
        guest("agent_echo").display(),
        guest("agent_loop").display(),
        coordinator = guest("coordinator").display(),
    );
    Rig::new().with_file("c.toml", config)
}

#[test]
fn the_end_of_a_background_task_is_one_line_with_its_status_and_one_of_its_delivery() {
    let told = text(&conclave(&stalling(), &["run", "c.toml", "hello"]).stderr);
    // The text behind the time. Lines before the end of the task do not concern it.
    let lines = told.lines().filter_map(|line| line.get(7..));
    let lines = lines.filter(|line| line.starts_with("digest (task-1) "));
    let is_end = |line: &&str| !line.contains(" says ") && !line.contains("answer counted (");
    let lines: Vec<&str> = lines.filter(is_end).collect();
    let ended = "digest (task-1) STALLED │ nobody in digest had a valid answer, 2 steps in a row";
    assert_eq!(lines.len(), 2, "{told}");
    assert!(lines[0].starts_with(ended), "{told}");
    assert_eq!(lines[1], "digest (task-1) delivered by immediate on terminal", "{told}");
    // Its text stands below the name of the result.
    let rows: Vec<&str> = told.lines().collect();
    let name = rows.iter().position(|row| row.trim() == "task-1").expect("the result is named");
    assert!(rows[name + 1].trim_start().starts_with('│'), "{told}");
    let told = text(&conclave(&stalling(), &["run", "--trace", "c.toml", "hello"]).stderr);
    assert_eq!(told.matches("STALLED").count(), 1, "the steps have the line: {told}");
}

#[test]
fn work_that_is_waited_for_names_who_does_it_and_what_it_gave() {
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/examples/supervisor.toml");
    let example = example.to_str().expect("in UTF-8");
    let rig = Rig::new();
    let told = text(&conclave(&rig, &["run", example, "About the light."]).stderr);
    assert!(told.contains("article           → research │ About the light."), "{told}");
    assert!(told.contains("delegate to research, write, review (1 at once, "), "{told}");
    let may = ["can", "supervisor", "delegate", "research", "--file", example];
    let told = text(&conclave(&rig, &may).stdout);
    assert!(told.starts_with("supervisor may delegate to research\n"), "{told}");
    let told = text(&conclave(&rig, &["run", "--trace", example, "About the light."]).stderr);
    assert!(told.contains("→ research About the light.") && !told.contains("\"inputs\""), "{told}");
    let config = r#"
entry = "lead"
[models.default]
kind = "scripted"
replies = "replies.json"
[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
grants.delegate = ["study"]
[tasks.lead]
agent = "chat"
tools = [{ tool = "delegate_task", as = "ask_study", task = "study", wait = true }]
[tasks.study]
agent = "chat"
"#;
    let call =
        json!({ "text": "", "calls": [{ "name": "ask_study", "args": { "task": "When?" } }] });
    let replies = json!({ "replies": [call, "In 1844.", "It was lit in 1844."] });
    let rig = rig.with_file("conclave.toml", config).with_file("replies.json", replies.to_string());
    let told = text(&conclave(&rig, &["run", "Go."]).stderr);
    let lines = [" lead           → study (task-1) │ When?\n", " study (task-1) DONE"];
    assert!(lines.iter().all(|line| told.contains(line)) && !told.contains("task_id"), "{told}");
    let told = text(&conclave(&rig, &["run", "--trace", "Go."]).stderr);
    assert!(told.contains("[ask_study] study: In 1844.") && !told.contains("task_id"), "{told}");
}

#[test]
fn a_question_that_an_agent_asks_where_nobody_is_there_is_shown_whole() {
    let config = r#"
entry = "desk"
[models.default]
kind = "scripted"
replies = "replies.json"
[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
grants.route = ["user"]
[tasks.desk]
agent = "chat"
text_rules = { recipients = true }
"#;
    let replies = json!({ "replies": ["TO[user]: The lines come to 30.5, the total says 31.\nWhich is right?"] });
    let rig = Rig::new()
        .with_file("conclave.toml", config)
        .with_file("replies.json", replies.to_string());
    for options in [&["run", "Check it."][..], &["run", "--quiet", "Check it."]] {
        let output = conclave(&rig, options);
        let told = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(9), true), "{told}");
        let question = "\ndesk asks:\n│ The lines come to 30.5, the total says 31.\n│ Which is right?\nhelp: put the answer into the message or a file (--answers FILE), run in a terminal";
        assert!(told.contains(question) && told.matches("30.5").count() == 1, "{told}");
    }
}

#[test]
fn a_run_and_a_conversation_without_a_config_take_the_usual_one() {
    let rig = Rig::new().with_file("conclave.toml", stepping("agent_echo", "", ""));
    let output = conclave(&rig, &["run", "hello there"]);
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(0), "hello there\n"),
        "{}",
        text(&output.stderr)
    );
    let output = conclave(&rig, &["chat", "--quiet", "hello there"]);
    assert!(text(&output.stdout).contains("hello there"), "{}", text(&output.stderr));
    let output = conclave(&rig, &["run", "configs/desk"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("the config configs/desk does not exist\nhelp: "),
        "{}",
        text(&output.stderr)
    );
    let output = conclave(&rig, &["run", "desk.toml"]);
    assert_eq!(
        (output.status.code(), output.stdout.is_empty()),
        (Some(2), true),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_config_is_no_file_of_inputs() {
    let rig = Rig::new().with_file("conclave.toml", stepping("agent_echo", "", ""));
    std::fs::copy(rig.folder().join("conclave.toml"), rig.folder().join("inputs.txt"))
        .expect("it can be copied");
    for file in ["conclave.toml", "inputs.txt"] {
        let output = conclave(&rig, &["batch", file]);
        let told = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true), "{told}");
        assert!(
            told.contains("is a config")
                && told.contains(&format!("conclave batch INPUTS --config {file}")),
            "{told}"
        );
    }
}

#[test]
fn help_lists_the_commands_in_groups() {
    let help = text(&conclave(&Rig::new(), &["--help"]).stdout);
    let headings = [
        "\nRun:\n",
        "\nInspect:\n",
        "\nConfigure:\n",
        "\nAuthor:\n",
        "\nMaintain:\n",
        "\nOptions:\n",
        "\nExit codes:\n",
    ];
    let places: Vec<Option<usize>> = headings.iter().map(|heading| help.find(heading)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{help}");
}

/// Returns a full pipe, like one whose reader has stopped reading.
#[cfg(target_os = "linux")]
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    use std::io::Write;

    let (reader, mut writer) = std::io::pipe().expect("a pipe can be made");
    // The capacity of a pipe.
    writer.write_all(&[b'\n'; 1 << 16]).expect("it is empty");
    (reader, writer)
}

#[cfg(target_os = "linux")]
fn too_long() -> Rig {
    let config = calling("sleepy", "run", &json!({}), "limits = { wall = \"1 h\" }")
        + "[limits.run]\nwall = \"100 ms\"\n";
    Rig::new().with_file("c.toml", config)
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_whose_output_nobody_reads_ends_by_its_limits() {
    let rig = too_long();
    let (unread, full) = full_pipe();
    let both = full.try_clone().expect("a pipe has as many ends as one likes");
    let mut run = rig
        .conclave(&["run", "--verbose", "c.toml", "go"])
        .stdout(both)
        .stderr(full)
        .spawn()
        .expect("the program runs");
    let ended = run.wait().expect("it ends");
    drop(unread);
    assert_eq!(ended.code(), Some(124));
}

#[cfg(target_os = "linux")]
#[test]
fn records_that_nobody_reads_wait_and_the_run_ends_all_the_same() {
    use std::io::Read;

    let rig = too_long();
    let (mut unread, full) = full_pipe();
    // The command holds an end of the pipe, and must be dropped before the rest can be read to its
    // end.
    let run = {
        rig.conclave(&["run", "--json", "c.toml", "go"]).stdout(full).stderr(Stdio::null()).spawn()
    };
    let mut run = run.expect("the program runs");
    until("the run has ended, as another terminal sees it", || {
        let runs = text(&conclave(&rig, &["runs", "--json"]).stdout).to_lowercase();
        runs.contains("timeout").then_some(())
    });
    let mut read = String::new();
    unread.read_to_string(&mut read).expect("it is text");
    assert_eq!(run.wait().expect("it ends").code(), Some(124));
    let lines: Vec<Value> = read
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let records = lines
        .iter()
        .filter(|line| line["type"] == "recorded")
        .map(|line| line["record"]["seq"].as_u64().expect("a number"));
    assert!(records.clone().eq(0..records.count() as u64), "none is lost: {read}");
    let last = lines.last().expect("there is a result");
    assert_eq!((&last["type"], &last["exit_code"]), (&json!("result"), &json!(124)));
}

#[test]
fn a_run_without_a_message_says_how_to_give_one() {
    let rig = Rig::new().with_file("c.toml", stepping("agent_echo", "", ""));
    let output = conclave(&rig, &["run", "c.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("conclave run [CONFIG] \"TEXT\""),
        "{}",
        text(&output.stderr)
    );
}

#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_cannot_be_written_is_no_success() {
    let rig = Rig::new().with_file("c.toml", stepping("agent_echo", "", ""));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("linux has it");
    let output = rig
        .conclave(&["run", "-q", "c.toml", "hello"])
        .stdout(full)
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
}

#[test]
fn problems_of_a_config_are_structured_with_json() {
    let rig = Rig::new().with_file(
        "c.toml",
        "entry = \"t\"\nfoo = 1\n[plugins.p]\nsource = \"stock:chat\"\n[tasks.t]\nagent = \"p\"\n",
    );
    let output = conclave(&rig, &["check", "--json", "c.toml"]);
    let error: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((&error["type"], &error["exit_code"]), (&json!("error"), &json!(2)));
    assert_eq!(
        (&error["problems"][0]["line"], &error["problems"][0]["column"]),
        (&json!(2), &json!(1)),
        "{error}"
    );
}

#[test]
fn all_mistakes_of_a_manifest_are_reported_at_once_in_each_language() {
    let manifest = "[plugin]\nname = \"Tides!\"\n[asks.files]\nwhy = \"Reads.\"\n[asks.file]\n[asks.tools]\nwhy = 1\n[config]\nkv = \"reads\"\n";
    let twice = "[plugin]\nname = \"tides\"\nversion = \"0.1.0\"\n[asks.kv]\nwhy = \"x\"\n[asks.kv]\nwhy = \"y\"\n";
    let expected = [
        "1:1: [plugin] has no `version`",
        "2:8: `name` is \"Tides!\"; it must look like \"weather\"",
        "5:1: [asks.file] has no `why`",
        "5:7: unknown capability `file`",
        "7:7: [asks.tools] `why` must be a sentence",
        "9:6: `config.kv` must be a table",
    ];
    for beside in ["pyproject.toml", "package.json"] {
        let rig = Rig::new().with_file(beside, "{}").with_file("conclave-plugin.toml", manifest);
        let built = conclave(&rig, &["plugin", "build", "."]);
        let problems = text(&built.stderr);
        assert_eq!(built.status.code(), Some(2), "{problems}");
        let mut rest = problems.as_str();
        for problem in expected {
            let place = format!("conclave-plugin.toml:{problem}");
            let found = rest.find(&place).unwrap_or_else(|| panic!("{place}:\n{problems}"));
            rest = &rest[found + place.len()..];
        }
        let rig = Rig::new().with_file(beside, "{}").with_file("conclave-plugin.toml", twice);
        let problems = text(&conclave(&rig, &["plugin", "build", "."]).stderr);
        assert!(problems.contains("duplicate key: line 4 has it already"), "{problems}");
    }
}

#[test]
fn a_manifest_cannot_forge_the_lines_around_it() {
    let component = std::fs::read(guest("agent_echo")).expect("it is built");
    let manifest = conclave_core::permissions::manifest::Manifest {
        format: 1,
        name: "spoof".into(),
        version: "1".into(),
        contract: "0.1".into(),
        description: "fine\n\nAsks for\n  nothing\u{1b}[2J\u{202e}".into(),
        ..Default::default()
    };
    let spoofed =
        conclave_runtime::plugin::embed(&component, &manifest).expect("it is a component");
    let rig = Rig::new().with_file("spoof.wasm", spoofed);
    let output = conclave(&rig, &["plugin", "inspect", "spoof.wasm"]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(stdout.lines().filter(|line| line.starts_with("Asks for")).count(), 1, "{stdout}");
    assert!(!stdout.contains('\u{1b}') && !stdout.contains('\u{202e}'), "{stdout}");
}

#[test]
fn a_command_line_that_is_wrong_exits_with_2() {
    let rig = Rig::new();
    assert_eq!(conclave(&rig, &["run"]).status.code(), Some(2));
    assert_eq!(conclave(&rig, &["fly"]).status.code(), Some(2));
    let output = conclave(&rig, &["run", "no-such.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no-such.toml"), "{}", text(&output.stderr));
}

#[test]
fn check_shows_who_may_do_what_and_reports_every_problem() {
    let rig = Rig::new().with_file("c.toml", calling("echo", "run", &json!({ "text": "hi" }), ""));
    let output = conclave(&rig, &["check", "c.toml"]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(stdout.contains("call subject.") && stdout.contains("UNSIGNED"), "{stdout}");
    let rig =
        Rig::new().with_file("c.toml", "entry = \"t\"\nfoo = 1\n[plugins.p]\nsource = \"stock:echo\"\nbar = 2\n[tasks.t]\nagent = \"q\"\n");
    let output = conclave(&rig, &["check", "c.toml"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr.contains("c.toml:2:1: error[config/unknown-key]")
            && stderr.contains("c.toml:5:1: error[config/unknown-key]")
            && stderr.contains("c.toml:7:9: error[config/unknown-plugin]"),
        "{stderr}"
    );
}

#[test]
fn inspect_shows_a_component_without_running_it() {
    let rig = Rig::new();
    let spinning = guest("spin_list_tools").display().to_string();
    let output = conclave(&rig, &["plugin", "inspect", "--no-tools", &spinning]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(stdout.contains("spin-list-tools") && !stdout.contains("could not"), "{stdout}");
    let output = conclave(&rig, &["plugin", "inspect", &spinning]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(5), "the plugin's fault: {}", text(&output.stderr));
    assert!(stdout.contains("Tools could not be listed"), "{stdout}");
    assert!(stdout.contains("spin-list-tools"), "the rest is shown: {stdout}");
}

#[test]
fn inspect_lists_the_tools_and_what_is_imported_without_asking() {
    let rig = Rig::new();
    let output = conclave(&rig, &["plugin", "inspect", "stock:search"]);
    let stdout = text(&output.stdout);
    assert!(
        stdout.contains("  find · idempotent\n")
            && stdout.contains("    takes │ query: string · ")
            && stdout.contains("    takes │ limit?: integer"),
        "{stdout}"
    );
    assert!(!stdout.contains("Imports without asking"), "{stdout}");
    let json = conclave(&rig, &["plugin", "inspect", "stock:search", "--json"]);
    let found: Value = serde_json::from_slice(&json.stdout).expect("one object");
    let find =
        found["tools"].as_array().expect("a list").iter().find(|tool| tool["name"] == "find");
    assert!(find.is_some_and(|find| find["input_schema"]["properties"]["query"].is_object()));

    // The same component with a manifest that asks for nothing.
    let component = std::fs::read(conclave_test_support::stock().join("search.wasm"));
    let silent = conclave_core::permissions::manifest::Manifest {
        format: 1,
        name: "silent".into(),
        version: "1.0.0".into(),
        contract: "0.1".into(),
        ..Default::default()
    };
    let silent = conclave_runtime::plugin::embed(&component.expect("it is built"), &silent);
    let rig = Rig::new().with_file("silent.wasm", silent.expect("it is a component"));
    let output = conclave(&rig, &["plugin", "inspect", "silent.wasm"]);
    let stdout = text(&output.stdout);
    assert!(
        stdout.contains("Imports without asking for it")
            && stdout.contains("write [asks.files] with a `why`"),
        "{stdout}"
    );
    assert!(
        stdout.contains("no licence") && stdout.contains("gave no description"),
        "what the author did not write is missing: {stdout}"
    );
}

#[test]
fn journals_are_written_and_a_run_never_overwrites_one() {
    let rig = Rig::new().with_file("c.toml", stepping("agent_echo", "", ""));
    for _ in 0..2 {
        assert_eq!(
            conclave(&rig, &["run", "--journal", "kept", "c.toml", "hello"]).status.code(),
            Some(0)
        );
    }
    let files: Vec<_> = std::fs::read_dir(rig.folder().join("kept"))
        .expect("the folder is there")
        .flatten()
        .collect();
    assert_eq!(files.len(), 2, "{files:?}");
    for file in files {
        let lines = std::fs::read_to_string(file.path()).expect("it is text");
        let room = conclave_core::journal::record::fold(
            conclave_core::journal::record::from_lines(&lines).expect("it is a journal"),
        );
        assert_eq!(room.outcome().and_then(|outcome| outcome.content.as_deref()), Some("hello"));
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_at_once_although_a_guest_spins() {
    use std::io::{BufRead, BufReader};
    let rig = Rig::new().with_file(
        "c.toml",
        calling("spin", "run", &json!({}), "limits = { cpu = \"1 h\", wall = \"1 h\" }"),
    );
    let mut command = rig.conclave(&["run", "c.toml", "go"]);
    let mut child =
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program runs");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    // The guest spins from here on.
    assert!(
        lines.by_ref().any(|line| line.is_ok_and(|line| line.contains("calls #1 subject.run")))
    );
    let killed =
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(killed.success());
    // It ends by itself; nextest stops a test that hangs.
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let told: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(told.contains(&"KILL │ Ctrl-C".to_owned()), "{told:#?}");
}
