//! One running call: its run, and its pending questions. A call of a client that answers with a new
//! request (2026-07-28) is suspended meanwhile.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use conclave_core::types::approval::{Approval, ApprovalAnswer, ApprovalAuthor, ApprovalRequest};
use conclave_runtime::RoomHandle;
use conclave_runtime::approve::Approver;
use conclave_runtime::clock::BoxFuture;
use rmcp::model::CallToolResult;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::approval::refused;

/// Maximum number of suspended calls.
const KEPT: usize = 64;
/// Time limit of a suspended call, and of a question to the user.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(10 * 60);

/// A question, and the channel for its answer.
pub(super) struct ClientQuestion {
    pub(super) request: ApprovalRequest,
    pub(super) answer: oneshot::Sender<Approval>,
}

/// Forwards questions to the task that serves the client.
pub(super) struct ClientQuestions(mpsc::Sender<ClientQuestion>);

impl ClientQuestions {
    pub(super) fn new() -> (Self, mpsc::Receiver<ClientQuestion>) {
        let (sender, questions) = mpsc::channel(1);
        (Self(sender), questions)
    }
}

impl Approver for ClientQuestions {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        let questions = self.0.clone();
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let disconnected = || refused("the client has gone").by(ApprovalAuthor::Nobody);
            if questions.send(ClientQuestion { request, answer }).await.is_err() {
                return disconnected();
            }
            let at = "the MCP client".to_owned();
            answered.await.map_or_else(
                |_| disconnected(),
                |approval| approval.by(ApprovalAuthor::Person { at }),
            )
        })
    }
}

/// A running call. Dropping it before its result is there stops the tool.
pub(super) struct ToolCallGuard {
    pub(super) result: oneshot::Receiver<CallToolResult>,
    pub(super) handle: RoomHandle,
    pub(super) questions: mpsc::Receiver<ClientQuestion>,
    /// Its permit among the concurrent calls; `None` while it waits for the user.
    pub(super) place: Option<OwnedSemaphorePermit>,
    pub(super) run: RunStopper,
}

/// Aborts a run when its call is dropped.
pub(super) struct RunStopper(Option<AbortHandle>);

impl RunStopper {
    pub(super) fn new(run: AbortHandle) -> Self {
        Self(Some(run))
    }

    /// Lets the run end by itself: its result is there, and the rest of its records follows.
    pub(super) fn release(&mut self) {
        self.0 = None;
    }
}

impl Drop for RunStopper {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run.abort();
        }
    }
}

/// A call that waits for the client's answer.
pub(super) struct SuspendedCall {
    pub(super) going: ToolCallGuard,
    pub(super) answer: oneshot::Sender<Approval>,
    /// The called tool: an answer must not name another one.
    pub(super) tool: String,
    since: Instant,
}

/// The suspended calls, by unguessable names.
#[derive(Default)]
pub(super) struct SuspendedCalls(Mutex<HashMap<String, SuspendedCall>>);

impl SuspendedCalls {
    pub(super) fn keep(
        &self,
        name: String,
        tool: String,
        going: ToolCallGuard,
        answer: oneshot::Sender<Approval>,
    ) {
        let mut suspended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        suspended.retain(|_, waiting| now.duration_since(waiting.since) < KEPT_FOR);
        // Makes room by dropping the oldest call; its run then gets no answer.
        if suspended.len() >= KEPT
            && let Some(oldest) = suspended
                .iter()
                .min_by_key(|(_, waiting)| waiting.since)
                .map(|(name, _)| name.clone())
        {
            suspended.remove(&oldest);
        }
        suspended.insert(name, SuspendedCall { going, answer, tool, since: now });
    }

    pub(super) fn take(&self, name: &str) -> Option<SuspendedCall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name)
    }

    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
