//! Components that no compiler produces: many memories, large tables, many instances, long lists.
//! The template is `tests/data/guests/tool.wat`.

use conclave_core::config::ProblemCode;
use conclave_core::permissions::manifest::Manifest;
use conclave_core::types::fault::FaultKind;
use conclave_core::types::outcome::Status;
use conclave_test_support::{Ran, Rig, guest, refused};

/// Additional parts of a component with one tool.
#[derive(Clone, Copy, Default)]
pub(crate) struct More<'a> {
    pub(crate) component: &'a str,
    pub(crate) import: &'a str,
    pub(crate) with: &'a str,
    pub(crate) module: &'a str,
    pub(crate) call: &'a str,
}

pub(crate) fn tool(more: More<'_>) -> Vec<u8> {
    let mut text = include_str!("../../data/guests/tool.wat").to_owned();
    let parts = [
        ("IMPORT", more.import),
        ("WITH", more.with),
        ("MODULE", more.module),
        ("COMPONENT", more.component),
        ("CALL", more.call),
    ];
    for (place, part) in parts {
        text = text.replace(&format!(";; {place}\n"), &format!("{part}\n"));
    }
    let component = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}"));
    let (name, version, contract) = ("by-hand".into(), "1".into(), "0.1".into());
    let manifest = Manifest { format: 1, name, version, contract, ..Manifest::default() };
    conclave_runtime::plugin::embed(&component, &manifest).expect("it is a component")
}

pub(crate) fn config(limits: &str) -> String {
    format!(
        "entry = \"main\"\n[plugins.caller]\nsource = \"{}\"\ngrants.tools = [\"subject.*\"]\nconfig = {{ tool = \"subject.run\" }}\n\
         [plugins.subject]\nsource = \"subject.wasm\"\nlimits = {{ {limits} }}\n[tasks.main]\nagent = \"caller\"\n",
        guest("agent_caller").display()
    )
}

fn run(component: Vec<u8>, limits: &str) -> Ran {
    Rig::new().with_file("subject.wasm", component).run(&config(limits), "go")
}

/// The reason why a component is refused.
pub(crate) fn reason(component: Vec<u8>) -> String {
    reason_with(component, "")
}

/// The reason why a component is refused under these limits.
fn reason_with(component: Vec<u8>, limits: &str) -> String {
    let problems = refused(&Rig::new().with_file("subject.wasm", component), &config(limits));
    assert_eq!(problems.codes(), [ProblemCode::PluginRefused], "{problems}");
    problems.to_string()
}

#[test]
fn a_component_by_hand_serves_a_tool() {
    let ran = run(tool(More::default()), "");
    assert_eq!((ran.status(), ran.answer().is_error), (Status::Done, false), "{:?}", ran.answer());
}

#[test]
fn memory_is_counted_over_all_memories_together() {
    // Three memories of about 3 MiB each: each is within the limit, but their sum is not.
    let more = More {
        component: r#"(core module $other (memory 1) (func (export "grow") (drop (memory.grow (i32.const 48)))))
            (core instance $a (instantiate $other)) (core instance $b (instantiate $other)) (core instance $c (instantiate $other))"#,
        import: r#"(import "a" "grow" (func $a)) (import "b" "grow" (func $b)) (import "c" "grow" (func $c))"#,
        with: r#"(with "a" (instance $a)) (with "b" (instance $b)) (with "c" (instance $c))"#,
        call: "(call $a) (call $b) (call $c)",
        ..More::default()
    };
    let ran = run(tool(more), "memory = \"8 MiB\"");
    assert_eq!(ran.fault().kind, FaultKind::Memory, "{:?}", ran.answer());
    let ran = run(tool(more), "memory = \"16 MiB\"");
    assert!(!ran.answer().is_error, "{:?}", ran.answer());
}

#[test]
fn more_memories_than_the_host_gives_are_refused_at_load() {
    let instances: String =
        (0..6).map(|index| format!("(core instance $more{index} (instantiate $other))")).collect();
    let component = format!("(core module $other (memory 1)) {instances}");
    let told = reason(tool(More { component: &component, ..More::default() }));
    assert!(told.contains("`subject` is refused") && told.contains("memories"), "{told}");
}

#[test]
fn a_table_that_is_too_large_is_refused_at_load() {
    let told = reason(tool(More { module: "(table 30000 funcref)", ..More::default() }));
    assert!(
        told.contains("`subject` is refused")
            && told.contains("more than 20000 elements")
            && told.contains("limits.table_elements"),
        "{told}"
    );
}

#[test]
fn a_table_grows_up_to_the_bound_and_no_further() {
    let grow = |by: u32, limits: &str| {
        let call = format!(
            "(if (i32.eq (table.grow $t (ref.null func) (i32.const {by})) (i32.const -1)) (then (unreachable)))"
        );
        run(tool(More { module: "(table $t 0 funcref)", call: &call, ..More::default() }), limits)
    };
    assert!(!grow(10_000, "").answer().is_error);
    assert!(!grow(30_000, "table_elements = 30_000").answer().is_error);
    for (ran, most) in [(grow(30_000, ""), "20000"), (grow(200, "table_elements = 100"), "100")] {
        let fault = ran.fault();
        assert_eq!(fault.kind, FaultKind::Tables);
        assert!(
            fault.message.contains(most) && fault.message.contains("limits.table_elements"),
            "{}",
            fault.message
        );
    }
}

/// A list of empty calls costs the guest only a store of two numbers.
#[test]
fn a_list_that_is_too_long_is_refused() {
    let then = |calls: u32, limits: &str| {
        let call = format!(
            "(drop (memory.grow (i32.const 16))) (i32.store (i32.const 2080) (i32.const 131072)) (i32.store (i32.const 2084) (i32.const {calls}))"
        );
        run(tool(More { call: &call, ..More::default() }), limits)
    };
    for (ran, most) in [(then(101, "list = 100"), "100"), (then(10_001, ""), "10000")] {
        let fault = ran.fault();
        assert_eq!(fault.kind, FaultKind::List, "{}", fault.message);
        assert!(
            fault.message.contains(most) && fault.message.contains("limits.list"),
            "{}",
            fault.message
        );
    }
    assert!(then(100, "list = 100").answer().fault.is_none(), "as many as it may");
}

#[test]
fn more_instances_than_the_host_gives_are_refused_at_load() {
    let instances: String =
        (0..80).map(|index| format!("(core instance $more{index} (instantiate $empty))")).collect();
    let component = format!("(core module $empty) {instances}");
    let told = reason(tool(More { component: &component, ..More::default() }));
    assert!(
        told.contains("`subject` is refused")
            && told.contains("more than 60 core instances")
            && told.contains("limits.instances"),
        "{told}"
    );
    let loads = Rig::new()
        .with_file("subject.wasm", tool(More { component: &component, ..More::default() }));
    assert!(loads.prepare(&config("instances = 120")).is_ok());
    let told =
        reason_with(tool(More { component: &component, ..More::default() }), "instances = 10");
    assert!(told.contains("more than 10 core instances"), "{told}");
}
