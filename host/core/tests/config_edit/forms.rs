//! One edit in each TOML form of a config.

use conclave_core::config::edit::{ConfigEditError, EditedConfig, Fragment};

use super::{DESK, granted, open, render_changes, revoked};

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
        let edited =
            granted(DESK, plugin, fragment).unwrap_or_else(|error| panic!("{fragment}: {error}"));
        text += &format!("grant {plugin} '{fragment}'\n{}\n", render_changes(&edited));
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
        ("librarian", "tools = [\"search.read\", \"notes.save\"]"),
        ("librarian", "tools = [\"search.*\"]"),
        ("search", "files = [\"/docs\"]"),
        ("search", "files = [{ dir = \"docs\" }]"),
        ("search", "files = [{ dir = \"./docs/\", at = \"/docs\" }]"),
    ];
    let mut text = String::new();
    for (plugin, fragment) in cases {
        let edited =
            revoked(DESK, plugin, fragment).unwrap_or_else(|error| panic!("{fragment}: {error}"));
        text += &format!("revoke {plugin} '{fragment}'\n{}\n", render_changes(&edited));
    }
    insta::assert_snapshot!(text);
}

/// Returns the config with other tools granted to its librarian.
fn with_tools(tools: &str) -> String {
    let (before, rest) = DESK.split_once("grants.tools = [").unwrap();
    format!("{before}grants.tools = {tools} {}", rest.split_once(']').unwrap().1)
}

/// Returns the tools that the plugin may call after the edit.
fn tools(edited: &EditedConfig, plugin: &str) -> Vec<String> {
    let grant = edited.config.as_ref().unwrap().plugins[plugin].grants.tools.as_ref();
    grant.into_iter().flat_map(|grant| &grant.names).map(|pattern| pattern.0.clone()).collect()
}

#[test]
fn what_is_taken_back_is_granted_by_nothing_else() {
    let cases = [
        ("[\"search.list\", \"search.*\"]", "search.list", Some("search.*")),
        ("[\"search.list\", \"*\"]", "search.list", Some("*")),
        ("[\"search.*\", \"*\"]", "search.*", Some("*")),
        ("[\"search.read\", \"*\"]", "search.*", Some("*")),
        ("[\"search.list\", \"search.list\", \"search.read\"]", "search.list", None),
        ("[\"search.read\", \"search.list\", \"desk.x\"]", "search.*", None),
        ("[\"search.read\", \"search.list\"]", "search.*", None),
        ("[\"search.read\", \"search.*\", \"desk.*\"]", "*", None),
    ];
    for (granted, tool, wider) in cases {
        let revoked = revoked(&with_tools(granted), "librarian", &format!("tools = [\"{tool}\"]"));
        match (revoked, wider) {
            (Err(ConfigEditError::Wider { entry, wider }), Some(expected)) => {
                assert_eq!((entry.as_str(), wider.as_str()), (tool, expected))
            }
            (Ok(edited), None) => {
                let remaining = tools(&edited, "librarian");
                let covered = conclave_core::permissions::grants::ToolPattern(tool.to_owned());
                assert!(
                    remaining.iter().all(|name| !covered.covers(name)),
                    "{granted}: {remaining:?}"
                );
            }
            (other, _) => panic!("{granted} without {tool}: {other:?}"),
        }
    }
}

#[test]
fn a_refused_revocation_leaves_the_text() {
    let text = with_tools("[\"search.list\", \"search.read\", \"*\"]");
    let mut edit = open(&text);
    let fragment = Fragment::parse("model = [\"m\"]\ntools = [\"search.read\"]").unwrap();
    assert!(edit.revoke("librarian", &fragment).is_err());
    assert_eq!(edit.text(), text);
}

#[test]
fn taking_back_what_is_not_granted_is_an_error() {
    for (plugin, fragment) in [
        ("librarian", "model"),
        ("librarian", "tools = [\"notes.save\"]"),
        ("librarian", "tools = [\"notes.*\"]"),
        ("search", "files = [{ dir = \"elsewhere\", at = \"/docs\" }]"),
        ("search", "files = [{ dir = \"/docs\" }]"),
    ] {
        let error = revoked(DESK, plugin, fragment).unwrap_err();
        assert!(matches!(error, ConfigEditError::NotGranted { .. }), "{fragment}: {error}");
        assert!(error.to_string().contains(plugin), "{error}");
    }
}

const FETCH: &str = "grants.fetch = { urls = [\"http://127.0.0.1/*\", \"https://a.example/*\"], private = [\"127.0.0.1\", \"10.0.0.0/8\"], requests = 5 }";

#[test]
fn private_networks_are_taken_back_with_the_rest() {
    let text = DESK.replace("grants.files = [{ dir", &format!("{FETCH}\ngrants.files = [{{ dir"));
    let one = revoked(
        &text,
        "search",
        "fetch = { urls = [\"http://127.0.0.1/*\"], private = [\"127.0.0.1/32\"] }",
    )
    .unwrap()
    .text;
    assert!(one.contains("grants.fetch = { urls = [\"https://a.example/*\"], private = [\"10.0.0.0/8\"], requests = 5 }"), "{one}");
    let all = revoked(&text, "search", "fetch = { private = [\"10.0.0.0/8\", \"127.0.0.1\"] }")
        .unwrap()
        .text;
    assert!(all.contains("https://a.example/*\"], requests = 5 }"), "{all}");
    let error = revoked(&text, "search", "fetch = { private = [\"192.168.0.1\"] }").unwrap_err();
    assert!(matches!(error, ConfigEditError::NotGranted { .. }), "{error}");
    // An edit that revoke does not support is an error.
    let error =
        revoked(&text, "search", "fetch = { urls = [\"https://a.example/*\"], requests = 5 }")
            .unwrap_err();
    assert!(matches!(&error, ConfigEditError::Limit { key, .. } if key == "requests"), "{error}");
}

#[test]
fn headers_are_granted_as_a_line_proposes_and_taken_back_one_by_one() {
    let text = DESK.replace(
        "grants.files = [{ dir",
        "grants.fetch = [\"https://a.example/*\"]\ngrants.files = [{ dir",
    );
    let line = "fetch = { urls = [\"https://a.example/*\"], headers = [\"x-own\", \"x-other\"] }";
    let both = granted(&text, "search", line).unwrap().text;
    assert!(both.contains(&format!("grants.{line}")), "{both}");
    let one = revoked(&both, "search", "fetch = { headers = [\"X-Own\"] }").unwrap().text;
    assert!(one.contains("headers = [\"x-other\"] }"), "{one}");
    let none = revoked(&one, "search", "fetch = { headers = [\"x-other\"] }").unwrap().text;
    assert!(
        none.contains("urls = [\"https://a.example/*\"] }") && !none.contains("headers"),
        "{none}"
    );
}

#[test]
fn a_folder_with_another_quota_takes_the_place_of_the_old_one() {
    let with =
        |entry: &str| DESK.replace("{ dir = \"docs\", at = \"/docs\", mode = \"read\" }", entry);
    let old = "{ dir = \"docs\", at = \"/docs\", mode = \"read-write\", bytes = \"1 MiB\" }";
    for new in [
        old.replace("1 MiB", "2 MiB"),
        old.replace("bytes = \"1 MiB\"", "files = 5"),
        "{ dir = \"docs\", at = \"/docs\", mode = \"read\" }".to_owned(),
    ] {
        let edited = granted(&with(old), "search", &format!("files = [{new}]")).unwrap();
        assert_eq!(edited.text, with(&new));
    }
    for same in [old.to_owned(), old.replace(", bytes = \"1 MiB\"", "")] {
        let edited = granted(&with(old), "search", &format!("files = [{same}]")).unwrap();
        assert_eq!(edited.text, with(old), "what it does not name stays");
    }
}

#[test]
fn limits_without_their_list_are_told_so() {
    let error = Fragment::parse("fetch = { requests = 5 }").unwrap_err().to_string();
    assert!(
        error.contains("`fetch` needs `urls`") && error.contains("fetch = { urls = [\"https://"),
        "{error}"
    );
    assert!(
        Fragment::parse("fetch = { private = [\"10.0.0.1\"] }").is_err(),
        "networks alone grant nothing"
    );
}

#[test]
fn a_folder_is_one_however_it_is_written() {
    let docs = "files = [{ dir = \"docs\", at = \"/docs\", mode = \"read\" }";
    let more = format!(
        "{docs}, {{ dir = \"./docs\", at = \"/a\" }}, {{ dir = \"docs/\", at = \"/b\" }}, {{ dir = \"x\", at = \"/x\" }}"
    );
    let text = DESK.replace(docs, &more);
    for written in ["docs", "./docs", "docs/", "x/..//./docs"] {
        let edited =
            revoked(&text, "search", &format!("files = [{{ dir = \"{written}\" }}]")).unwrap();
        assert!(
            edited.text.contains("grants.files = [{ dir = \"x\", at = \"/x\" }]"),
            "{written}: {}",
            edited.text
        );
        let repeated_grant = granted(
            DESK,
            "search",
            &format!("files = [{{ dir = \"{written}\", at = \"/docs\" }}]"),
        )
        .unwrap();
        assert_eq!(repeated_grant.text, DESK, "{written}");
    }
    let tables = "[[plugins.search.grants.files]]\ndir = \"docs\" # one\n[[plugins.search.grants.files]]\ndir = \"./docs\"\nat = \"/b\"\n[[plugins.search.grants.files]]\ndir = \"x\"\nat = \"/x\"\n[plugins.search.limits]\n";
    let text = DESK.replace(&format!("grants.{docs}]\n"), tables).replace("limits = {", "# {");
    let edited = revoked(&text, "search", "files = [{ dir = \"docs\" }]").unwrap();
    assert_eq!(
        edited.text.matches("[[plugins.search.grants.files]]").count(),
        1,
        "{}",
        edited.text
    );
    assert!(!edited.text.contains("docs\""), "{}", edited.text);
}

#[test]
fn a_string_of_many_lines_is_not_taken_for_a_comment() {
    let long = "config.b = '''\nv      # w'''  # x\ngrants.tools";
    let text = DESK
        .replace("grants.tools", long)
        .replace("\"search.read\",", "'search.read', '''search.list''',");
    for fragment in ["tools = [\"search.look\"]", "model = [\"m\"]"] {
        let text = text.clone() + "[models.m]\nkind = \"scripted\"\nreplies = \"r\"\n";
        let edited = granted(&text, "librarian", fragment).unwrap();
        assert!(edited.text.contains(long), "{}", edited.text);
    }
    let inline = "entry = \"t\"\n[plugins]\na = { source = \"stock:chat\", grants = { route = [\"user\"] }, config = { b = '''\nv      # w''' } }\n[tasks.t]\nagent = \"a\"\n";
    let edited = revoked(inline, "a", "route").unwrap();
    assert!(edited.text.contains("v      # w"), "{}", edited.text);
    let edited = granted(inline, "a", "route = [\"done\"]").unwrap();
    assert!(edited.text.contains("v      # w"), "{}", edited.text);
}

#[test]
fn many_entries_are_granted_and_taken_back_at_once() {
    let names: Vec<String> = (0..40).map(|index| format!("\"search.t{index}\"")).collect();
    let fragment = format!("tools = [{}, \"search.t3\", \"search.find\"]", names.join(", "));
    let edited = granted(DESK, "librarian", &fragment).unwrap();
    assert_eq!(tools(&edited, "librarian").len(), 42);
    let back =
        revoked(&edited.text, "librarian", &format!("tools = [{}]", names.join(", "))).unwrap();
    assert_eq!(back.text, DESK);
}

/// The plugin `a` with one grant, in every form. Each is granted another tool and a model, and
/// loses both again.
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
        let with_tool = granted(&before, "a", "tools = [\"b.y\"]")
            .unwrap_or_else(|error| panic!("{error}\n{before}"));
        let with_both = granted(&with_tool.text, "a", "model = [\"m\"]")
            .unwrap_or_else(|error| panic!("{error}\n{}", with_tool.text));
        let grants = &with_both.config.as_ref().unwrap().plugins["a"].grants;
        assert_eq!(grants.tools.as_ref().unwrap().names.len(), 2, "{}", with_both.text);
        assert_eq!(grants.model.as_ref().unwrap().names.len(), 1, "{}", with_both.text);
        let without_model = revoked(&with_both.text, "a", "model").unwrap();
        assert_eq!(without_model.text, with_tool.text);
        let without_tool = revoked(&without_model.text, "a", "tools = [\"b.y\"]").unwrap();
        assert_eq!(without_tool.text, before);
        let without_any = revoked(&before, "a", "tools").unwrap();
        assert!(
            without_any.config.as_ref().unwrap().plugins["a"].grants.tools.is_none(),
            "{}",
            without_any.text
        );
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
        assert_eq!(
            toml::from_str::<toml::Table>(&edited).unwrap()["plugins"]["notes"]["source"].as_str(),
            Some("./notes.wasm")
        );
        let changes = conclave_core::config::edit::changes(&before, &edited);
        let lines: String = changes.iter().map(|change| format!("{change}\n")).collect();
        text += &format!("{:?}…\n{lines}\n", before.chars().take(40).collect::<String>());
    }
    insta::assert_snapshot!(text);
}

#[test]
fn what_would_make_the_config_wrong_is_refused() {
    let wrong = |edited: Result<_, ConfigEditError>| {
        edited.map(|_: EditedConfig| ()).unwrap_err().to_string()
    };
    let mut text = String::new();
    for (plugin, fragment) in [
        ("librarian", "tools = [\"nothing\"]"),
        ("librarian", "model = [\"default\"]"),
        ("desk", "route = [\"nobody\"]"),
        ("librarian", "tools = { names = [\"search.find\"], callz = 1 }"),
        ("search", "files = [{ dir = \"~/docs\", at = \"/home\" }]"),
        ("librarien", "tools = [\"search.find\"]"),
    ] {
        text += &format!(
            "grant {plugin} '{fragment}'\n{}\n\n",
            wrong(granted(DESK, plugin, fragment)).trim_end()
        );
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
    assert!(
        matches!(granted(&before, "librarian", "tools = [\"nothing\"]"), Err(ConfigEditError::Wrong(problems)) if problems.0.len() == 1)
    );
    let broken =
        conclave_core::config::edit::ConfigText::open("conclave.toml", "", "entry = \"desk");
    assert!(matches!(broken, Err(ConfigEditError::Unreadable(problems)) if problems.has_errors()));
}

#[test]
fn nesting_does_not_exhaust_the_stack() {
    for text in [
        vec!["a"; 10_000].join(".") + " = 1",
        format!("a = {}", "[".repeat(10_000)),
        "[a.".repeat(10_000),
    ] {
        assert!(conclave_core::config::edit::ConfigText::open("conclave.toml", "", &text).is_err());
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
    insta::assert_snapshot!(render_changes(&edit.finish().unwrap()));
}

const TOP: &str = "entry = \"t\"\n[plugins.p]\nsource = \"stock:chat\"\n[tasks.t]\nagent = \"p\"\n";
const RULE: &str = "[[policy]]\ntool = \"p.b\"\ndecide = \"allow\"\n";

/// Returns the config with the rule inserted before the rule of this index, or at the end.
fn with_rule(text: &str, before: Option<usize>) -> String {
    let mut edit = open(text);
    edit.add_rules(before, &[RULE.to_owned()]).unwrap();
    let edited = edit.finish().unwrap();
    let config = edited.config.unwrap();
    let at = before.unwrap_or(config.policy.len() - 1);
    assert_eq!(config.policy[at].tool.0, "p.b", "{}", edited.text);
    edited.text
}

#[test]
fn a_rule_is_written_behind_the_others_or_at_the_end() {
    assert_eq!(with_rule(TOP, None), format!("{TOP}\n{RULE}"));
    assert_eq!(with_rule(TOP.trim_end(), None), format!("{TOP}\n{RULE}"));
    let one = "\n[[policy]] # mine\ntool = \"p.*\"\ndecide = \"ask\"  # of course\n";
    let limits = "\n# all\n[limits.run]\nturns = 3\n";
    assert_eq!(
        with_rule(&format!("{TOP}{one}{limits}"), None),
        format!("{TOP}{one}\n{RULE}{limits}")
    );
}

#[test]
fn a_rule_is_written_before_another_and_its_comment() {
    let one = "[[policy]]\ntool = \"p.a\"\ndecide = \"deny\"\n";
    let two = "# what p does\n[[policy]]\ntool = \"p.*\"\ndecide = \"ask\"\n";
    assert_eq!(
        with_rule(&format!("{TOP}{one}\n{two}"), Some(1)),
        format!("{TOP}{one}\n{RULE}\n{two}")
    );
    let crlf = |text: &str| text.replace('\n', "\r\n");
    assert_eq!(
        with_rule(&crlf(&format!("{TOP}{two}")), Some(0)),
        crlf(&format!("{TOP}\n{RULE}\n{two}"))
    );
}

#[test]
fn a_policy_in_brackets_is_edited_by_hand() {
    let text = format!("policy = [{{ tool = \"p.*\", decide = \"ask\" }}]\n{TOP}");
    for before in [Some(0), None] {
        let refused = open(&text).add_rules(before, &[RULE.to_owned()]);
        assert!(matches!(refused, Err(ConfigEditError::Form(_))));
    }
    assert!(matches!(
        open(TOP).add_rules(Some(0), &[RULE.to_owned()]),
        Err(ConfigEditError::Form(_))
    ));
}

#[test]
fn what_is_not_edited_stays_byte_for_byte() {
    // Forms that `toml_edit` would not preserve: separate dotted keys, a header with other quotes,
    // mixed line ends, blanks around dots, a byte order mark, no last line end.
    let before = "\u{feff}entry = \"t\"\r\n[ plugins . 'a' ]\nsource = \"stock:chat\"\ngrants.route = [\"t\"] # why\r\n\
        limits.memory = \"64 MiB\"\ngrants . tools = [ \"b.x\" ]\nlimits.cpu = \"5 s\"\n[plugins.\"a\".config]\r\nv = '''\r\nw\n'''\n\
        [plugins.b]\nsource = \"stock:search\"\n[tasks.t]\nagent = \"a\"";
    let edited = granted(before, "a", "tools = [\"b.y\"]").unwrap().text;
    assert_eq!(edited, before.replace("[ \"b.x\" ]", "[ \"b.x\", \"b.y\" ]"));
    let edited = granted(before, "a", "delegate = [\"t\"]").unwrap().text;
    let line = "grants . tools = [ \"b.x\" ]\n";
    assert_eq!(edited, before.replace(line, &format!("{line}grants.delegate = [\"t\"]\r\n")));
    let edited = revoked(before, "a", "route").unwrap().text;
    assert_eq!(edited, before.replace("grants.route = [\"t\"] # why", "# why"));
    let mut edit = open(before);
    edit.set(&["entry"], "\"t\"").unwrap();
    edit.set(&["tasks", "t", "agent"], "\"b\"").unwrap();
    assert_eq!(edit.text(), before.replace("agent = \"a\"", "agent = \"b\""));
    let mixed = before.replace("[ \"b.x\" ]", "[\r\n\"b.x\"\n]");
    assert!(matches!(granted(&mixed, "a", "tools = [\"b.y\"]"), Err(ConfigEditError::Form(_))));
}

#[test]
fn a_comment_stays_in_its_column() {
    let cases = [
        ("1       # x\n", "[1, 2]", "[1, 2]  # x\n"),
        ("[1, 2]    # x\r\n", "1", "1         # x\r\n"),
        ("1  # x", "[1, 2]", "[1, 2]  # x"),
        ("1 # x", "[1, 2]", "[1, 2] # x"),
        ("\"#\"   # x", "\"##\"", "\"##\"  # x"),
        ("'''\nv'''   # x", "'''\nvv'''", "'''\nvv'''  # x"),
    ];
    for (before, value, after) in cases {
        let mut edit = open(&format!("a = {before}"));
        edit.set(&["a"], value).unwrap();
        assert_eq!(edit.text(), format!("a = {after}"), "{before:?}");
    }
}
