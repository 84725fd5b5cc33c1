//! Model clients: how a prompt reaches a model. Which plugin may ask which model, and what it may cost, was decided in the core.

mod scripted;

use conclave_core::model::{Completion, ModelError, Prompt};

use crate::clock::BoxFuture;

pub use scripted::{ScriptError, Scripted};

/// Speaks to one model. Dropping the future cancels the request.
pub trait ModelClient: Send + Sync + 'static {
    /// A completion, whole.
    fn complete(&self, prompt: Prompt) -> BoxFuture<'static, Result<Completion, ModelError>>;
}
