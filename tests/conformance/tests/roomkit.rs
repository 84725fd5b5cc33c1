//! The runner's reports on malformed lines of the RoomKit pack, on cases with wrong expectations,
//! and on cases in which Conclave differs. `cases.rs` plays all files and checks that every case
//! passes.

use std::path::Path;
use std::process::Command;

use conclave_runtime::config::Config;
use serde_json::{Value, json};

fn played(lines: &[String]) -> (Option<i32>, String, String) {
    let file = std::env::temp_dir().join(format!(
        "conclave-roomkit-{}-{}.jsonl",
        std::process::id(),
        lines.concat().len()
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
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn case(id: &str, given: &Value, when: &Value, then: &Value) -> String {
    json!({ "pack": "roomkit", "id": id, "area": "delegate", "given": given, "when": when, "then": then }).to_string()
}

fn worker() -> Value {
    json!({ "parent": { "room": "room-1" }, "registered": [{ "id": "agent-bg", "replies": ["result"] }] })
}

#[test]
fn a_case_passes_or_says_what_was_seen() {
    let when = json!({ "op": "delegate", "agent_id": "agent-bg", "task": "x" });
    let good = case(
        "x",
        &worker(),
        &when,
        &json!({ "result": { "status": "completed", "output": "result" } }),
    );
    let (code, shown, told) = played(std::slice::from_ref(&good));
    assert_eq!(
        (code, shown.as_str()),
        (Some(0), "roomkit: played on the host: 1\n1 passed, 0 failed, 0 skipped\n"),
        "{told}"
    );
    let wrong = case(
        "y",
        &worker(),
        &when,
        &json!({ "result": { "output": "another" }, "callback_calls": 2 }),
    );
    let (code, shown, _) = played(&[good, wrong]);
    assert!(
        code == Some(1)
            && shown.contains("\"id\":\"y\"")
            && shown.contains("\"output\":\"result\""),
        "{shown}"
    );
    assert!(
        shown.ends_with(
            "roomkit: played on the host: 1, failed: 1\n1 passed, 1 failed, 0 skipped\n"
        ),
        "{shown}"
    );
}

#[test]
fn what_is_no_case_is_told_with_its_line_and_never_skipped() {
    let dance = case("x", &json!({}), &json!({ "op": "dance" }), &json!({}));
    let without = json!({ "pack": "roomkit", "id": "y", "area": "tool", "given": {}, "when": { "op": "handle" } }).to_string();
    let (code, shown, _) = played(&[dance, without]);
    assert_eq!(code, Some(1), "{shown}");
    for told in [
        "line 1: there is no op \\\"dance\\\"",
        "line 2: the case has no then",
        "0 passed, 2 failed, 0 skipped",
    ] {
        assert!(shown.contains(told), "{told}: {shown}");
    }
}

#[test]
fn a_case_that_states_what_is_done_otherwise_is_neither_passed_nor_failed() {
    let when = json!({ "op": "delegate_nested", "levels": 20 });
    let nested = |id: &str| case(id, &worker(), &when, &json!({ "all_completed": true }));
    let (code, shown, told) = played(&[nested("D10")]);
    assert_eq!(
        (code, shown.as_str()),
        (
            Some(0),
            "roomkit: played on the host: 0, differ as documented: 1\n0 passed, 0 failed, 0 skipped, 1 differ as documented\n"
        )
    );
    assert!(told.contains("D10 differs, as documented"), "{told}");
    // The row about the limit does not apply below the limit.
    let three = json!({ "op": "delegate_nested", "levels": 3 });
    let (code, shown, _) =
        played(&[case("x", &worker(), &three, &json!({ "all_completed": false }))]);
    assert!(code == Some(1) && shown.ends_with("0 passed, 1 failed, 0 skipped\n"), "{shown}");
}

/// Each fact has one key: a guessed name does not match.
#[test]
fn a_key_that_is_not_documented_fails_and_is_named_with_those_that_are() {
    let when = json!({ "op": "cancel", "id": "ghost" });
    let (code, shown, _) = played(&[case("x", &json!({}), &when, &json!({ "cancelled": false }))]);
    assert_eq!(code, Some(1), "{shown}");
    assert!(
        shown.contains("\\\"cancelled\\\" is no key of \\\"cancel\\\" cases")
            && shown.contains("are: returns"),
        "{shown}"
    );
    let nested = json!({ "result": { "state": "completed" } });
    let (_, shown, _) = played(&[case(
        "y",
        &worker(),
        &json!({ "op": "delegate", "agent_id": "agent-bg" }),
        &nested,
    )]);
    assert!(shown.contains("\\\"result.state\\\" is no key of \\\"delegate\\\" cases"), "{shown}");
}

#[test]
fn what_no_host_could_play_is_counted_apart_with_its_reason() {
    let (code, shown, told) = played(&[case(
        "x",
        &json!({}),
        &json!({ "op": "result_new" }),
        &json!({ "status": "completed" }),
    )]);
    let counts = "roomkit: played on the host: 0, not played: 1\n0 passed, 0 failed, 0 skipped, 1 not played\n";
    assert_eq!((code, shown.as_str()), (Some(0), counts));
    assert!(told.contains("x is not played: a result has no defaults here"), "{told}");
}

/// Tests each config of the page, together with the items that it omits.
#[test]
fn configs_of_the_page_are_read() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/migrate/roomkit.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let blocks: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .filter_map(|block| Some(block.split_once("```")?.0))
        .collect();
    let model = "[models.default]\nkind = \"scripted\"\nreplies = \"r.json\"\n";
    let task = "[plugins.chat]\nsource = \"stock:chat\"\n[tasks.main]\nagent = \"chat\"\n";
    let left_out = [
        ("", model),
        ("entry = \"main\"\n", task),
        ("entry = \"triage\"\n", model),
        ("entry = \"lead\"\n", model),
    ];
    assert_eq!(blocks.len(), left_out.len());
    for (block, (before, after)) in blocks.into_iter().zip(left_out) {
        let text = format!("{before}{block}{after}");
        Config::parse("conclave.toml", "/", &text)
            .unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    }
}
