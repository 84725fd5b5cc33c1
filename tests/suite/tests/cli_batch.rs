//! `conclave batch`: results in the order of the inputs, exit codes, and refusals before any run.

use conclave_test_support::{Rig, guest, stepping};
use serde_json::{Value, json};

use crate::cli::{conclave, text};

fn echo() -> Rig {
    Rig::new().with_file("c.toml", stepping("agent_echo", "", ""))
}

/// Returns a config whose runs all fail.
fn failing() -> Rig {
    Rig::new().with_file("c.toml", stepping("agent_error", "", "")).with_file("in", "a\nb\nc\n")
}

fn batch(rig: &Rig, more: &[&str]) -> (i32, String, String) {
    let output = conclave(rig, &[&["batch", "in", "--config", "c.toml"], more].concat());
    (output.status.code().expect("it ends by itself"), text(&output.stdout), text(&output.stderr))
}

fn rows(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn statuses(lines: &str) -> Vec<String> {
    rows(lines).iter().map(|row| row["status"].as_str().expect("each has one").to_owned()).collect()
}

#[cfg(unix)]
#[test]
fn a_file_of_results_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;

    let rig = Rig::new()
        .with_file("conclave.toml", stepping("agent_echo", "", ""))
        .with_file("in.txt", "one\n");
    let output = conclave(&rig, &["batch", "in.txt", "--output", "out.jsonl"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mode = std::fs::metadata(rig.folder().join("out.jsonl"))
        .expect("it was written")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn results_come_in_the_order_of_the_inputs() {
    let inputs: String = (0..40)
        .map(|index| format!("{{\"input\": \"{index}\", \"id\": {}}}\n", 100 + index))
        .collect();
    let rig = echo().with_file("in", inputs);
    let (code, stdout, stderr) = batch(&rig, &["--json", "--concurrency", "8"]);
    let expected: Vec<Value> = (0..40)
        .map(|index| json!({ "index": index, "id": 100 + index, "status": "DONE", "content": index.to_string(), "error": null }))
        .collect();
    assert_eq!((code, rows(&stdout)), (0, expected), "{stderr}");
}

#[test]
fn people_read_a_line_for_each_input() {
    let rig = echo().with_file("in", "one\n\n{\"input\": \"two\\n\\u001b[2J\", \"id\": \"b\"}\n");
    let (code, stdout, stderr) = batch(&rig, &[]);
    assert_eq!((code, stdout.as_str()), (0, "  #1  one\n   b  two \\u{1b}[2J\n"), "{stderr}");
    assert!(stderr.contains("2 of 2 inputs in"), "{stderr}");
    let (code, stdout, stderr) = batch(&rig, &["--quiet", "--output", "out.jsonl"]);
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (0, "", ""));
    assert_eq!(
        statuses(&std::fs::read_to_string(rig.folder().join("out.jsonl")).expect("it was written")),
        ["DONE", "DONE"]
    );
}

#[test]
fn a_result_that_is_more_than_text_is_in_its_row() {
    let rig = Rig::new()
        .with_file("c.toml", stepping("agent_echo", "", "returns = \"int\""))
        .with_file("in", "42\n");
    let (code, stdout, stderr) = batch(&rig, &["--json"]);
    assert_eq!((code, &rows(&stdout)[0]["typed"]), (0, &json!(42)), "{stderr}");
    let script = json!({ "llm": { "kind": "seq", "replies": [{ "calls": [{ "id": "1", "name": "subject.run", "args": { "text": "x" } }] }] } });
    let config = format!(
        "entry = \"main\"\n[plugins.agent]\nsource = \"{}\"\ngrants.tools = [\"subject.run\"]\nconfig = {{ script = '{script}' }}\n\
         [plugins.subject]\nsource = \"{}\"\n[tasks.main]\nagent = \"agent\"\ntools = [{{ tool = \"subject.run\", final = true }}]\n",
        guest("script_agent").display(),
        guest("echo").display()
    );
    let rig = rig.with_file("c.toml", config);
    let (code, stdout, stderr) = batch(&rig, &["--json"]);
    let call = json!({ "name": "subject.run", "arguments": { "text": "x" } });
    assert_eq!((code, &rows(&stdout)[0]["tools"]), (0, &json!([call])), "{stderr}");
    let printed = text(&conclave(&rig, &["run", "c.toml", "42"]).stdout);
    assert_eq!(serde_json::from_str::<Value>(&printed).expect("a call as JSON"), call);
    assert_eq!(batch(&rig, &[]).1, format!("  #1  {printed}"));
}

#[test]
fn lines_that_cannot_be_used_are_told_at_once_before_anything_runs() {
    let rig =
        echo().with_file("in", "fine\n{broken\n{\"input\": 5}\n{\"input\": \"a\", \"id\": []}\n");
    let (code, stdout, stderr) = batch(&rig, &["--journal", "kept", "--output", "out.jsonl"]);
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    assert!(
        ["in:2: ", "in:3: its `input` is a number", "in:4: ", "nothing was run"]
            .iter()
            .all(|part| stderr.contains(part)),
        "{stderr}"
    );
    assert!(!rig.folder().join("kept").exists() && !rig.folder().join("out.jsonl").exists());
}

#[test]
fn results_are_not_written_over_inputs_or_config() {
    let rig = echo().with_file("in", "one\n");
    for file in ["in", "./in", "c.toml"] {
        let (code, _, stderr) = batch(&rig, &["--output", file]);
        assert!(code == 2 && stderr.contains("would overwrite"), "{stderr}");
    }
    assert_eq!(std::fs::read_to_string(rig.folder().join("in")).expect("it is there"), "one\n");
    let (code, _, stderr) = batch(&rig, &["--output", "no/such/folder"]);
    assert!(code == 2 && stderr.contains("could not be written"), "{stderr}");
}

#[test]
fn the_policy_decides_what_a_failure_is_worth() {
    let rig = failing();
    for (policy, code, expected) in [
        ("report", 5, ["ERROR", "ERROR", "ERROR"]),
        ("null", 0, ["ERROR", "ERROR", "ERROR"]),
        ("stop", 5, ["ERROR", "CANCELLED", "CANCELLED"]),
    ] {
        let (ended, stdout, stderr) =
            batch(&rig, &["--json", "--concurrency", "1", "--on-error", policy]);
        assert_eq!(
            (ended, statuses(&stdout)),
            (code, expected.map(str::to_owned).to_vec()),
            "{policy}\n{stderr}"
        );
        assert_eq!(stderr.contains("· 1 failed · 2 cancelled · "), policy == "stop", "{stderr}");
        for row in rows(&stdout).iter().filter(|row| row["status"] == "CANCELLED") {
            assert_eq!(row["error"], "#1 failed, which ended the batch");
        }
        assert!(
            rows(&stdout)[0]["error"]
                .as_str()
                .is_some_and(|error| error.contains("this agent cannot work")),
            "{stdout}"
        );
    }
    // A stalled run has no result, which is no failure and does not end the batch.
    let stalled = stepping("agent_loop", "", "on_no_tool_call = \"nothing\"");
    let rig = Rig::new().with_file("c.toml", stalled).with_file("in", "a\nb\n");
    for (policy, code) in [("report", 1), ("null", 0), ("stop", 1)] {
        let (ended, stdout, stderr) = batch(&rig, &["--json", "--on-error", policy]);
        assert_eq!(
            (ended, statuses(&stdout)),
            (code, vec!["STALLED".to_owned(); 2]),
            "{policy}\n{stderr}"
        );
        assert!(
            stderr.contains("2 of 2 inputs in ") && stderr.contains(" · 2 without a result · "),
            "{stderr}"
        );
    }
}

#[test]
fn the_first_result_is_enough_where_that_is_asked_for() {
    let rig = echo().with_file("in", "a\nb\nc\n");
    let (code, stdout, stderr) = batch(&rig, &["--json", "--concurrency", "1", "--stop-on-first"]);
    assert_eq!(
        (code, statuses(&stdout)),
        (0, ["DONE", "CANCELLED", "CANCELLED"].map(str::to_owned).to_vec()),
        "{stderr}"
    );
    let (code, stdout, stderr) =
        batch(&failing(), &["--json", "--concurrency", "1", "--stop-on-first"]);
    assert_eq!(
        (code, statuses(&stdout)),
        (5, ["ERROR", "CANCELLED", "CANCELLED"].map(str::to_owned).to_vec()),
        "{stderr}"
    );
}

#[test]
fn nobody_is_asked_anything() {
    let rig = Rig::new()
        .with_file("c.toml", stepping("agent_echo", "", "interactive = true"))
        .with_file("in", "a\n");
    let (code, stdout, stderr) = batch(&rig, &[]);
    assert!(code == 2 && stdout.is_empty() && stderr.contains("interactive = false"), "{stderr}");
}
