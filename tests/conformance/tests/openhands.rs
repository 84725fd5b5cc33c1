//! What the runner says of lines of the OpenHands pack that are no cases, and of cases that expect what is not so. That every case of the
//! file passes is told by `cases.rs`, which plays all files.

use std::process::Command;

use serde_json::{Value, json};

fn played(lines: &[String]) -> (Option<i32>, String) {
    let file = std::env::temp_dir().join(format!("conclave-openhands-{}-{}.jsonl", std::process::id(), lines.len()));
    std::fs::write(&file, lines.join("\n")).expect("a test can write a file");
    // These cases need no components.
    let output = Command::new(env!("CARGO_BIN_EXE_conclave-conformance")).arg("--guests").arg("/nowhere").arg(&file).output();
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
    assert_eq!(played(std::slice::from_ref(&good)), (Some(0), "1 passed, 0 failed, 0 skipped\n".to_owned()));
    let (code, shown) = played(&[good, case("truncate", &input, &json!({ "content": "b" }))]);
    assert!(
        code == Some(1) && shown.contains(r#""got":{"content":"aaaa"}"#) && shown.ends_with("1 passed, 1 failed, 0 skipped\n"),
        "{shown}"
    );
}

#[test]
fn what_is_no_case_is_told_with_its_line_and_never_skipped() {
    let unknown = case("dance", &json!({}), &json!({}));
    let without = json!({ "pack": "openhands", "id": "y", "kind": "plan", "era": "2024-07", "expect": {} }).to_string();
    let (code, shown) = played(&[String::new(), unknown, "{ no json".to_owned(), without]);
    assert_eq!(code, Some(1), "{shown}");
    for told in ["line 2: there is no kind", "line 3: the line is no JSON", "line 4: the case has no in", "0 passed, 3 failed, 0 skipped"] {
        assert!(shown.contains(told), "{told}: {shown}");
    }
}

#[test]
fn a_case_that_gives_something_else_than_its_kind_needs_fails() {
    let (code, shown) = played(&[case("plan", &json!({ "ops": [["dance"]] }), &json!({})), case("limit", &json!({}), &json!({}))]);
    assert!(code == Some(1) && shown.contains("a plan has no op") && shown.ends_with("0 passed, 2 failed, 0 skipped\n"), "{shown}");
}
