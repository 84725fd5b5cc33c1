//! Spans and figures of runs at a collector of OpenTelemetry.

use conclave_models::test_server::{Server, TestReply};
use conclave_test_support::Rig;

use crate::cli::text;

/// A collector on loopback that answers each request with this status.
struct Collector {
    server: Server,
    endpoint: String,
}

impl Collector {
    fn start(status: u16) -> Self {
        let server = Server::answering(move |_| TestReply::bytes(status, "text/plain", ""));
        // The paths of its signals follow.
        let endpoint = server.url().trim_end_matches("/v1").to_owned();
        Self { server, endpoint }
    }

    /// The bodies of the requests to a path, as far as they are text.
    fn bodies(&self, path: &str) -> String {
        let sent = self.server.requests().into_iter().filter(|request| request.path == path);
        sent.map(|request| String::from_utf8_lossy(&request.body).into_owned()).collect()
    }
}

/// A run of an agent that searches once, with these variables.
fn run(rig: &Rig, variables: &[(&str, &str)]) -> std::process::Output {
    let mut command = rig.conclave(&["run", "conclave.toml", "Where is the kettle?"]);
    command.envs(variables.iter().copied()).output().expect("it runs")
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
    let collector = Collector::start(200);
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
    let collector = Collector::start(503);
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
