//! Progress reports for a client that requests them. Reports that the client cannot take in time
//! are dropped.

use std::sync::Arc;

use conclave_runtime::subscribe::{Published, RunEvent, Subscriber};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use tokio::sync::mpsc;

/// Maximum queued reports.
const WAITING: usize = 32;

/// Forwards progress reports.
pub(super) struct ProgressForwarder(mpsc::Sender<(u64, Option<u64>, String)>);

impl ProgressForwarder {
    /// A forwarder for the client that sent this token.
    pub(super) fn new(peer: Peer<RoleServer>, token: ProgressToken) -> Arc<Self> {
        let (sender, mut reports) = mpsc::channel::<(u64, Option<u64>, String)>(WAITING);
        tokio::spawn(async move {
            let mut last = None;
            while let Some((completed, total, message)) = reports.recv().await {
                // The protocol requires increasing values.
                if last.is_some_and(|last| completed <= last) {
                    continue;
                }
                last = Some(completed);
                let mut report = ProgressNotificationParam::new(token.clone(), precise(completed));
                report.total = total.map(precise);
                report.message = Some(message);
                if peer.notify_progress(report).await.is_err() {
                    return;
                }
            }
        });
        Arc::new(Self(sender))
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the protocol counts in fractions; nobody counts so far"
)]
fn precise(count: u64) -> f64 {
    count as f64
}

impl Subscriber for ProgressForwarder {
    fn shows_text(&self) -> bool {
        false
    }

    fn on(&self, happening: &Published) {
        if let RunEvent::Progressed { completed, total, message, .. } = &happening.what {
            let _ = self.0.try_send((*completed, *total, message.clone()));
        }
    }
}
