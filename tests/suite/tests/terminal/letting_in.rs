//! Descriptions of a third-party component on the terminal of the operator who accepts it: with
//! `conclave add`, and with `conclave plugin upgrade` after a change.

use conclave_core::config::lockfile::Lockfile;
use conclave_core::permissions::manifest::{CapabilityRequest, Manifest};
use conclave_runtime::plugin::embed;
use conclave_test_support::{Rig, guest, toml_inline};
use serde_json::{Value, json};

use super::emulator::Terminal;
use super::{FOREIGN, MARK, WIDTHS, assert_marked, forged_as};

/// The program's own lines around a change to accept.
const UPGRADE: [&str; 4] = [
    "Accept tools as it is now? [y/N] > n ZZ",
    "tools is what was pinned, but for its version ZZ",
    "+ tools is now pinned in ./conclave.lock ZZ",
    "all plugins are as pinned ZZ",
];
/// The program's own lines around a component that is added.
const ADD: [&str; 4] = [
    "It asks for nothing. ZZ",
    "weather 0.1.0 · tools · contract 0.1 · Apache-2.0 ZZ",
    "files     Which folder may it read? (empty: none) > ZZ",
    "+ [plugins.weather] ZZ",
];

/// Returns a config with third-party tools that have this description.
fn config(description: &str) -> String {
    let tool = json!({
        "name": "find", "description": description, "input_schema": { "type": "object" }, "effects": {}
    });
    let settings = json!({ "script": json!({ "tools": [tool] }).to_string() });
    format!(
        "entry = \"main\"\n[plugins.agent]\nsource = \"{}\"\n[plugins.tools]\nsource = \"{}\"\n\
         config = {}\n[tasks.main]\nagent = \"agent\"\n",
        guest("agent_echo").display(),
        guest("script_tools").display(),
        toml_inline(&settings)
    )
}

fn pinned(rig: &Rig) -> Lockfile {
    let lock = std::fs::read_to_string(rig.folder().join("conclave.lock")).expect("it is there");
    Lockfile::parse(&lock).expect("it was written")
}

fn own<'a>(rows: &'a [String], words: &str) -> Vec<&'a String> {
    rows.iter().filter(|row| row.contains(words) && !row.contains(MARK)).collect()
}

#[test]
fn a_changed_description_stands_behind_marks_and_is_pinned_by_a_yes_alone() {
    for columns in WIDTHS {
        let rig = Rig::new().with_file("conclave.toml", config("Finds."));
        let locked = rig.conclave(&["plugin", "lock"]).output().expect("the program runs");
        assert_eq!(locked.status.code(), Some(0), "{}", String::from_utf8_lossy(&locked.stderr));
        let honest = pinned(&rig);
        // A description with rare blanks is refused before it is shown.
        let forged = forged_as(columns, &UPGRADE).replace(['\u{a0}', '\u{3000}', '\u{2003}'], " ");
        let rig = rig.with_file("conclave.toml", config(&forged));
        for (answer, code) in [("n\n", 1), ("y\n", 0)] {
            let mut terminal = Terminal::start(&rig, &["plugin", "upgrade"], columns);
            terminal.until_prompt("[y/N] >");
            let rows = terminal.rows();
            assert_marked(&rows, columns);
            let says = [own(&rows, "differs from its pin"), own(&rows, "Accept tools")];
            assert_eq!(says.map(|rows| rows.len()), [1, 1], "{columns}: {rows:#?}");
            assert_eq!(pinned(&rig), honest, "{columns}: nothing was accepted");
            terminal.types(answer);
            let (status, rows) = terminal.ends();
            assert_eq!(status.code(), Some(code), "{columns}: {rows:#?}");
            assert_marked(&rows, columns);
            assert_eq!(pinned(&rig) == honest, code == 1, "{columns}: {answer}");
        }
    }
}

#[test]
fn what_a_changed_component_says_as_it_is_added_stands_behind_marks() {
    for columns in WIDTHS {
        let forged = format!("{}\u{1b}[2K\u{202e} ZZ", forged_as(columns, &ADD));
        let ask = |detail: Value| {
            let detail = serde_json::from_value(detail).expect("it is an object");
            CapabilityRequest { why: forged.clone(), optional: true, detail }
        };
        let address = format!("https://example.org/ {}", ADD[0]);
        let asks = [
            ("fetch".to_owned(), ask(json!({ "urls": [address], "methods": ADD }))),
            ("files".to_owned(), ask(json!({}))),
            ("tools".to_owned(), ask(json!({ "names": ADD }))),
        ];
        let manifest = Manifest {
            format: 1,
            name: "weather".into(),
            version: "0.1.0".into(),
            contract: "0.1".into(),
            description: forged.clone(),
            asks: asks.into(),
            ..Manifest::default()
        };
        let weather = std::fs::read(guest("weather")).expect("it is built");
        let changed = embed(&weather, &manifest).expect("it is a component");
        let bare = format!(
            "entry = \"main\"\n[plugins.agent]\nsource = \"{}\"\n[tasks.main]\nagent = \"agent\"\n",
            guest("agent_echo").display()
        );
        let rig = Rig::new().with_file("conclave.toml", bare).with_file("weather.wasm", changed);
        let mut terminal = Terminal::start(&rig, &["add", "weather.wasm"], columns);
        for question in ["Which URLs may it", "Which folder may it", "Which tools may it"] {
            terminal.until(question, |rows| {
                // A question that contains a third-party sentence has another end.
                let is_bare = |row: &&String| row.contains(FOREIGN) && !row.contains(MARK);
                assert_eq!(rows.iter().find(is_bare), None, "{columns}: {rows:#?}");
                !own(rows, question).is_empty() && rows.iter().any(|row| row.ends_with("none) >"))
            });
            terminal.until_prompt_below(question, "none) >");
            let rows = terminal.rows();
            assert_marked(&rows, columns);
            assert_eq!(own(&rows, "It asks for").len(), 1, "{columns}: {rows:#?}");
            terminal.types("\n");
        }
        let (status, rows) = terminal.ends();
        assert_eq!(status.code(), Some(0), "{columns}: {rows:#?}");
        let foreign = rows.iter().filter(|row| row.contains(FOREIGN));
        let is_marked = |row: &String| row.find(MARK) < row.find(FOREIGN) && row.contains(MARK);
        assert!(foreign.clone().all(is_marked), "{columns}: {rows:#?}");
        assert!(pinned(&rig).plugins.contains_key("weather"), "{columns}");
    }
}
