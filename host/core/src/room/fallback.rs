//! The models of a task in their order (`tasks.NAME.model`): which of them is asked next, when one
//! does not answer. What another model could not help against stays the plugin's: a refused key, a
//! refused request, a budget. Nor is another model asked when a user has read a part of the answer.

use serde::{Deserialize, Serialize};

use crate::types::completion::{ModelError, ModelRequest};
use crate::types::ids::ModelName;

/// The models that are asked if the pending one fails, and the request for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Fallback {
    pub(super) request: ModelRequest,
    /// In their order, never empty.
    pub(super) models: Vec<ModelName>,
}

impl Fallback {
    /// Returns what is left after the first of these models; `None` if that is nothing.
    pub(super) fn after_first(models: &[ModelName], request: &ModelRequest) -> Option<Box<Self>> {
        let rest = models.get(1..).filter(|rest| !rest.is_empty())?;
        Some(Box::new(Self { request: request.clone(), models: rest.to_vec() }))
    }
}

/// Whether another model may answer after this failure.
pub(super) fn helps_against(error: &ModelError) -> bool {
    match error {
        // No server, a busy one, a used-up account: after the client's own retries.
        ModelError::Unavailable { .. } | ModelError::ContextTooLong { .. } => true,
        ModelError::Denied { .. }
        | ModelError::BudgetExhausted { .. }
        | ModelError::UnknownModel { .. }
        | ModelError::Other { .. } => false,
    }
}
