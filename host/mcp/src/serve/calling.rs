//! One call that goes on: its run, and the questions that it waits for. A call whose client asks
//! its person by asking the server again (2026-07-28) is kept meanwhile.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use conclave_core::types::approval::{Approval, ApprovalAnswer, ApprovalAuthor, ApprovalRequest};
use conclave_runtime::Stopper;
use conclave_runtime::approve::Approver;
use conclave_runtime::clock::BoxFuture;
use rmcp::model::CallToolResult;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use super::approval::refused;

/// Calls that are kept at most.
const KEPT: usize = 64;
/// How long one is kept, and how long a client may ask its person.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(10 * 60);

/// A question, and where the answer goes.
pub(super) struct ClientQuestion {
    pub(super) request: ApprovalRequest,
    pub(super) answer: oneshot::Sender<Approval>,
}

/// Passes questions on to whoever speaks with the client.
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
            let gone = || refused("the client has gone").by(ApprovalAuthor::Nobody);
            if questions.send(ClientQuestion { request, answer }).await.is_err() {
                return gone();
            }
            let at = "the MCP client".to_owned();
            answered
                .await
                .map_or_else(|_| gone(), |approval| approval.by(ApprovalAuthor::Person { at }))
        })
    }
}

/// A call that goes on. Dropping it stops the tool.
pub(super) struct ToolCallGuard {
    pub(super) run: JoinHandle<CallToolResult>,
    pub(super) stopper: Stopper,
    pub(super) questions: mpsc::Receiver<ClientQuestion>,
    /// Among those that run at once; none while a person is asked.
    pub(super) place: Option<OwnedSemaphorePermit>,
    pub(super) _end: RunStopper,
}

/// Stops a run that nobody waits for.
pub(super) struct RunStopper(pub(super) AbortHandle);

impl Drop for RunStopper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A call that waits for its client to come back.
pub(super) struct SuspendedCall {
    pub(super) going: ToolCallGuard,
    pub(super) answer: oneshot::Sender<Approval>,
    /// What was called: the client cannot come back with something else.
    pub(super) tool: String,
    since: Instant,
}

/// Calls that wait, under names that nobody guesses.
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
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        kept.retain(|_, waiting| now.duration_since(waiting.since) < KEPT_FOR);
        // The oldest goes for a new one; its run sees that nobody answers.
        if kept.len() >= KEPT
            && let Some(oldest) =
                kept.iter().min_by_key(|(_, waiting)| waiting.since).map(|(name, _)| name.clone())
        {
            kept.remove(&oldest);
        }
        kept.insert(name, SuspendedCall { going, answer, tool, since: now });
    }

    pub(super) fn take(&self, name: &str) -> Option<SuspendedCall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name)
    }

    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
