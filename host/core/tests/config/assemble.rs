//! Assembly of configs with their plugins.

use std::fmt::Write;

use conclave_core::setup::PluginFacts;
use conclave_core::types::channel::{Binding, ChannelKind};
use conclave_core::types::completion::ToolFormat;
use conclave_core::types::ids::{ChannelId, PluginName, TaskName};
use conclave_core::types::plugin_kind::PluginKind;
use serde_json::json;

use crate::support::{LIBRARY, Parts, assembled, by_name, library, misfit, plugin, settings, tool};

fn agent(asks: &[&str]) -> PluginFacts {
    plugin(&[PluginKind::Agent], asks, &[])
}

#[test]
fn the_library_fits_its_plugins() {
    let assembly = assembled(LIBRARY, &library());
    assert_eq!(assembly.warnings.to_string(), "");
    let setup = &assembly.setup;
    assert_eq!(
        setup.channels.iter().collect::<Vec<_>>(),
        [(&ChannelId::from("terminal"), &Binding::of(ChannelKind::Text))]
    );
    let tools = |task: &str| {
        setup.tasks[&TaskName::from(task)]
            .toolbox
            .offered()
            .iter()
            .map(|tool| tool.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        tools("answer"),
        ["notes.save", "search.find"],
        "narrowed by the task, in order of name"
    );
    assert_eq!(tools("digest"), ["search.read"], "as granted");
    assert_eq!(tools("desk"), Vec::<String>::new());
    let answer = &setup.tasks[&TaskName::from("answer")];
    assert_eq!((answer.agent.as_str(), answer.tool_format), ("librarian", ToolFormat::Native));
    assert_eq!(
        setup.plugins[&PluginName::from("notes")].config,
        json!({ "greeting": "hello", "size": 3 }),
        "the default is filled in"
    );
    assert_eq!(setup.plugins.len(), 6);
    assert_eq!(
        (setup.entry.as_str(), setup.limits.turns, setup.models.len()),
        ("desk", Some(40), 1)
    );
}

#[test]
fn a_plugin_that_waits_for_a_model_has_the_time_that_the_model_may_take() {
    let wall = |plugin: &str, model: &str| {
        let end = format!("[models.default]\n{model}");
        let text = Parts { plugin, end: &end, ..Parts::default() }.text();
        assembled(&text, &by_name([("chat", agent(&["model"]))])).setup.plugins
            [&PluginName::from("chat")]
            .limits
            .wall_ms
    };
    let grant = "grants.model = [\"default\"]";
    let server =
        "kind = \"openai\"\nurl = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\ntimeout = \"40 s\"";
    assert_eq!(wall(grant, server), 30_000 + 2 * 40_000);
    assert_eq!(wall(grant, "kind = \"native\""), 30_000 + 2 * 600_000);
    assert_eq!(
        wall(grant, "kind = \"scripted\"\nreplies = \"r.json\""),
        30_000,
        "it answers at once"
    );
    assert_eq!(
        wall(&format!("{grant}\nlimits = {{ wall = \"5 s\" }}"), server),
        5_000,
        "what is written holds"
    );
}

#[test]
fn tools_need_an_ask_a_grant_and_a_task_that_leaves_them() {
    let cases = [
        ("grants.tools = [\"tool.*\"]", "", &["tools"][..], &["tool.a", "tool.b"][..]),
        ("grants.tools = [\"*\"]", "", &["tools?"], &["tool.a", "tool.b"]),
        ("grants.tools = [\"tool.*\"]", "tools = [\"tool.b\"]", &["tools"], &["tool.b"]),
        ("grants.tools = [\"tool.a\"]", "tools = [\"*\"]", &["tools"], &["tool.a"]),
        ("grants.tools = [\"tool.*\"]", "tools = []", &["tools"], &[]),
        ("grants.tools = [\"tool.*\"]", "", &[], &[]),
        ("", "", &["tools?"], &[]),
    ];
    for (line, task, asks, expected) in cases {
        let text = Parts {
            plugin: line,
            task,
            end: "[plugins.tool]\nsource = \"stock:tool\"",
            ..Parts::default()
        }
        .text();
        let plugins = by_name([
            ("chat", agent(asks)),
            ("tool", plugin(&[PluginKind::Tools], &[], &["b", "a"])),
        ]);
        let assembly = assembled(&text, &plugins);
        let tools = &assembly.setup.tasks[&TaskName::from("desk")].toolbox.offered();
        assert_eq!(
            tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(),
            expected,
            "{line} {task} {asks:?}"
        );
    }
}

#[test]
fn every_required_ask_names_its_reason_and_the_smallest_line() {
    let end = "[plugins.search]\nsource = \"stock:search\"\n[plugins.other]\nsource = \"stock:o\"\n\
        [tasks.sub]\nagent = \"other\"\n[tasks.digest]\nagent = \"other\"\n";
    let text = Parts { task: "subtasks = [\"sub\"]", end, ..Parts::default() }.text();
    let chat = agent(&[
        "model", "tools", "delegate", "route", "files", "channels", "log", "config", "fetch?",
    ]);
    let plugins = by_name([
        ("chat", chat),
        ("search", plugin(&[PluginKind::Tools], &[], &["find"])),
        ("other", agent(&[])),
    ]);
    insta::assert_snapshot!(misfit(&text, &plugins));
}

#[test]
fn asks_for_what_is_not_offered_are_refused_unless_they_are_optional() {
    let text = Parts::default().text();
    let mut chat = agent(&["fetch", "teleport", "exec?", "warp?"]);
    chat.manifest.asks.get_mut("fetch").unwrap().why =
        format!("Reads\u{1b}[2J it. {}", "x".repeat(300));
    chat.manifest.asks.get_mut("teleport").unwrap().why.clear();
    insta::assert_snapshot!(misfit(&text, &by_name([("chat", chat)])));
}

#[test]
fn a_grant_beyond_the_manifest_is_a_warning() {
    let text = Parts {
        plugin: "grants.files = [\"docs\"]\ngrants.channels = [\"terminal\"]",
        ..Parts::default()
    }
    .text();
    insta::assert_snapshot!(
        assembled(&text, &by_name([("chat", agent(&["channels?"]))])).warnings.to_string()
    );
}

#[test]
fn tasks_name_plugins_of_the_right_kind() {
    let text = Parts {
        task: "agent_responder = \"component\"\ndelivery_strategy = \"other\"\nsubtasks = [\"sub\"]",
        end: "[tasks.sub]\nagent = \"tool\"\n[plugins.other]\nsource = \"stock:o\"\n[plugins.tool]\nsource = \"stock:t\"",
        ..Parts::default()
    }
    .text();
    let mut plugins = by_name([
        ("chat", agent(&[])),
        ("other", plugin(&[], &[], &[])),
        ("tool", plugin(&[PluginKind::Tools], &[], &["a"])),
    ]);
    insta::assert_snapshot!(misfit(&text, &plugins));
    plugins = by_name([
        ("chat", plugin(&[PluginKind::Agent, PluginKind::Responder], &[], &[])),
        ("other", plugin(&[PluginKind::DeliveryStrategy], &[], &[])),
        ("tool", plugin(&[PluginKind::Agent, PluginKind::Tools], &[], &["a"])),
    ]);
    assembled(&text, &plugins);
}

#[test]
fn a_pattern_that_covers_nothing_is_reported_with_the_nearest_tool() {
    let cases = [
        ("grants.tools = [\"search.fnd\"]", "", &["find", "read"][..]),
        ("grants.tools = { names = [\"search.find\", \"search.xyzxyz\"] }", "", &["find", "read"]),
        ("grants.tools = [\"chat.find\"]", "", &["find"]),
        ("grants.tools = [\"search.*\"]", "", &[]),
        ("grants.tools = [\"*\"]", "", &[]),
        ("grants.tools = [\"search.find\"]", "tools = [\"search.raed\"]", &["find", "read"]),
        ("grants.tools = [\"search.find\"]", "tools = [\"search.read\"]", &["find", "read"]),
        ("", "tools = [\"search.read\"]", &["find", "read"]),
    ];
    let mut report = String::new();
    for (line, task, tools) in cases {
        let text = Parts {
            plugin: line,
            task,
            end: "[plugins.search]\nsource = \"stock:search\"",
            ..Parts::default()
        }
        .text();
        let plugins = by_name([
            ("chat", agent(&["tools?"])),
            ("search", plugin(&[PluginKind::Tools], &[], tools)),
        ]);
        writeln!(report, "{}", misfit(&text, &plugins)).unwrap();
    }
    insta::assert_snapshot!(report);
}

#[test]
fn a_plugin_that_is_not_loaded_is_said_once() {
    let mut plugins = library();
    plugins.remove(&PluginName::from("search"));
    insta::assert_snapshot!(misfit(LIBRARY, &plugins));
}

#[test]
fn tools_are_declared_as_the_contract_says() {
    let mut tools: Vec<_> =
        ["find", "find", "Find", "", "a-b", "ok_1"].into_iter().map(tool).collect();
    tools.push(tool(&"x".repeat(65)));
    let with = |description: String, schema| conclave_core::types::tool::ToolSpec {
        description,
        input_schema: schema,
        ..tool("odd")
    };
    let object = || json!({ "type": "object" });
    let mut report = String::new();
    let lone = [
        with("x".repeat(4 << 10) + "y", object()),
        with("Harmless.\u{e0041}\u{e0042}".into(), object()),
        with("Bell\u{7}.".into(), object()),
        with("Any.".into(), json!(true)),
        with("Any.".into(), json!({ "type": "string" })),
        with("Any.".into(), json!({ "description": "x".repeat(64 << 10) })),
    ];
    for tools in [tools].into_iter().chain(lone.map(|tool| vec![tool])) {
        let mut chat = plugin(&[PluginKind::Agent, PluginKind::Tools], &[], &[]);
        chat.tools = tools;
        writeln!(report, "{}", misfit(&Parts::default().text(), &by_name([("chat", chat)])))
            .unwrap();
    }
    insta::assert_snapshot!(report);
    let mut chat = plugin(&[PluginKind::Agent, PluginKind::Tools], &[], &[]);
    chat.tools = vec![
        with("x".repeat(4 << 10), json!({})),
        with("Zeile\n\tzweié\u{200d}n".into(), object()),
    ];
    chat.tools[1].name = "even".into();
    assembled(&Parts::default().text(), &by_name([("chat", chat)]));
}

#[test]
fn settings_are_as_the_manifest_declares_them() {
    let text =
        Parts { plugin: "config = { text = 1, whole = 1.5, part = \"x\", flag = 0, list = {}, table = [], tezt = 2 }", ..Parts::default() }
            .text();
    let mut chat = agent(&[]);
    chat.manifest.config = settings(json!({
        "text": { "type": "string", "default": "hello" },
        "whole": { "type": "integer" },
        "part": { "type": "number" },
        "flag": { "type": "boolean" },
        "list": { "type": "array" },
        "table": { "type": "object" },
        "needed": { "type": "string", "required": true },
        "odd": { "type": "colour" },
        "wrong": { "type": "integer", "default": "three" },
    }));
    let report = misfit(&text, &by_name([("chat", chat)]));
    let none = misfit(
        &Parts { plugin: "config = { a = 1 }", ..Parts::default() }.text(),
        &by_name([("chat", agent(&[]))]),
    );
    insta::assert_snapshot!(format!("{report}\n{none}"));
}

#[test]
fn settings_that_fit_are_kept_and_defaults_filled_in() {
    let text =
        Parts { plugin: "config = { whole = 2, part = 3, given = \"mine\" }", ..Parts::default() }
            .text();
    let mut chat = agent(&[]);
    chat.manifest.config = settings(json!({
        "whole": { "type": "integer" },
        "part": { "type": "number" },
        "given": { "type": "string", "default": "theirs" },
        "left": { "type": "array", "default": [1] },
        "open": { "type": "string" },
    }));
    let setup = assembled(&text, &by_name([("chat", chat)])).setup;
    assert_eq!(
        setup.plugins[&PluginName::from("chat")].config,
        json!({ "whole": 2, "part": 3, "given": "mine", "left": [1] })
    );
}

#[test]
fn only_tasks_with_a_way_to_start_tasks_reserve_some() {
    let text = |plugin: &str, task: &str, limit: &str| {
        let end = format!(
            "[tasks.w]\nagent = \"worker\"\n{task}\n[plugins.worker]\nsource = \"stock:chat\"\n{plugin}\n{limit}"
        );
        Parts {
            plugin: "grants.delegate = [\"w\"]",
            task: "tools = [\"delegate_task\"]",
            end: &end,
            ..Parts::default()
        }
        .text()
    };
    let plugins =
        |asks: &[&str]| by_name([("chat", agent(&["delegate"])), ("worker", agent(asks))]);
    let limit = "[limits.run]\ntasks_at_once = 30";
    let granted = "grants.delegate = [\"w\"]";
    for (plugin, task, limit, expected) in [
        (granted, "tools = []", limit, true),
        (granted, "tools = [\"done\"]", limit, true),
        ("", "", limit, true),
        (granted, "", limit, false),
        (granted, "tools = [\"delegate_task\"]", limit, false),
        (granted, "tools = []\nsubtasks = [\"desk\"]", limit, false),
        (granted, "tools = []", "", false),
    ] {
        let asks: &[&str] = if plugin.is_empty() { &[] } else { &["delegate"] };
        let assembly = assembled(&text(plugin, task, limit), &plugins(asks));
        let worker = &assembly.setup.tasks[&TaskName::from("w")];
        assert_eq!(worker.starts_no_tasks, expected, "{plugin} {task} {limit}");
        let desk = &assembly.setup.tasks[&TaskName::from("desk")];
        assert!(!desk.starts_no_tasks, "it delegates");
    }
}
