//! One edit in each form in which TOML lets a config be written.

use conclave_core::config_edit::{EditError, Fragment};

use super::{DESK, granted, open, revoked, shown};

#[test]
fn a_grant_stands_where_the_others_stand() {
    let cases = [
        ("desk", "route = [\"user\"]"),
        ("desk", "delegate = [\"answer\"]"),
        ("desk", "[plugins.desk] grants.route = [\"answer\", \"user\"]"),
        ("librarian", "tools = [\"search.list\"]"),
        ("librarian", "tools = { names = [\"search.find\"], calls = 5 }"),
        ("search", "files = [{ dir = \"notes\", at = \"/notes\", mode = \"read\" }]"),
        ("search", "files = [{ dir = \"other\", at = \"/docs\" }]"),
        ("search", "files = [\"docs\"]"),
    ];
    let mut text = String::new();
    for (plugin, fragment) in cases {
        let edited = granted(DESK, plugin, fragment).unwrap_or_else(|error| panic!("{fragment}: {error}"));
        text += &format!("grant {plugin} '{fragment}'\n{}\n", shown(&edited));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_grant_is_taken_back_in_part_or_as_a_whole() {
    let cases = [
        ("desk", "route"),
        ("desk", "route = [\"answer\"]"),
        ("librarian", "tools = [\"search.find\"]"),
        ("librarian", "tools = [\"search.find\", \"search.read\"]"),
        ("librarian", "tools"),
        ("librarian", "model"),
        ("librarian", "tools = [\"notes.save\"]"),
        ("search", "files = [\"/docs\"]"),
        ("search", "files = [{ dir = \"docs\" }]"),
        ("search", "files = [{ dir = \"elsewhere\", at = \"/docs\" }]"),
    ];
    let mut text = String::new();
    for (plugin, fragment) in cases {
        let edited = revoked(DESK, plugin, fragment).unwrap_or_else(|error| panic!("{fragment}: {error}"));
        text += &format!("revoke {plugin} '{fragment}'\n{}\n", shown(&edited));
    }
    insta::assert_snapshot!(text);
}

/// The plugin `a` with one grant, in every form; each gets a tool more, a model, and loses both again.
const FORMS: [&str; 10] = [
    "[plugins.a]\nsource = \"stock:chat\"\ngrants.tools = [\"b.x\"]\n",
    "[plugins.a]\nsource = \"stock:chat\"\ngrants = { tools = [\"b.x\"] }\n",
    "[plugins.a]\nsource = \"stock:chat\"\n[plugins.a.grants]\ntools = [\"b.x\"]\n",
    "[plugins.a]\nsource = \"stock:chat\"\n[plugins.a.grants.tools]\nnames = [\"b.x\"]\ncalls = 3\n",
    "[plugins.a]\nsource = \"stock:chat\"\n  [plugins.a.grants]\n  tools.names = [\"b.x\"] # indented\n",
    "[plugins]\na = { source = \"stock:chat\", grants = { tools = [\"b.x\"] } }\n",
    "[plugins]\na = { source = \"stock:chat\", grants.tools = [\"b.x\"] }\n",
    "[plugins]\na.source = \"stock:chat\"\na.grants.tools = { names = [\"b.x\"], calls = 3 }\n",
    "[plugins.a]\r\nsource = \"stock:chat\"\r\ngrants.tools = [\r\n  \"b.x\", # one\r\n]\r\n",
    "[plugins.a.grants]\ntools = [\"b.x\"]\n[plugins.a]\nsource = \"stock:chat\"\n",
];

const REST: &str = "[plugins.b]\nsource = \"stock:search\"\n[models.m]\nkind = \"scripted\"\nreplies = \"r\"\n[tasks.t]\nagent = \"a\"\n";

#[test]
fn every_form_is_edited_and_brought_back() {
    for form in FORMS {
        let before = format!("entry = \"t\"\n{form}{REST}");
        let with_tool = granted(&before, "a", "tools = [\"b.y\"]").unwrap_or_else(|error| panic!("{error}\n{before}"));
        let with_both = granted(&with_tool.text, "a", "model = [\"m\"]").unwrap_or_else(|error| panic!("{error}\n{}", with_tool.text));
        let grants = &with_both.config.as_ref().unwrap().plugins["a"].grants;
        assert_eq!(grants.tools.as_ref().unwrap().names.len(), 2, "{}", with_both.text);
        assert_eq!(grants.model.as_ref().unwrap().names.len(), 1, "{}", with_both.text);
        let without_model = revoked(&with_both.text, "a", "model").unwrap();
        assert_eq!(without_model.text, with_tool.text);
        let without_tool = revoked(&without_model.text, "a", "tools = [\"b.y\"]").unwrap();
        assert_eq!(without_tool.text, before);
        let without_any = revoked(&before, "a", "tools").unwrap();
        assert!(without_any.config.as_ref().unwrap().plugins["a"].grants.tools.is_none(), "{}", without_any.text);
        let comments = before.matches('#').count();
        assert_eq!(without_any.text.matches('#').count(), comments, "{}", without_any.text);
    }
}

#[test]
fn a_plugin_is_added_behind_the_others() {
    let mut text = String::new();
    let cases = [
        DESK.to_owned(),
        "entry = \"t\"\n".to_owned(),
        "entry = \"t\"".to_owned(),
        String::new(),
        "entry = \"t\"\n\n# work\n[tasks.t]\nagent = \"a\"\n".to_owned(),
        "plugins.a.source = \"stock:chat\"\nentry = \"t\"\n[tasks.t]\nagent = \"a\"\n".to_owned(),
    ];
    for before in cases {
        let mut edit = open(&before);
        edit.add_plugin("notes", "./notes.wasm", &["A stranger's.".to_owned()]).unwrap();
        edit.grant("notes", &Fragment::parse("files = [\"notes\"]").unwrap()).unwrap();
        let edited = edit.text().to_owned();
        assert_eq!(toml::from_str::<toml::Table>(&edited).unwrap()["plugins"]["notes"]["source"].as_str(), Some("./notes.wasm"));
        let changes = conclave_core::config_edit::changes(&before, &edited);
        let lines: String = changes.iter().map(|change| format!("{change}\n")).collect();
        text += &format!("{:?}…\n{lines}\n", before.chars().take(40).collect::<String>());
    }
    insta::assert_snapshot!(text);
}

#[test]
fn what_would_make_the_config_wrong_is_refused() {
    let wrong = |edited: Result<_, EditError>| edited.map(|_: conclave_core::config_edit::Edited| ()).unwrap_err().to_string();
    let mut text = String::new();
    for (plugin, fragment) in [
        ("librarian", "tools = [\"nothing\"]"),
        ("librarian", "model = [\"default\"]"),
        ("desk", "route = [\"nobody\"]"),
        ("librarian", "tools = { names = [\"search.find\"], callz = 1 }"),
        ("search", "files = [{ dir = \"~/docs\", at = \"/home\" }]"),
        ("librarien", "tools = [\"search.find\"]"),
    ] {
        text += &format!("grant {plugin} '{fragment}'\n{}\n\n", wrong(granted(DESK, plugin, fragment)).trim_end());
    }
    let all = DESK.replace("\"search.find\",  ", "\"search.*\",  ");
    text += &wrong(revoked(&all, "librarian", "tools = [\"search.list\"]"));
    insta::assert_snapshot!(text);
}

#[test]
fn a_config_that_was_wrong_before_can_be_edited_and_gets_no_worse() {
    let before = DESK.replace("subtasks = [\"answer\"]", "subtasks = [\"answr\"]");
    let edited = granted(&before, "librarian", "tools = [\"search.list\"]").unwrap();
    assert!(edited.config.is_none() && edited.changes.len() == 1);
    assert!(matches!(granted(&before, "librarian", "tools = [\"nothing\"]"), Err(EditError::Wrong(problems)) if problems.0.len() == 1));
    let broken = conclave_core::config_edit::ConfigText::open("conclave.toml", "", "entry = \"desk");
    assert!(matches!(broken, Err(EditError::Unreadable(problems)) if problems.has_errors()));
}

#[test]
fn nesting_does_not_exhaust_the_stack() {
    for text in [vec!["a"; 10_000].join(".") + " = 1", format!("a = {}", "[".repeat(10_000)), "[a.".repeat(10_000)] {
        assert!(conclave_core::config_edit::ConfigText::open("conclave.toml", "", &text).is_err());
        assert!(Fragment::parse(&text).is_err());
    }
}

#[test]
fn values_are_set_and_removed_by_their_path() {
    let mut edit = open(DESK);
    edit.set(&["limits", "run", "turns"], "7").unwrap();
    edit.set(&["plugins", "search", "limits", "wall"], "\"2 s\"").unwrap();
    edit.set(&["entry"], "\"answer\"").unwrap();
    edit.remove(&["plugins", "desk", "grants"]).unwrap();
    edit.remove(&["nothing", "there"]).unwrap();
    insta::assert_snapshot!(shown(&edit.finish().unwrap()));
}
