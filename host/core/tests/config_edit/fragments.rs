//! The forms in which a grant can be written.

use conclave_core::config::edit::{Fragment, FragmentError};

#[test]
fn a_grant_is_read_in_each_of_its_forms() {
    let cases = [
        ("tools = [\"a.b\"]", None, "tools = [\"a.b\"]"),
        ("grants.tools = [\"a.b\"]", None, "tools = [\"a.b\"]"),
        ("grants = { tools = [\"a.b\"] }", None, "tools = [\"a.b\"]"),
        ("[plugins.desk] grants.tools = [\"a.b\"]", Some("desk"), "tools = [\"a.b\"]"),
        ("  [plugins.desk]\n  grants.tools = [\"a.b\"] # why\n", Some("desk"), "tools = [\"a.b\"]"),
        ("[plugins.desk.grants] tools = [\"a.b\"]", Some("desk"), "tools = [\"a.b\"]"),
        ("plugins.desk.grants.tools = [\"a.b\"]", Some("desk"), "tools = [\"a.b\"]"),
        (
            "tools = { names = [\"a.b\"], calls = 3 }",
            None,
            "tools = { names = [\"a.b\"], calls = 3 }",
        ),
        (
            "tools = [\"a.b\"]\nmodel = [\"default\"]",
            None,
            "tools = [\"a.b\"]; model = [\"default\"]",
        ),
        (
            "files = [{ dir = \"docs\", at = \"/docs\" }]",
            None,
            "files = [{ dir = \"docs\", at = \"/docs\" }]",
        ),
    ];
    for (text, plugin, expected) in cases {
        let fragment = Fragment::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(
            (fragment.plugin.as_deref(), fragment.to_string().as_str()),
            (plugin, expected),
            "{text}"
        );
        assert_eq!(Fragment::parse_revoked(text).unwrap(), fragment, "{text}");
    }
    for name in ["tools", "grants.tools"] {
        assert_eq!(Fragment::parse_revoked(name).unwrap().to_string(), "tools");
    }
}

#[test]
fn what_grants_nothing_is_said_with_what_to_write() {
    let cases = [
        "",
        "tools",
        "tools = ",
        "tools = []",
        "tools = \"a.b\"",
        "tools = [1]",
        "tools = { calls = 3 }",
        "toolz = [\"a.b\"]",
        "flying = [\"a.b\"]",
        "exec = \"/bin/ls\"",
        "fetch = \"https://models.example/*\"",
        "kv = false",
        "source = \"stock:chat\"",
        "[plugins.desk]",
        "[plugins.a]\ngrants.tools = [\"x.y\"]\n[plugins.b]\ngrants.tools = [\"x.y\"]",
        "route = { names = [\"x\"] }",
        "tools = [\"\u{1b}[2J",
    ];
    let mut report = String::new();
    for text in cases {
        let error: FragmentError = Fragment::parse(text).unwrap_err();
        let safe: String = error.to_string();
        assert!(!safe.contains('\u{1b}'));
        report += &format!("{text:?}\n    {}\n", safe.replace('\n', "\n    "));
    }
    insta::assert_snapshot!(report);
}
