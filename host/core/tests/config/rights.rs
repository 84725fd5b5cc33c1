//! The permission summary at the head of a run.

use std::fmt::Write;

use conclave_core::inspect::permission_summary::{RightsRow, data_can_leave, rights_table};
use conclave_core::types::plugin_kind::PluginKind;

use crate::support::{LIBRARY, Parts, assembled, by_name, good, library, plugin};

fn render(rows: &[RightsRow]) -> String {
    rows.iter().fold(String::new(), |mut text, row| {
        writeln!(text, "{:<12} {:<14} {}", row.plugin, row.source, row.may.join("; ")).unwrap();
        text
    })
}

#[test]
fn the_library_in_words() {
    let setup = assembled(LIBRARY, &library()).setup;
    let table = rights_table(&setup, &good(LIBRARY).source_labels());
    insta::assert_snapshot!(render(&table));
    assert_eq!(data_can_leave(&setup), "nowhere");
}

#[test]
fn bounds_are_named_and_grants_without_an_ask_are_not() {
    let grants = "grants.route = [\"done\", \"pass\"]\ngrants.channels = [\"terminal\"]\ngrants.files = [\"docs/\", \"./old\", { dir = \"./\", at = \"/all\" }, { dir = \"/\", at = \"/root\" }]\n\
        grants.model = { names = [\"default\", \"small\"], calls = 1, cost_usd = 0.5 }\ngrants.delegate = [\"desk\"]\n\
        grants.tools = { names = [\"tool.*\"], calls = 1_000 }";
    let end = "[plugins.tool]\nsource = \"./t.wasm\"\n[models.default]\nkind = \"scripted\"\nreplies = \"r\"\n\
        [models.small]\nkind = \"scripted\"\nreplies = \"r\"";
    let text = Parts { plugin: grants, end, ..Parts::default() }.text();
    let tool = || plugin(&[PluginKind::Tools], &[], &["b", "a"]);
    let table = |asks: &[&str]| {
        let setup = assembled(
            &text,
            &by_name([("chat", plugin(&[PluginKind::Agent], asks, &[])), ("tool", tool())]),
        )
        .setup;
        render(&rights_table(&setup, &good(&text).source_labels()))
    };
    insta::assert_snapshot!(table(&["route", "channels", "files", "model", "delegate", "tools"]));
    insta::assert_snapshot!(table(&[]));
}

#[test]
fn plugins_that_are_consulted_do_more_than_compute() {
    let end = "[plugins.short]\nsource = \"./s.wasm\"\n[plugins.liar]\nsource = \"./l.wasm\"\n[plugins.guard]\nsource = \"./g.wasm\"\n\
        [plugins.notes]\nsource = \"./n.wasm\"\n[plugins.eager]\nsource = \"./e.wasm\"\n[plugins.idle]\nsource = \"./i.wasm\"\n\
        [[gates]]\non = \"delegate\"\nplugin = \"guard\"\n[[gates]]\non = \"inbound\"\nplugin = \"guard\"\n\
        [[gates]]\non = \"tool-call\"\nplugin = \"guard\"\n[[gates]]\non = \"tool-result\"\ntools = [\"notes.*\"]\nplugin = \"guard\"\n\
        [tasks.worker]\nagent = \"chat\"\ndelivery_strategy = \"eager\"\ncondense = { plugin = \"short\", max_entries = 20 }";
    let task = "memory = \"notes\"\ncondense = { plugin = \"short\", max_entries = 20 }\nconfirm = { policy = \"risky\", analyzer = \"liar\" }";
    let text = Parts { task, end, ..Parts::default() }.text();
    let kinds = [
        ("chat", PluginKind::Agent),
        ("short", PluginKind::Condenser),
        ("liar", PluginKind::SecurityAnalyzer),
        ("guard", PluginKind::Gate),
        ("notes", PluginKind::Memory),
        ("eager", PluginKind::DeliveryStrategy),
        ("idle", PluginKind::Condenser),
    ];
    let setup =
        assembled(&text, &by_name(kinds.map(|(name, kind)| (name, plugin(&[kind], &[], &[])))))
            .setup;
    let may: Vec<(String, String)> = rights_table(&setup, &good(&text).source_labels())
        .into_iter()
        .map(|row| (row.plugin.to_string(), row.may.join("; ")))
        .collect();
    let expected = [
        ("chat", ""),
        ("eager", "decide how results of worker are delivered and add text of its own"),
        (
            "guard",
            "change or stop calls of all tools; change or stop messages from channels; change or stop \
             results of notes.*; change or stop the messages of delegations",
        ),
        ("idle", ""),
        ("liar", "rate the risk of actions of desk and so decide which need approval"),
        ("notes", "speak as its memory to desk"),
        ("short", "shorten and sum up the history of desk, worker"),
    ];
    assert_eq!(may, expected.map(|(plugin, may)| (plugin.to_owned(), may.to_owned())));
}
