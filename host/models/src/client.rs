//! What a model client is, whatever it speaks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use conclave_core::types::completion::{Completion, ModelDiagnostic, ModelError, Prompt};

/// A future that can be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Gets text while it is generated. Called in order; never after the completion was returned, nor
/// after its future was dropped.
pub trait TextSink: Send + Sync + 'static {
    /// The next piece; never empty.
    fn text(&self, piece: &str);
}

/// Nobody listens.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoText;

impl TextSink for NoText {
    fn text(&self, _piece: &str) {}
}

impl TextSink for () {
    fn text(&self, _piece: &str) {}
}

/// Why there is no completion, told twice.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFailure {
    /// What the plugin reads: no address, no key, nothing that the server wrote.
    pub error: ModelError,
    /// What the operator is told; none when the error says it all.
    pub trouble: Option<ModelDiagnostic>,
}

impl From<ModelError> for ModelFailure {
    fn from(error: ModelError) -> Self {
        Self { error, trouble: None }
    }
}

/// Speaks to one model. Dropping the future cancels the request.
pub trait ModelClient: Send + Sync + 'static {
    /// A completion, whole. When `prompt.stream` is set, its text goes to `sink` as it is
    /// generated.
    ///
    /// # Errors
    /// Inside the future: `unknown-model`, `context-too-long`, `unavailable`, `other`, as the
    /// model's server says.
    fn complete(
        &self,
        prompt: Prompt,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<Completion, ModelFailure>>;
}
