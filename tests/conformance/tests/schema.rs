//! The keys of cases: undocumented ones are refused, and the page lists the keys that the runner
//! can report.

use std::collections::BTreeSet;
use std::path::Path;

use conclave_conformance::End;
use conclave_conformance::counts::Counts;
use conclave_conformance::schema::{
    LANGROID, OPENHANDS, OPENHANDS_NAMES, ROOMKIT, ROOMKIT_NAMES, keys, kinds, undocumented,
    with_names,
};
use serde_json::json;

fn none(_: &str) -> Option<&str> {
    None
}

#[test]
fn a_key_that_is_not_documented_is_named_with_those_that_are() {
    let said =
        undocumented(ROOMKIT, "cancel", &json!({ "returns": true, "cancelled": true }), none)
            .expect("it is unknown");
    assert!(
        said.starts_with("\"cancelled\" is no key of \"cancel\" cases")
            && said.ends_with("are: returns"),
        "{said}"
    );
    let nested = json!({ "trace": [{ "task": "A" }, { "who": "A" }] });
    let said = undocumented(LANGROID, "run", &nested, none).expect("it is unknown");
    assert!(said.starts_with("\"trace.who\""), "{said}");
    assert_eq!(
        undocumented(LANGROID, "run", &json!({ "history": { "Ann": [] }, "result": null }), none),
        None,
        "names are free"
    );
    let asks = json!({ "returns_lacks": 1 });
    assert_eq!(undocumented(ROOMKIT, "cancel", &asks, |key| key.strip_suffix("_lacks")), None);
}

/// One key for each fact: no kind has a key twice, and no two tables of a kind overlap.
#[test]
fn no_kind_has_a_key_twice() {
    for pack in [LANGROID, OPENHANDS, ROOMKIT] {
        for kind in kinds(pack) {
            let all = pack
                .iter()
                .filter(|facts| facts.kinds.contains(&kind))
                .map(|facts| facts.keys.len())
                .sum::<usize>();
            assert_eq!(all, keys(pack, kind).len(), "{kind}");
        }
    }
}

#[test]
fn each_pack_says_what_was_played_on_the_host() {
    let mut counts = Counts::default();
    let delegate = r#"{"pack":"roomkit","when":{"op":"delegate"}}"#;
    counts.add(r#"{"pack":"langroid","calls":[{"task":"A"}]}"#, &End::Passed);
    counts.add(r#"{"pack":"langroid","calls":[{"op":"parse_address"}]}"#, &End::Passed);
    counts.add(delegate, &End::Passed);
    counts.add(delegate, &End::Otherwise { differences: Vec::new() });
    counts.add(
        r#"{"pack":"roomkit","when":{"op":"result_new"}}"#,
        &End::NotPlayed { reason: "none".to_owned() },
    );
    counts.add(r#"{"pack":"roomkit","when":{"op":"delegate_tool"}}"#, &End::Passed);
    counts.add(r#"{"pack":"another"}"#, &End::Skipped);
    let shown = "langroid: played on the host: 1, by one function of the host: 1\n\
                 roomkit: played on the host: 1, by one function of the host: 1, differ as documented: 1, not played: 1\n\
                 4 passed, 0 failed, 1 skipped, 1 differ as documented, 1 not played\n";
    assert_eq!(counts.to_string(), shown);
}

/// Returns each kind of `langroid` and `roomkit` with each of its keys, from the tables of the
/// page.
fn of_page(page: &str, heading: &str) -> BTreeSet<(String, String)> {
    let section = page
        .split("\n## ")
        .find(|section| section.starts_with(heading))
        .unwrap_or_else(|| panic!("no section {heading}"));
    let words = |cell: &str| -> Vec<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let mut keys = BTreeSet::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, kinds, of_row, meaning, _] = cells[..] else {
            panic!("a row has kinds, keys and a meaning: {row}")
        };
        assert!(!meaning.is_empty(), "{row}");
        for kind in words(kinds) {
            for key in words(of_row) {
                assert!(
                    keys.insert((kind.clone(), key.clone())),
                    "{kind} {key} stands there twice"
                );
            }
        }
    }
    keys
}

#[test]
fn the_page_has_every_key_that_the_runner_can_report_and_no_other() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals");
    for (page, heading, pack) in [
        ("conformance.md", "langroid", LANGROID),
        ("conformance.md", "roomkit", ROOMKIT),
        ("conformance-openhands.md", "Keys", OPENHANDS),
    ] {
        let page = std::fs::read_to_string(folder.join(page)).expect("the page is there");
        let of_kind = |kind: &'static str| {
            keys(pack, kind).into_iter().map(move |key| (kind.to_owned(), key.to_owned()))
        };
        let reported: BTreeSet<_> = kinds(pack).into_iter().flat_map(of_kind).collect();
        let told = of_page(&page, heading);
        assert_eq!(
            told.difference(&reported).collect::<Vec<_>>(),
            Vec::<&(String, String)>::new(),
            "told and never reported"
        );
        assert_eq!(
            reported.difference(&told).collect::<Vec<_>>(),
            Vec::<&(String, String)>::new(),
            "reported and not told"
        );
    }
}

#[test]
fn a_fact_by_another_name_is_a_documented_key_of_its_kind() {
    for (pack, names) in [(OPENHANDS, OPENHANDS_NAMES), (ROOMKIT, ROOMKIT_NAMES)] {
        for name in names {
            let keys = keys(pack, name.kind);
            let fact = name.of.split('.').next().unwrap_or_default();
            assert!(
                keys.contains(&name.name) && keys.contains(&fact),
                "{}: {} is {}",
                name.kind,
                name.name,
                name.of
            );
        }
    }
    let got = with_names(OPENHANDS_NAMES, "runtime", &json!({ "observation": { "content": "c" } }));
    assert_eq!(
        got,
        json!({ "observation": { "content": "c" }, "content": "c" }),
        "what is not there has no other name either"
    );
}

/// Functions that cases call directly must also be used by the product: each place that the page
/// cites contains the call.
#[test]
fn functions_that_are_played_alone_are_called_by_the_product() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/internals/conformance.md"))
        .expect("the page is there");
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("- `"))
        .filter(|line| line.contains("`host/"));
    let mut looked_at = 0;
    for row in rows {
        // Texts in backticks are at the even indices, because the first part was removed.
        let words: Vec<&str> = row.split('`').step_by(2).collect();
        let file = words
            .iter()
            .find(|word| word.starts_with("host/"))
            .unwrap_or_else(|| panic!("no file: {row}"));
        let text = std::fs::read_to_string(root.join(file))
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(words[0]), "{file} does not call {}", words[0]);
        looked_at += 1;
    }
    assert_eq!(looked_at, 12, "one for each function");
}
