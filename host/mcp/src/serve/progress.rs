//! How far a call has come, for a client that wants to know. What it cannot take in time is left
//! out.

use std::sync::Arc;

use conclave_runtime::subscribe::{Published, RunEvent, Subscriber};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use tokio::sync::mpsc;

/// Reports that wait at most.
const WAITING: usize = 32;

/// Passes reports on.
pub(super) struct ProgressForwarder(mpsc::Sender<(u64, Option<u64>, String)>);

impl ProgressForwarder {
    /// For the client that gave this token.
    pub(super) fn new(peer: Peer<RoleServer>, token: ProgressToken) -> Arc<Self> {
        let (sender, mut reports) = mpsc::channel::<(u64, Option<u64>, String)>(WAITING);
        tokio::spawn(async move {
            let mut last = None;
            while let Some((done, total, message)) = reports.recv().await {
                // It must grow with every report.
                if last.is_some_and(|last| done <= last) {
                    continue;
                }
                last = Some(done);
                let mut report = ProgressNotificationParam::new(token.clone(), precise(done));
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
    fn on(&self, happening: &Published) {
        if let RunEvent::Progressed { done, total, message, .. } = &happening.what {
            let _ = self.0.try_send((*done, *total, message.clone()));
        }
    }
}
