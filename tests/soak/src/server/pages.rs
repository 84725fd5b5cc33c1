//! The page of a long run: how long its first view takes, and with a browser how it scrolls.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{API, Client};
use super::measure::{median, ms};
use super::process::ServerProcess;
use super::{LOOK, ServerPlan, ServerReport};

/// The task of the long run. Each of its steps calls a tool, which is two events.
pub(super) const TASK: &str = "long";
/// First views that are timed, each by a server that has just started.
const VIEWS: usize = 3;
/// Further views that are timed.
const FURTHER: usize = 5;
/// The time in which the long run has to end.
const PATIENCE: Duration = Duration::from_secs(300);
/// The variable with the Python that has Playwright, and the script that it runs.
const PYTHON: &str = "CONCLAVE_WEB";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/web/speed.py");

/// Times the page of a run that has ended.
pub(super) async fn measure(
    plan: &ServerPlan,
    server: &mut ServerProcess,
    token: &str,
    report: &mut ServerReport,
) -> Result<(), String> {
    let run = long_run(server, token).await?;
    let page = format!("/runs/{run}");
    let (mut first, mut further) = (Vec::new(), Vec::new());
    for _ in 0..VIEWS {
        server.kill().map_err(|error| error.to_string())?;
        server.start().await?;
        let mut client = Client::new(server.address(), token);
        // What any page needs is there before: the log-in takes its time on purpose.
        view(&mut client, "/runs").await?;
        first.push(view(&mut client, &page).await?);
        for _ in 0..FURTHER {
            further.push(view(&mut client, &page).await?);
        }
    }
    report.row(
        format!("page of a run with {} events, first view", 2 * plan.long_steps),
        ms(median(first)),
    );
    report.row("the same, each further view", ms(median(further)));
    let Some(python) = std::env::var_os(PYTHON) else {
        report.row("the same in a browser", "not measured");
        return Ok(());
    };
    let url = format!("http://{}", server.address());
    let mut command = Command::new(python);
    command.args([SCRIPT, &url, token, &run]).stdin(Stdio::null());
    let measured = tokio::task::block_in_place(|| command.output());
    let measured = measured.map_err(|error| error.to_string())?;
    let rows: Result<Value, _> = serde_json::from_slice(&measured.stdout);
    match rows {
        Ok(Value::Object(rows)) => {
            for (what, value) in rows {
                report.row(what, value.as_str().unwrap_or_default());
            }
        }
        // A machine without a browser measures the rest.
        _ => report.row("the same in a browser", "not measured"),
    }
    Ok(())
}

/// Starts the long run, and returns it when it has ended.
async fn long_run(server: &ServerProcess, token: &str) -> Result<String, String> {
    let mut client = Client::new(server.address(), token);
    let body = json!({ "text": "go", "task": TASK }).to_string();
    let path = format!("{API}/runs");
    let answer = client.request("POST", &path, Some("long"), &body).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let run = answer.body()["run"].as_str().map(str::to_owned);
    let run = run.ok_or_else(|| format!("no run was started: {}", answer.text))?;
    let began = Instant::now();
    loop {
        let answer = client.request("GET", &format!("{path}/{run}"), None, "").await;
        let state = answer.map_err(|error| error.to_string())?.body()["state"].clone();
        if !matches!(state.as_str(), Some("running" | "queued") | None) {
            return Ok(run);
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("the long run is {state} after {PATIENCE:?}"));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The time until a page is there, in microseconds.
async fn view(client: &mut Client, path: &str) -> Result<u64, String> {
    let began = Instant::now();
    let answer = client.request("GET", path, None, "").await.map_err(|error| error.to_string())?;
    match answer.status {
        200 => Ok(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)),
        status => Err(format!("{path}: {status}")),
    }
}
