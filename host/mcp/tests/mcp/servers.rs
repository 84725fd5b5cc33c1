//! A config with the tools of a hostile server.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conclave_core::config::{
    ConfigPath, KeyRef, McpReach, PluginSource, ProblemCode, Problems, ServerLimits,
};
use conclave_core::types::message::Label;
use conclave_mcp::source::Servers;
use conclave_runtime::config::Config;
use conclave_runtime::journal::MemoryJournals;
use conclave_runtime::native::{self, Plugin, Step};
use conclave_runtime::secrets::Sources;
use conclave_runtime::tool::{ToolError, ToolOutcome};
use conclave_runtime::{Caller, Host, HostOptions, Prepared, RunOptions};
use serde_json::json;

/// Returns a separate folder for each test, below the target folder.
fn folder() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("mcp-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder.display().to_string()
}

fn has_python() -> bool {
    let is_there = Command::new("python3")
        .arg("--version")
        .output()
        .is_ok_and(|answer| answer.status.success());
    if !is_there {
        println!("skipped: there is no python3");
    }
    is_there
}

fn host(servers: bool) -> Host {
    let agent = Plugin::agent("agent", |step: Step| async move {
        Ok(match step.results() {
            [] => native::call("it.go", json!({})),
            [answer, ..] => native::finish(answer.content.clone()),
        })
    })
    .asks(conclave_runtime::Capability::Tools, "Calls.");
    let servers = servers.then(|| Arc::new(Servers::new(|name| std::env::var(name).ok())) as _);
    let secrets = Arc::new(Sources::new(|_| None));
    Host::new(HostOptions { native: vec![agent], servers, secrets, ..HostOptions::default() })
        .unwrap()
}

fn config(mode: &str, lines: &str, policy: &str) -> Config {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/mcp/hostile.py");
    let script = script.canonicalize().unwrap();
    let text = format!(
        r#"
entry = "main"
[plugins.agent]
source = "native:agent"
grants.tools = ["it.*"]
[plugins.it]
source = {{ mcp = {{ command = ["python3", {:?}, "{mode}"], env = {{ GIVEN = "1" }}, unconfined = true }} }}
{lines}
[tasks.main]
agent = "agent"
{policy}
"#,
        script.display().to_string()
    );
    Config::parse("c.toml", &folder(), &text).unwrap_or_else(|problems| panic!("{problems}"))
}

const ALLOWED: &str = "[[policy]]\ntool = \"it.*\"\ndecide = \"allow\"\n";

async fn prepared(mode: &str, lines: &str) -> Prepared {
    host(true).load(&config(mode, lines, ALLOWED)).await.unwrap_or_else(|error| panic!("{error}"))
}

/// The problem of a config that must not load, for this one reason.
async fn problem(host: &Host, config: &Config) -> (ProblemCode, String) {
    match host.load(config).await {
        Ok(prepared) => panic!("it was let in with {:?}", prepared.tools()),
        Err(error) => {
            let problems = Problems::from(error);
            let [problem] = &problems.0[..] else { panic!("{problems}") };
            (problem.code, problem.to_string())
        }
    }
}

/// The reason why a server is refused.
async fn refused(mode: &str) -> String {
    let (code, reason) = problem(&host(true), &config(mode, "", ALLOWED)).await;
    assert_eq!(code, ProblemCode::PluginRefused, "{reason}");
    reason
}

async fn call(prepared: &Prepared, tool: &str) -> Result<ToolOutcome, ToolError> {
    prepared.call_tool(tool, json!({}), RunOptions::default()).await.unwrap().answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_unfit_tools_only_is_refused() {
    if !has_python() {
        return;
    }
    for (mode, why) in [
        ("invisible", "invisible character in its description: U+200B"),
        ("schema", "its input schema is refused"),
        ("nameless", "the name is empty"),
        ("quits", "no licence"),
    ] {
        let problem = refused(mode).await;
        assert!(problem.contains(why), "{mode}: {problem}");
        assert!(
            !problem.contains('\u{1b}') && !problem.contains('\u{200b}'),
            "{mode}: {problem:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_odd_tool_is_named_and_its_siblings_can_be_called() {
    if !has_python() {
        return;
    }
    for (mode, tools, says) in [
        ("ansi", 1, "the tool `bad` is left out: it has an invisible character"),
        ("same", 2, "\"getSum\" is `it.get_sum_"),
        ("odd", 7, "\"поиск\" is `it.tool_"),
        ("many", 256, "the first 256 of 1000 tools are served"),
        ("endless", 64, "is longer than 64 pages"),
    ] {
        let prepared = prepared(mode, "").await;
        assert_eq!(prepared.tools().len(), tools, "{mode}: {:?}", prepared.tools());
        let warnings = prepared.warnings().to_string();
        assert!(warnings.contains("config/foreign-tool"), "{mode}: {warnings}");
        assert!(warnings.contains(says), "{mode}: {warnings}");
        assert!(!warnings.contains(['\u{1b}', '\u{200b}']), "{mode}: {warnings:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_by_the_name_here_reaches_the_servers_tool() {
    if !has_python() {
        return;
    }
    let mut config = config("odd", "", ALLOWED);
    let plugin = config.plugins.get_mut("it").unwrap();
    let PluginSource::Mcp(source) = &mut plugin.source else { panic!("it is a server") };
    source.tools.rename.insert("GET".to_owned(), "shout".to_owned());
    let prepared = host(true).load(&config).await.unwrap_or_else(|error| panic!("{error}"));
    for tool in prepared.tools() {
        let own = prepared.setup().tool(&tool).unwrap().1.clone();
        let outcome = call(&prepared, &tool).await.unwrap();
        let called = outcome.content.unwrap();
        let theirs = own.description.strip_prefix('(').and_then(|text| text.split_once(") "));
        let theirs = theirs.map_or(own.name.as_str(), |(theirs, _)| theirs);
        assert_eq!(called, format!("called {theirs}"), "{tool}");
    }
    assert!(prepared.tools().contains(&"it.shout".to_owned()), "{:?}", prepared.tools());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_description_replaces_the_servers() {
    if !has_python() {
        return;
    }
    let lines = "describe = { go = \"Starts the pump.\", gone = \"Stops it.\" }";
    let prepared = prepared("plain", lines).await;
    let setup = prepared.setup();
    assert_eq!(setup.tool("it.go").unwrap().1.description, "Starts the pump.");
    // What the agent's task offers, and so what a model reads.
    let offered = setup.tasks.values().next().unwrap().toolbox.get("it.go").unwrap();
    assert_eq!(offered.summary.description, "Starts the pump.");
    let warnings = prepared.warnings().to_string();
    assert!(warnings.contains("`it` has no tool `gone`"), "{warnings}");
    assert!(warnings.contains("its tools are: `go`"), "{warnings}");
    assert!(call(&prepared, "it.go").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_cannot_take_the_name_of_another_plugins_tool() {
    if !has_python() {
        return;
    }
    assert_eq!(
        prepared("shadow", "").await.tools(),
        ["it.find", "it.notes_save"],
        "every name begins with the plugin's"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_end_is_cut_off_and_the_next_call_starts_anew() {
    if !has_python() {
        return;
    }
    let prepared = prepared("huge", "limits = { wall = \"60 s\" }").await;
    for _ in 0..2 {
        let answer = call(&prepared, "it.go").await;
        assert!(matches!(answer, Err(ToolError::Unavailable { .. })), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_without_end_and_reads_no_answer_is_cut_off() {
    if !has_python() {
        return;
    }
    let prepared = prepared("pings", "limits = { wall = \"60 s\" }").await;
    for _ in 0..2 {
        let answer = call(&prepared, "it.go").await;
        assert!(matches!(answer, Err(ToolError::Unavailable { .. })), "{answer:?}");
    }
}

/// Serves one tool over HTTP. A call of it is answered by a stream of pings that never ends, and the
/// answers to the pings are taken from the socket and never acknowledged.
fn serve_pings() -> String {
    use std::io::{BufRead, BufReader, Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let answer = |connection: std::net::TcpStream| -> std::io::Result<()> {
        let mut reader = BufReader::new(connection.try_clone()?);
        let mut out = connection;
        loop {
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line)? > 2 {
                let header = line.to_lowercase();
                if let Some(value) = header.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let Ok(message) = serde_json::from_slice::<serde_json::Value>(&body) else {
                write!(out, "HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n")?;
                continue;
            };
            let result = match message["method"].as_str() {
                Some("initialize") => {
                    json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "it", "version": "1" } })
                }
                Some("tools/list") => json!({ "tools": [{ "name": "go", "description": "Does it.",
                    "inputSchema": { "type": "object" } }] }),
                Some("tools/call") => {
                    write!(out, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")?;
                    for id in 0.. {
                        write!(
                            out,
                            "data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n\n"
                        )?;
                    }
                    continue;
                }
                Some(_) if message["id"].is_null() => {
                    write!(out, "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")?;
                    continue;
                }
                Some(_) => {
                    let error = json!({ "jsonrpc": "2.0", "id": message["id"],
                        "error": { "code": -32601, "message": "unknown" } })
                    .to_string();
                    write!(
                        out,
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{error}",
                        error.len()
                    )?;
                    continue;
                }
                // The answer to a ping.
                None => continue,
            };
            let text =
                json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string();
            write!(
                out,
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{text}",
                text.len()
            )?;
        }
    };
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            std::thread::spawn(move || answer(connection));
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_at_an_address_that_asks_without_end_is_cut_off() {
    let mut config = config("plain", "limits = { wall = \"60 s\" }", ALLOWED);
    let plugin = config.plugins.get_mut("it").unwrap();
    let PluginSource::Mcp(source) = &mut plugin.source else { panic!("it is a server") };
    source.reach = McpReach::Address { url: serve_pings(), key: None };
    let prepared = host(true).load(&config).await.unwrap_or_else(|error| panic!("{error}"));
    for _ in 0..2 {
        let answer = call(&prepared, "it.go").await;
        assert!(matches!(answer, Err(ToolError::Unavailable { .. })), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_answers_is_given_up_at_its_limit() {
    if !has_python() {
        return;
    }
    let answer = call(&prepared("silent", "limits = { wall = \"300 ms\" }").await, "it.go").await;
    let Err(ToolError::Fault { fault }) = answer else { panic!("{answer:?}") };
    assert!(fault.message.contains("limits.wall"), "{fault:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_in_a_call_is_unavailable_and_started_anew() {
    if !has_python() {
        return;
    }
    let prepared = prepared("dies", "").await;
    for _ in 0..2 {
        assert_eq!(
            call(&prepared, "it.go").await,
            Err(ToolError::Unavailable { retry_after_ms: None })
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_another_after_a_new_start_is_refused() {
    if !has_python() {
        return;
    }
    let prepared = prepared("rug", "").await;
    assert_eq!(call(&prepared, "it.go").await.unwrap().content.as_deref(), Some("first"));
    // The process exits after its first answer; the host may notice that later.
    let mut answer = call(&prepared, "it.go").await;
    while answer.is_ok() {
        tokio::task::yield_now().await;
        answer = call(&prepared, "it.go").await;
    }
    assert_eq!(answer, Err(ToolError::Unavailable { retry_after_ms: None }));
    let setup = prepared.setup();
    assert_eq!(
        setup.tool("it.go").unwrap().1.description,
        "Does it.",
        "the model sees what was admitted"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_given_no_model_no_folders_and_no_person() {
    if !has_python() {
        return;
    }
    let answer = call(&prepared("asks", "").await, "it.go").await.unwrap();
    assert_eq!(answer.content.as_deref(), Some("refused refused refused"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_sees_of_the_environment_what_the_config_gives() {
    if !has_python() {
        return;
    }
    let answer = call(&prepared("env", "").await, "it.go").await.unwrap();
    let text = answer.content.unwrap();
    let names: Vec<&str> = text.split(' ').collect();
    assert!(["GIVEN", "HOME", "PATH"].iter().all(|name| names.contains(name)), "{names:?}");
    // A shell may add variables of its own. Those that cargo sets for this test must be absent.
    let is_ours = |name: &&str| name.starts_with("CARGO") && std::env::var_os(name).is_some();
    assert!(
        std::env::var_os("CARGO_MANIFEST_DIR").is_some() && !names.iter().any(is_ours),
        "{names:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_a_server_repeats_reaches_nobody() {
    if !has_python() {
        return;
    }
    let folder = folder();
    std::fs::write(format!("{folder}/key"), "sesame-4711\n").unwrap();
    let mut config = config("tells", "", ALLOWED);
    let plugin = config.plugins.get_mut("it").unwrap();
    let PluginSource::Mcp(source) = &mut plugin.source else { panic!("it is a server") };
    let McpReach::Program { keys, .. } = &mut source.reach else { panic!("it is started") };
    keys.insert(
        "KEY".to_owned(),
        KeyRef::File(ConfigPath { display_path: "key".to_owned(), path: format!("{folder}/key") }),
    );
    let prepared = host(true).load(&config).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(prepared.setup().tool("it.go").unwrap().1.description, "Uses [secret KEY]");
    let journals = MemoryJournals::default();
    for expected in ["it is [secret KEY]", "bad key [secret KEY]", "Unavailable"] {
        let options = RunOptions { journals: Arc::new(journals.clone()), ..RunOptions::default() };
        let answer =
            format!("{:?}", prepared.call_tool("it.go", json!({}), options).await.unwrap().answer);
        assert!(answer.contains(expected) && !answer.contains("4711"), "{answer}");
    }
    for room in journals.rooms() {
        let records = format!("{:?}", journals.records(&room));
        assert!(!records.contains("4711"), "{records}");
    }
}

#[tokio::test]
async fn an_unreachable_address_is_reported() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut config = config("plain", "", ALLOWED);
    let plugin = config.plugins.get_mut("it").unwrap();
    let PluginSource::Mcp(source) = &mut plugin.source else { panic!("it is a server") };
    source.reach = McpReach::Address { url: format!("http://127.0.0.1:{port}/mcp"), key: None };
    let (code, error) = problem(&host(true), &config).await;
    assert_eq!(code, ProblemCode::PluginRefused, "{error}");
    assert!(
        error.contains(&format!("127.0.0.1:{port} did not accept the connection: "))
            && error.contains("start the server"),
        "{error}"
    );
    assert!(
        error.contains("refused") && !error.contains("::") && !error.contains("Transport"),
        "{error}"
    );
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_started_ends_with_it() {
    if !has_python() {
        return;
    }
    let prepared = prepared("child", "").await;
    let group = call(&prepared, "it.go").await.unwrap().content.unwrap();
    let of_group = || {
        let processes = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok());
        // The fields after the name are state, parent and group.
        let group_of = |stat: &String| {
            stat.rsplit(')')
                .next()
                .and_then(|rest| rest.split_whitespace().nth(2).map(str::to_owned))
        };
        let is_alive = |stat: &String| {
            !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z')
        };
        processes
            .filter(is_alive)
            .filter(|stat| group_of(stat).as_deref() == Some(group.as_str()))
            .count()
    };
    assert_eq!(of_group(), 2, "the server and its child");
    drop(prepared);
    // No process of the group remains.
    while of_group() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_rule_somebody_is_asked() {
    if !has_python() {
        return;
    }
    let prepared =
        host(true).load(&config("plain", "", "")).await.unwrap_or_else(|error| panic!("{error}"));
    let calling =
        prepared.start_tool(Caller::Mcp, "it.go", json!({}), RunOptions::default()).unwrap();
    let answer = calling.outcome().await.unwrap().answer;
    assert!(answer.is_err(), "nobody is there to approve it: {answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_gives_is_text_from_outside() {
    if !has_python() {
        return;
    }
    let prepared = prepared("plain", "").await;
    let journals = MemoryJournals::default();
    let options = RunOptions { journals: Arc::new(journals.clone()), ..RunOptions::default() };
    let labels = Arc::new(Labels::default());
    let options =
        RunOptions { subscribers: options.subscribers.with(Arc::clone(&labels) as _), ..options };
    let outcome = prepared.start(Some("go".to_owned()), options).unwrap().outcome().await.unwrap();
    assert_eq!(outcome.content.as_deref(), Some("call 1"));
    let labels = labels.0.lock().unwrap().clone();
    assert!(labels.contains(&vec![Label::Untrusted, Label::Tool]), "{labels:?}");
}

/// Collects the labels of every message.
#[derive(Default)]
struct Labels(std::sync::Mutex<Vec<Vec<Label>>>);

impl conclave_runtime::subscribe::Subscriber for Labels {
    fn on(&self, happening: &conclave_runtime::subscribe::Published) {
        use conclave_runtime::notice::Notice;
        use conclave_runtime::subscribe::RunEvent;

        if let RunEvent::Notice { notice: Notice::MessagePosted { message, .. } } = &happening.what
        {
            self.0.lock().unwrap().push(message.labels.clone());
        }
    }
}

#[tokio::test]
async fn a_host_that_speaks_to_no_servers_says_so() {
    let (code, error) = problem(&host(false), &config("plain", "", "")).await;
    assert_eq!(code, ProblemCode::MissingPlugin, "{error}");
    assert!(
        error.contains("does not speak to MCP servers") && error.contains("HostOptions::servers"),
        "{error}"
    );
}

/// This host has no launcher, as on a kernel that cannot confine.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_confined_is_refused_with_the_line_that_starts_it() {
    let mut config = config("plain", "", ALLOWED);
    let plugin = config.plugins.get_mut("it").unwrap();
    let PluginSource::Mcp(source) = &mut plugin.source else { panic!("it is a server") };
    let McpReach::Program { confined, .. } = &mut source.reach else { panic!("it is started") };
    *confined = Some(ServerLimits::default());
    let (code, error) = problem(&host(true), &config).await;
    assert_eq!(code, ProblemCode::NotConfined, "{error}");
    assert!(error.contains("`unconfined = true`"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_of_a_run_says_what_no_sandbox_holds() {
    if !has_python() {
        return;
    }
    let warned = Arc::new(std::sync::Mutex::new(Vec::new()));
    let warnings = Arc::clone(&warned);
    let follow: conclave_runtime::Follow = Arc::new(move |step| {
        if let conclave_runtime::LoadStep::Warning { message, .. } = step {
            warnings.lock().unwrap().push(message);
        }
    });
    let prepared = host(true).prepare(&config("plain", "", ALLOWED), &follow).await.unwrap();
    let warned = warned.lock().unwrap().join("\n");
    assert!(
        warned.contains("mcp python3: this program runs UNCONFINED, outside the sandbox, as you"),
        "{warned}"
    );
    let setup = prepared.setup();
    let rows = conclave_core::inspect::permission_summary::rights_table(setup, prepared.sources());
    let row = rows.iter().find(|row| row.plugin.as_str() == "it").unwrap();
    assert!(row.may[0].contains("outside the sandbox"), "{row:?}");
    assert!(
        conclave_core::inspect::permission_summary::data_can_leave(setup)
            .contains("wherever the MCP server it sends it")
    );
}
