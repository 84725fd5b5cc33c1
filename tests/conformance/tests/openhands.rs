//! The runner's reports on malformed lines of the OpenHands pack, and on cases with wrong
//! expectations. `cases.rs` plays all files and checks that every case passes.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

const PLAYED: &str = "openhands: played on the host";

fn played(lines: &[String]) -> (Option<i32>, String) {
    let file = std::env::temp_dir().join(format!(
        "conclave-openhands-{}-{}.jsonl",
        std::process::id(),
        lines.len()
    ));
    std::fs::write(&file, lines.join("\n")).expect("a test can write a file");
    // These cases need no components.
    let output = Command::new(env!("CARGO_BIN_EXE_conclave-conformance"))
        .arg("--guests")
        .arg("/nowhere")
        .arg(&file)
        .output();
    std::fs::remove_file(&file).expect("the file is there");
    let output = output.expect("the program starts");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn case(kind: &str, input: &Value, expect: &Value) -> String {
    json!({ "pack": "openhands", "id": "x", "era": "2024-07", "kind": kind, "in": input, "expect": expect }).to_string()
}

#[test]
fn a_case_passes_or_says_what_was_seen() {
    let input = json!({ "content": "aaaa", "max_chars": 4 });
    let good = case("truncate", &input, &json!({ "content": "aaaa" }));
    assert_eq!(
        played(std::slice::from_ref(&good)),
        (
            Some(0),
            format!("{PLAYED}: 0, by one function of the host: 1\n1 passed, 0 failed, 0 skipped\n")
        )
    );
    let (code, shown) = played(&[good, case("truncate", &input, &json!({ "content": "b" }))]);
    assert!(
        code == Some(1)
            && shown.contains(r#""got":{"content":"aaaa"}"#)
            && shown.ends_with("1 passed, 1 failed, 0 skipped\n"),
        "{shown}"
    );
}

#[test]
fn what_is_no_case_is_told_with_its_line_and_never_skipped() {
    let unknown = case("dance", &json!({}), &json!({}));
    let without =
        json!({ "pack": "openhands", "id": "y", "kind": "plan", "era": "2024-07", "expect": {} })
            .to_string();
    let (code, shown) = played(&[String::new(), unknown, "{ no json".to_owned(), without]);
    assert_eq!(code, Some(1), "{shown}");
    for told in [
        "line 2: there is no kind",
        "line 3: the line is no JSON",
        "line 4: the case has no in",
        "0 passed, 3 failed, 0 skipped",
    ] {
        assert!(shown.contains(told), "{told}: {shown}");
    }
}

#[test]
fn a_case_that_gives_something_else_than_its_kind_needs_fails() {
    let (code, shown) = played(&[
        case("plan", &json!({ "ops": [["dance"]] }), &json!({})),
        case("limit", &json!({}), &json!({})),
    ]);
    assert!(
        code == Some(1)
            && shown.contains("a plan has no op")
            && shown.ends_with("0 passed, 2 failed, 0 skipped\n"),
        "{shown}"
    );
}

#[test]
fn a_case_of_the_host_fails_where_the_host_does_something_else() {
    let run = json!({ "action": "run", "args": { "command": "ls" } });
    let answer = json!({ "observation": "run", "content": "x", "extras": { "command": "ls", "exit_code": 0 } });
    let history: Vec<&Value> = std::iter::repeat_n([&run, &answer], 4).flatten().collect();
    let input = json!({ "headless": true, "history": history });
    let stuck = case("stuck_events", &input, &json!({ "stuck": true }));
    let not_stuck = case("stuck_events", &input, &json!({ "stuck": false }));
    let (code, shown) = played(&[stuck, not_stuck]);
    assert!(code == Some(1) && shown.ends_with("1 passed, 1 failed, 0 skipped\n"), "{shown}");
}

/// A row excuses only its own keys: a difference at another key is a failure.
#[test]
fn a_case_differs_as_documented_only_at_the_keys_of_its_row() {
    let script = json!({ "script": ["bad", "bad", "bad", "empty", "say"] });
    let sdk = |expect: Value| case("stuck_sdk", &script, &expect);
    let otherwise = sdk(json!({ "nudges": 1, "corrective_nudges": 1, "status": "finished" }));
    let agrees = sdk(json!({ "nudges": 1, "corrective_nudges": 0, "status": "finished" }));
    let regressed = sdk(json!({ "nudges": 2, "corrective_nudges": 1, "status": "finished" }));
    let (code, shown) = played(&[otherwise, agrees]);
    assert_eq!(
        (code, shown.lines().last()),
        (Some(0), Some("1 passed, 0 failed, 0 skipped, 1 differ as documented")),
        "{shown}"
    );
    let cut = "\n[... Observation truncated due to length ...]\n";
    let truncated = case(
        "truncate",
        &json!({ "content": "abc", "max_chars": 1 }),
        &json!({ "content": format!("{cut}abc") }),
    );
    let (code, shown) = played(&[truncated]);
    assert_eq!(
        (code, shown.lines().last()),
        (Some(0), Some("0 passed, 0 failed, 0 skipped, 1 differ as documented")),
        "{shown}"
    );
    let (code, shown) = played(&[regressed]);
    assert_eq!(
        (code, shown.lines().last()),
        (Some(1), Some("0 passed, 1 failed, 0 skipped")),
        "{shown}"
    );
}

#[test]
fn a_key_that_is_not_documented_fails_before_the_case_is_played() {
    let (code, shown) = played(&[case(
        "controller",
        &json!({ "script": ["m"] }),
        &json!({ "agent_state": "running" }),
    )]);
    assert!(
        code == Some(1)
            && shown.contains("\\\"agent_state\\\" is no key of \\\"controller\\\" cases"),
        "{shown}"
    );
}

/// A dropped case is neither passed nor failed, and is listed in the table of
/// docs/reference/conformance.md.
#[test]
fn what_is_not_played_counts_apart_and_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/reference/conformance.md"))
        .expect("the page is there");
    let section = page
        .split("\n### ")
        .find(|section| section.starts_with("Not played"))
        .expect("the page has the section");
    let rows = section.lines().filter(|line| line.starts_with("| C-"));
    let ids: Vec<&str> = rows
        .flat_map(|row| row.split('|').nth(1).unwrap_or_default().split(',').map(str::trim))
        .collect();
    let file = root.join("tests/data/conformance/openhands.jsonl");
    let mut command = Command::new(env!("CARGO_BIN_EXE_conclave-conformance"));
    let output = command
        .arg("--guests")
        .arg("/nowhere")
        .arg("--only")
        .arg(ids.join(","))
        .arg(file)
        .output()
        .expect("the program starts");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        shown,
        format!(
            "{PLAYED}: 0, not played: {0}\n0 passed, 0 failed, 0 skipped, {0} not played\n",
            ids.len()
        )
    );
    let told = String::from_utf8_lossy(&output.stderr);
    for reason in told
        .lines()
        .filter_map(|line| line.split_once(" is not played: ").map(|(_, reason)| reason))
    {
        assert!(page.contains(reason), "the page says why: {reason}");
    }
}
