//! Every scenario of tests/data/conformance, as `cargo xtask conformance` plays it.

use std::path::{Path, PathBuf};
use std::process::Command;

use conclave_test_support::{guest, stock};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/conformance");
    let entries = std::fs::read_dir(folder).expect("the folder of scenarios is there");
    entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).collect()
}

#[test]
fn scenarios_show_what_they_should() {
    let (agent, tools) = (guest("script_agent"), guest("script_tools"));
    let guests = agent.parent().expect("a guest is in a folder");
    assert_eq!(tools.parent(), Some(guests));
    // What conversations and rooms of the other packs are played with.
    for name in ["acting_agent", "stub_terminal", "spin", "hostile_analyzer", "strategy_spin"] {
        assert_eq!(guest(name).parent(), Some(guests));
    }
    for name in ["workspace", "immediate", "wait-for-idle", "context-only", "queued", "digest-delivery"] {
        assert!(stock().join(format!("{name}.wasm")).exists(), "run `cargo xtask test`, which builds the stock plugins");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_conclave-conformance"));
    let cache = guests.with_file_name("test-cache");
    command.arg("--guests").arg(guests).arg("--cache").arg(cache).arg("--verbose").args(files());
    let output = command.output().expect("the program starts");
    let (shown, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let failed: String = told.lines().filter(|line| !line.ends_with(" passed")).map(|line| format!("{line}\n")).collect();
    assert!(output.status.success(), "{}\n{failed}", shown.lines().last().unwrap_or_default());
}

#[test]
fn what_should_not_be_shown_is_told() {
    let agent = guest("script_agent");
    let file = std::env::temp_dir().join(format!("conclave-conformance-{}.jsonl", std::process::id()));
    let scenario = serde_json::json!({
        "pack": "langroid", "id": "wrong", "agents": [{ "name": "A", "llm": { "kind": "const", "reply": "DONE yes" }, "tools": [] }],
        "tasks": [{ "name": "A", "agent": "A" }], "calls": [{ "task": "A", "input": "go" }],
        "expect": [{ "result": { "content": "no" } }],
    });
    let other = serde_json::json!({ "pack": "another", "id": "other" });
    std::fs::write(&file, format!("{scenario}\n{other}\n")).expect("a test can write a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_conclave-conformance"));
    let guests = agent.parent().expect("a guest is in a folder");
    command.arg("--guests").arg(guests).arg("--cache").arg(guests.with_file_name("test-cache")).arg(&file);
    let output = command.output().expect("the program starts");
    std::fs::remove_file(&file).expect("the file is there");
    let shown = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(output.status.code(), Some(1));
    assert!(lines.len() == 3 && lines[0].contains("\"id\":\"wrong\"") && lines[0].contains("\"content\":\"yes\""), "{shown}");
    assert_eq!(lines[1..], ["langroid: played on the host: 0, failed: 1", "0 passed, 1 failed, 1 skipped"]);
}
