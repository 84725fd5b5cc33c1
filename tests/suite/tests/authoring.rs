//! The commands for authors, in a folder outside the repository and without a network: a plugin of
//! each kind is written, tested natively, built, tested as a component and run.

use std::path::{Path, PathBuf};
use std::process::Command;

use conclave_test_support::Rig;
use serde_json::Value;

use crate::cli::{conclave, text};

/// Each kind, and the result of its config's run.
const KINDS: [(&str, &str); 12] = [
    ("tool", "It has five words.\n"),
    ("agent", "It was lit in 1844.\n"),
    ("responder", "From nine to five.\n"),
    ("strategy", "I will tell you.\nIt is 48 metres tall.\n"),
    ("gate", "I may not have that looked up.\n"),
    ("judge", "1844\n"),
    ("simulated-user", "I have booked a table for two on the first of June.\n"),
    (
        "observer",
        "It was lit in 1844.
",
    ),
    (
        "condenser",
        "I have noted all three.
",
    ),
    ("channel", "It was lit in 1844.\n"),
    ("memory", "I will remember that.\n"),
    ("analyzer", "I was not allowed to remove it.\n"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Runs a command in a plugin's folder, offline and without optimisation, because only the behaviour
/// is tested. Returns its stdout.
fn run(command: Command, folder: &Path) -> String {
    ended(command, folder, 0)
}

/// Does the same with a command that ends with this exit code.
fn ended(mut command: Command, folder: &Path, code: i32) -> String {
    for name in ["HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "PATH"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    let output = command
        .current_dir(folder)
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .output()
        .expect("it runs");
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{command:?}\n{said}{told}");
    said
}

/// Links the folder of builds to one that earlier runs of the tests have filled.
fn share_target(folder: &Path) {
    let warm = conclave_test_support::stock().join("../first-tool");
    std::fs::create_dir_all(&warm).expect("a test can make a folder");
    std::os::unix::fs::symlink(&warm, folder.join("target")).expect("a test can make a link");
}

#[test]
fn a_plugin_of_each_kind_is_written_built_tested_and_run() {
    let rig = Rig::new();
    let repository = root().display().to_string();
    for (kind, result) in KINDS {
        let name = format!("my-{kind}");
        let new = ["plugin", "new", &name, "--kind", kind];
        // The SDK of the program is one build more, so one kind has it.
        let sdk: &[&str] = if kind == "tool" { &[] } else { &["--sdk", &repository] };
        let wrote = conclave(&rig, &[&new, sdk].concat());
        assert!(wrote.status.success(), "{}", text(&wrote.stderr));
        let next = text(&wrote.stdout);
        assert!(next.contains("conclave plugin build"), "{next}");
        let folder = rig.folder().join(&name);
        assert_eq!(folder.join("conclave-sdk/wit/world.wit").is_file(), kind == "tool");
        share_target(&folder);
        let cargo = rig.bare("cargo");
        let mut tests = cargo;
        tests.args(["test", "--quiet", "--target-dir", "target"]);
        let said = run(tests, &folder);
        let passed = ["1 passed", "2 passed"];
        assert!(passed.iter().any(|it| said.contains(it)), "{kind}: {said}");
        run(rig.conclave(&["plugin", "build"]), &folder);
        let test = next.lines().find_map(|line| line.trim().strip_prefix("conclave plugin test"));
        let options: Vec<&str> = test.expect("the command is named").split_whitespace().collect();
        let cases = run(rig.conclave(&[&["plugin", "test"], &options[..]].concat()), &folder);
        assert!(
            cases.ends_with("cases: 0 failed\n") || cases.ends_with("1 case: 0 failed\n"),
            "{cases}"
        );
        let config = std::fs::read_to_string(folder.join("conclave.toml")).expect("a config");
        let message = config.split('"').nth(1).expect("the message is in the first lines");
        // The action that the analyzer rates waits for an approver, and none is there.
        let code = if kind == "analyzer" { 6 } else { 0 };
        assert_eq!(ended(rig.conclave(&["run", message]), &folder, code), result, "{kind}");
    }
}

#[test]
fn a_script_names_the_guarantees_that_a_strategy_breaks() {
    let rig = Rig::new();
    let repository = root().display().to_string();
    let new = ["plugin", "new", "silent", "--kind", "strategy", "--sdk", &repository];
    let wrote = conclave(&rig, &new);
    assert!(wrote.status.success(), "{}", text(&wrote.stderr));
    let folder = rig.folder().join("silent");
    let build = folder.join("target/wasm32-wasip2/release");
    std::fs::create_dir_all(&build).expect("a test can make a folder");
    let silent = conclave_test_support::guest("strategy_silent");
    std::fs::copy(silent, build.join("silent.wasm")).expect("a copy");
    let script = r#""script": { "channels": [{ "id": "phone", "kind": "voice" }], "script": [{ "do": "ends", "task": "a", "output": "48 m" }] }"#;
    let cases = format!(
        r#"[{{ "name": "lost", {script} }}, {{ "name": "on purpose", {script}, "but": ["nothing-lost"] }}]"#
    );
    std::fs::write(folder.join("cases.json"), &cases).expect("a test can write a file");
    let output = conclave(&rig, &["plugin", "test", "silent"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stderr));
    assert!(said.contains("nothing-lost (loses no result)") && said.contains("a still"), "{said}");
    assert!(said.ends_with("2 cases: 1 failed\n"), "{said}");
    // The same in data, where each breach is one text.
    let data = text(&conclave(&rig, &["plugin", "test", "silent", "--json"]).stdout);
    let case: Value = serde_json::from_str(data.lines().next().unwrap_or_default()).expect("JSON");
    let broken = case["seen"]["broken"].as_array().expect("a list");
    assert!(!broken.is_empty() && case["problems"] == case["seen"]["broken"], "{data}");
    let granted = cases
        .replace("\"script\": {", "\"grants\": [\"channels = [\\\"phone\\\"]\"], \"script\": {");
    std::fs::write(folder.join("cases.json"), granted).expect("a test can write a file");
    let refused = conclave(&rig, &["plugin", "test", "silent"]);
    let shown = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{shown}");
    assert!(shown.contains("the script has the channels"), "{shown}");
}

#[test]
fn a_case_that_fails_says_what_was_expected_and_what_was_seen() {
    let rig = Rig::new();
    let repository = root().display().to_string();
    let wrote = conclave(&rig, &["plugin", "new", "other", "--sdk", &repository]);
    assert!(wrote.status.success(), "{}", text(&wrote.stderr));
    let folder = rig.folder().join("other");
    let unbuilt = conclave(&rig, &["plugin", "test", "other"]);
    assert_eq!(unbuilt.status.code(), Some(2));
    let told = text(&unbuilt.stderr);
    assert!(
        told.contains("does not exist") && told.contains("conclave plugin build other"),
        "{told}"
    );
    // Any component will do.
    let build = folder.join("target/wasm32-wasip2/release");
    std::fs::create_dir_all(&build).expect("a test can make a folder");
    std::fs::copy(conclave_test_support::guest("echo"), build.join("other.wasm")).expect("a copy");
    let cases = r#"[
        { "name": "as it is", "tool": "run", "arguments": { "text": "hello" }, "expect": { "content": "hello" } },
        { "name": "otherwise", "tool": "run", "arguments": { "text": "hello" }, "expect": { "content": "goodbye" } },
        { "name": "no such tool", "tool": "fly", "expect": {} },
        { "name": "a failure that was not expected", "tool": "fail", "arguments": {}, "expect": {} }
    ]"#;
    std::fs::write(folder.join("cases.json"), cases).expect("a test can write a file");
    let output = conclave(&rig, &["plugin", "test", "other"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stderr));
    assert!(
        said.contains("expected  \"goodbye\"") && said.contains("seen      \"hello\""),
        "{said}"
    );
    assert!(said.contains("has no tool `fly`"), "{said}");
    assert!(said.ends_with("4 cases: 3 failed\n"), "{said}");
    let json =
        text(&conclave(&rig, &["plugin", "test", "other", "--json", "--only", "otherwise"]).stdout);
    let line: Value = serde_json::from_str(&json).expect("one line of JSON");
    assert_eq!((&line["passed"], &line["seen"]["content"]), (&false.into(), &"hello".into()));
    // A case that leaves the plugin's folder is not played without consent.
    std::fs::create_dir(rig.folder().join("private")).expect("a test can make a folder");
    let reads = r#"[{ "name": "x", "tool": "run", "arguments": { "text": "hello" }, "grants": ["files = [{ dir = \"../private\", at = \"/p\", mode = \"read\" }]"], "expect": { "content": "hello" } }]"#;
    std::fs::write(folder.join("cases.json"), reads).expect("a test can write a file");
    let refused = conclave(&rig, &["plugin", "test", "other"]);
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(6), "{told}");
    assert!(told.contains("private") && told.contains("--yes"), "{told}");
    assert_ne!(conclave(&rig, &["plugin", "test", "other", "--yes"]).status.code(), Some(6));
    for cases in ["{}", r#"[{ "name": "x", "expect": {} }]"#, r#"[{ "nam": 1 }]"#] {
        std::fs::write(folder.join("cases.json"), cases).expect("a test can write a file");
        assert_eq!(conclave(&rig, &["plugin", "test", "other"]).status.code(), Some(2), "{cases}");
    }
}

#[test]
fn a_plugin_is_not_written_over_something() {
    let rig = Rig::new().with_file("taken", "");
    for arguments in [
        &["plugin", "new", "Bad Name"][..],
        &["plugin", "new", "taken"],
        &["plugin", "new", "x", "--folder", "."],
        &["plugin", "new", "x", "--sdk", "/nowhere"],
        &["plugin", "new", "conclave-sdk"],
        &["plugin", "new", "chat"],
    ] {
        let output = conclave(&rig, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    }
    assert!(!rig.folder().join("x").exists());
}

#[test]
fn a_plugin_inside_a_workspace_of_all_folders_is_reported() {
    let manifest = "[workspace]\nmembers = [\"*\"]\n";
    let rig = Rig::new().with_file("Cargo.toml", manifest);
    let repository = root().display().to_string();
    let wrote = conclave(&rig, &["plugin", "new", "inner", "--sdk", &repository]);
    let told = text(&wrote.stderr);
    assert!(wrote.status.success(), "{told}");
    assert!(told.contains("exclude = [\"inner\"]"), "{told}");
    // Where a file is in the way of a folder, nothing is left behind.
    std::fs::create_dir(rig.folder().join("half")).expect("a test can make a folder");
    let full = std::fs::set_permissions(
        rig.folder().join("half"),
        std::os::unix::fs::PermissionsExt::from_mode(0o555),
    );
    full.expect("a test can change its folder");
    let wrote = conclave(&rig, &["plugin", "new", "half", "--sdk", &repository]);
    // The superuser writes there nevertheless.
    if !wrote.status.success() {
        let left = std::fs::read_dir(rig.folder().join("half")).expect("a folder").count();
        assert_eq!(left, 0);
    }
}

#[test]
fn the_compiler_names_the_remedy_for_a_type_without_its_derives() {
    let rig = Rig::new();
    let repository = root().display().to_string();
    let wrote = conclave(&rig, &["plugin", "new", "wrong", "--sdk", &repository]);
    assert!(wrote.status.success(), "{}", text(&wrote.stderr));
    let folder = rig.folder().join("wrong");
    share_target(&folder);
    let code = r#"//! Types that a tool can neither take nor return.
        use conclave_sdk::{Json, tool};

        struct Bare;

        #[derive(serde::Serialize)]
        struct NoSchema;

        /// Returns a type that is no result.
        #[tool]
        fn bare() -> Bare { Bare }

        /// Returns a type without a schema.
        #[tool]
        fn no_schema() -> Json<NoSchema> { Json(NoSchema) }

        /// Takes a type that cannot be read.
        #[tool]
        fn takes(_bare: Bare) {}

        conclave_sdk::export!(tools: [bare, no_schema, takes]);
    "#;
    std::fs::write(folder.join("src/lib.rs"), code).expect("a test can write a file");
    let output = rig
        .bare("cargo")
        .args(["check", "--quiet", "--offline", "--target-dir", "target"])
        .envs(
            ["HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "PATH"]
                .into_iter()
                .filter_map(|name| Some((name, std::env::var_os(name)?))),
        )
        .current_dir(&folder)
        .output()
        .expect("cargo runs");
    let told = text(&output.stderr);
    assert!(!output.status.success(), "{told}");
    for remedy in [
        "`Bare` cannot be the result of a tool",
        "return it as `Json(value)`",
        "`Json(…)` cannot return a `NoSchema`",
        "write `#[derive(serde::Serialize, schemars::JsonSchema)]` on the type",
        "`Bare` cannot be a parameter of a tool",
        "write `#[derive(serde::Deserialize, schemars::JsonSchema)]` on the type",
    ] {
        assert!(told.contains(remedy), "{remedy}\n{told}");
    }
}

/// Follows the page about a first agent as a reader does.
#[test]
fn the_first_agent_of_the_page_is_built_tested_and_run() {
    let page = std::fs::read_to_string(root().join("docs/write-plugins/first-agent.md"));
    let page = page.expect("the page is there");
    let rig = Rig::new();
    let repository = root().display().to_string();
    let new = ["plugin", "new", "keeper", "--kind", "agent", "--sdk", &repository];
    let wrote = conclave(&rig, &new);
    assert!(wrote.status.success(), "{}", text(&wrote.stderr));
    let folder = rig.folder().join("keeper");
    share_target(&folder);
    let mut files = 0;
    for block in page.split("```").skip(1).step_by(2) {
        let (head, content) = block.split_once('\n').expect("a block has lines");
        let Some((_, file)) = head.split_once(' ') else { continue };
        std::fs::write(folder.join(file), content).expect("a test can write a file");
        files += 1;
    }
    assert_eq!(files, 5);
    std::fs::create_dir(folder.join("pages")).expect("a test can make a folder");
    std::fs::write(folder.join("pages/lights.txt"), "Skerryvore was first lit in 1844.\n")
        .expect("a test can write a file");
    let mut tests = rig.bare("cargo");
    tests.args(["test", "--quiet", "--target-dir", "target"]);
    assert!(run(tests, &folder).contains("1 passed"));
    run(rig.conclave(&["plugin", "build", "--quiet"]), &folder);
    assert!(run(rig.conclave(&["plugin", "test"]), &folder).ends_with("2 cases: 0 failed\n"));
    let said = run(rig.conclave(&["run", "When was Skerryvore lit?"]), &folder);
    assert!(said.contains("In 1844."), "{said}");
}
