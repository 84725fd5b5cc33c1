//! Clients of every revision, and some that break the rules, against a config of native tools.

use std::sync::Arc;

use conclave_mcp::serve::{Selection, ServeError, Service, serve};
use conclave_runtime::Capability;
use conclave_runtime::config::Config;
use conclave_runtime::journal::MemoryJournals;
use conclave_runtime::native::{self, Call, Failure, Plugin, Tool};
use conclave_runtime::{Host, HostOptions, RunOptions};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

const POLICY: &str = r#"
[[policy]]
tool = "app.denied"
decide = "deny"
[[policy]]
tool = "app.asked"
caller = "(mcp)"
decide = "ask"
"#;

/// Notifies when a call is dropped.
struct Dropped(Arc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// A client that sends arbitrary lines.
pub(crate) struct Client {
    to: WriteHalf<DuplexStream>,
    from: Lines<BufReader<ReadHalf<DuplexStream>>>,
    served: JoinHandle<Result<(), ServeError>>,
    journals: MemoryJournals,
    /// Notified when a slow call is stopped.
    stopped: Arc<Notify>,
}

impl Client {
    async fn new(selection: Selection) -> Self {
        let stopped = Arc::new(Notify::new());
        let number = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"], "additionalProperties": false });
        let double = Tool::new("double", "Twice a number.", number, |call: Call| async move {
            call.host.progress(1, Some(2), "half");
            Ok(json!({ "twice": call.arguments["n"].as_i64().unwrap_or_default() * 2 }))
        });
        let any = || json!({ "type": "object" });
        let approved_tool =
            Tool::new("asked", "Wants an approval.", any(), |_| async { Ok("done") });
        let denied = Tool::new("denied", "Is denied.", any(), |_| async { Ok("done") });
        let fails = Tool::new("fails", "Fails.", any(), |_| async {
            Err::<String, _>(Failure::new("out of ink"))
        });
        let stop_signal = Arc::clone(&stopped);
        let slow = Tool::new("slow", "Never ends.", any(), move |_| {
            let dropped = Dropped(Arc::clone(&stop_signal));
            async move {
                let _dropped = dropped;
                std::future::pending::<Result<String, Failure>>().await
            }
        });
        let agent = Plugin::tools("app", [double, approved_tool, denied, fails, slow])
            .with_agent(|step: native::Step| async move {
                Ok(native::finish(format!("You said {}", step.text())))
            })
            .may_use(Capability::Tools, "Calls.");
        let host =
            Host::new(HostOptions { native: vec![agent], ..HostOptions::default() }).unwrap();
        let text = format!(
            "entry = 'main'\n[plugins.app]\nsource = 'native:app'\n[tasks.main]\nagent = 'app'\n{POLICY}"
        );
        let config =
            Config::parse("c.toml", "", &text).unwrap_or_else(|problems| panic!("{problems}"));
        let prepared = Arc::new(host.load(&config).await.unwrap_or_else(|error| panic!("{error}")));
        let journals = MemoryJournals::default();
        let options = RunOptions { journals: Arc::new(journals.clone()), ..RunOptions::default() };
        let blobs = Arc::clone(host.blobs());
        let service = Service { prepared, selection, options, blobs, reads: None };
        Self::of(service, journals, stopped)
    }

    /// A client of any service.
    pub(crate) fn of(service: Service, journals: MemoryJournals, stopped: Arc<Notify>) -> Self {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let (from, to) = tokio::io::split(theirs);
        let served = tokio::spawn(serve(service, from, to));
        let (from, to) = tokio::io::split(ours);
        Self { to, from: BufReader::new(from).lines(), served, journals, stopped }
    }

    async fn started(version: &str, capabilities: Value) -> Self {
        let client = Self::new(Selection { ask: true, ..Selection::default() }).await;
        client.after_handshake(version, capabilities).await
    }

    /// The client after its handshake.
    pub(crate) async fn after_handshake(mut self, version: &str, capabilities: Value) -> Self {
        let client = &mut self;
        let info = json!({ "name": "tester", "version": "1" });
        let params =
            json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": info });
        let answer = client.ask("initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], version, "{answer}");
        client
            .write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string())
            .await;
        self
    }

    pub(crate) async fn write(&mut self, line: &str) {
        self.to.write_all(line.as_bytes()).await.unwrap();
        self.to.write_all(b"\n").await.unwrap();
    }

    pub(crate) async fn read(&mut self) -> Value {
        let line = self.from.next_line().await.unwrap().expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| {
            panic!("stdout holds nothing but the protocol: {error}: {line}")
        })
    }

    pub(crate) async fn send(&mut self, id: u64, method: &str, params: Value) {
        self.write(
            &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string(),
        )
        .await;
    }

    /// Returns the response to a request, skipping other messages.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(1, method, params).await;
        loop {
            let message = self.read().await;
            if message["id"] == 1 && message.get("method").is_none() {
                return message;
            }
        }
    }

    /// Returns the request id and the code of the next error.
    async fn code(&mut self) -> (Value, Value) {
        let message = self.read().await;
        (message["id"].clone(), message["error"]["code"].clone())
    }

    async fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": name, "arguments": arguments })).await
    }
}

#[tokio::test]
async fn every_revision_with_a_handshake_is_spoken() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = Client::started(version, json!({})).await;
        let list = client.ask("tools/list", json!({})).await;
        let tools = list["result"]["tools"].as_array().unwrap().clone();
        let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert_eq!(
            names,
            ["app.asked", "app.denied", "app.double", "app.fails", "app.slow", "ask"],
            "{version}"
        );
        assert!(
            tools.iter().all(|tool| tool["annotations"]["readOnlyHint"] == false),
            "native code is held by nothing: {list}"
        );
        let answer = client.call("app.double", json!({ "n": 21 })).await;
        assert_eq!(
            answer["result"]["structuredContent"],
            json!({ "twice": 42 }),
            "{version}: {answer}"
        );
        assert_eq!(answer["result"]["content"][0]["text"], "{\"twice\":42}");
        let answer = client.call("ask", json!({ "message": "hello" })).await;
        assert_eq!(answer["result"]["content"][0]["text"], "You said hello", "{version}: {answer}");
        client.to.shutdown().await.unwrap();
        client.served.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn the_newest_revision_is_spoken_without_a_handshake() {
    let mut client = Client::new(Selection::default()).await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "tester", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
    });
    let found = client.ask("server/discover", json!({ "_meta": meta.clone() })).await;
    assert!(found["result"]["supportedVersions"].to_string().contains("2026-07-28"), "{found}");
    let answer = client
        .ask(
            "tools/call",
            json!({ "name": "app.double", "arguments": { "n": 2 }, "_meta": meta.clone() }),
        )
        .await;
    assert_eq!(answer["result"]["structuredContent"], json!({ "twice": 4 }), "{answer}");

    // An approval: the client gets the question, and repeats the call with the answer.
    let request = json!({ "name": "app.asked", "arguments": {}, "_meta": meta.clone() });
    for (decision, text) in [("allow", "done"), ("refuse", "refused")] {
        let response = client.ask("tools/call", request.clone()).await;
        let message = response["result"]["inputRequests"]["approval"]["params"]["message"]
            .as_str()
            .unwrap_or_else(|| panic!("{response}"));
        assert!(message.contains("(mcp) wants to call app.asked"), "{message}");
        let mut repeated = request.clone();
        repeated["requestState"] = response["result"]["requestState"].clone();
        repeated["inputResponses"] =
            json!({ "approval": { "action": "accept", "content": { "decision": decision } } });
        let answer = client.ask("tools/call", repeated.clone()).await;
        assert!(
            answer["result"]["content"][0]["text"].as_str().unwrap_or_default().contains(text),
            "{decision}: {answer}"
        );
        let twice = client.ask("tools/call", repeated).await;
        assert!(
            twice["error"]["message"].as_str().unwrap_or_default().contains("no call waits"),
            "an answer is used once: {twice}"
        );
    }
    let mut forged = request.clone();
    forged["requestState"] = json!("guess");
    forged["inputResponses"] =
        json!({ "approval": { "action": "accept", "content": { "decision": "allow" } } });
    assert!(client.ask("tools/call", forged).await["error"].is_object());
}

#[tokio::test]
async fn a_denied_call_is_refused_and_no_tool_grants_anything() {
    let mut client = Client::started("2025-06-18", json!({})).await;
    let answer = client.call("app.denied", json!({})).await;
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    for name in [
        "grant",
        "app.grant",
        "conclave.grant",
        "denied",
        "../app.double",
        "app.double\u{202e}",
        "",
    ] {
        let answer =
            client.call(name, json!({ "plugin": "app", "grant": "tools = [\"*\"]" })).await;
        assert!(answer["error"].is_object(), "{name}: {answer}");
        assert!(!answer.to_string().contains('\u{202e}'));
    }
}

#[tokio::test]
async fn a_call_that_wants_an_approval_is_refused_where_nobody_can_be_asked() {
    let mut client = Client::started("2025-06-18", json!({})).await;
    let answer = client.call("app.asked", json!({})).await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(
        answer["result"]["isError"] == true && text.contains("this client cannot ask its person"),
        "{answer}"
    );
}

#[tokio::test]
async fn the_clients_person_decides() {
    for (reply, is_error) in [
        (json!({ "action": "accept", "content": { "decision": "allow" } }), false),
        (json!({ "action": "accept", "content": {} }), true),
        (json!({ "action": "decline" }), true),
        (json!({ "nonsense": 1 }), true),
    ] {
        let mut client = Client::started("2025-06-18", json!({ "elicitation": {} })).await;
        client
            .send(
                7,
                "tools/call",
                json!({ "name": "app.asked", "arguments": { "path": "a\u{1b}[2Jb" } }),
            )
            .await;
        let question = client.read().await;
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let message = question["params"]["message"].as_str().unwrap();
        assert!(
            message.contains("app.asked")
                && !message.contains('\u{1b}')
                && message.contains("[2Jb"),
            "{message:?}"
        );
        client
            .write(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": reply }).to_string())
            .await;
        let answer = client.read().await;
        assert_eq!(
            (&answer["id"], answer["result"]["isError"] == true),
            (&json!(7), is_error),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn calls_that_wait_for_a_person_hold_no_place() {
    let mut client = Client::started("2025-06-18", json!({ "elicitation": {} })).await;
    let mut questions = Vec::new();
    for id in 100..120 {
        client.send(id, "tools/call", json!({ "name": "app.asked", "arguments": {} })).await;
        questions.push(client.read().await["id"].clone());
    }
    let answer = client.call("app.double", json!({ "n": 4 })).await;
    assert_eq!(answer["result"]["structuredContent"]["twice"], 8, "{answer}");
    let reply = json!({ "action": "accept", "content": { "decision": "allow" } });
    client
        .write(&json!({ "jsonrpc": "2.0", "id": questions[19], "result": reply }).to_string())
        .await;
    let answer = client.read().await;
    assert_eq!(
        (&answer["id"], &answer["result"]["content"][0]["text"]),
        (&json!(119), &json!("done")),
        "{answer}"
    );
}

#[tokio::test]
async fn a_cancelled_call_stops_its_tool_and_so_does_a_client_that_goes() {
    let mut client = Client::started("2025-06-18", json!({})).await;
    client.send(5, "tools/call", json!({ "name": "app.slow", "arguments": {} })).await;
    // This answer shows that the slow call has been read.
    client.call("app.double", json!({ "n": 1 })).await;
    client.write(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 5 } }).to_string()).await;
    client.stopped.notified().await;
    client.send(6, "tools/call", json!({ "name": "app.slow", "arguments": {} })).await;
    client.call("app.double", json!({ "n": 1 })).await;
    drop(client.to);
    drop(client.from);
    client.stopped.notified().await;
    client.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn progress_is_told_to_a_client_that_wants_it() {
    let mut client = Client::started("2025-06-18", json!({})).await;
    let params =
        json!({ "name": "app.double", "arguments": { "n": 1 }, "_meta": { "progressToken": "p" } });
    client.send(3, "tools/call", params).await;
    let (one, other) = (client.read().await, client.read().await);
    let report =
        [&one, &other].into_iter().find(|message| message["method"] == "notifications/progress");
    let report = report.unwrap_or_else(|| panic!("{one} {other}"));
    assert_eq!(
        (&report["params"]["progressToken"], &report["params"]["message"]),
        (&json!("p"), &json!("half"))
    );
}

#[tokio::test]
async fn wrong_arguments_and_failures_are_results_that_a_model_reads() {
    let mut client = Client::started("2025-06-18", json!({})).await;
    for (name, arguments, why) in [
        ("app.double", json!({ "n": "x" }), "not right"),
        ("app.double", json!({}), "not right"),
        ("app.fails", json!({}), "out of ink"),
    ] {
        let answer = client.call(name, arguments).await;
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(answer["result"]["isError"] == true && text.contains(why), "{answer}");
    }
}

#[tokio::test]
async fn junk_and_messages_that_are_too_long_do_no_harm() {
    let mut client = Client::started("2025-06-18", json!({})).await;
    let long = "x".repeat(conclave_mcp::serve::MESSAGE_MAX);
    let params = json!({ "name": "app.double", "arguments": { "n": 1, "pad": long } });
    client.send(9, "tools/call", params).await;
    assert_eq!(client.code().await, (json!(9), json!(-32600)), "it is too long");
    client.write("not json").await;
    assert_eq!(client.code().await, (Value::Null, json!(-32700)));
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    client.write(&format!(r#"{{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{{"name":"app.double","arguments":{deep}}}}}"#)).await;
    assert_eq!(client.code().await, (json!(8), json!(-32700)));
    client.send(7, "tools/call", json!({ "name": "app.double", "arguments": "x" })).await;
    assert_eq!(client.code().await, (json!(7), json!(-32602)));
    client.write("{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"no/such\"}").await;
    client.write("[1,2,3]").await;
    let answer = client.call("app.double", json!({ "n": 4 })).await;
    assert_eq!(answer["result"]["structuredContent"]["twice"], 8, "{answer}");
}

#[tokio::test]
async fn a_call_before_the_handshake_is_not_made() {
    let mut client = Client::new(Selection::default()).await;
    client.send(1, "tools/call", json!({ "name": "app.double", "arguments": { "n": 1 } })).await;
    client.to.shutdown().await.unwrap();
    let mut lines = String::new();
    while let Ok(Some(line)) = client.from.next_line().await {
        lines.push_str(&line);
    }
    assert!(!lines.contains("twice"), "{lines}");
    assert!(client.journals.rooms().is_empty(), "nothing has run");
}

#[tokio::test]
async fn every_call_has_a_journal_that_says_who_called() {
    let mut client = Client::started("2025-06-18", json!({})).await;
    client.call("app.double", json!({ "n": 1 })).await;
    client.call("app.denied", json!({})).await;
    let rooms = client.journals.rooms();
    assert_eq!(rooms.len(), 2);
    for room in rooms {
        let records = format!("{:?}", client.journals.records(&room));
        assert!(records.contains("mcp tester") && records.contains("(mcp)"), "{records}");
    }
}

#[tokio::test]
async fn a_selection_narrows_and_names_can_have_underscores() {
    let patterns = vec![conclave_core::permissions::grants::ToolPattern("app.double".to_owned())];
    let mut client =
        Client::new(Selection { patterns, underscores: true, ..Selection::default() }).await;
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    client.ask("initialize", params).await;
    client
        .write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string())
        .await;
    assert_eq!(
        client.call("app_double", json!({ "n": 1 })).await["result"]["structuredContent"]["twice"],
        2
    );
    for hidden in ["app.double", "app.fails", "app_fails", "ask"] {
        assert!(client.call(hidden, json!({})).await["error"].is_object(), "{hidden}");
    }
}
