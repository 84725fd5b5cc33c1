//! Large folders: a listing is created once and charged once per entry, through the standard
//! library and through the contract. Repeated listings are stopped by the same limit.

use std::path::Path;

use conclave_test_support::{Ran, Rig, calling};
use serde_json::{Value, json};

const MANY: usize = 100_000;

fn fill(folder: &Path, count: usize) {
    std::fs::create_dir(folder).expect("a test can make a folder");
    for index in 0..count {
        std::fs::File::create(folder.join(format!("f{index:06}"))).expect("a test can make a file");
    }
}

fn run(rig: &Rig, tool: &str, arguments: &Value, read: &str) -> Ran {
    // The other limits are the default ones; a busy machine computes for longer.
    let limits = format!("limits = {{ cpu = \"60 s\", wall = \"110 s\"{read} }}");
    let lines = format!(
        "grants.files = [{{ dir = \"data\", at = \"/folder\", mode = \"read\" }}]\n{limits}"
    );
    rig.run(&calling("list_many", tool, arguments, &lines), "go")
}

#[test]
fn a_folder_of_a_hundred_thousand_files_is_listed_and_each_entry_is_paid_once() {
    let rig = Rig::new();
    fill(&rig.folder().join("data"), MANY);
    // At 256 bytes an entry, this is enough for 12 more entries than the folder has: reading the
    // folder twice is refused.
    let once = ", read = \"25003 KiB\"";
    for tool in ["by_std", "by_files"] {
        for read in ["", once] {
            let ran = run(&rig, tool, &json!({ "path": "/folder" }), read);
            assert_eq!(
                ran.content(),
                format!("{MANY} entries, {} bytes", MANY * 7),
                "{tool}{read}: {:?}",
                ran.outcome
            );
        }
    }
    let ran = run(&rig, "by_files", &json!({ "path": "/folder" }), ", read = \"24900 KiB\"");
    assert!(ran.content().contains("QuotaExceeded"), "the limit holds: {}", ran.content());
}

#[test]
fn a_folder_is_not_listed_again_and_again_past_the_limit() {
    let rig = Rig::new();
    fill(&rig.folder().join("data"), 1_000);
    for (tool, arguments) in [
        ("flood", json!({ "path": "/folder" })),
        ("flood", json!({ "path": "/folder", "after": "f000500" })),
        ("reopen", json!({ "path": "/folder" })),
    ] {
        // 4 096 entries.
        let ran = run(&rig, tool, &arguments, ", read = \"1 MiB\"");
        assert!(
            ran.content().starts_with("4 times, then "),
            "{tool} {arguments}: {}",
            ran.content()
        );
    }
}
