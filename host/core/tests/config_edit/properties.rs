//! Properties of edits in any order: comments stay, the config stays valid, and revoking undoes
//! granting.

use conclave_core::config::Config;
use conclave_core::config::edit::{ConfigText, Fragment};
use proptest::prelude::*;

use super::{DESK, open};

/// One edit.
#[derive(Clone, Debug)]
enum Edit {
    Add { name: String },
    Grant { plugin: String, fragment: String },
    Revoke { plugin: String, fragment: String },
}

fn plugin() -> impl Strategy<Value = String> {
    proptest::sample::select(vec!["desk", "librarian", "search", "extra"]).prop_map(str::to_owned)
}

fn fragment() -> impl Strategy<Value = String> {
    let tools = proptest::collection::btree_set(
        proptest::sample::select(vec![
            "\"search.find\"",
            "\"search.read\"",
            "\"search.list\"",
            "'librarian.*'",
        ]),
        1..4,
    );
    let tools = tools.prop_map(|names| names.into_iter().collect::<Vec<_>>().join(", "));
    prop_oneof![
        tools.clone().prop_map(|names| format!("tools = [{names}]")),
        (tools, 1..9).prop_map(|(names, calls)| format!("grants.tools = {{ names = [{names}], calls = {calls} }}")),
        proptest::sample::select(vec![
            "route = [\"answer\"]",
            "route = [ \"user\", \"done\" ]",
            "delegate = [\"answer\"]",
            "delegate = { tasks = [\"answer\"], total = 3 }",
            "channels = [\"terminal\"]",
            "files = [\"notes\"]",
            "files = [{ dir = \"docs\", at = \"/docs\" }, { dir = \"b\", at = \"/b\", mode = \"read\" }]",
        ])
        .prop_map(str::to_owned),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        1 => proptest::sample::select(vec!["extra", "more", "search"]).prop_map(|name| Edit::Add { name: name.to_owned() }),
        4 => (plugin(), fragment()).prop_map(|(plugin, fragment)| Edit::Grant { plugin, fragment }),
        4 => (plugin(), fragment()).prop_map(|(plugin, fragment)| Edit::Revoke { plugin, fragment }),
        1 => (plugin(), proptest::sample::select(vec!["tools", "route", "files", "delegate"]))
            .prop_map(|(plugin, key)| Edit::Revoke { plugin, fragment: key.to_owned() }),
    ]
}

/// Applies an edit. A refused edit leaves the text unchanged.
fn make(text: &str, edit: &Edit) -> String {
    let mut config = open(text);
    let made = match edit {
        Edit::Add { name } => config.add_plugin(name, "stock:search", &["Added.".to_owned()]),
        Edit::Grant { plugin, fragment } => {
            config.grant(plugin, &Fragment::parse(fragment).unwrap())
        }
        Edit::Revoke { plugin, fragment } => {
            config.revoke(plugin, &Fragment::parse_revoked(fragment).unwrap())
        }
    };
    match made.and_then(|()| config.finish()) {
        Ok(edited) => edited.text,
        Err(_) => text.to_owned(),
    }
}

fn comments(text: &str) -> Vec<&str> {
    let mut comments: Vec<&str> =
        text.lines().filter_map(|line| line.find('#').map(|at| line[at..].trim_end())).collect();
    comments.sort_unstable();
    comments
}

fn parse(text: &str) -> Config {
    Config::parse("conclave.toml", "", text).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

/// Returns texts with the same meaning in different forms.
fn starts() -> impl Strategy<Value = String> {
    let dotted = DESK
        .replace(
            "grants.files = [{ dir = \"docs\", at = \"/docs\", mode = \"read\" }]",
            "[[plugins.search.grants.files]]\ndir = \"docs\" # where\nat = \"/docs\"\n[plugins.search.limits]",
        )
        .replace("limits = { memory = \"64 MiB\", cpu = \"5 s\" } # small", "memory = \"64 MiB\" # small");
    let tables = DESK.replace(
        "grants.route = [\"answer\"]  ",
        "[plugins.desk.grants]\nroute = [\n\"answer\"]  ",
    );
    let braces =
        DESK.replace("grants.route = [\"answer\"] ", "grants = { route = [\"answer\", ] } ");
    let crlf = DESK.replace('\n', "\r\n");
    proptest::sample::select(vec![DESK.to_owned(), dotted, tables, braces, crlf])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn comments_stay_and_the_config_stays_right(start in starts(), edits in proptest::collection::vec(edit(), 1..12)) {
        let mut text = start.clone();
        parse(&text);
        for edit in &edits {
            let next = make(&text, edit);
            parse(&next);
            let next_comments = comments(&next);
            for comment in comments(&text) {
                prop_assert!(next_comments.contains(&comment), "{comment} is lost by {edit:?}\n{text}\n---\n{next}");
            }
            text = next;
        }
    }

    #[test]
    fn taking_back_undoes_granting(start in starts(), edits in proptest::collection::vec(edit(), 0..6), plugin in plugin(), fragment in fragment()) {
        let before = edits.iter().fold(start, |text, edit| make(&text, edit));
        let old = parse(&before).plugins.get(plugin.as_str()).map(|plugin| plugin.grants.clone());
        let granted = make(&before, &Edit::Grant { plugin: plugin.clone(), fragment: fragment.clone() });
        let only_new = Edit::Revoke { plugin: plugin.clone(), fragment: without_granted(&before, &plugin, &fragment) };
        let after = parse(&make(&granted, &only_new)).plugins.get(plugin.as_str()).map(|plugin| plugin.grants.clone());
        // A limit that came with a grant stays: removing it would allow more than before.
        let has_limit = fragment.contains("calls") || fragment.contains("total") || fragment.contains("dir");
        prop_assert!(has_limit || after == old, "{fragment} at {plugin}\n{before}\n---\n{granted}");
    }

    #[test]
    fn granting_twice_is_granting_once(start in starts(), plugin in plugin(), fragment in fragment()) {
        let edit = Edit::Grant { plugin, fragment };
        let once = make(&start, &edit);
        prop_assert_eq!(make(&once, &edit), once);
    }

    #[test]
    fn any_fragment_is_granted_or_refused(text in "(?s).{0,60}", fragment in fragment(), cut in 0..60_usize) {
        let _ = Fragment::parse(&text);
        let piece: String = fragment.chars().take(cut).collect();
        let _ = Fragment::parse(&format!("{piece}{text}"));
        if let Ok(mut config) = ConfigText::open("conclave.toml", "", &text) {
            let _ = config.add_plugin("extra", "stock:search", &[]);
            let _ = config.grant("extra", &Fragment::parse(&fragment).unwrap());
            let _ = config.finish();
        }
    }
}

/// Returns the entries of a fragment that a plugin was not granted before.
fn without_granted(before: &str, plugin: &str, fragment: &str) -> String {
    let tree: toml::Table = toml::from_str(before).unwrap();
    let (key, rest) = fragment.split_once('=').unwrap();
    let key = key.trim().trim_start_matches("grants.");
    let granted = tree["plugins"]
        .get(plugin)
        .and_then(|plugin| plugin.get("grants"))
        .and_then(|grants| grants.get(key))
        .cloned();
    let Some(granted) = granted else { return fragment.to_owned() };
    let value: toml::Table = toml::from_str(&format!("v = {}", rest.trim())).unwrap();
    let list = |value: &toml::Value| {
        let inner =
            value.as_table().and_then(|table| table.values().find(|value| value.is_array()));
        inner.unwrap_or(value).as_array().cloned().unwrap_or_default()
    };
    let old = list(&granted);
    let new: Vec<String> = list(&value["v"])
        .into_iter()
        .filter(|entry| !old.contains(entry))
        .map(|entry| written(&entry))
        .collect();
    // Nothing new was granted, so nothing is to be revoked.
    if new.is_empty() {
        "channels = [\"nowhere\"]".to_owned()
    } else {
        format!("{key} = [{}]", new.join(", "))
    }
}

fn written(value: &toml::Value) -> String {
    match value {
        toml::Value::Table(table) => {
            let entries: Vec<String> =
                table.iter().map(|(key, value)| format!("{key} = {}", written(value))).collect();
            format!("{{ {} }}", entries.join(", "))
        }
        value => format!("{:?}", value.as_str().unwrap()),
    }
}
