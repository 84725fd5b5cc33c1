//! Reports of a running call for a client that requests them: its progress, and lines of logs.
//! Reports that the client cannot take in time are dropped.

#![expect(
    deprecated,
    reason = "clients of the revisions before 2026-07-28 read lines of logs, and later ones may until it is removed"
)]

use std::sync::Arc;
use std::time::Duration;

use conclave_runtime::subscribe::{Level, Published, RunEvent, Subscriber};
use rmcp::model::{
    LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken,
};
use rmcp::service::{Peer, RoleServer};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::text::display;

/// Maximum queued reports.
const WAITING: usize = 32;
/// Maximum characters of a line.
const LINE: usize = 4_096;
/// The time for the last reports to leave before the result.
const LAST: Duration = Duration::from_millis(250);

/// What a client requests.
pub(super) struct ReportRequest {
    pub(super) progress: Option<ProgressToken>,
    /// The least severe level of log lines; `None` for no lines.
    pub(super) least: Option<LoggingLevel>,
}

/// Forwards reports.
pub(super) struct ReportForwarder {
    queue: mpsc::Sender<Report>,
    has_progress: bool,
    least: Option<LoggingLevel>,
}

enum Report {
    Progress {
        completed: u64,
        total: Option<u64>,
        message: String,
    },
    Line {
        level: LoggingLevel,
        plugin: String,
        message: String,
    },
    /// All reports before this one have left.
    Flushed(oneshot::Sender<()>),
}

impl ReportForwarder {
    /// Returns a forwarder to a client; `None` if it requests no reports.
    pub(super) fn new(peer: Peer<RoleServer>, request: ReportRequest) -> Option<Arc<Self>> {
        let ReportRequest { progress, least } = request;
        let has_progress = progress.is_some();
        if !has_progress && least.is_none() {
            return None;
        }
        let (queue, mut reports) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            let mut last = None;
            while let Some(report) = reports.recv().await {
                let sent = match (report, &progress) {
                    (Report::Progress { completed, total, message }, Some(token)) => {
                        // The protocol requires increasing values.
                        if last.is_some_and(|last| completed <= last) {
                            continue;
                        }
                        last = Some(completed);
                        let mut report =
                            ProgressNotificationParam::new(token.clone(), precise(completed));
                        report.total = total.map(precise);
                        report.message = Some(message);
                        peer.notify_progress(report).await
                    }
                    (Report::Progress { .. }, None) => continue,
                    (Report::Line { level, plugin, message }, _) => {
                        let line = Value::String(display(&message, LINE));
                        let line =
                            LoggingMessageNotificationParam::new(level, line).with_logger(plugin);
                        peer.notify_logging_message(line).await
                    }
                    (Report::Flushed(flushed), _) => {
                        let _ = flushed.send(());
                        continue;
                    }
                };
                if sent.is_err() {
                    return;
                }
            }
        });
        Some(Arc::new(Self { queue, has_progress, least }))
    }

    /// Waits until the queued reports have left: a client reads none after the result.
    pub(super) async fn flush(&self) {
        let (flushed, empty) = oneshot::channel();
        let flush = async {
            if self.queue.send(Report::Flushed(flushed)).await.is_ok() {
                let _ = empty.await;
            }
        };
        let _ = tokio::time::timeout(LAST, flush).await;
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the protocol counts in fractions; nobody counts so far"
)]
fn precise(count: u64) -> f64 {
    count as f64
}

impl Subscriber for ReportForwarder {
    fn shows_text(&self) -> bool {
        false
    }

    fn on(&self, happening: &Published) {
        let report = match &happening.what {
            RunEvent::Progressed { completed, total, message, .. } if self.has_progress => {
                Report::Progress { completed: *completed, total: *total, message: message.clone() }
            }
            RunEvent::Logged { plugin, level, message, .. } => {
                let level = level_of(*level);
                if !self.least.is_some_and(|least| rank(level) >= rank(least)) {
                    return;
                }
                Report::Line { level, plugin: plugin.to_string(), message: message.clone() }
            }
            _ => return,
        };
        let _ = self.queue.try_send(report);
    }
}

/// The protocol's level of a line.
fn level_of(level: Level) -> LoggingLevel {
    match level {
        Level::Trace | Level::Debug => LoggingLevel::Debug,
        Level::Info => LoggingLevel::Info,
        Level::Warn => LoggingLevel::Warning,
        Level::Error => LoggingLevel::Error,
    }
}

/// The position of a level, the least severe first.
fn rank(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
    }
}
