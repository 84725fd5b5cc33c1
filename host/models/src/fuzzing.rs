//! The reader of replies as `tests/fuzz` drives it: chunks of bytes in, the parsed reply out. No
//! network.

use std::sync::Mutex;

use conclave_core::types::completion::{Completion, ModelApi};

use crate::http::fuzzing;
use crate::{ApiKey, TextSink};

/// A parsed reply.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedReply {
    /// Text that was streamed to the caller.
    pub streamed: String,
    /// The answer, or the name of the error.
    pub answer: Result<Completion, &'static str>,
    /// The error message, which depends on the chunk boundaries.
    pub error: String,
}

/// Reads a reply of at most `limit` bytes in these chunks; `key` must not appear in the result.
#[must_use]
pub fn read<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    api: ModelApi,
    limit: u64,
    key: &str,
) -> ParsedReply {
    let sink = Streamed::default();
    let (answer, error) = fuzzing::read(pieces, api, limit, ApiKey::new(key.to_owned()), &sink);
    let streamed = sink.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    ParsedReply { streamed, answer, error }
}

#[derive(Default)]
struct Streamed(Mutex<String>);

impl TextSink for Streamed {
    fn text(&self, piece: &str) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push_str(piece);
    }
}
