//! Times and memory. They are printed, and decide nothing but for the memory of an idle server.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::check::Journalled;
use super::client::{API, Client};
use super::process::ServerProcess;
use super::readers::{EventReaders, now_us};
use super::{IDLE_MIB, LOOK, ServerPlan, ServerReport};
use crate::random::Random;

/// The time after which a server that does nothing is measured.
const REST: Duration = Duration::from_secs(1);
/// Bytes of a write that is compared with a message.
const WRITE: usize = 4 << 10;
/// The time between two timed messages.
const APART: Duration = Duration::from_millis(20);

/// Measures the memory of a server that does nothing.
pub(super) async fn idle(server: &ServerProcess, report: &mut ServerReport) {
    tokio::time::sleep(REST).await;
    let Some(memory) = server.memory() else { return };
    report.row("idle server, resident (with its program's pages)", kib(memory.resident));
    report.row("idle server, allocated", kib(memory.anonymous));
    if memory.anonymous > IDLE_MIB << 10 {
        let allocated = kib(memory.anonymous);
        report.problems.push(format!("an idle server has allocated {allocated}"));
    }
}

pub(super) fn kib(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}

/// The times of messages to waiting runs.
pub(super) struct TimedMessages {
    /// The text of each, with the times at which it was sent and acknowledged.
    sent: Vec<(String, u64, u64)>,
    durable_us: Vec<u64>,
}

/// Sends messages to runs that wait, one after the other, while all readers are connected.
pub(super) async fn messages(
    plan: &ServerPlan,
    server: &ServerProcess,
    token: &str,
    runs: &[String],
    random: &mut Random,
) -> Result<TimedMessages, String> {
    let mut client = Client::new(server.address(), token);
    let mut sent = Vec::new();
    let mut durable_us = durable_writes(&server.store(), plan.messages)?;
    for number in 0..plan.messages {
        let run = &runs[usize::try_from(random.below(runs.len() as u64)).unwrap_or_default()];
        let text = format!("timed message {number}.");
        let (path, key) = (format!("{API}/runs/{run}/messages"), format!("timed-{number}"));
        let body = json!({ "text": text }).to_string();
        let began = now_us();
        let answer = client.request("POST", &path, Some(&key), &body).await;
        let answer = answer.map_err(|error| error.to_string())?;
        if answer.status != 200 {
            return Err(format!("{path}: {} {}", answer.status, answer.text));
        }
        sent.push((text, began, now_us()));
        tokio::time::sleep(APART).await;
    }
    durable_us.extend(durable_writes(&server.store(), plan.messages)?);
    // What the last message caused arrives at its readers.
    tokio::time::sleep(LOOK).await;
    Ok(TimedMessages { sent, durable_us })
}

/// Times bare durable writes in a folder, in microseconds.
fn durable_writes(folder: &Path, count: usize) -> Result<Vec<u64>, String> {
    let time = || -> std::io::Result<Vec<u64>> {
        let mut file = tempfile::tempfile_in(folder)?;
        let block = [7; WRITE];
        let mut times = Vec::new();
        for _ in 0..count {
            let began = Instant::now();
            file.write_all(&block)?;
            file.sync_data()?;
            times.push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
        }
        Ok(times)
    };
    time().map_err(|error| error.to_string())
}

impl TimedMessages {
    /// Reports the medians.
    pub(super) fn report(
        &self,
        readers: &EventReaders,
        journals: &[Vec<Journalled>],
        report: &mut ServerReport,
    ) {
        let (mut at_readers, mut since_sent) = (Vec::new(), Vec::new());
        for (text, began, _) in &self.sent {
            let is_it = |record: &&Journalled| {
                let is_control = record.value["event"] == "control-received";
                is_control && record.value["message"].to_string().contains(text.as_str())
            };
            let mut copies = 0;
            for (index, journal) in journals.iter().enumerate() {
                let Some(record) = journal.iter().find(is_it) else { continue };
                copies += journal.iter().filter(is_it).count();
                let of_run = readers.all.iter().skip(index).step_by(journals.len());
                for reader in of_run {
                    let received = reader.received();
                    let event = received.iter().find(|event| event.id == record.id);
                    at_readers.extend(
                        event.map(|event| event.arrived_us.saturating_sub(record.at_ms * 1_000)),
                    );
                    since_sent.extend(event.map(|event| event.arrived_us.saturating_sub(*began)));
                }
            }
            if copies != 1 {
                report
                    .problems
                    .push(format!("`{text}` was acknowledged, and is there {copies} times"));
            }
        }
        let acknowledged = self.sent.iter().map(|(_, began, ended)| ended.saturating_sub(*began));
        let (acknowledged, durable) = (median(acknowledged), median(self.durable_us.clone()));
        report.row("messages timed while all readers are connected", self.sent.len());
        report.row("message: from the record's time to a reader, median", ms(median(at_readers)));
        report.row("message: from its request to a reader, median", ms(median(since_sent)));
        report.row("message: from its request to its answer, median", ms(acknowledged));
        report.row("one bare durable write of 4 KiB, median", ms(durable));
        let ratio = acknowledged as f64 / durable.max(1) as f64;
        report.row("message beside a durable write", format!("{ratio:.1} x"));
    }
}

pub(super) fn median(times: impl IntoIterator<Item = u64>) -> u64 {
    let mut times: Vec<u64> = times.into_iter().collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

pub(super) fn ms(us: u64) -> String {
    format!("{:.2} ms", us as f64 / 1_000.0)
}
