//! The layers of every capability, allowed and refused by each layer, and the agreement of
//! explanations with decisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::config::Config;
use crate::config::assemble::assemble;
use crate::inspect::permission_summary::rights_table;
use crate::permissions::grants::ToolPattern;
use crate::permissions::manifest::{CapabilityRequest, Manifest};
use crate::setup::{GatePoint, GateRule, PluginFacts};
use crate::types::denial::Denial;
use crate::types::plugin_kind::PluginKind;
use crate::types::tool::ToolSpec;

const CONFIG: &str = r#"
entry = "desk"
[models.default]
kind = "scripted"
replies = "r.json"
[plugins.desk]
source = "desk.wasm"
grants.tools = { names = ["notes.list", "notes.save", "notes.drop"], calls = 5 }
grants.model = ["default"]
grants.route = ["user"]
grants.delegate = ["digest"]
[plugins.notes]
source = "notes.wasm"
grants.files = [{ dir = "notes", at = "/notes", mode = "read" }, { dir = "out", at = "/out", mode = "read-write" }]
grants.kv = true
[plugins.voice]
source = "voice.wasm"
grants.channels = ["terminal"]
[tasks.desk]
agent = "desk"
tools = ["notes.list", "notes.drop"]
[tasks.digest]
agent = "desk"
tools = ["notes.list"]
delivery_strategy = "voice"
[[policy]]
tool = "notes.drop"
decide = "deny"
"#;

fn facts(kinds: &[PluginKind], asks: &[&str], tools: &[&str]) -> PluginFacts {
    let ask = |name: &&str| {
        (
            (*name).to_owned(),
            CapabilityRequest {
                why: format!("Needs {name}."),
                optional: true,
                detail: BTreeMap::new(),
            },
        )
    };
    let tool = |name: &&str| ToolSpec {
        name: (*name).to_owned(),
        input_schema: json!({ "type": "object" }),
        ..ToolSpec::default()
    };
    serde_json::from_value(json!({
        "manifest": Manifest { name: "x".to_owned(), asks: asks.iter().map(ask).collect(), ..Manifest::default() },
        "kinds": kinds,
        "tools": tools.iter().map(tool).collect::<Vec<_>>(),
        "sha256": "00",
        "mcp": false,
    }))
    .unwrap()
}

pub(in crate::inspect) fn setup() -> Setup {
    let config =
        Config::parse("c.toml", "", CONFIG).unwrap_or_else(|problems| panic!("{problems}"));
    let all = ["tools", "model", "route", "delegate"];
    let plugins = BTreeMap::from([
        ("desk".into(), facts(&[PluginKind::Agent], &all, &[])),
        ("notes".into(), facts(&[PluginKind::Tools], &["files", "kv"], &["list", "save", "drop"])),
        ("voice".into(), facts(&[PluginKind::DeliveryStrategy], &["channels"], &[])),
    ]);
    assemble(&config, &plugins).unwrap_or_else(|problems| panic!("{problems}")).setup
}

fn ask(plugin: &str, capability: Capability, target: &str) -> AccessQuestion {
    AccessQuestion::new(plugin, capability).of(target)
}

fn answer(question: &AccessQuestion) -> Explanation {
    explain(&setup(), question).unwrap()
}

/// Returns layer and verdict of each answer.
fn verdicts(explanation: &Explanation) -> Vec<(Layer, LayerVerdict)> {
    explanation.layers.iter().map(|answer| (answer.layer, answer.verdict)).collect()
}

#[test]
fn what_is_granted_is_a_yes_of_every_layer() {
    let cases = [
        ask("desk", Capability::Model, "default"),
        ask("desk", Capability::Route, "USER"),
        ask("desk", Capability::Delegate, "digest"),
        ask("notes", Capability::Files, "/notes/a.md"),
        ask("voice", Capability::Channels, "terminal"),
        AccessQuestion::new("notes", Capability::Kv),
        AccessQuestion::new("notes", Capability::Scratch),
        AccessQuestion { writes: true, ..ask("notes", Capability::Files, "/out/a.md") },
    ];
    for question in cases {
        let explanation = answer(&question);
        assert_eq!(
            (explanation.verdict, explanation.denied_by()),
            (LayerVerdict::Yes, None),
            "{question:?}"
        );
        assert!(
            explanation.layers.iter().all(|answer| answer.verdict == LayerVerdict::Yes),
            "{explanation:?}"
        );
        assert_eq!((explanation.suggestion, explanation.no_suggestion), (None, None));
    }
}

#[test]
fn each_layer_refuses_and_those_behind_it_are_not_reached() {
    use Layer::{Config, Manifest, Policy, Runtime, Task};
    use LayerVerdict::{No, NotReached, Yes};
    let explanation = answer(&ask("notes", Capability::Model, "default"));
    assert_eq!(verdicts(&explanation), [(Manifest, No), (Config, NotReached)]);
    assert!(explanation.no_suggestion.unwrap().contains("only its author"));

    let explanation = answer(&ask("notes", Capability::Files, "/other/a.md"));
    assert_eq!(verdicts(&explanation), [(Manifest, Yes), (Config, No), (Runtime, NotReached)]);
    let line = "[plugins.notes] grants.files = [{ dir = \"notes\", at = \"/notes\", mode = \"read\" }, \
                { dir = \"out\", at = \"/out\", mode = \"read-write\" }, { dir = \"…\", at = \"/other\", mode = \"read\" }]";
    assert_eq!(explanation.suggestion.as_deref(), Some(line));
    let text = &explanation.layers[1].text;
    assert!(
        text.contains("choose the folder that the plugin shall see as /other, or, if a granted folder is meant"),
        "{text}"
    );

    let explanation = answer(&ask("desk", Capability::Tools, "notes.other"));
    assert_eq!(explanation.denied_by(), Some(Config));
    let text = &explanation.layers[1].text;
    assert!(
        text.ends_with("does not cover it; if tasks.desk lists `tools`, add it there too"),
        "{text}"
    );

    let explanation = answer(&ask("desk", Capability::Tools, "notes.save"));
    assert_eq!(
        verdicts(&explanation),
        [(Manifest, Yes), (Config, Yes), (Task, No), (Policy, NotReached), (Runtime, NotReached)]
    );
    assert_eq!(explanation.suggestion.as_deref(), Some("add \"notes.save\" to tasks.desk.tools"));

    let explanation = answer(&ask("desk", Capability::Tools, "notes.drop"));
    assert_eq!(
        verdicts(&explanation),
        [(Manifest, Yes), (Config, Yes), (Task, Yes), (Policy, No), (Runtime, NotReached)]
    );
    assert!(explanation.layers[3].text.contains("c.toml:26"), "{:?}", explanation.layers[3]);

    let explanation = answer(&ask("notes", Capability::Files, "/notes/../etc"));
    assert_eq!(verdicts(&explanation), [(Manifest, Yes), (Config, Yes), (Runtime, No)]);
}

#[test]
fn one_task_is_asked_about_when_it_is_named() {
    let of = |task: &str| AccessQuestion {
        task: Some(task.into()),
        ..ask("desk", Capability::Tools, "notes.drop")
    };
    assert_eq!(answer(&of("digest")).denied_by(), Some(Layer::Task));
    assert_eq!(answer(&of("desk")).denied_by(), Some(Layer::Policy));
    assert!(matches!(explain(&setup(), &of("none")), Err(NoAnswer::Task(_))));
    let other = AccessQuestion {
        task: Some("desk".into()),
        ..ask("notes", Capability::Tools, "notes.drop")
    };
    assert!(matches!(explain(&setup(), &other), Err(NoAnswer::OtherAgent { .. })));
    assert!(matches!(
        explain(&setup(), &ask("none", Capability::Kv, "")),
        Err(NoAnswer::Plugin(_))
    ));
}

#[test]
fn a_tool_that_would_be_asked_about_is_neither_yes_nor_no() {
    // `notes` may write, so each call of its tools needs an approver unless a rule decides.
    let explanation = answer(&ask("desk", Capability::Tools, "notes.list"));
    assert_eq!((explanation.verdict, explanation.denied_by()), (LayerVerdict::Ask, None));
    let policy = explanation.layers.iter().find(|answer| answer.layer == Layer::Policy).unwrap();
    assert!(policy.text.contains("write out/"), "{policy:?}");
}

#[test]
fn no_line_is_offered_for_what_nobody_should_paste() {
    let cases = [
        ("/home/me/.ssh/id_ed25519", "it is a key file"),
        ("/work/.env", "it is a hidden file"),
        ("/etc/passwd", "it is in a system folder"),
    ];
    for (path, why) in cases {
        let explanation = answer(&ask("notes", Capability::Files, path));
        assert_eq!(
            (explanation.verdict, &explanation.suggestion),
            (LayerVerdict::No, &None),
            "{path}"
        );
        assert!(explanation.no_suggestion.as_ref().unwrap().starts_with(why), "{explanation:?}");
    }
}

#[test]
fn writing_needs_more_than_reading() {
    let question =
        AccessQuestion { writes: true, ..ask("notes", Capability::Files, "/notes/a.md") };
    let explanation = answer(&question);
    assert_eq!(explanation.denied_by(), Some(Layer::Config));
    let smallest = explanation.suggestion.unwrap();
    assert!(
        smallest.contains("at = \"/notes\", mode = \"read-write\" }, { dir = \"out\", at = \"/out\", mode = \"read-write\""),
        "{smallest}"
    );
}

#[test]
fn the_key_that_decides_is_named() {
    let config = Config::parse("c.toml", "", CONFIG).unwrap();
    let explanation = answer(&ask("notes", Capability::Files, "/out/a.md"));
    let key = explanation
        .layers
        .iter()
        .find(|answer| answer.layer == Layer::Config)
        .unwrap()
        .key
        .clone()
        .unwrap();
    assert_eq!((key.as_str(), config.locate(&key).line), ("plugins.notes.grants.files[1]", 14));
}

#[test]
fn a_refusal_that_happened_is_explained_by_what_was_recorded() {
    let setup = setup();
    let denial =
        Denial { capability: "tools".into(), target: "notes.list".into(), detail: String::new() };
    let record = DenialRecord {
        denial,
        layer: Layer::Runtime,
        reason: "desk has made the 5 calls".into(),
        suggestion: None,
        writes: false,
    };
    let explanation = explain_denial(&setup, &"desk".into(), &record, None);
    let last = explanation.layers.last().unwrap();
    assert_eq!(
        (last.layer, last.verdict, last.text.as_str()),
        (Layer::Runtime, LayerVerdict::No, "desk has made the 5 calls")
    );
    assert_eq!(explanation.denied_by(), Some(Layer::Runtime));
    // A layer without a text of its own, and an unknown plugin: the refusal is still shown.
    for (plugin, layer) in [("desk", Layer::Host), ("gone", Layer::Config)] {
        let record = DenialRecord { layer, ..record.clone() };
        assert_eq!(explain_denial(&setup, &plugin.into(), &record, None).denied_by(), Some(layer));
    }
}

#[test]
fn a_recorded_refusal_says_itself_whether_it_was_to_be_written() {
    let setup = setup();
    let folder = "/read-write/a.md";
    for (target, writes) in
        [(folder, false), (folder, true), ("/else/a.md", false), ("/else/a.md", true)]
    {
        let refused = AccessQuestion { writes, ..ask("notes", Capability::Files, target) };
        let record = layers::decide(&setup, &refused).unwrap_err();
        // The proposed line grants `read-write` for another folder as well, so its text must not
        // reveal whether the access was a write.
        assert!(
            record.suggestion.as_ref().is_some_and(|line| line.contains("read-write")),
            "{record:?}"
        );
        let journal = serde_json::to_string(&record).unwrap();
        let record: DenialRecord = serde_json::from_str(&journal).unwrap();
        let question = question_of(&"notes".into(), &record, None);
        assert_eq!(question.writes, writes, "{journal}");
        assert_eq!(
            explain_denial(&setup, &"notes".into(), &record, None),
            explain(&setup, &refused).unwrap()
        );
    }
    let old = json!({ "capability": "files", "target": folder, "detail": "", "layer": "config", "reason": "no" });
    assert!(
        !serde_json::from_value::<DenialRecord>(old).unwrap().writes,
        "as hosts before wrote it"
    );
}

#[test]
fn a_command_is_explained_by_the_pattern_that_covers_it() {
    let text = r#"
entry = "desk"
[plugins.desk]
source = "./desk.wasm"
[plugins.build]
source = "./build.wasm"
grants.exec = ["/usr/bin/git status", "/usr/bin/git log *"]
[tasks.desk]
agent = "desk"
"#;
    let config = Config::parse("conclave.toml", "", text).unwrap();
    let plugins = [
        ("desk".into(), facts(&[PluginKind::Agent], &[], &[])),
        ("build".into(), facts(&[PluginKind::Tools], &["exec"], &["run"])),
    ];
    let setup = assemble(&config, &plugins.into()).unwrap().setup;
    let explained = |command| explain(&setup, &ask("build", Capability::Exec, command)).unwrap();
    let yes = explained("git log 'a b'");
    assert_eq!(yes.verdict, LayerVerdict::Yes);
    let grant = yes.layers.iter().find(|answer| answer.layer == Layer::Config).unwrap();
    assert!(grant.key.as_deref().unwrap().ends_with("grants.exec[1]"), "{grant:?}");
    let no = explained("git push");
    assert_eq!(no.denied_by(), Some(Layer::Config));
    let wider = r#"[plugins.build] grants.exec = ["/usr/bin/git status", "/usr/bin/git log *", "/usr/bin/git push"]"#;
    assert_eq!(no.suggestion.as_deref(), Some(wider));
    let rows = rights_table(&setup, &BTreeMap::new());
    let row = rows.iter().find(|row| row.plugin.as_str() == "build").unwrap();
    assert_eq!(
        row.may,
        [
            "run OUTSIDE THE SANDBOX /usr/bin/git status, /usr/bin/git log * (confined, without network, 100 runs, 20 s, 512 MiB)"
        ]
    );
    let nothing = explained("../git push");
    assert_eq!(nothing.no_suggestion.as_deref(), Some("it is no command that a grant could name"));
}

/// For every question, the verdict equals the decision. Exactly one layer refuses if the verdict is
/// no, and no later layer says yes.
#[test]
fn an_explanation_never_differs_from_its_decision() {
    let setup = Arc::new(setup());
    let targets = [
        "default",
        "user",
        "digest",
        "notes.list",
        "notes.drop",
        "/notes/a",
        "/out/b",
        "/x/../y",
        "terminal",
        "",
        "https://a.b/",
    ];
    for plugin in ["desk", "notes", "voice"] {
        for capability in Capability::ALL {
            for (target, writes) in targets
                .iter()
                .flat_map(|target| [(Some(*target), false), (Some(*target), true), (None, false)])
            {
                let question = AccessQuestion {
                    target: target.map(str::to_owned),
                    writes,
                    ..AccessQuestion::new(plugin, capability)
                };
                let decided = layers::decide(&setup, &question);
                let explanation = explain(&setup, &question).unwrap();
                assert_eq!(
                    decided.is_err(),
                    explanation.verdict == LayerVerdict::No,
                    "{question:?}"
                );
                assert_eq!(
                    explanation.denied_by(),
                    decided.as_ref().err().map(|record| record.layer),
                    "{question:?}"
                );
                let no =
                    explanation.layers.iter().position(|answer| answer.verdict == LayerVerdict::No);
                let behind = no.map(|no| &explanation.layers[no + 1..]).unwrap_or_default();
                assert!(
                    behind.iter().all(|answer| answer.verdict == LayerVerdict::NotReached),
                    "{explanation:?}"
                );
                let noes = explanation
                    .layers
                    .iter()
                    .filter(|answer| answer.verdict == LayerVerdict::No)
                    .count();
                assert_eq!(noes, usize::from(decided.is_err()), "{explanation:?}");
            }
        }
    }
}

/// Returns the same config with a replaced part.
fn changed(from: &str, to: &str) -> Setup {
    let text = CONFIG.replace(from, to);
    assert_ne!(text, CONFIG);
    let config = Config::parse("c.toml", "", &text).unwrap_or_else(|problems| panic!("{problems}"));
    let all = ["tools", "model", "route", "delegate", "files", "kv", "fetch", "secrets"];
    let plugins = BTreeMap::from([
        ("desk".into(), facts(&[PluginKind::Agent], &all, &[])),
        ("notes".into(), facts(&[PluginKind::Tools], &["files", "kv"], &["list", "save", "drop"])),
        ("voice".into(), facts(&[PluginKind::DeliveryStrategy], &["channels"], &[])),
    ]);
    assemble(&config, &plugins).unwrap_or_else(|problems| panic!("{problems}")).setup
}

#[test]
fn a_task_that_narrows_a_capability_is_the_layer_that_refuses() {
    let setup = changed(
        "tools = [\"notes.list\", \"notes.drop\"]",
        "tools = [\"notes.list\", \"notes.drop\"]\nscope = { model = [], route = [], delegate = [] }",
    );
    let of = |capability, target: Option<&str>, task: Option<&str>| AccessQuestion {
        target: target.map(str::to_owned),
        task: task.map(TaskName::from),
        ..AccessQuestion::new("desk", capability)
    };
    for (capability, target) in [
        (Capability::Model, "default"),
        (Capability::Route, "user"),
        (Capability::Delegate, "digest"),
    ] {
        for target in [Some(target), None] {
            let explanation = explain(&setup, &of(capability, target, Some("desk"))).unwrap();
            assert_eq!(explanation.denied_by(), Some(Layer::Task), "{capability} {target:?}");
            let layer =
                explanation.layers.iter().find(|answer| answer.layer == Layer::Task).unwrap();
            assert_eq!(layer.key.as_deref(), Some("tasks.desk.scope"));
            assert!(layer.text.contains("tasks.desk.scope"), "{layer:?}");
            assert_eq!(
                explain(&setup, &of(capability, target, Some("digest"))).unwrap().verdict,
                LayerVerdict::Yes
            );
            // Of several tasks the most permissive one decides, and the other one is named.
            let any = explain(&setup, &of(capability, target, None)).unwrap();
            let layer = any.layers.iter().find(|answer| answer.layer == Layer::Task).unwrap();
            assert_eq!(
                (any.verdict, layer.text.as_str()),
                (LayerVerdict::Yes, "left by digest, not by desk")
            );
        }
    }
}

#[test]
fn a_secret_goes_only_where_a_request_may_go() {
    let setup = changed(
        "grants.delegate = [\"digest\"]",
        "grants.delegate = [\"digest\"]\ngrants.secrets = [\"tok\"]\ngrants.fetch = { urls = [\"https://a.example/*\"] }\n[secrets.tok]\nfrom = { env = \"T\" }\nhosts = [\"a.example\", \"b.example\"]",
    );
    let to = |host: &str| {
        explain(
            &setup,
            &AccessQuestion {
                host: Some(host.to_owned()),
                ..ask("desk", Capability::Secrets, "tok")
            },
        )
        .unwrap()
    };
    let granted = to("a.example");
    assert_eq!(granted.verdict, LayerVerdict::Yes);
    assert!(
        granted
            .layers
            .last()
            .unwrap()
            .text
            .contains("towards a.example, b.example, and only in header"),
        "{granted:?}"
    );
    let refused = |host: &str| {
        to(host).layers.into_iter().find(|answer| answer.verdict == LayerVerdict::No).unwrap().text
    };
    assert!(refused("b.example").contains("no rule of plugins.desk.grants.fetch covers b.example"));
    assert!(refused("c.example").contains("binds it to a.example, b.example, not c.example"));
}

#[test]
fn what_a_server_of_others_does_itself_no_grant_holds_back() {
    let mut setup = setup();
    let mut notes = setup.plugins["notes"].as_ref().clone();
    notes.facts.mcp = true;
    setup.plugins.insert("notes".into(), Arc::new(notes));
    for (capability, target) in [
        (Capability::Files, "/etc/passwd"),
        (Capability::Fetch, "https://a.example/"),
        (Capability::Exec, "ls"),
    ] {
        let explanation = explain(&setup, &ask("notes", capability, target)).unwrap();
        assert_eq!(explanation.verdict, LayerVerdict::Yes, "{capability}");
        assert!(
            explanation.layers[0]
                .text
                .contains("outside the sandbox, as you; no grant holds it back")
        );
    }
    assert_eq!(
        explain(&setup, &ask("notes", Capability::Model, "default")).unwrap().verdict,
        LayerVerdict::No
    );
}

#[test]
fn why_no_grant_is_offered_fits_what_was_refused() {
    let setup = changed(
        "grants.route = [\"user\"]",
        "grants.route = [\"user\"]\ngrants.fetch = { urls = [\"http://127.0.0.1:1/*\"], private = [\"127.0.0.1\"] }",
    );
    let of = |target: &str, method: &str| {
        let question =
            AccessQuestion { method: method.to_owned(), ..ask("desk", Capability::Fetch, target) };
        explain(&setup, &question).unwrap().no_suggestion.unwrap()
    };
    assert!(of("http://127.0.0.1:1/x", "POST").contains("inside your own network"));
    assert!(of("notaurl", "GET").contains("no address that a request could be sent to"));
}

/// Returns the setup of an agent that calls `cells`, whose tools were granted `notes.*`.
fn nested(agent: &str) -> Setup {
    let text = format!(
        "entry = \"desk\"\n[tasks.desk]\nagent = \"desk\"\n\
         [plugins.desk]\nsource = \"desk.wasm\"\ngrants.tools = {agent}\n\
         [plugins.cells]\nsource = \"cells.wasm\"\ngrants.tools = [\"notes.*\"]\n\
         [plugins.notes]\nsource = \"notes.wasm\"\n\
         grants.files = [{{ dir = \"out\", at = \"/out\", mode = \"overlay\" }}]\n"
    );
    let config = Config::parse("c.toml", "", &text).unwrap_or_else(|problems| panic!("{problems}"));
    let plugins = BTreeMap::from([
        ("desk".into(), facts(&[PluginKind::Agent], &["tools"], &[])),
        ("cells".into(), facts(&[PluginKind::Tools], &["tools"], &["run"])),
        ("notes".into(), facts(&[PluginKind::Tools], &["files"], &["list", "save"])),
    ]);
    assemble(&config, &plugins).unwrap_or_else(|problems| panic!("{problems}")).setup
}

#[test]
fn a_nested_call_needs_the_grant_of_the_agent_too() {
    let may = |setup: &Setup| -> Vec<String> {
        let rows = rights_table(setup, &BTreeMap::new());
        rows.into_iter().find(|row| row.plugin.as_str() == "cells").unwrap().may
    };
    let question = ask("cells", Capability::Tools, "notes.list");

    let setup = nested("[\"cells.*\", \"notes.list\"]");
    let explanation = explain(&setup, &question).unwrap();
    assert_eq!(explanation.verdict, LayerVerdict::Yes);
    assert!(explanation.layers.iter().any(|layer| layer.text == "for the agents of desk"));
    assert_eq!(may(&setup), ["call notes.list for the agents that call it"]);

    let setup = nested("[\"cells.*\"]");
    let explanation = explain(&setup, &question).unwrap();
    assert_eq!(explanation.denied_by(), Some(Layer::Task));
    let line = "[plugins.desk] grants.tools = [\"cells.*\", \"notes.list\"]";
    assert_eq!(explanation.suggestion.as_deref(), Some(line));
    assert_eq!(may(&setup), Vec::<String>::new());
}

#[test]
fn a_plugin_that_writes_into_an_overlay_is_not_said_to_read_only() {
    let setup = nested("[\"cells.*\", \"notes.*\"]");
    let explanation = explain(&setup, &ask("desk", Capability::Tools, "notes.save")).unwrap();
    let policy = explanation.layers.iter().find(|layer| layer.layer == Layer::Policy).unwrap();
    assert!(
        policy.text.ends_with("notes writes only into an overlay of out/, which you apply or drop")
    );
}

#[test]
fn an_explanation_of_a_call_names_the_gates_that_check_it() {
    let mut setup = setup();
    let gate = |on, tools: &[&str]| GateRule {
        on,
        plugin: "guard".into(),
        deadline_ms: 1,
        fails_open: false,
        tools: tools.iter().map(|tool| ToolPattern((*tool).to_owned())).collect(),
    };
    setup.gates = vec![gate(GatePoint::ToolCall, &[]), gate(GatePoint::ToolResult, &["*.list"])];
    let policy_of = |tool: &str| {
        let explanation = explain(&setup, &ask("desk", Capability::Tools, tool)).unwrap();
        let policy = explanation.layers.into_iter().find(|it| it.layer == Layer::Policy);
        policy.expect("it is about tools").text
    };
    let both = "; gates check the call first: guard; gates check its result: guard";
    assert!(policy_of("notes.list").ends_with(both), "{}", policy_of("notes.list"));
}
