//! Every command that begins runs, on a store in PostgreSQL.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

use conclave_test_support::{Rig, TestPostgres, postgres_or_skip, stepping};
use serde_json::{Value, json};

use crate::cli::text;
use crate::serve::client::Served;

/// Runs a command with this input.
fn with_input(mut command: Command, input: &str) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program runs");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).expect("it listens");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

/// Asks a server of MCP for the entry task, and returns its answer.
fn asked_over_mcp(mut command: Command) -> Value {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program runs");
    let begin = json!({ "protocolVersion": "2024-11-05", "capabilities": {},
        "clientInfo": { "name": "t", "version": "1" } });
    let call = json!({ "name": "ask", "arguments": { "message": "by mcp" } });
    let mut stdin = child.stdin.take().expect("it is piped");
    for message in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call }),
    ] {
        writeln!(stdin, "{message}").expect("it listens");
    }
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut messages = lines.map_while(Result::ok).map(|line| {
        serde_json::from_str::<Value>(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    let answer = messages.find(|message| message["id"] == 2).expect("an answer");
    // Its end is that of the client.
    drop(stdin);
    assert!(child.wait().expect("it ends").success());
    answer
}

#[test]
fn every_door_stores_its_runs_in_a_database_and_none_shows_the_password() {
    let Some(database) = postgres_or_skip(TestPostgres::shared()) else { return };
    let config = stepping("agent_echo", "", "") + "[channels.web]\nkind = \"web\"\n";
    let rig = Rig::new().with_file("c.toml", config).with_file("in.txt", "one of a batch\n");
    let command = |arguments: &[&str]| {
        let mut command = rig.conclave(arguments);
        command.env("CONCLAVE_STORE", database.url());
        command
    };
    let password = database.url().split(['@', ':']).nth(2).expect("a password").to_owned();
    let run = |arguments: &[&str], input: &str| {
        let output = with_input(command(arguments), input);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        assert!(!stdout.contains(&password) && !stderr.contains(&password), "{arguments:?}");
        stdout
    };
    assert_eq!(run(&["run", "c.toml", "by run"], ""), "by run\n");
    assert!(run(&["chat", "c.toml"], "by chat\n").contains("by chat"));
    assert!(run(&["batch", "--config", "c.toml", "in.txt"], "").contains("one of a batch"));
    let answer = asked_over_mcp(command(&["mcp", "c.toml", "--entry"]));
    assert_eq!(answer["result"]["content"][0]["text"], "by mcp", "{answer}");
    let served = Served::start(&rig, &["--store", &database.url()]);
    let room = served.only_room();
    served.send(&room, "a", "by serve");
    let mut events = served.events(&room, None);
    assert_eq!([events.entry()["text"].clone(), events.entry()["text"].clone()], ["by serve"; 2]);
    drop(served);

    let rows = run(&["runs", "--json"], "");
    let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).expect("a row"));
    let commands: BTreeSet<String> =
        rows.filter_map(|row| row["command"].as_str().map(str::to_owned)).collect();
    let expected = ["batch", "chat", "mcp", "run", "serve"].map(str::to_owned);
    assert_eq!(commands, expected.into());
    run(&["store", "check"], "");
    run(&["audit", "verify"], "");
    run(&["workers", "--json"], "");
}
