//! A program that embeds the host: a tool of its own, an agent, an approver who asks at the
//! terminal, and a line for everything that happens. `cargo run -p conclave-runtime --example desk`

use std::io::Write;
use std::sync::Arc;

use conclave_runtime::Capability;
use conclave_runtime::approval::{Approval, ApprovalAnswer, ApprovalAuthor, ApprovalRequest};
use conclave_runtime::approve::Approver;
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::native::{self, Call, Failure, Plugin, Step, Tool};
use conclave_runtime::notice::Notice;
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber, Subscribers};
use conclave_runtime::{Host, HostOptions, RunOptions, config::Config};
use serde_json::json;

const CONFIG: &str = r#"
entry = "desk"
[plugins.desk]
source = "native:desk"
grants.tools = ["tides.high_water"]
[plugins.tides]
source = "native:tides"
limits.wall = "2 s"
[tasks.desk]
agent = "desk"
[[policy]]
tool = "tides.*"
decide = "ask"
"#;

/// When the water is high; a real one would look it up somewhere.
fn tides() -> Plugin {
    let schema = json!({ "type": "object", "required": ["place"], "properties": { "place": { "type": "string" } } });
    let high_water =
        Tool::new("high_water", "High water at a place today.", schema, |call: Call| async move {
            match call.arguments["place"].as_str() {
                Some("Oban") => Ok("06:12 and 18:40"),
                _ => Err(Failure::new("there is no table for that place")),
            }
        });
    Plugin::tools("tides", [high_water])
}

/// Calls the tool, and ends with what it said.
fn desk() -> Plugin {
    Plugin::agent("desk", |step: Step| async move {
        Ok(match step.results() {
            [] => native::call("tides.high_water", json!({ "place": step.text() })),
            [answer, ..] => native::finish(answer.content.clone()),
        })
    })
    .asks(Capability::Tools, "Looks tides up.")
}

struct AtTheTerminal;

impl Approver for AtTheTerminal {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        Box::pin(async move {
            let answer = tokio::task::spawn_blocking(move || {
                ask(&format!("{} {}? [y/n] ", request.tool, request.arguments))
            });
            let approval = match answer.await {
                Ok(Ok(true)) => Approval::Approved,
                _ => Approval::Refused { reason: "nobody said yes".to_owned() },
            };
            approval.by(ApprovalAuthor::Person { at: "the terminal".to_owned() })
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the program, not the library")]
fn ask(question: &str) -> std::io::Result<bool> {
    print!("{question}");
    std::io::stdout().flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line.trim() == "y")
}

struct Trace;

impl Subscriber for Trace {
    fn on(&self, happening: &Published) {
        if let RunEvent::Notice { notice: Notice::ToolAnswered { name, report, .. } } =
            &happening.what
        {
            println!("{name} took {} µs", report.wall_us);
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let host = Host::new(HostOptions { native: vec![tides(), desk()], ..HostOptions::default() })?;
    let desk = host.load(&Config::parse("desk.toml", "", CONFIG)?).await?;
    let subscribers = Subscribers::new([Arc::new(Trace) as Arc<dyn Subscriber>]);
    let options =
        RunOptions { approver: Arc::new(AtTheTerminal), subscribers, ..RunOptions::default() };
    let outcome = desk.start(Some("Oban".to_owned()), options)?.outcome().await?;
    println!(
        "{}: {}",
        outcome.status.as_str(),
        outcome.content.as_deref().unwrap_or(&outcome.reason)
    );
    Ok(())
}
