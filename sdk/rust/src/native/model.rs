//! A model whose replies a test has written.

use super::{denied, fake};
use crate::model::{Completion, CompletionStream, ModelError, Request};

/// Returns the next reply that the test has written.
pub fn complete(request: &Request) -> Result<Completion, ModelError> {
    let model = request.model.as_deref().unwrap_or("default");
    fake(|fake| match fake.replies.as_mut().map(std::collections::VecDeque::pop_front) {
        Some(Some(reply)) => Ok(reply),
        Some(None) => Err(ModelError::Other("the fake model has no further reply".to_owned())),
        None => Err(ModelError::Denied(denied("model", model))),
    })
}

/// Fails: a native test has no streams.
pub fn start(_: &Request) -> Result<CompletionStream, ModelError> {
    Err(ModelError::Other("a native test has no streams of a model; use `complete`".to_owned()))
}
