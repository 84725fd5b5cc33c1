//! Resources that a guest holds while the host keeps their content. The generated bindings name them.

use std::sync::Arc;

use conclave_core::types::completion::{Completion, ModelError};

/// A completion in progress. Dropping it cancels the request.
#[expect(unreachable_pub, reason = "the bindings export it again")]
pub struct CompletionStream {
    pub(crate) ordinal: u32,
    pub(crate) answer: Option<Arc<Result<Completion, ModelError>>>,
    pub(crate) text_given: bool,
}

/// A response to a request.
#[expect(unreachable_pub, reason = "the bindings export it again")]
#[derive(Default)]
pub struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) url: String,
    pub(crate) body: Vec<u8>,
    /// Counts the body against the memory that the call may hold.
    #[cfg(feature = "fetch")]
    pub(crate) _hold: Option<super::outgoing::Hold>,
}
