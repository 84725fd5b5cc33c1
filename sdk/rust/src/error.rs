//! The one error of the SDK. Its variants say who can fix the problem: the operator (`Denied`), the
//! caller (`InvalidArguments`), a later retry (`Unavailable`), or only the author (`Other`). It
//! keeps no chain of causes, since an error leaves the sandbox as text.

use std::any::Any;
use std::fmt;

use crate::bindings::agent::exports::conclave::plugin::agent::AgentError;
use crate::bindings::analyzer::exports::conclave::plugin::security_analyzer::AnalyzerError;
use crate::bindings::channel::exports::conclave::plugin::channel::ChannelError;
use crate::bindings::condenser::exports::conclave::plugin::condenser::CondenserError;
use crate::bindings::delivery::exports::conclave::plugin::delivery_strategy::StrategyError;
use crate::bindings::gate::exports::conclave::plugin::gate::GateError;
use crate::bindings::imports::conclave::plugin::{blobs, fetch, kv, model, scratch, types};
use crate::bindings::judge::exports::conclave::plugin::judge::JudgeError;
use crate::bindings::memory::exports::conclave::plugin::memory::MemoryError;
use crate::bindings::observer::exports::conclave::plugin::observer::ObserverError;
use crate::bindings::simulated_user::exports::conclave::plugin::simulated_user::SimulatedUserError;
use crate::bindings::tool::conclave::plugin::history;
use crate::bindings::tool::exports::conclave::plugin::tools::ToolError;
use crate::files::{FileError, FileErrorKind};

/// The result of a plugin's function.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The reason why a plugin failed.
///
/// `?` converts every error type: a refusal by the host becomes `Denied`, a provider that is down
/// `Unavailable`, and any other [`std::error::Error`] becomes `Other`. It does not implement that
/// trait itself, because the blanket conversion would then overlap.
///
/// ```
/// use conclave_sdk::{Error, Result};
///
/// fn length(text: &str) -> Result<u32> {
///     let length: u32 = text.trim().parse()?; // a ParseIntError becomes `Other`
///     if length == 0 {
///         return Err(Error::invalid_arguments("length: must be above 0"));
///     }
///     Ok(length)
/// }
/// assert!(matches!(length("0"), Err(Error::InvalidArguments(_))));
/// assert!(matches!(length("a"), Err(Error::Other(_))));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Error {
    /// A required capability was refused. Pass this error on: the operator gets the grant that
    /// would allow it.
    Denied(types::Denial),
    /// The request is invalid. The text names the argument, and is returned to the model so that it
    /// can correct itself.
    InvalidArguments(String),
    /// An external service is down; the request may be retried.
    Unavailable {
        /// Milliseconds until the next attempt; `None` if not known.
        retry_after_ms: Option<u64>,
    },
    /// Any other error, shown to users and to the model.
    Other(String),
}

impl Error {
    /// `Other` with a text of the plugin's own.
    pub fn other(text: impl fmt::Display) -> Self {
        Self::Other(text.to_string())
    }

    /// `InvalidArguments` with a text that names the argument and the valid values.
    pub fn invalid_arguments(text: impl fmt::Display) -> Self {
        Self::InvalidArguments(text.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // It names the plugin and the tool.
            Self::Denied(denial) if denial.capability == "tools" && !denial.detail.is_empty() => {
                formatter.write_str(&denial.detail)
            }
            // The host's own sentence, which names both already.
            Self::Denied(denial) if denial.detail.contains(&denial.target) => {
                formatter.write_str(&denial.detail)
            }
            Self::Denied(denial) => write!(
                formatter,
                "{} was refused: {}: {}",
                denial.capability, denial.target, denial.detail
            ),
            Self::InvalidArguments(text) | Self::Other(text) => formatter.write_str(text),
            Self::Unavailable { retry_after_ms: Some(ms) } => {
                write!(formatter, "not available now; try again in {ms} ms")
            }
            Self::Unavailable { retry_after_ms: None } => formatter.write_str("not available now"),
        }
    }
}

/// One conversion for every error type. The imports' errors implement `std`'s trait too, so they
/// can be distinguished only here, by type. A second `From` for them would overlap with this one.
impl<E: std::error::Error + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        let any: &dyn Any = &error;
        if let Some(error) = any.downcast_ref() {
            return from_files(error);
        }
        if let Some(error) = any.downcast_ref() {
            return from_model(error);
        }
        if let Some(error) = any.downcast_ref() {
            return from_kv(error);
        }
        if let Some(error) = any.downcast_ref() {
            return from_fetch(error);
        }
        if let Some(error) = any.downcast_ref() {
            return from_blobs(error);
        }
        if let Some(error) = any.downcast_ref() {
            return from_scratch(error);
        }
        if let Some(error) = any.downcast_ref() {
            return from_history(error);
        }
        Self::other(error)
    }
}

fn from_files(error: &FileError) -> Error {
    match &error.kind {
        FileErrorKind::Denied(denial) => Error::Denied(denial.clone()),
        _ => Error::other(error),
    }
}

fn from_model(error: &model::ModelError) -> Error {
    use model::ModelError as Case;
    match error {
        Case::Denied(denial) => Error::Denied(denial.clone()),
        Case::BudgetExhausted(limit) => {
            Error::Other(format!("model: too little of {limit} is left for this request"))
        }
        Case::UnknownModel(name) => Error::Other(format!("model: there is no model named {name}")),
        Case::ContextTooLong(tokens) => {
            Error::Other(format!("model: the prompt does not fit in {tokens} tokens"))
        }
        Case::Unavailable(retry_after_ms) => Error::Unavailable { retry_after_ms: *retry_after_ms },
        Case::Other(text) => Error::Other(text.clone()),
    }
}

fn from_kv(error: &kv::KvError) -> Error {
    use kv::KvError as Case;
    match error {
        Case::QuotaExceeded(limit) => {
            Error::Other(format!("kv: the limit of {limit} bytes is reached"))
        }
        Case::Denied(denial) => Error::Denied(denial.clone()),
        Case::Other(text) => Error::Other(text.clone()),
    }
}

fn from_history(error: &history::HistoryError) -> Error {
    use history::HistoryError as Case;
    match error {
        Case::Denied(denial) => Error::Denied(denial.clone()),
        Case::Other(text) => Error::Other(text.clone()),
    }
}

fn from_fetch(error: &fetch::FetchError) -> Error {
    use fetch::FetchError as Case;
    match error {
        Case::Denied(denial) => Error::Denied(denial.clone()),
        Case::InvalidRequest(problem) => Error::Other(format!("fetch: {problem}")),
        Case::LimitExceeded(limit) => Error::Other(format!("fetch: past the limit {limit}")),
        Case::TimedOut => Error::other("fetch: no answer in time"),
        Case::Unavailable(retry_after_ms) => Error::Unavailable { retry_after_ms: *retry_after_ms },
        Case::Other(text) => Error::Other(text.clone()),
    }
}

fn from_blobs(error: &blobs::BlobError) -> Error {
    use blobs::BlobError as Case;
    match error {
        Case::Unknown => Error::other("blobs: there is no such blob in reach"),
        Case::TooLarge(limit) => {
            Error::Other(format!("blobs: larger than the limit of {limit} bytes"))
        }
        Case::Denied(denial) => Error::Denied(denial.clone()),
        Case::Other(text) => Error::Other(text.clone()),
    }
}

fn from_scratch(error: &scratch::ScratchError) -> Error {
    use scratch::ScratchError as Case;
    match error {
        Case::TooLarge(limit) => {
            Error::Other(format!("scratch: larger than the limit of {limit} bytes"))
        }
        Case::Other(text) => Error::Other(text.clone()),
    }
}

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        match error {
            Error::Denied(denial) => Self::Denied(denial),
            Error::InvalidArguments(text) => Self::InvalidArguments(text),
            Error::Unavailable { retry_after_ms } => Self::Unavailable(retry_after_ms),
            Error::Other(text) => Self::Other(text),
        }
    }
}

/// In an agent, `InvalidArguments` means that the model's reply was invalid, so it becomes
/// `malformed`.
impl From<Error> for AgentError {
    fn from(error: Error) -> Self {
        match error {
            Error::Denied(denial) => Self::Denied(denial),
            Error::InvalidArguments(text) => Self::Malformed(text),
            Error::Unavailable { .. } | Error::Other(_) => Self::Other(error.to_string()),
        }
    }
}

impl From<Error> for ObserverError {
    fn from(error: Error) -> Self {
        match error {
            Error::Denied(denial) => Self::Denied(denial),
            Error::Unavailable { retry_after_ms } => Self::Unavailable(retry_after_ms),
            Error::InvalidArguments(_) | Error::Other(_) => Self::Other(error.to_string()),
        }
    }
}

/// The kinds that distinguish only a refusal from everything else.
macro_rules! denied_or_other {
    ($($kind:ty),+) => {$(
        impl From<Error> for $kind {
            fn from(error: Error) -> Self {
                match error {
                    Error::Denied(denial) => Self::Denied(denial),
                    _ => Self::Other(error.to_string()),
                }
            }
        }
    )+};
}
denied_or_other!(
    StrategyError,
    MemoryError,
    AnalyzerError,
    CondenserError,
    GateError,
    JudgeError,
    SimulatedUserError,
    ChannelError
);

#[cfg(test)]
mod tests {
    use super::{Error, FileError, FileErrorKind, model, types};

    fn denial() -> types::Denial {
        types::Denial {
            capability: "files".into(),
            target: "/etc".into(),
            detail: "outside every folder".into(),
        }
    }

    #[test]
    fn refusals_stay_refusals_through_the_question_mark() {
        let failed = |kind| FileError { path: "/etc".into(), kind };
        let read = || -> Result<(), Error> { Err(failed(FileErrorKind::Denied(denial())))? };
        assert_eq!(read(), Err(Error::Denied(denial())));
        assert_eq!(
            Error::from(failed(FileErrorKind::NotAFile)),
            Error::Other("/etc: it is a directory, not a file".into())
        );
    }

    #[test]
    fn a_refusal_names_its_target_once() {
        let detail = "files was refused for \"/etc\"".to_owned();
        let own = Error::Denied(types::Denial { detail: detail.clone(), ..denial() });
        assert_eq!(own.to_string(), detail);
        let other = "files was refused: /etc: outside every folder";
        assert_eq!(Error::Denied(denial()).to_string(), other);
    }

    #[test]
    fn a_provider_that_is_down_may_be_tried_again() {
        let error = Error::from(model::ModelError::Unavailable(Some(500)));
        assert_eq!(error, Error::Unavailable { retry_after_ms: Some(500) });
    }

    #[test]
    fn any_other_error_keeps_its_text() {
        let error = Error::from(std::io::Error::other("the disk is full"));
        assert_eq!(error, Error::Other("the disk is full".into()));
    }
}
