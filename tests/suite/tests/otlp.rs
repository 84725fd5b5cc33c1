//! Spans and figures of runs at a collector of OpenTelemetry.

#![expect(clippy::unwrap_used, reason = "a collector that cannot be read fails its test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use conclave_test_support::Rig;

use crate::cli::text;

/// A request: its path, and its body as far as that is text.
type Sent = (String, String);

/// A collector on loopback that answers each request with this status.
struct Collector {
    endpoint: String,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl Collector {
    fn start(status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let sent = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&sent);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let all = Arc::clone(&all);
                std::thread::spawn(move || serve(stream.unwrap(), status, &all));
            }
        });
        Self { endpoint, sent }
    }

    /// The bodies of the requests to a path.
    fn bodies(&self, path: &str) -> String {
        let sent = self.sent.lock().unwrap();
        sent.iter().filter(|(to, _)| to == path).map(|(_, body)| body.as_str()).collect()
    }
}

fn serve(stream: TcpStream, status: &str, all: &Mutex<Vec<Sent>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
            head.push(line.trim_end().to_ascii_lowercase());
        }
        let path = head[0].split(' ').nth(1).unwrap().to_owned();
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        reader.read_exact(&mut body).unwrap();
        all.lock().unwrap().push((path, String::from_utf8_lossy(&body).into_owned()));
        write!(writer, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").unwrap();
    }
}

/// A run of an agent that searches once, with these variables.
fn run(rig: &Rig, variables: &[(&str, &str)]) -> std::process::Output {
    let mut command = rig.conclave(&["run", "conclave.toml", "Where is the kettle?"]);
    command.current_dir(rig.folder()).envs(variables.iter().copied()).output().unwrap()
}

fn rig() -> Rig {
    let replies = r#"{ "replies": [
        { "calls": [{ "name": "search.find", "args": { "query": "kettle" } }] },
        "On the stove."
    ] }"#;
    Rig::new()
        .with_file("notes/a.md", "The kettle is on the stove.\n")
        .with_file("replies.json", replies)
        .with_file(
            "conclave.toml",
            r#"
entry = "desk"
[models.default]
kind = "scripted"
replies = "replies.json"
[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
grants.tools = ["search.find"]
[plugins.search]
source = "stock:search"
grants.files = [{ dir = "notes", at = "/docs", mode = "read" }]
[tasks.desk]
agent = "chat"
"#,
        )
}

#[test]
fn a_run_sends_spans_and_figures_and_its_texts_only_if_they_are_wanted() {
    let collector = Collector::start("200 OK");
    let rig = rig();
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint.as_str());
    let output = run(&rig, &[endpoint, ("OTEL_SERVICE_NAME", "kitchen")]);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        stderr.contains("spans without texts go to the collector http://127.0.0.1:"),
        "{stderr}"
    );
    let spans = collector.bodies("/v1/traces");
    for part in [
        "invoke_agent desk",
        "invoke_agent chat",
        "chat default",
        "execute_tool search.find",
        "gen_ai.conversation.id",
        "kitchen",
    ] {
        assert!(spans.contains(part), "{part}: {spans}");
    }
    assert!(!spans.contains("kettle") && !spans.contains("stove"), "{spans}");
    let figures = collector.bodies("/v1/metrics");
    for part in [
        "gen_ai.client.operation.duration",
        "gen_ai.client.token.usage",
        "gen_ai.execute_tool.duration",
        "conclave.tasks.ended",
    ] {
        assert!(figures.contains(part), "{part}: {figures}");
    }
    let content = ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true");
    let output = run(&rig, &[endpoint, content]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let spans = collector.bodies("/v1/traces");
    for part in ["On the stove.", "gen_ai.input.messages", "Where is the kettle?"] {
        assert!(spans.contains(part), "{part}: {spans}");
    }
    // A viewer of traces alone gets no figures.
    let traces = Collector::start("200 OK");
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", traces.endpoint.as_str());
    assert!(run(&rig, &[endpoint, ("OTEL_METRICS_EXPORTER", "none")]).status.success());
    assert!(!traces.bodies("/v1/traces").is_empty());
    assert!(traces.bodies("/v1/metrics").is_empty());
}

#[test]
fn a_collector_that_fails_is_reported_and_changes_no_run() {
    let rig = rig();
    let collector = Collector::start("503 Service Unavailable");
    let output = run(&rig, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint)]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && stdout.contains("On the stove."), "{stdout} {stderr}");
    for what in ["spans", "figures"] {
        let line = format!("gets no {what} at present: the collector answered 503");
        assert_eq!(stderr.matches(&line).count(), 1, "{stderr}");
    }
    let output = run(&rig, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "no address")]);
    assert!(text(&output.stderr).contains("http://127.0.0.1:4318"), "{}", text(&output.stderr));
    let disabled = [("OTEL_EXPORTER_OTLP_ENDPOINT", "no address"), ("OTEL_SDK_DISABLED", "true")];
    assert!(run(&rig, &disabled).status.success());
}
