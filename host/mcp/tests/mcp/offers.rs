//! What a client gets besides tools: resources, prompts, completions, lines of logs, and forms for
//! missing arguments.

use std::path::Path;
use std::sync::Arc;

use conclave_core::permissions::grants::ToolPattern;
use conclave_core::types::ids::TaskName;
use conclave_mcp::serve::{Selection, ServedFile, Service};
use conclave_runtime::config::Config;
use conclave_runtime::journal::MemoryJournals;
use conclave_runtime::native::{self, Call, Plugin, Tool};
use conclave_runtime::{Host, HostOptions, RunOptions};
use serde_json::{Value, json};

use crate::clients::Client;

const NEWEST: &str = "2026-07-28";

/// A service that offers everything, in a folder.
pub(crate) async fn service(folder: &Path) -> Service {
    std::fs::create_dir(folder.join("days")).unwrap();
    std::fs::write(folder.join("days/monday.md"), "rain").unwrap();
    std::fs::write(folder.join("plan.txt"), "sleep").unwrap();
    let prompt = "---\nname: day\ndescription: Asks about a day.\ninputs:\n  day: which day\n---\n\
                  ![plan](notes://plan)\nHow is {{ inputs.day }}?\n";
    std::fs::write(folder.join("day.md"), prompt).unwrap();
    let at =
        json!({ "type": "object", "properties": { "x": { "type": "number" } }, "required": ["x"] });
    let schema = json!({ "type": "object", "properties": { "who": { "type": "string" }, "at": at }, "required": ["who", "at"] });
    let greet = Tool::new("greet", "Greets.", schema, |call: Call| async move {
        Ok(call.arguments.to_string())
    });
    let app = Plugin::tools("app", [greet])
        .with_agent(|_: native::Step| async { Ok(native::finish("")) });
    let host = Host::new(HostOptions { native: vec![app], ..HostOptions::default() }).unwrap();
    let text = "entry = 'main'\n[plugins.app]\nsource = 'native:app'\n[tasks.main]\nagent = 'app'\n\
                [tasks.day]\nagent = 'app'\nprompt_agent = 'day.md'\n\
                [[policy]]\ntool = '*'\ndecide = 'allow'\n";
    let config = Config::parse("c.toml", &folder.to_string_lossy(), text)
        .unwrap_or_else(|problems| panic!("{problems}"));
    let prepared = Arc::new(host.load(&config).await.unwrap_or_else(|error| panic!("{error}")));
    let files = ["notes://plan=plan.txt", "days://{day}=days/{day}.md"];
    let files = files.map(|file| ServedFile::parse(file, folder).unwrap());
    let selection = Selection {
        asked_arguments: vec![ToolPattern("app.*".to_owned())],
        prompts: vec![TaskName::from("day")],
        files: files.into(),
        runs: true,
        ..Selection::default()
    };
    let journals = MemoryJournals::default();
    let options = RunOptions { journals: Arc::new(journals), ..RunOptions::default() };
    Service { prepared, selection, options, blobs: Arc::clone(host.blobs()), reads: None }
}

async fn client(folder: &Path, capabilities: Value) -> Client {
    let client = Client::of(service(folder).await, MemoryJournals::default(), Arc::default());
    client.after_handshake("2025-11-25", capabilities).await
}

/// The parameters with what each request of the newest revision says about its client.
fn newest(mut params: Value, capabilities: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": NEWEST,
        "io.modelcontextprotocol/clientInfo": { "name": "tester", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    params
}

#[tokio::test]
async fn a_client_reads_what_is_served_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = client(folder.path(), json!({})).await;
    let listed = client.ask("resources/list", json!({})).await;
    let uris: Vec<&Value> =
        listed["result"]["resources"].as_array().unwrap().iter().map(|it| &it["uri"]).collect();
    assert_eq!(uris, [&json!("notes://plan")], "no run so far: {listed}");
    let read = client.ask("resources/read", json!({ "uri": "days://monday" })).await;
    assert_eq!(read["result"]["contents"][0]["text"], "rain", "{read}");
    for uri in ["days://../plan", "file:///etc/passwd", "conclave:runs/other/journal"] {
        let refused = client.ask("resources/read", json!({ "uri": uri })).await;
        assert_eq!(refused["error"]["code"], -32002, "{refused}");
        assert_eq!(refused["error"]["data"]["uri"], uri, "{refused}");
    }
    let template = json!({ "type": "ref/resource", "uri": "days://{day}" });
    let params = json!({ "ref": template, "argument": { "name": "day", "value": "mo" } });
    let completed = client.ask("completion/complete", params).await;
    assert_eq!(completed["result"]["completion"]["values"], json!(["monday"]), "{completed}");
}

#[tokio::test]
async fn a_run_of_this_process_can_be_read_by_its_journal() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = client(folder.path(), json!({})).await;
    let call = json!({ "name": "app.greet", "arguments": { "who": "a", "at": { "x": 1 } } });
    client.ask("tools/call", call).await;
    let listed = client.ask("resources/list", json!({})).await;
    let run = listed["result"]["resources"][1]["uri"].clone();
    assert!(run.as_str().is_some_and(|uri| uri.starts_with("conclave:runs/")), "{listed}");
    let read = client.ask("resources/read", json!({ "uri": run })).await;
    let lines = read["result"]["contents"][0]["text"].as_str().unwrap();
    assert!(lines.contains("app.greet") && !lines.contains("\"secret\""), "{lines}");
}

#[tokio::test]
async fn a_prompt_is_filled_in_with_its_attachments() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = client(folder.path(), json!({})).await;
    let listed = client.ask("prompts/list", json!({})).await;
    assert_eq!(listed["result"]["prompts"][0]["arguments"][0]["name"], "day", "{listed}");
    let day = "![x](days://monday)";
    let params = json!({ "name": "day", "arguments": { "day": day } });
    let filled = client.ask("prompts/get", params).await;
    let messages = &filled["result"]["messages"];
    assert_eq!(messages[0]["content"]["resource"]["text"], "sleep", "{filled}");
    assert_eq!(messages[1]["content"]["text"], format!("How is {day}?"), "no attachment by input");
    let unknown = client.ask("prompts/get", json!({ "name": "main" })).await;
    assert_eq!(unknown["error"]["code"], -32602, "a task without a prompt file: {unknown}");
}

#[tokio::test]
async fn a_person_fills_missing_arguments_in_one_form_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = client(folder.path(), json!({ "elicitation": {} })).await;
    client.send(7, "tools/call", json!({ "name": "app.greet" })).await;
    for content in [json!({ "who": "a" }), json!({ "x": 2 })] {
        let form = client.read().await;
        assert_eq!(form["method"], "elicitation/create", "{form}");
        let answer = json!({ "action": "accept", "content": content });
        let answer = json!({ "jsonrpc": "2.0", "id": form["id"], "result": answer });
        client.write(&answer.to_string()).await;
    }
    let called = client.read().await;
    let text = called["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(text).unwrap(),
        json!({ "who": "a", "at": { "x": 2 } })
    );
}

#[tokio::test]
async fn a_client_of_the_newest_revision_returns_with_its_persons_answers() {
    let folder = tempfile::tempdir().unwrap();
    let mut client =
        Client::of(service(folder.path()).await, MemoryJournals::default(), Arc::default());
    let can = || json!({ "elicitation": {} });
    let call = json!({ "name": "app.greet", "arguments": { "who": "a" } });
    let first = client.ask("tools/call", newest(call.clone(), can())).await;
    let (result, state) = (&first["result"], first["result"]["requestState"].clone());
    assert_eq!(result["resultType"], "input_required", "{first}");
    assert_eq!(result["inputRequests"]["at"]["method"], "elicitation/create", "{first}");
    let with = |state: &Value| {
        let mut call = call.clone();
        call["arguments"] = json!({});
        call["requestState"] = state.clone();
        call["inputResponses"] =
            json!({ "at": { "action": "accept", "content": { "x": 3 } }, "other": {} });
        newest(call, can())
    };
    let forged = client.ask("tools/call", with(&json!(format!("{state}x")))).await;
    assert_eq!(forged["error"]["code"], -32602, "{forged}");
    let called = client.ask("tools/call", with(&state)).await;
    let text = called["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(text).unwrap(),
        json!({ "who": "a", "at": { "x": 3 } })
    );
    let repeated = client.ask("tools/call", with(&state)).await;
    assert_eq!(repeated["error"]["code"], -32602, "an answer is used once: {repeated}");
    let unable = client.ask("tools/call", newest(call, json!({}))).await;
    assert!(unable["result"]["isError"] == true, "it lacks an argument: {unable}");
}
