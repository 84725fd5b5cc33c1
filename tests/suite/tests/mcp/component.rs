//! `conclave mcp` with a component and no config.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use conclave_test_support::{Rig, guest};
use serde_json::{Value, json};

use crate::cli::{conclave, text};

/// The answers of `conclave mcp` with these arguments to calls of one tool, in order.
fn answers(rig: &Rig, arguments: &[&str], tool: &str, calls: &[Value]) -> Vec<Value> {
    let mut command = rig.conclave(&["mcp"]);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let info = json!({ "name": "t", "version": "1" });
    let begin = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
    let calls = calls.iter().map(|arguments| json!({ "name": tool, "arguments": arguments }));
    let calls = calls.map(|params| ("tools/call", params));
    let mut answers = Vec::new();
    for (id, (method, params)) in [("initialize", begin)].into_iter().chain(calls).enumerate() {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(stdin, "{request}").expect("it listens");
        let answer = lines.next().expect("a line").expect("it is text");
        answers.push(serde_json::from_str(&answer).expect("it is JSON"));
        if method == "initialize" {
            let notice = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            writeln!(stdin, "{notice}").expect("it listens");
        }
    }
    drop(stdin);
    child.wait().expect("it ends");
    answers.split_off(1)
}

#[test]
fn a_component_is_served_with_the_grants_of_the_command_line_alone() {
    let rig = Rig::new()
        .with_file("docs/lights.txt", "Skerryvore was first lit in 1844.\n")
        .with_file("other/secret.txt", "hidden\n");
    let component = guest("files_read").display().to_string();
    let calls = ["/docs/lights.txt", "/other/secret.txt"].map(|path| json!({ "path": path }));
    let read = answers(&rig, &[&component, "--allow", "read:docs@/docs"], "files-read.run", &calls);
    assert!(read[0].to_string().contains("1844"), "{read:?}");
    assert!(!read[1].to_string().contains("hidden"), "{read:?}");
    let none = answers(&rig, &[&component], "files-read.run", &calls);
    assert!(!none[0].to_string().contains("1844"), "{none:?}");
}

#[test]
fn grants_that_do_not_fit_are_refused_before_anybody_is_answered() {
    let rig = Rig::new().with_file("c.toml", "entry = \"main\"\n");
    let [reads, needs, agent] =
        ["files_read", "files_write", "agent_echo"].map(|name| guest(name).display().to_string());
    for (arguments, why) in [
        (&["mcp", &reads, "--allow", "kv = true"][..], "does not ask for `kv`"),
        (&["mcp", &reads, "--allow", "read:docs"], "names no folder and its place"),
        (&["mcp", &needs], "--allow 'files ="),
        (&["mcp", &agent], "has no tools"),
        (&["mcp", "c.toml", "--allow", "kv = true"], "are for a component without a config"),
        (&["mcp", "c.toml", "--settings", "{}"], "are for a component without a config"),
        (&["mcp", &reads, "--http", "0.0.0.0:0"], "other machines reach this address"),
        (&["mcp", &reads, "--resource", "notes"], "write URI=PATH"),
    ] {
        let output = conclave(&rig, arguments);
        let stderr = text(&output.stderr);
        assert_eq!(
            (output.status.code(), text(&output.stdout)),
            (Some(2), String::new()),
            "{stderr}"
        );
        assert!(stderr.contains(why), "{why}: {stderr}");
    }
}
