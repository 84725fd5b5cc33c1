//! Components that are not built for the contract: their functions and programs are tools, under
//! the same grants and limits.

use conclave_core::types::fault::FaultKind;
use conclave_core::types::outcome::Status;
use conclave_test_support::{Ran, Rig, calling, guest};
use serde_json::{Value, json};

use crate::by_hand;
use crate::cli::{conclave, text};

fn run(tool: &str, arguments: Value) -> Ran {
    Rig::new().run(&calling("plain_functions", tool, &arguments, ""), "go")
}

fn program(arguments: &[&str], stdin: &str, extra: &str) -> Ran {
    let arguments = json!({ "arguments": arguments, "stdin": stdin });
    Rig::new().run(&calling("plain_program", "run", &arguments, extra), "go")
}

#[test]
fn a_function_is_a_tool() {
    let ran = run("greet", json!({ "name": "Ann" }));
    assert_eq!((ran.status(), ran.content()), (Status::Done, "Hello, Ann"));
    assert_eq!(run("calc_add", json!({ "a": 2, "b": 3.0 })).content(), "5", "the only `calc.add`");
    assert_eq!(run("more_add", json!({ "a": "x", "b": "y" })).content(), "xy");
    assert_eq!(run("divide", json!({ "a": 9, "b": -3 })).content(), "-3");
    let ran = run("divide", json!({ "a": 9, "b": 0 }));
    assert!(ran.answer().is_error && ran.content().contains("9 cannot be divided by 0"));
    assert_eq!(run("infinite", json!({})).content(), "inf", "JSON has no number for it");
}

#[test]
fn values_of_every_type_come_back_as_they_went() {
    let mut value = json!({
        "text": "é", "letter": "ß", "small": 0.1, "wide": 1.5e300, "low": -128, "high": u64::MAX, "yes": true,
        "bytes": [0, 255], "pair": [7, "b"], "marks": ["bold"], "unit": "foot", "shape": { "square": 4 },
        "points": [{ "x": -1, "y": 2, "label": "p" }, { "x": 0, "y": 0, "label": null }],
        "maybe": 5, "twice": { "some": null }, "ended": { "err": "no" },
    });
    let order = [
        "text", "letter", "small", "wide", "low", "high", "yes", "bytes", "pair", "marks", "unit",
        "shape", "points", "maybe", "twice", "ended",
    ];
    let rig = Rig::new();
    let file = guest("plain_functions").display().to_string();
    let called = |value: &Value| {
        let output = conclave(&rig, &["plugin", "call", &file, "echo_all", &value.to_string()]);
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let echoed = |value: &Value| -> Value {
        let (_, result, told) = called(value);
        serde_json::from_str(&result).unwrap_or_else(|_| panic!("no JSON: {result} {told}"))
    };
    let expected =
        |value: &Value| -> Value { order.iter().map(|key| value[key].clone()).collect() };
    assert_eq!(echoed(&value), expected(&value));
    // What is optional may be absent.
    for key in ["maybe", "twice"] {
        value.as_object_mut().expect("an object").remove(key);
    }
    for (key, other) in
        [("shape", json!({ "nothing": null })), ("marks", json!([])), ("ended", json!({ "ok": 1 }))]
    {
        value[key] = other;
    }
    assert_eq!(echoed(&value), expected(&value));
    for (key, wrong) in [
        ("low", json!(128)),
        ("high", json!(-1)),
        ("letter", json!("ab")),
        ("bytes", json!([256])),
        ("pair", json!([7])),
        ("marks", json!(["tall"])),
        ("unit", json!("mile")),
        ("shape", json!({ "square": 1, "circle": 1 })),
        ("points", json!([{ "x": 1 }])),
        ("ended", json!({ "maybe": 1 })),
    ] {
        let mut value = value.clone();
        value[key] = wrong;
        let (succeeded, result, told) = called(&value);
        assert!(!succeeded && format!("{result}{told}").contains(key), "{key}: {result} {told}");
    }
}

#[test]
fn functions_have_the_limits_of_tools() {
    for (tool, limit, kind) in [
        ("spin", "limits.cpu = \"50 ms\"", FaultKind::Cpu),
        ("flood", "limits = { output = \"1 MiB\", memory = \"256 MiB\" }", FaultKind::Output),
    ] {
        let config = calling("plain_functions", tool, &json!({}), limit);
        let ran = Rig::new().run(&config, "go");
        assert_eq!(ran.fault().kind, kind, "{tool}: {}", ran.content());
    }
    let ran = run("greet", json!({ "name": "" }));
    assert!(ran.content().contains("there is no name"), "{}", ran.content());
}

#[test]
fn inspect_says_which_functions_are_tools_and_which_cannot_be() {
    let rig = Rig::new();
    let file = guest("plain_functions").display().to_string();
    let shown = text(&conclave(&rig, &["plugin", "inspect", &file]).stdout);
    for part in [
        "not built for Conclave",
        "calc_add",
        "divide(a: s64, b: s64) -> result<s64, string>",
        "Functions that cannot be tools",
        "acme:math/calc@1.2.0.take: it takes or returns a resource",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let file = guest("plain_program").display().to_string();
    let shown = text(&conclave(&rig, &["plugin", "inspect", &file]).stdout);
    assert!(shown.contains("Runs the program"), "{shown}");
    assert!(shown.contains("files") && shown.contains("optional"), "{shown}");
}

#[test]
fn a_strangers_component_is_added_under_the_name_of_its_file_and_used() {
    let rig = Rig::new().with_file("conclave.toml", "");
    std::fs::copy(guest("plain_program"), rig.folder().join("shouter.wasm")).expect("a copy");
    let added = conclave(&rig, &["add", "shouter.wasm", "--no-questions"]);
    assert!(added.status.success(), "{}", text(&added.stderr));
    let config = std::fs::read_to_string(rig.folder().join("conclave.toml")).expect("a config");
    assert!(config.contains("[plugins.shouter]"), "{config}");
    let arguments = r#"{"arguments": ["upper"], "stdin": "hello"}"#;
    let called = conclave(&rig, &["plugin", "call", "shouter.wasm", "run", arguments]);
    assert_eq!(text(&called.stdout), "HELLO\n", "{}", text(&called.stderr));
}

#[test]
fn a_program_reads_its_input_and_what_it_prints_is_the_result() {
    assert_eq!(program(&["upper"], "hello", "").content(), "HELLO");
    let ran = program(&["cat", "/data/a.txt"], "", "");
    assert!(ran.answer().is_error, "{}", ran.content());
    // WASI 0.2 distinguishes success and failure alone.
    assert!(ran.content().contains("exit code 1") && ran.content().contains("/data/a.txt"));
    let ran = program(&["other"], "", "");
    assert!(
        ran.content().contains("exit code 1") && ran.content().contains("there is no \"other\"")
    );
    let ran = program(&["panic"], "", "");
    assert!(ran.answer().is_error && ran.content().contains("lost the plot"), "{}", ran.content());
    assert_eq!(program(&["env", "a b"], "", "").content(), "[] [\"a b\"]\n");
    assert!(!program(&["connect"], "", "").content().contains("Ok"), "no socket is opened");
}

#[test]
fn a_program_reads_only_the_folders_that_are_granted() {
    let rig = Rig::new().with_file("data/a.txt", "inside").with_file("secret", "OUTSIDE");
    let grants = r#"grants.files = [{ dir = "data", at = "/data", mode = "read" }]"#;
    let cat = |path: &str| {
        let arguments = json!({ "arguments": ["cat", path] });
        rig.run(&calling("plain_program", "run", &arguments, grants), "go")
    };
    assert_eq!(cat("/data/a.txt").content(), "inside");
    for path in ["/data/../secret", "secret", "/secret", "../secret"] {
        let ran = cat(path);
        assert!(ran.answer().is_error && !ran.content().contains("OUTSIDE"), "{}", ran.content());
    }
}

#[test]
fn the_output_of_a_program_is_bounded_and_one_that_never_ends_is_stopped() {
    let ran = program(&["much"], "", "limits.output = \"10 KiB\"");
    assert!(ran.content().contains("more bytes]"), "{}", ran.content().len());
    let ran = program(&["yes"], "", "limits.cpu = \"50 ms\"");
    assert_eq!(ran.fault().kind, FaultKind::Cpu, "{}", ran.content());
}

#[test]
fn a_component_without_a_function_that_can_be_a_tool_is_refused_with_the_reasons() {
    let only_a_resource = r#"(component
        (type $r (resource (rep i32)))
        (export $e "thing" (type $r))
        (core module $m (func (export "f") (param i32)))
        (core instance $i (instantiate $m))
        (func (export "use-it") (param "it" (own $e)) (canon lift (core func $i "f"))))"#;
    for (component, says) in [
        (wat::parse_str("(component)"), "no function that could be a tool"),
        (wat::parse_str(only_a_resource), "use-it: it takes or returns a resource"),
    ] {
        let reason = by_hand::reason(component.expect("it is text"));
        assert!(reason.contains(says), "{reason}");
    }
}

/// WIT puts the types of a world, and those of interfaces that it uses, into imports.
#[test]
fn types_of_the_world_and_of_used_interfaces_are_no_imports_of_the_host() {
    let component = r#"(component
        (type $own (record (field "x" u32) (field "y" u32)))
        (import "point" (type $point (eq $own)))
        (import "acme:shapes/types@1.0.0" (instance $types
            (type $side (enum "left" "right"))
            (export "side" (type (eq $side)))))
        (alias export $types "side" (type $used))
        (import "side" (type $side (eq $used)))
        (core module $m (func (export "sum") (param i32 i32 i32) (result i32)
            (i32.add (local.get 0) (i32.add (local.get 1) (local.get 2)))))
        (core instance $i (instantiate $m))
        (func (export "sum") (param "at" $point) (param "side" $side) (result u32)
            (canon lift (core func $i "sum"))))"#;
    let rig = Rig::new().with_file("subject.wasm", wat::parse_str(component).expect("it is text"));
    let arguments = json!({ "at": { "x": 2, "y": 3 }, "side": "right" }).to_string();
    let output = conclave(&rig, &["plugin", "call", "subject.wasm", "sum", &arguments]);
    assert_eq!(text(&output.stdout).trim(), "6", "{}", text(&output.stderr));
}

/// A few bytes for each export repeat the type that takes most to describe.
#[test]
fn many_functions_of_one_large_type_are_refused_with_the_limit() {
    let names: String = (0..950).map(|number| format!("\"n{number}\" ")).collect();
    let of = |count: usize| {
        let exports: String =
            (0..count).map(|number| format!("(export \"f{number}\" (func $f))")).collect();
        let component = format!(
            r#"(component
                (type $own (enum {names})) (import "t" (type $t (eq $own)))
                (core module $m (func (export "f") (param i32)))
                (core instance $i (instantiate $m))
                (func $f (param "a" $t) (canon lift (core func $i "f")))
                {exports})"#
        );
        let component = wat::parse_str(component).expect("it is text");
        by_hand::reason(component)
    };
    for (count, limit) in [
        (5_000, "more than 1000 exports"),
        (900, "more than 524288 bytes in the types of its functions, written out"),
    ] {
        let reason = of(count);
        assert!(reason.contains(limit), "{reason}");
    }
}

/// Types repeat one another, so that a short component could describe a schema of any size.
#[test]
fn types_that_grow_without_bounds_are_refused() {
    let mut types = String::from("(type $t0 (tuple u8 u8))\n");
    for level in 1..12 {
        types += &format!("(type $t{level} (tuple $t{0} $t{0}))\n", level - 1);
    }
    let component = format!(
        r#"(component {types}
            (core module $m (memory (export "memory") 1)
                (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable)
                (func (export "f") (param i32)))
            (core instance $i (instantiate $m))
            (func (export "large") (param "it" $t11)
                (canon lift (core func $i "f") (memory $i "memory") (realloc (func $i "realloc")))))"#
    );
    let reason = by_hand::reason(wat::parse_str(&component).expect("it is text"));
    assert!(reason.contains("large: its types are too large"), "{reason}");
}

/// Reads the setting `units` from `wasi:config/store`, and returns its text.
const READS_SETTING: &str = r#"(component
    (import "wasi:config/store@0.2.0-draft" (instance $store
        (type $cause (variant (case "upstream" string) (case "io" string)))
        (export "error" (type $error (eq $cause)))
        (type $found (option string))
        (type $answer (result $found (error $error)))
        (export "get" (func (param "key" string) (result $answer)))))
    (core module $libc
        (memory (export "memory") 1)
        (global $next (mut i32) (i32.const 1024))
        (func (export "realloc") (param i32 i32 i32 i32) (result i32)
            (global.get $next)
            (global.set $next (i32.add (global.get $next) (local.get 3)))))
    (core instance $libc (instantiate $libc))
    (core func $get (canon lower (func $store "get")
        (memory $libc "memory") (realloc (func $libc "realloc"))))
    (core instance $host (export "get" (func $get)))
    (core module $main
        (import "libc" "memory" (memory 1))
        (import "host" "get" (func $get (param i32 i32 i32)))
        (data (i32.const 16) "units")
        (func (export "read") (result i32)
            (call $get (i32.const 16) (i32.const 5) (i32.const 64))
            ;; The text lies behind the cases of the result and of the option.
            (i32.const 72)))
    (core instance $main (instantiate $main
        (with "libc" (instance $libc)) (with "host" (instance $host))))
    (func (export "read") (result string)
        (canon lift (core func $main "read") (memory $libc "memory"))))"#;

#[test]
fn the_wasi_config_of_a_component_is_its_own() {
    let component = wat::parse_str(READS_SETTING).expect("it is text");
    let rig = Rig::new().with_file("subject.wasm", component);
    let read = |config: &str| {
        conclave(&rig, &["plugin", "call", "subject.wasm", "read", "--config", config])
    };
    for (config, expected) in [
        (r#"{"units": "celsius"}"#, "celsius"),
        (r#"{"units": 7}"#, "7"),
        (r#"{"other": "celsius"}"#, ""),
    ] {
        let output = read(config);
        assert_eq!(text(&output.stdout).trim(), expected, "{}", text(&output.stderr));
    }
    let output = read(r#"{"units": ["celsius"]}"#);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("is read as a text"), "{}", text(&output.stderr));
}

#[test]
fn the_export_of_a_toolchain_is_no_tool() {
    let component = r#"(component
        (core module $m (func (export "f")))
        (core instance $i (instantiate $m))
        (func $f (canon lift (core func $i "f")))
        (instance $exports (export "init" (func $f)))
        (export "exports" (instance $exports))
        (export "work" (func $f)))"#;
    let rig = Rig::new().with_file("subject.wasm", wat::parse_str(component).expect("it is text"));
    let output = conclave(&rig, &["plugin", "inspect", "subject.wasm", "--json"]);
    let shown: Value = serde_json::from_str(&text(&output.stdout)).expect("one object");
    let names: Vec<&str> = shown["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(names, ["work"], "{shown}");
}

#[test]
fn arguments_pass_up_to_the_limit_of_the_plugin_and_are_refused_with_its_name() {
    let rig = Rig::new();
    let file = guest("plain_functions").display().to_string();
    let call = |bytes: usize, limit: &str| {
        let arguments = json!({ "name": "x".repeat(bytes) }).to_string();
        let path = rig.folder().join("arguments.json");
        std::fs::write(&path, arguments).expect("a test can write a file");
        let arguments = format!("@{}", path.display());
        let size = format!("arguments={limit}");
        let limits = ["--limit", &size, "--limit", "output=16 MiB"];
        conclave(&rig, &[&["plugin", "call", &file, "greet", &arguments], &limits[..]].concat())
    };
    let large = call(3 << 20, "8 MiB");
    assert!(large.status.success(), "{}", text(&large.stderr));
    let refused = call(3 << 20, "2 MiB");
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("limits.arguments"), "{}", text(&refused.stderr));
}
