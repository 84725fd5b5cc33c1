//! The interface of a model client.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use conclave_core::types::completion::{Completion, ModelDiagnostic, ModelError, Prompt};

/// A future that can be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Receives text while it is generated, in order. Never called after the completion was returned or
/// its future was dropped.
pub trait TextSink: Send + Sync + 'static {
    /// Receives the next piece, which is never empty.
    fn text(&self, piece: &str);

    /// Whether a user sees the text while it is generated. If not, a request that breaks off in the
    /// middle of the text can be sent again.
    fn is_shown(&self) -> bool {
        true
    }

    /// Called when the client waits before another attempt; `why` is for the operator.
    fn waits(&self, _why: &str) {}
}

/// A sink that discards the text.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoText;

impl TextSink for NoText {
    fn text(&self, _piece: &str) {}

    fn is_shown(&self) -> bool {
        false
    }
}

impl TextSink for () {
    fn text(&self, _piece: &str) {}

    fn is_shown(&self) -> bool {
        false
    }
}

/// Why there is no completion, for the plugin and for the operator.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFailure {
    /// The error for the plugin: no address, no key, no server text.
    pub error: ModelError,
    /// The diagnosis for the operator; `None` if the error suffices.
    pub trouble: Option<ModelDiagnostic>,
}

impl From<ModelError> for ModelFailure {
    fn from(error: ModelError) -> Self {
        Self { error, trouble: None }
    }
}

/// A client of one model. Dropping the future cancels the request.
pub trait ModelClient: Send + Sync + 'static {
    /// Returns a whole completion. If `prompt.stream` is set, its text also goes to `sink` while it
    /// is generated.
    ///
    /// # Errors
    /// Inside the future: `unknown-model`, `context-too-long`, `unavailable` or `other`, as the
    /// server reports.
    fn complete(
        &self,
        prompt: Prompt,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<Completion, ModelFailure>>;

    /// A client for one session, if the answers depend on the requests before; `None` if all
    /// sessions can share this one.
    fn for_session(&self) -> Option<Arc<dyn ModelClient>> {
        None
    }
}
