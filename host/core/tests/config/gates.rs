//! `[[gates]]` and `tasks.NAME.handoff`: their meaning, and the problems of invalid values.

use std::collections::BTreeMap;
use std::fmt::Write;

use conclave_core::config::ProblemCode::{
    InvalidValue, MissingKey, NotGranted, OutOfRange, UnknownKey, UnknownPlugin, UnknownTask,
    WrongPluginKind,
};
use conclave_core::setup::{GatePoint, GateRule, PluginFacts};
use conclave_core::types::ids::{PluginName, TaskName};
use conclave_core::types::plugin_kind::PluginKind;

use crate::support::{Parts, assembled, by_name, good, plugin, refused, unfit};

const GUARD: &str = "[plugins.guard]\nsource = \"guard.wasm\"\n";

fn plugins() -> BTreeMap<PluginName, PluginFacts> {
    by_name([
        ("chat", plugin(&[PluginKind::Agent], &["tools?", "route?"], &[])),
        ("guard", plugin(&[PluginKind::Gate], &[], &[])),
        ("notes", plugin(&[PluginKind::Memory], &[], &[])),
    ])
}

fn text(gates: &str) -> String {
    Parts {
        end: &format!("{GUARD}[plugins.notes]\nsource = \"notes.wasm\"\n{gates}"),
        ..Parts::default()
    }
    .text()
}

#[test]
fn gates_keep_their_order_and_have_a_second_unless_it_is_said() {
    let gates = "[[gates]]\non = \"delegate\"\nplugin = \"guard\"\ndeadline = \"200 ms\"\n\
        [[gates]]\non = \"inbound\"\nplugin = \"guard\"\n[[gates]]\non = \"deliver\"\nplugin = \"guard\"\ndeadline = \"1 min\"\n";
    let of = |on, deadline_ms| GateRule {
        on,
        plugin: "guard".into(),
        deadline_ms,
        fails_open: false,
        tools: Vec::new(),
    };
    let setup = assembled(&text(gates), &plugins()).setup;
    let expected = [
        of(GatePoint::Delegate, 200),
        of(GatePoint::Inbound, 1_000),
        of(GatePoint::Deliver, 60_000),
    ];
    assert_eq!(setup.gates, expected, "a gate needs no grant to be asked");
    assert!(!good(&text(gates)).warnings.to_string().contains("guard"), "it is used");
}

#[test]
fn every_mistake_of_a_gate_is_reported_at_once() {
    let gates = "[[gates]]\non = \"before\"\nplugin = \"gaurd\"\ndeadline = \"2 min\"\n[[gates]]\ndeadline = \"0 ms\"\n[[gates]]\n\
        on = \"deliver\"\nplugin = \"guard\"\ntimeout = \"1 s\"\n";
    let problems = refused(&text(gates));
    let expected =
        [InvalidValue, UnknownPlugin, OutOfRange, MissingKey, MissingKey, OutOfRange, UnknownKey];
    assert_eq!(problems.codes(), expected, "{problems}");
    insta::assert_snapshot!(problems.to_string());
}

#[test]
fn a_plugin_without_the_export_is_refused_with_the_gates_of_the_config() {
    let problems = unfit(&text("[[gates]]\non = \"inbound\"\nplugin = \"notes\"\n"), &plugins());
    assert_eq!(problems.codes(), [WrongPluginKind], "{problems}");
    let mut without = plugins();
    without.insert("guard".into(), plugin(&[PluginKind::Tools], &[], &["x"]));
    let wrong_kind = unfit(&text("[[gates]]\non = \"inbound\"\nplugin = \"guard\"\n"), &without);
    assert_eq!(wrong_kind.codes(), [WrongPluginKind], "{wrong_kind}");
    insta::assert_snapshot!(format!("{problems}\n{wrong_kind}"));
}

#[test]
fn a_gate_of_tools_names_those_that_it_checks() {
    let gate = |on: &str, tools: &str| {
        text(&format!("[[gates]]\non = \"{on}\"\nplugin = \"guard\"\n{tools}"))
    };
    for on in ["tool-call", "tool-result"] {
        let rule = |tools: &str| assembled(&gate(on, tools), &plugins()).setup.gates[0].clone();
        let all = rule("");
        assert!(all.checks(all.on, Some("mail.send")) && !all.checks(GatePoint::Inbound, None));
        assert_eq!(all.on.as_str(), on);
    }
    let mut with_tools = plugins();
    with_tools.insert("notes".into(), plugin(&[PluginKind::Tools], &[], &["save", "list"]));
    let covered = gate("tool-call", "tools = [\"notes.save\", \"*.l*\"]\n");
    let setup = assembled(&covered, &with_tools).setup;
    let checks = |tool: &str| setup.gates[0].checks(GatePoint::ToolCall, Some(tool));
    assert!(checks("notes.save") && checks("notes.list") && !checks("notes.drop"));
    let unused = assembled(&gate("tool-call", "tools = [\"notes.sav\"]\n"), &with_tools);
    insta::assert_snapshot!(unused.warnings.to_string());
}

#[test]
fn tools_that_no_gate_can_check_are_refused() {
    let mut report = String::new();
    for (on, tools) in [
        ("inbound", "[\"notes.*\"]"),
        ("tool-call", "[]"),
        ("tool-call", "[\"notes\", \"done\", \"a b\"]"),
        ("tool-result", "\"notes.*\""),
        ("tool-result", "[\"nots.*\"]"),
    ] {
        let gate = format!("[[gates]]\non = \"{on}\"\nplugin = \"guard\"\ntools = {tools}\n");
        writeln!(report, "{}", refused(&text(&gate))).unwrap();
    }
    insta::assert_snapshot!(report);
}

fn handing(plugin: &str, task: &str) -> String {
    Parts { plugin, task, end: "[tasks.billing]\nagent = \"chat\"\n", ..Parts::default() }.text()
}

#[test]
fn whom_a_task_may_hand_over_to_is_named_and_must_be_there() {
    let task = "tools = [\"handoff_conversation\"]\nhandoff = [\"billing\", \"human\"]";
    let setup = assembled(&handing("grants.route = [\"billing\"]", task), &plugins()).setup;
    let desk = TaskName::from("desk");
    assert_eq!(setup.tasks[&desk].handoff, Some(vec!["billing".to_owned(), "human".to_owned()]));
    assert_eq!(setup.handoff_targets(&desk), ["billing", "user"]);
    assert_eq!(
        setup.handoff_targets(&"billing".into()),
        ["user"],
        "itself and what was not granted are no targets"
    );
    assert_eq!(setup.holders(), [desk.clone(), "billing".into()].into());
    assert_eq!(
        assembled(&handing("grants.route = [\"billing\"]", "tools = []"), &plugins())
            .setup
            .holders(),
        [desk].into()
    );
    let problems = refused(&handing("", "handoff = [\"biling\"]"));
    assert_eq!(problems.codes(), [UnknownTask], "{problems}");
}

#[test]
fn a_tool_that_would_be_refused_each_time_is_not_offered() {
    let mut report = String::new();
    for task in ["handoff = [\"billing\"]", "handoff = []"] {
        let problems =
            unfit(&handing("", &format!("tools = [\"handoff_conversation\"]\n{task}")), &plugins());
        assert_eq!(problems.codes(), [NotGranted], "{problems}");
        writeln!(report, "{problems}").unwrap();
    }
    insta::assert_snapshot!(report);
    assembled(&handing("", "tools = [\"handoff_conversation\"]"), &plugins());
}

#[test]
fn a_gate_that_fails_blocks_unless_the_operator_says_otherwise() {
    let gate = |more: &str| format!("[[gates]]\non = \"deliver\"\nplugin = \"guard\"\n{more}");
    let fails_open =
        |more: &str| assembled(&text(&gate(more)), &plugins()).setup.gates[0].fails_open;
    assert!(
        !fails_open("")
            && !fails_open("on_failure = \"block\"\n")
            && fails_open("on_failure = \"pass\"\n")
    );
    let problems = refused(&text(&gate("on_failure = \"open\"\n")));
    assert_eq!(problems.codes(), [InvalidValue], "{problems}");
}

#[test]
fn an_unknown_kind_of_event_is_one_error() {
    let of = |events: &str| {
        refused(&text(&format!("[[observers]]\nplugin = \"guard\"\nevents = {events}\n"))).codes()
    };
    assert_eq!(of("[\"task-endde\"]"), [InvalidValue]);
    assert_eq!(of("[]"), [InvalidValue]);
    assert_eq!(of("[\"task-ended\", \"deneid\"]"), [InvalidValue]);
}
