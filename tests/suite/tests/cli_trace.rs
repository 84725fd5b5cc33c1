//! `--trace`: aligned columns, no terminal control characters, optional colors. The content of a
//! line is tested in the program.

use std::process::Output;

use conclave_test_support::{Rig, calling, guest, stepping};
use serde_json::{Value, json};

use crate::cli::text;

/// Runs the program without a terminal; `COLUMNS` sets the width.
fn conclave(rig: &Rig, columns: usize, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = rig.conclave(arguments);
    command.env("COLUMNS", columns.to_string()).envs(variables.iter().copied());
    command.output().expect("the program runs")
}

/// Returns the lines from the legend to the end of the task.
fn traced(output: &Output) -> Vec<String> {
    let stderr = text(&output.stderr);
    let lines = stderr
        .lines()
        .skip_while(|line| !line.starts_with("step"))
        .take_while(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

fn trace(rig: &Rig, columns: usize, how: &str) -> Vec<String> {
    traced(&conclave(rig, columns, &[], &["run", how, "c.toml", "go"]))
}

/// Returns a lead that passes the question on and reports that it was read.
fn passing() -> Rig {
    let script = json!({ "llm": { "kind": "seq", "replies": [
        { "calls": [{ "id": "1", "name": "forward", "args": { "agent": "reader" } }] },
        { "calls": [{ "id": "2", "name": "done", "args": { "content": "read" } }] },
    ] } });
    let config = format!(
        "entry = \"lead\"\n[plugins.lead]\nsource = \"{}\"\ngrants.route = [\"reader\"]\nconfig = {{ script = '{script}' }}\n\
         [plugins.echo]\nsource = \"{}\"\n[tasks.lead]\nagent = \"lead\"\nsubtasks = [\"reader\"]\ntools = [\"forward\", \"done\"]\n\
         [tasks.reader]\nagent = \"echo\"\n",
        guest("script_agent").display(),
        guest("agent_echo").display()
    );
    Rig::new().with_file("c.toml", config)
}

fn echoing(said: &str) -> Rig {
    Rig::new().with_file("c.toml", calling("echo", "run", &json!({ "text": said }), ""))
}

#[test]
fn each_step_is_a_line_in_columns() {
    let expected = [
        "step  task › who     from → to        what is pending now",
        r#"   1  main › llm     llm              [subject.run] {"text":"hi"}"#,
        "   2  main › agent   agent            [subject.run] hi",
        "   3  main › llm     llm              done hi",
        "      main           DONE             ended by caller",
    ];
    assert_eq!(trace(&echoing("hi"), 80, "--trace"), expected);
}

#[test]
fn a_sub_task_is_indented_and_comes_before_the_step_of_its_caller() {
    let expected = [
        "step  task › who         from → to        what is pending now",
        r#"   1  lead › llm         llm              [forward] {"agent":"reader"}"#,
        "   2  lead › agent       agent → reader   go",
        "   1    reader › llm     llm              done go",
        "        reader           DONE             ended by echo",
        "   3  lead › reader      user             go",
        r#"   4  lead › llm         llm              [done] {"content":"read"}"#,
        "      lead               DONE             done was called in lead",
    ];
    assert_eq!(trace(&passing(), 100, "--trace"), expected);
}

#[test]
fn lines_end_where_the_terminal_does() {
    let rig = echoing(&"漢字 and more words ".repeat(40));
    for columns in [60, 100, 160] {
        let lines = trace(&rig, columns, "--trace");
        assert_eq!(lines.len(), 5, "{lines:#?}");
        // Each of these characters takes two columns.
        let width = |line: &str| {
            line.chars()
                .map(|c| if ('\u{4e00}'..'\u{a000}').contains(&c) { 2 } else { 1 })
                .sum::<usize>()
        };
        assert!(lines.iter().all(|line| width(line) <= columns), "{lines:#?}");
        assert!(
            lines[1..4].iter().all(|line| line.ends_with('…') && width(line) + 10 > columns),
            "{lines:#?}"
        );
        let begin = lines[0].find("from").expect("the legend says where");
        let column = |line: &String| {
            line.chars().skip(lines[0][..begin].chars().count()).take(3).collect::<String>()
        };
        assert_eq!(
            lines.iter().map(column).collect::<Vec<_>>(),
            ["fro", "llm", "age", "llm", "DON"]
        );
    }
    let full = trace(&rig, 60, "--trace=full");
    assert!(full.iter().all(|line| line.chars().count() <= 60) && full.len() > 30, "{full:#?}");
    assert!(full[3..].iter().filter(|line| line.starts_with("      │ ")).count() > 25, "{full:#?}");
}

#[test]
fn where_all_is_shown_a_head_line_breaks_and_is_not_cut() {
    let lines = trace(&passing(), 50, "--trace=full");
    assert!(
        lines[1..].iter().all(|line| !line.contains('…') && line.chars().count() <= 50),
        "{lines:#?}"
    );
    assert!(
        lines.iter().any(|line| line.trim().starts_with("reader  ")),
        "the recipient stands below the role: {lines:#?}"
    );
}

#[test]
fn what_a_message_says_cannot_steer_the_terminal() {
    let rig = echoing("one\u{1b}[2J\ntwo\u{202e}\r\n   1  main › user");
    let short = trace(&rig, 100, "--trace");
    assert_eq!(short.len(), 5, "{short:#?}");
    assert!(
        short[2].ends_with(r"[subject.run] one\u{1b}[2J ↵ two\u{202e} ↵ 1 main › user"),
        "{short:#?}"
    );
    let full = trace(&rig, 100, "--trace=full");
    let block = [
        "      │ [subject.run]",
        r"      │ one\u{1b}[2J",
        r"      │ two\u{202e}",
        "      │    1  main › user",
    ];
    assert!(full.windows(4).any(|lines| lines == block), "{full:#?}");
    let colors =
        conclave(&rig, 100, &[("CLICOLOR_FORCE", "1")], &["run", "--trace", "c.toml", "go"]);
    let stderr = text(&colors.stderr);
    assert!(
        stderr.contains("\u{1b}[32mllm")
            && !stderr.contains("\u{1b}[2J")
            && !stderr.contains('\u{202e}'),
        "{stderr}"
    );
}

#[test]
fn colors_switch_off() {
    let rig = echoing("hi");
    let plain = trace(&rig, 100, "--trace");
    let forced = ("CLICOLOR_FORCE", "1");
    for (variables, more) in
        [(vec![forced, ("NO_COLOR", "1")], vec![]), (vec![forced], vec!["--no-color"])]
    {
        let output = conclave(
            &rig,
            100,
            &variables,
            &[vec!["run", "--trace", "c.toml", "go"], more].concat(),
        );
        assert_eq!(traced(&output), plain);
    }
}

#[test]
fn steps_without_an_answer_are_marked() {
    let rig = Rig::new().with_file(
        "c.toml",
        stepping("agent_loop", "", "on_no_tool_call = \"nothing\"\nmax_stalled_steps = 2"),
    );
    let lines = trace(&rig, 120, "--trace");
    let told: Vec<String> = lines[2..]
        .iter()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let stalled = |step: u32, count: u32| {
        format!("{step} main stalled no answer counted ({count} of 2 tries)")
    };
    // The text asks nothing of its user, and its agent does not answer itself.
    let skipped = "; user is not asked here, llm sent the message";
    assert_eq!(
        told,
        [
            stalled(2, 1) + skipped,
            stalled(3, 2) + skipped,
            "main STALLED nobody in main had a valid answer, 2 steps in a row".to_owned()
        ]
    );
    let full = trace(&rig, 60, "--trace=full");
    let rest: Vec<&str> = full.iter().flat_map(|line| line.split_whitespace()).collect();
    assert_eq!(rest.join(" ").matches(skipped).count(), 2, "nothing is cut: {full:#?}");
    let shown = conclave(&rig, 160, &[], &["show"]);
    let shown = text(&shown.stdout);
    assert!(shown.contains(&format!("no answer counted (1 of 2 tries){skipped}")), "{shown}");
}

#[test]
fn the_trace_takes_the_place_of_the_usual_lines_and_of_nothing_else() {
    let rig = echoing("hi");
    let output = conclave(&rig, 100, &[], &["run", "--trace", "c.toml", "go"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "hi\n"));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("data can leave to: nowhere") && stderr.contains("done in"),
        "{stderr}"
    );
    assert!(!stderr.contains("calls #1"), "{stderr}");
    let output = conclave(&rig, 100, &[], &["run", "--trace", "--json", "c.toml", "go"]);
    assert!(text(&output.stdout).lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    assert_eq!(
        traced(&output),
        traced(&conclave(&rig, 100, &[], &["run", "--trace", "c.toml", "go"]))
    );
    let output = conclave(&rig, 100, &[], &["run", "--trace", "--quiet", "c.toml", "go"]);
    assert_eq!(
        (output.status.code(), output.stdout.len()),
        (Some(2), 0),
        "{}",
        text(&output.stderr)
    );
    let denied = Rig::new()
        .with_file("c.toml", calling("files_read", "run", &json!({ "path": "/data/a" }), ""));
    let lines = trace(&denied, 100, "--trace");
    assert!(lines.iter().any(|line| line.contains("DENIED files │ /data/a")), "{lines:#?}");
}

#[test]
fn a_conversation_and_a_batch_have_traces_too() {
    let rig = echoing("hi").with_file("in.jsonl", "{\"input\": \"go\", \"id\": \"first\"}\ngo\n");
    let lines = traced(&conclave(&rig, 100, &[], &["chat", "--trace", "c.toml", "go"]));
    assert!(
        lines[1].starts_with("   1  main › llm     llm  ")
            && lines[1].contains("[subject.run] {\"text\""),
        "{lines:#?}"
    );
    let output = conclave(
        &rig,
        100,
        &[],
        &["batch", "in.jsonl", "--config", "c.toml", "--trace", "--concurrency", "1"],
    );
    assert_eq!(text(&output.stdout), "first  hi\n  #2  hi\n");
    let stderr = text(&output.stderr);
    let lines: Vec<&str> = stderr
        .lines()
        .skip_while(|line| !line.starts_with("item "))
        .take_while(|line| !line.is_empty())
        .collect();
    assert_eq!(lines.len(), 9, "{stderr}");
    assert_eq!(
        (lines[0], lines[2]),
        (
            "item   step  task › who     from → to        what is pending now",
            "first     2  main › agent   agent            [subject.run] hi"
        )
    );
    assert!(lines[5..].iter().all(|line| line.starts_with("#2     ")), "{stderr}");
}
