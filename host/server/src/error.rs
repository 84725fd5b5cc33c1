//! The failures that end the start of a server.

use conclave_core::types::request::Refusal;
use conclave_runtime::ResumeError;
use conclave_runtime::store::StoreError;

/// The reason why a server cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// No secret can be made.
    #[error("the system has no randomness: {0}")]
    Randomness(getrandom::Error),
    /// A token cannot be hashed.
    #[error("a token cannot be hashed: {0}")]
    Hash(String),
    /// The store of the conversations cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored conversation cannot be resumed.
    #[error(transparent)]
    Resume(#[from] ResumeError),
    /// The first conversation cannot begin, or a resumed one does not take its channel.
    #[error("{}", .0.message)]
    Refused(Refusal),
}
