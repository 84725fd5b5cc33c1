use serde_json::{Value, json};

use super::{inline, to_json};

fn problems(text: &str) -> Vec<String> {
    let text = to_json("conclave-plugin.toml", text).expect_err("the file has problems");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_whole_file_becomes_the_embedded_json() {
    let text = r#"
        [plugin]
        name = "weather"
        version = "0.1.0"
        contract = "0.1"
        description = "Temperatures."
        license = "Apache-2.0"

        [asks.fetch]
        why = "Reads forecasts."
        urls = ["https://api.met.no/*"]
        [asks.secrets.met_token]
        why = "Lifts the rate limit."
        hosts = ["api.met.no"]
        optional = true

        [config.units]
        type = "string"
        default = "celsius"
    "#;
    let manifest: Value = serde_json::from_str(&to_json("x", text).expect("valid")).expect("JSON");
    let expected = json!({
        "format": 1, "name": "weather", "version": "0.1.0", "contract": "0.1", "description": "Temperatures.", "license": "Apache-2.0",
        "asks": {
            "fetch": { "why": "Reads forecasts.", "optional": false, "urls": ["https://api.met.no/*"] },
            "secrets": { "met_token": { "why": "Lifts the rate limit.", "optional": true, "hosts": ["api.met.no"] } },
        },
        "config": { "units": { "type": "string", "default": "celsius" } },
    });
    assert_eq!(manifest, expected);
}

#[test]
fn all_problems_are_named_at_once_with_their_places() {
    let text = "[plugin]\nname = \"Weather!\"\nlicence = \"MIT\"\n\n[asks.file]\nwhy = \"x\"\n[asks.kv]\noptional = 1\n\n[config.units]\ntype = \"text\"\n";
    let found = problems(text);
    let starts = [
        "conclave-plugin.toml:1:1: [plugin] has no `version`: add one, such as \"0.1.0\"",
        "conclave-plugin.toml:2:8: `name` is \"Weather!\"; it must look like \"weather\"",
        "conclave-plugin.toml:3:1: [plugin] has an unknown key `licence`; remove it or use one of name, version",
        "conclave-plugin.toml:5:7: unknown capability `file`; there are model, tools",
        "conclave-plugin.toml:7:1: [asks.kv] has no `why`: add a sentence",
        "conclave-plugin.toml:8:12: [asks.kv] `optional` must be true or false",
        "conclave-plugin.toml:11:8: [config.units] `type` must be one of string",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (problem, start) in found.iter().zip(starts) {
        assert!(problem.starts_with(start), "{problem}\n{start}");
    }
}

#[test]
fn a_file_that_is_no_toml_says_where() {
    assert!(
        problems("[plugin]\nname = \"a\nversion = \"0.1.0\"")
            .iter()
            .all(|problem| problem.starts_with("conclave-plugin.toml:"))
    );
}

#[test]
fn what_is_there_twice_names_the_first_line() {
    let head = "[plugin]\nname = \"a\"\nversion = \"1.0.0\"\n";
    let tables = "[asks.tools]\nwhy = \"x\"\n[asks.kv]\nwhy = \"y\"\n[asks.tools]\nwhy = \"z\"\n";
    let found = problems(&format!("{head}{tables}"));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].ends_with("duplicate key: line 4 has it already"), "{found:#?}");
    assert!(found[0].starts_with("conclave-plugin.toml:8:"), "{found:#?}");
    let found = problems(&format!("{head}license = \"MIT\"\nname = \"b\"\n"));
    assert!(found[0].ends_with("duplicate key: line 2 has it already"), "{found:#?}");
}

#[test]
fn a_secret_by_its_name_takes_its_own_keys_only() {
    let head = "[plugin]\nname = \"a\"\nversion = \"1.0.0\"\n";
    let found = problems(&format!("{head}[asks.secrets.token]\nplaces = [\"body\"]\n"));
    assert_eq!(
        found,
        [
            "conclave-plugin.toml:4:1: [asks.secrets.token] has no `why`: add a sentence that tells the operator what it is for",
            "conclave-plugin.toml:5:1: [asks.secrets.token] has an unknown key `places`; remove it or use one of why, hosts, optional",
        ]
    );
}

#[test]
fn a_default_must_have_the_type_it_names() {
    let text = "[plugin]\nname = \"a\"\nversion = \"1.0.0\"\n[config.n]\ntype = \"integer\"\ndefault = \"3\"\n";
    assert_eq!(problems(text), ["conclave-plugin.toml:6:11: [config.n] `default` is no integer"]);
}

#[test]
fn another_contract_is_refused() {
    let text = "[plugin]\nname = \"a\"\nversion = \"1.0.0\"\ncontract = \"9.9\"\n";
    assert_eq!(
        problems(text),
        ["conclave-plugin.toml:4:12: `contract` is \"9.9\"; this version builds for \"0.1\""]
    );
}

#[test]
fn an_empty_file_lacks_its_table() {
    assert_eq!(
        problems(""),
        [
            "conclave-plugin.toml:1:1: the table [plugin] is missing: add it, with `name` and `version`"
        ]
    );
}

#[test]
fn a_manifest_of_asks_alone_has_the_name_of_its_crate_and_no_text_that_its_author_did_not_write() {
    let manifest: Value = serde_json::from_str(
        &inline("files_read", "0.1.0", &[("files".into(), true)]).expect("valid"),
    )
    .expect("JSON");
    assert_eq!(
        (&manifest["name"], &manifest["asks"]["files"]["optional"]),
        (&json!("files-read"), &json!(true))
    );
    for text in [&manifest["description"], &manifest["license"], &manifest["asks"]["files"]["why"]]
    {
        assert_eq!(text, "");
    }
    assert!(inline("x", "0.1.0", &[("disk".into(), false)]).is_err());
}
