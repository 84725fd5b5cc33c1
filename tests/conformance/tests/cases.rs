//! Every scenario of tests/data/conformance, as `cargo xtask conformance` plays it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use conclave_test_support::{cache, guest, stock};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/conformance");
    let entries = std::fs::read_dir(folder).expect("the folder of scenarios is there");
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect()
}

#[test]
fn scenarios_show_what_they_should() {
    let (agent, tools) = (guest("script_agent"), guest("script_tools"));
    let guests = agent.parent().expect("a guest is in a folder");
    assert_eq!(tools.parent(), Some(guests));
    // The guests of the conversations and rooms in the other packs.
    for name in ["acting_agent", "stub_terminal", "spin", "hostile_analyzer", "strategy_spin"] {
        assert_eq!(guest(name).parent(), Some(guests));
    }
    for name in
        ["workspace", "immediate", "wait-for-idle", "context-only", "queued", "digest-delivery"]
    {
        assert!(
            stock().join(format!("{name}.wasm")).exists(),
            "run `cargo xtask test`, which builds the stock plugins"
        );
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_conclave-conformance"));
    command.arg("--guests").arg(guests).arg("--cache").arg(cache()).arg("--verbose").args(files());
    let output = command.output().expect("the program starts");
    let (shown, told) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let failed: String = told
        .lines()
        .filter(|line| !line.ends_with(" passed"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(output.status.success(), "{}\n{failed}", shown.lines().last().unwrap_or_default());
    // A case that is no longer played, or in another way, changes a count.
    assert_eq!(
        packs(&shown),
        packs(counted(&page("internals/conformance.md"))),
        "what was played, and what the page says"
    );
    assert_eq!(
        rules_of_differing(&told),
        documented_rules(&page("reference/conformance.md")),
        "what differs by which rule, and what the page says"
    );
}

fn page(name: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// Returns the block of the page with the counts.
fn counted(page: &str) -> &str {
    let section = page
        .split("\n## ")
        .find(|section| section.starts_with("How cases are counted"))
        .expect("the page has the section");
    section.split("```").nth(1).expect("the section shows the counts")
}

/// Returns the line of each pack and the sum.
fn packs(shown: &str) -> Vec<&str> {
    shown
        .lines()
        .filter(|line| line.contains(": played on the host: ") || line.contains(" passed, "))
        .collect()
}

/// Returns each case that differs as documented, with the rules whose rows explain it.
fn rules_of_differing(told: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut differing: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut last = None;
    for line in told.lines() {
        match line.strip_prefix("    ") {
            None => last = line.split_once(" differs, as documented").map(|(id, _)| id.to_owned()),
            Some(row) => {
                let rule = row
                    .split_once(": ")
                    .map(|(rule, _)| rule)
                    .filter(|rule| !rule.starts_with('.'));
                if let (Some(id), Some(rule)) = (&last, rule) {
                    differing.entry(id.clone()).or_default().insert(rule.to_owned());
                }
            }
        }
    }
    differing
}

/// Returns the tables of differences: cases, then rules, each of which is a rule of
/// docs/migrate/differences.md.
fn documented_rules(page_of_cases: &str) -> BTreeMap<String, BTreeSet<String>> {
    let differences = page("migrate/differences.md");
    let rules: Vec<&str> = differences
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .collect();
    let mut documented: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for section in
        page_of_cases.split("\n### ").filter(|section| section.starts_with("Differ as documented"))
    {
        for row in section.lines().filter_map(|line| line.strip_prefix("| ")) {
            let cells: Vec<&str> = row.split(" | ").collect();
            for id in
                cells[0].split(", ").filter(|id| id.chars().any(|letter| letter.is_ascii_digit()))
            {
                for rule in cells[1].split(", ") {
                    assert!(
                        rules.iter().any(|cell| cell.split(", ").any(|known| known == rule)),
                        "docs/migrate/differences.md has no row for {rule}"
                    );
                    documented.entry(id.to_owned()).or_default().insert(rule.to_owned());
                }
            }
        }
    }
    documented
}

#[test]
fn what_should_not_be_shown_is_told() {
    let agent = guest("script_agent");
    let file =
        std::env::temp_dir().join(format!("conclave-conformance-{}.jsonl", std::process::id()));
    let scenario = serde_json::json!({
        "pack": "langroid", "id": "wrong", "agents": [{ "name": "A", "llm": { "kind": "const", "reply": "DONE yes" }, "tools": [] }],
        "tasks": [{ "name": "A", "agent": "A" }], "calls": [{ "task": "A", "input": "go" }],
        "expect": [{ "result": { "content": "no" } }],
    });
    let other = serde_json::json!({ "pack": "another", "id": "other" });
    std::fs::write(&file, format!("{scenario}\n{other}\n")).expect("a test can write a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_conclave-conformance"));
    let guests = agent.parent().expect("a guest is in a folder");
    command.arg("--guests").arg(guests).arg("--cache").arg(cache()).arg(&file);
    let output = command.output().expect("the program starts");
    std::fs::remove_file(&file).expect("the file is there");
    let shown = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        lines.len() == 3
            && lines[0].contains("\"id\":\"wrong\"")
            && lines[0].contains("\"content\":\"yes\""),
        "{shown}"
    );
    assert_eq!(
        lines[1..],
        ["langroid: played on the host: 0, failed: 1", "0 passed, 1 failed, 1 skipped"]
    );
}

/// Its model repeats itself without end, and no limit applies. The bound on recorded events ends it
/// on a fast machine and a slow one.
#[test]
fn a_scenario_that_does_not_end_is_ended_by_what_it_records() {
    let agent = guest("script_agent");
    let file = std::env::temp_dir().join(format!("conclave-endless-{}.jsonl", std::process::id()));
    let tool = serde_json::json!({ "name": "sum", "fields": { "x": "int" }, "effect": { "do": "text", "text": "{x}" } });
    let scenario = serde_json::json!({
        "pack": "langroid", "id": "endless",
        "agents": [{ "name": "A", "llm": { "kind": "const", "reply": "{\"request\": \"sum\", \"x\": 1}" }, "tools": [tool], "config": {} }],
        "tasks": [{ "name": "A", "agent": "A", "options": { "inf_loop_cycle_len": 0 } }], "calls": [{ "task": "A", "input": "go" }],
        "expect": [{}],
    });
    std::fs::write(&file, format!("{scenario}\n")).expect("a test can write a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_conclave-conformance"));
    let guests = agent.parent().expect("a guest is in a folder");
    command
        .arg("--guests")
        .arg(guests)
        .arg("--cache")
        .arg(cache())
        .args(["--events", "300"])
        .arg(&file);
    let output = command.output().expect("the program starts");
    std::fs::remove_file(&file).expect("the file is there");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        shown.contains("it does not end: it records more than 300 events")
            && shown.ends_with("0 passed, 1 failed, 0 skipped\n"),
        "{shown}"
    );
}
