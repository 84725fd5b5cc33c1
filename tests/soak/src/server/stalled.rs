//! Readers that never read. The server may hold little for each, and ends their streams.

use std::time::{Duration, Instant};

use serde_json::json;

use super::client::{API, Client};
use super::measure::kib;
use super::process::ServerProcess;
use super::readers::{Opened, open};
use super::{LOOK, ServerPlan, ServerReport};

/// Bytes of each message of the run that they follow. One may have 128 KiB.
const MESSAGE: usize = 120 << 10;
/// The messages. What they have together fits into no buffer of the system.
const MESSAGES: usize = 100;
/// KiB that a server may hold for one reader: two of the largest messages, and their copies on the
/// way to the connection.
const EACH: u64 = 512;
/// KiB more that the server may have: what it reads from the store, and fragments of its memory.
const MARGIN: u64 = 24 << 10;
/// The receive buffer of a reader, in bytes.
const BUFFER: u32 = 4 << 10;
/// The time in which the server must have ended their streams; it does so after 10 s.
const MOST: Duration = Duration::from_secs(60);

/// Opens the streams of a run with large records, and reads none.
pub(super) async fn check(
    plan: &ServerPlan,
    server: &ServerProcess,
    (office, viewer): (&str, &str),
    report: &mut ServerReport,
) -> Result<(), String> {
    let mut client = Client::new(server.address(), office);
    let run = large_run(&mut client).await?;
    let Some(before) = server.memory() else { return Ok(()) };
    let mut streams = Vec::new();
    while streams.len() < plan.stalled {
        let opened = open((server.address(), viewer), &run, None, Some(BUFFER)).await;
        match opened.map_err(|error| error.to_string())? {
            Opened::Stream(stream) => streams.push(stream),
            Opened::Refused(status) => return Err(format!("a stream was refused with {status}")),
        }
    }
    let (began, mut most) = (Instant::now(), before.anonymous);
    loop {
        most = most.max(server.memory().unwrap_or_default().anonymous);
        if open_streams(&mut client).await? == 0 {
            break;
        }
        if began.elapsed() > MOST {
            report.problems.push("streams that nobody reads do not end".to_owned());
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    let grown = most.saturating_sub(before.anonymous);
    report.row("readers that never read", plan.stalled);
    report.row("memory that the server had for them", kib(grown));
    let allowed = plan.stalled as u64 * EACH + MARGIN;
    report.row("memory that it may have for them", kib(allowed));
    report
        .row("all of their streams ended after", format!("{:.0} s", began.elapsed().as_secs_f64()));
    if grown > allowed {
        report.problems.push(format!("readers that never read cost {}", kib(grown)));
    }
    Ok(())
}

/// Starts a run, and sends it large messages while it waits.
async fn large_run(client: &mut Client) -> Result<String, String> {
    let started = post(client, "/runs", "large", &json!({ "text": "work" }).to_string()).await?;
    let run = started["run"].as_str().ok_or("it has no id")?.to_owned();
    let filler = "x".repeat(MESSAGE);
    for number in 0..MESSAGES {
        let body = json!({ "text": format!("{number} {filler}") }).to_string();
        post(client, &format!("/runs/{run}/messages"), &format!("large-{number}"), &body).await?;
    }
    Ok(run)
}

async fn post(
    client: &mut Client,
    path: &str,
    key: &str,
    body: &str,
) -> Result<serde_json::Value, String> {
    let answer = client.request("POST", &format!("{API}{path}"), Some(key), body).await;
    let answer = answer.map_err(|error| error.to_string())?;
    if !(200..300).contains(&answer.status) {
        return Err(format!("{path}: {} {}", answer.status, answer.text));
    }
    Ok(answer.body())
}

async fn open_streams(client: &mut Client) -> Result<u64, String> {
    let answer = client.request("GET", "/metrics", None, "").await;
    let answer = answer.map_err(|error| error.to_string())?;
    let mut lines = answer.text.lines();
    let value = lines.find_map(|line| line.strip_prefix("conclave_event_streams "));
    value.and_then(|value| value.trim().parse().ok()).ok_or_else(|| answer.text.clone())
}
