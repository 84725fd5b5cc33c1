//! `conclave mcp`, and MCP servers as a source of tools. The clients and servers are third-party
//! ones with the SDK for Python, which `cargo xtask test` installs. Protocol violations are tested
//! in `conclave-mcp`.
//!
//! For manual tests see `docs/use/mcp.md`.

mod component;
mod conformance;

use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use conclave_test_support::{Rig, bare, cache, free_port, program, stepping, until};
use serde_json::{Value, json};

use crate::cli::{conclave, text};

const SEARCH: &str = "\n[plugins.search]\nsource = \"stock:search\"\ngrants.files = [\"notes\"]\nlimits = { cpu = \"5 s\" }\n";

fn rig(lines: &str) -> Rig {
    let config = format!("{}{SEARCH}{lines}", stepping("agent_echo", "", ""));
    Rig::new()
        .with_file("c.toml", config)
        .with_file("notes/lights.txt", "Skerryvore was first lit in 1844.\n")
}

#[test]
fn a_client_gets_tools_on_stdout_and_the_operator_is_told_on_stderr() {
    let rig = rig("");
    let mut command = rig.conclave(&["mcp", "c.toml", "--entry"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let info = json!({ "name": "t", "version": "1" });
    let begin = json!({ "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": info });
    let messages = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }),
        json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": { "name": "search.find", "arguments": { "query": "Skerryvore" } } }),
        json!({ "jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": { "name": "ask", "arguments": { "message": "hello" } } }),
    ];
    let mut stdin = child.stdin.take().expect("it is piped");
    messages.iter().for_each(|message| writeln!(stdin, "{message}").expect("it listens"));
    // The end of stdin would stop the calls in progress, so it stays open.
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("it is piped")));
    let mut answers = std::collections::BTreeMap::new();
    while answers.len() < 4 {
        let line = lines.next().expect("a line").expect("it is text");
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        answers.extend(message["id"].as_u64().map(|id| (id, message.clone())));
    }
    drop(stdin);
    let ended = child.wait_with_output().expect("it ends");
    let told = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{told}");
    assert!(
        answers[&3]["result"]["content"][0]["text"]
            .as_str()
            .is_some_and(|text| text.contains("lights.txt")),
        "{}",
        answers[&3]
    );
    let find = answers[&2]["result"]["tools"]
        .as_array()
        .and_then(|tools| tools.iter().find(|tool| tool["name"] == "search.find"));
    assert_eq!(
        find.map(|tool| tool["annotations"]["readOnlyHint"].clone()),
        Some(json!(true)),
        "it can only read: {}",
        answers[&2]
    );
    assert_eq!(answers[&4]["result"]["content"][0]["text"], "hello");
    assert!(
        told.contains("data can leave to: the MCP client")
            && !told.contains("is not used: no task")
            && told.contains("serving ")
            && told.contains("search.find"),
        "{told}"
    );
}

#[test]
fn what_cannot_be_served_is_said_before_anybody_is_answered() {
    let rig = rig("");
    for (arguments, why) in [
        (&["mcp", "c.toml", "--tools", "search.nothing"][..], "there is no tool to serve"),
        (&["mcp", "c.toml", "--tools", "search"], "is not a pattern of tools"),
        (&["mcp", "c.toml", "--task", "nobody"], "has no task `nobody`"),
    ] {
        let output = conclave(&rig, arguments);
        assert_eq!(
            (output.status.code(), text(&output.stdout)),
            (Some(2), String::new()),
            "{}",
            text(&output.stderr)
        );
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
}

/// Returns the processes with this word in their command line.
fn holding(word: &str) -> usize {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let holds = |entry: &std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|part| part == word.as_bytes())
    };
    processes.filter(holds).count()
}

/// The server ignores the polite signal and the end of its input, and leaves its process group.
#[test]
#[cfg(target_os = "linux")]
fn no_server_outlives_its_host_whether_it_ends_or_is_killed() {
    let python = bare("python3").arg("--version").output();
    if !python.is_ok_and(|answer| answer.status.success()) {
        eprintln!("skipped: there is no python3");
        return;
    }
    // The host's supervisor, the server and what it started; a launcher has no word of it.
    ended_with_its_host("unconfined = true", 3);
    if crate::confined::confines() {
        ended_with_its_host("starts = [\"/usr/bin/sleep\"]", 2);
    }
}

/// Checks that the processes of a server, so many of them, end with the host.
fn ended_with_its_host(line: &str, processes: usize) {
    // A number that no other process of the machine has in its command line.
    let marker = format!("8{:07}", std::process::id());
    let config = format!(
        "entry = \"desk\"\n[models.default]\nkind = \"scripted\"\nreplies = \"replies.json\"\n\
         [plugins.desk]\nsource = \"stock:chat\"\ngrants.tools = [\"it.*\"]\ngrants.model = [\"default\"]\n\
         [plugins.it]\nsource = {{ mcp = {{ command = [\"python3\", {:?}, \"stays\", {marker:?}], {line} }} }}\n\
         [[policy]]\ntool = \"*\"\ndecide = \"allow\"\n[tasks.desk]\nagent = \"desk\"\n",
        data("hostile.py")
    );
    let replies =
        json!({ "replies": [{ "calls": [{ "name": "it.go", "arguments": {} }] }, "end"] });
    let rig = Rig::new()
        .with_file("conclave.toml", config)
        .with_file("replies.json", replies.to_string());
    for signal in ["-KILL", "-TERM"] {
        let mut command = rig.conclave(&["run", "go"]);
        let mut host =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a test's own part");
        until("the call", || (holding(&marker) == processes).then_some(()));
        let sent = bare("kill").args([signal, &host.id().to_string()]).status();
        assert!(sent.is_ok_and(|sent| sent.success()));
        host.wait().expect("its end");
        until("the end of the server", || (holding(&marker) == 0).then_some(()));
    }
}

fn python() -> PathBuf {
    std::env::var_os("CONCLAVE_MCP_PYTHON")
        .expect("`cargo xtask test` says where the SDK is")
        .into()
}

pub(crate) fn data(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../data/mcp")
        .join(name)
        .canonicalize()
        .expect("it is there")
        .display()
        .to_string()
}

/// Returns the report of the SDK's client on `conclave mcp`.
fn met(rig: &Rig, mode: &str, calls: &Value) -> Value {
    let mut command = rig.bare(python());
    let config = rig.folder().join("c.toml");
    command.args([
        data("client.py"),
        mode.to_owned(),
        calls.to_string(),
        program().display().to_string(),
        "mcp".to_owned(),
    ]);
    command
        .arg(config)
        .args(["--entry", "--no-journal"])
        .env("CONCLAVE_CACHE", cache())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.stdin(Stdio::null()).output().expect("Python starts");
    let said = text(&output.stdout);
    serde_json::from_str(said.trim())
        .unwrap_or_else(|error| panic!("{error}: {said}\n{}", text(&output.stderr)))
}

#[test]
#[ignore = "needs the MCP SDK from pip: `cargo xtask test` installs it"]
fn a_client_that_others_wrote_calls_tools_and_asks_its_person() {
    let rig = rig("[[policy]]\ntool = \"search.read\"\ncaller = \"(mcp)\"\ndecide = \"ask\"\n");
    let calls = json!([["search.find", { "query": "Skerryvore" }], ["search.read", {}], ["ask", { "message": "hello" }]]);
    for mode in ["legacy", "auto"] {
        let met = met(&rig, mode, &calls);
        assert!(
            met["results"][0]["text"].as_str().is_some_and(|text| text.contains("lights.txt")),
            "{mode}: {met}"
        );
        assert_eq!(met["results"][2]["text"], "hello", "{mode}: {met}");
        assert!(
            met["tools"].as_array().is_some_and(|tools| tools.contains(&json!("ask"))),
            "{mode}: {met}"
        );
    }
}

/// A server on its own port, stopped when the test ends.
struct OverHttp(Child, u16);

impl OverHttp {
    fn start() -> Self {
        let port = free_port();
        let mut command = bare(python());
        command
            .args([data("server.py"), "http".to_owned(), port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = Self(command.spawn().expect("Python starts"), port);
        until("the server", || TcpStream::connect(("127.0.0.1", port)).ok());
        server
    }
}

impl Drop for OverHttp {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "needs the MCP SDK from pip: `cargo xtask test` installs it"]
fn servers_that_others_wrote_are_a_source_of_tools() {
    let http = OverHttp::start();
    let python = python().display().to_string();
    let lines = format!(
        "[plugins.sums]\nsource = {{ mcp = {{ command = [{python:?}, {:?}, \"stdio\"] }} }}\n\
         [plugins.far]\nsource = {{ mcp = {{ url = \"http://127.0.0.1:{}/mcp\" }} }}\n\
         [[policy]]\ntool = \"sums.*\"\ndecide = \"allow\"\n",
        data("server.py"),
        http.1
    );
    let rig = rig(&lines);
    let calls = json!([["sums.add_numbers", { "a": 2, "b": 40 }], ["sums.fail", {}], ["far.add_numbers", { "a": 1, "b": 2 }], ["sums.add_numbers", { "a": "x" }]]);
    let met = met(&rig, "legacy", &calls);
    assert!(met["results"][0]["text"].as_str().is_some_and(|text| text.contains("42")), "{met}");
    assert!(
        met["results"][1]["is_error"] == true
            && met["results"][1]["text"].as_str().is_some_and(|text| text.contains("tool fail")),
        "{met}"
    );
    assert!(
        met["results"][2]["text"].as_str().is_some_and(|text| text.contains('3')),
        "after its person was asked: {met}"
    );
    assert!(
        met["asked"].as_array().is_some_and(|asked| asked.len() == 1),
        "only where no rule allows it: {met}"
    );
    assert_eq!(met["results"][3]["is_error"], true, "{met}");
}
