//! One running call: its run, and its pending questions. A call of a client that answers with a new
//! request (2026-07-28) is suspended meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conclave_core::types::approval::{Approval, ApprovalAnswer, ApprovalAuthor, ApprovalRequest};
use conclave_runtime::RoomHandle;
use conclave_runtime::approve::Approver;
use conclave_runtime::clock::BoxFuture;
use rmcp::model::CallToolResult;
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::approval::refused;
use super::reports::ReportForwarder;

/// Maximum number of suspended requests.
const KEPT: usize = 64;
/// Time limit of a suspended request, and of a question to the user.
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
    /// Forwards its reports; `None` if the client requests none.
    pub(super) reports: Option<Arc<ReportForwarder>>,
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

/// What waits for the client's answer.
pub(super) enum Suspended {
    /// A running call that needs an approval.
    Call { going: Box<ToolCallGuard>, answer: oneshot::Sender<Approval> },
    /// The arguments of a request that lacks others. Nothing runs.
    Arguments(Map<String, Value>),
}

/// A request whose client has to return.
pub(super) struct SuspendedRequest {
    pub(super) what: Suspended,
    /// The called tool, or the prompt: an answer must not name another one.
    pub(super) of: String,
    since: Instant,
}

/// The suspended requests, by unguessable names.
#[derive(Default)]
pub(super) struct SuspendedRequests(Mutex<HashMap<String, SuspendedRequest>>);

impl SuspendedRequests {
    pub(super) fn keep(&self, name: String, of: String, what: Suspended) {
        let mut suspended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        suspended.retain(|_, waiting| now.duration_since(waiting.since) < KEPT_FOR);
        // Makes room by dropping the oldest; a run that it is about then gets no answer.
        if suspended.len() >= KEPT
            && let Some(oldest) = suspended
                .iter()
                .min_by_key(|(_, waiting)| waiting.since)
                .map(|(name, _)| name.clone())
        {
            suspended.remove(&oldest);
        }
        suspended.insert(name, SuspendedRequest { what, of, since: now });
    }

    pub(super) fn take(&self, name: &str) -> Option<SuspendedRequest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name)
    }

    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
