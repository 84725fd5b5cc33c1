//! Delegation and background tasks: the meaning of the keys, their problems, and the resulting
//! tools.

use std::collections::BTreeMap;

use conclave_core::config::ProblemCode::{
    Conflict, InvalidValue, MissingKey, NotGranted, OutOfRange, UnknownChannel, UnknownTask,
    WrongType,
};
use conclave_core::setup::PluginFacts;
use conclave_core::types::delegation::{BackgroundRules, OnClose, ResultForm};
use conclave_core::types::ids::PluginName;
use conclave_core::types::plugin_kind::PluginKind;
use serde_json::json;

use crate::support::{assembled, by_name, plugin, refused, unfit};

fn text(grant: &str, desk: &str, slow: &str) -> String {
    format!(
        "entry = \"desk\"\n[plugins.chat]\nsource = \"chat.wasm\"\n{grant}\n[tasks.desk]\nagent = \"chat\"\n{desk}\n\
         [tasks.slow]\nagent = \"chat\"\ndescription = \"reads\\nbooks\"\n{slow}\n[tasks.other]\nagent = \"chat\"\n\
         [plugins.gather]\nsource = \"gather.wasm\"\n"
    )
}

fn plugins() -> BTreeMap<PluginName, PluginFacts> {
    by_name([
        ("chat", plugin(&[PluginKind::Agent], &["delegate?"], &[])),
        ("gather", plugin(&[PluginKind::DeliveryStrategy], &[], &[])),
    ])
}

#[test]
fn the_keys_mean_what_they_say() {
    let desk = "background = { channels = [\"terminal\"], wait = true, cache = \"5 min\", conversation = 12, notify = \"other\", delivery_strategy = \"gather\" }";
    let slow = "deadline = \"2 min\"\non_close = \"finish-silently\"\nstructured_retries = 3";
    let grant = "grants.delegate = { tasks = [\"slow\"], at_once = 2, total = 8, channels = [\"terminal\"], result_delivery = [\"text\"], on_close = [\"detach\"] }";
    let setup = assembled(&text(grant, desk, slow), &plugins()).setup;
    let rules = BackgroundRules {
        share: vec!["terminal".to_owned()],
        wait: true,
        cache_ms: Some(300_000),
        conversation: 12,
        notify: Some("other".into()),
        delivery_strategy: Some("gather".into()),
        host_reports: true,
    };
    assert_eq!(setup.tasks["desk"].background, rules);
    let slow = &setup.tasks["slow"];
    assert_eq!(
        (slow.deadline_ms, slow.on_close, slow.structured_retries),
        (Some(120_000), OnClose::FinishSilently, Some(3))
    );
    let other = &setup.tasks["other"];
    assert_eq!(
        (other.deadline_ms, other.on_close, other.structured_retries),
        (None, OnClose::Cascade, None)
    );
    let grant = setup.plugins["chat"].grants.delegate.as_ref().expect("a grant");
    assert_eq!(grant.channels, ["terminal".into()]);
    assert_eq!(grant.result_delivery, [ResultForm::Text].into());
    assert_eq!(grant.on_close, [OnClose::Detach].into());
}

#[test]
fn every_mistake_is_reported_at_once() {
    let desk = "background = { channels = [\"ghost\"], wait = 1, cache = \"5\", conversation = 1000 }\n\
        tools = [{ tool = \"delegate_task\", task = \"slow\" }, { tool = \"done\", wait = true }, { tool = \"delegate_task\", as = \"x\", task = \"nobody\" }]";
    let slow = "deadline = \"1 ms\"\non_close = \"drop\"\nstructured_retries = 1000";
    let problems = refused(&text(
        "grants.delegate = { tasks = [\"slow\"], channels = [\"phone\"] }",
        desk,
        slow,
    ));
    let expected = [
        UnknownChannel,
        UnknownChannel,
        WrongType,
        InvalidValue,
        OutOfRange,
        MissingKey,
        Conflict,
        UnknownTask,
        OutOfRange,
        InvalidValue,
        OutOfRange,
    ];
    assert_eq!(problems.codes(), expected, "{problems}");
    insta::assert_snapshot!(problems.to_string());
}

#[test]
fn the_tool_offers_the_agents_that_may_be_started() {
    //
    let grant = "grants.delegate = [\"slow\", \"other\"]";
    let tools = "tools = [\"delegate_task\"]";
    let summary_of = |text: &str| {
        let setup = assembled(text, &plugins()).setup;
        setup.tasks["desk"].toolbox.get("delegate_task").expect("the tool").summary.clone()
    };
    let tool = summary_of(&text(grant, tools, ""));
    assert_eq!(tool.input_schema["properties"]["agent"]["enum"], json!(["slow", "other"]));
    assert!(
        tool.description.ends_with("\nAvailable agents:\n  - slow: reads books\n  - other"),
        "{}",
        tool.description
    );
    let narrowed =
        summary_of(&text(grant, &format!("{tools}\nscope = {{ delegate = [\"other\"] }}"), ""));
    assert_eq!(narrowed.input_schema["properties"]["agent"]["enum"], json!(["other"]));
}

#[test]
fn each_worker_can_have_a_tool_of_its_own() {
    //
    let grant = "grants.delegate = [\"slow\", \"other\"]";
    let tools = "tools = [{ tool = \"delegate_task\", as = \"ask_slow\", task = \"slow\", wait = true }, \
        { tool = \"delegate_task\", as = \"send_other\", task = \"other\" }]";
    let setup = assembled(&text(grant, tools, ""), &plugins()).setup;
    let toolbox = &setup.tasks["desk"].toolbox;
    let offered: Vec<&str> = toolbox.offered().iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(offered, ["ask_slow", "send_other"], "the general one is not offered");
    let ask = toolbox.get("ask_slow").expect("a tool");
    assert!(ask.summary.input_schema["properties"].get("agent").is_none());
    assert!(
        ask.worker.as_ref().is_some_and(|worker| worker.wait
            && worker.agent.as_ref().is_some_and(|agent| agent.as_str() == "slow"))
    );
    let problems = unfit(&text("grants.delegate = [\"slow\"]", tools, ""), &plugins());
    assert_eq!(problems.codes(), [NotGranted], "{problems}");
    insta::assert_snapshot!(problems.to_string());
}
