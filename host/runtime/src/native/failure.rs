//! The failures of native tools and agents. Each maps to an error that a component could have
//! returned.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use conclave_core::types::completion::ModelError;
use conclave_core::types::denial::Denial;
use conclave_core::types::fault::{Fault, FaultKind};
use conclave_core::types::tool::ToolError;

/// The reason why there is no answer. `?` converts any error; **the error's text goes to the agent
/// and its model**, so errors with confidential details are better mapped by hand.
///
/// ```
/// use conclave_runtime::native::Failure;
///
/// fn number(text: &str) -> Result<u64, Failure> {
///     if text.is_empty() {
///         return Err(Failure::invalid_arguments("number: it is empty"));
///     }
///     Ok(text.parse()?)
/// }
/// assert!(number("12").is_ok() && number("").is_err() && number("x").is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Failure(ToolError);

impl Failure {
    /// Returns a failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(ToolError::Other { message: message.into() })
    }

    /// Returns a failure for invalid arguments, which the agent is asked to correct.
    pub fn invalid_arguments(message: impl Into<String>) -> Self {
        Self(ToolError::InvalidArguments { message: message.into() })
    }

    /// Returns a failure for an unavailable service; `retry_after` is the time until a retry, if
    /// known.
    #[must_use]
    pub fn unavailable(retry_after: Option<Duration>) -> Self {
        let retry_after_ms =
            retry_after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        Self(ToolError::Unavailable { retry_after_ms })
    }

    /// The failure for a query of a kind that the closure does not handle, which the host never
    /// sends.
    pub(super) fn other_kind() -> Self {
        Self::new("it was asked something that it is not for")
    }

    pub(super) fn into_tool_error(self) -> ToolError {
        self.0
    }

    /// The fault of an agent, named after `plugin`.
    pub(super) fn into_fault(self, plugin: &str) -> Fault {
        let message = match self.0 {
            ToolError::Other { message } | ToolError::InvalidArguments { message } => message,
            ToolError::Fault { fault } => return fault,
            refused => refused.to_text(plugin),
        };
        Fault::new(FaultKind::Error, message)
    }
}

impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let any: &(dyn Error + 'static) = &error;
        match any.downcast_ref::<ModelCallFailure>() {
            Some(ModelCallFailure(ModelError::Denied { denial })) => {
                Self(ToolError::Denied { denial: denial.clone() })
            }
            Some(ModelCallFailure(ModelError::Unavailable { retry_after_ms })) => {
                Self(ToolError::Unavailable { retry_after_ms: *retry_after_ms })
            }
            _ => Self::new(error.to_string()),
        }
    }
}

/// The error of a model request.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelCallFailure(pub ModelError);

impl fmt::Display for ModelCallFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ModelError::Denied { denial: Denial { capability, target, .. } } => {
                write!(out, "refused: {capability} {target}")
            }
            ModelError::BudgetExhausted { what } => {
                write!(out, "too little of {what} is left for this request")
            }
            ModelError::UnknownModel { name } => {
                write!(out, "there is no model {name:?} in the config")
            }
            ModelError::ContextTooLong { tokens } => {
                write!(out, "the prompt does not fit into {tokens} tokens")
            }
            ModelError::Unavailable { .. } => out.write_str("the model is not available now"),
            ModelError::Other { message } => out.write_str(message),
        }
    }
}

impl Error for ModelCallFailure {}
