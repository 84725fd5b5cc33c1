//! Requests of plugins on their way out: one way for both faces, the `fetch` import and
//! `wasi:http`. Each request and each redirect is decided on by the core, journalled, sent to an
//! address that was looked at, and looked through for secrets before anybody sees it. What may be
//! sent is not decided here.

mod client;
mod exchange;
mod headers;
mod hold;
mod interim;
mod outgoing;
mod past;
mod resolver;
#[cfg(test)]
mod tests;
pub(crate) mod wasi_http;

pub(crate) use exchange::{ExchangeFailure, FetchExchange};
pub(crate) use headers::{check_method, checked_headers};
pub(crate) use hold::{Hold, Holding};
pub(crate) use outgoing::FetchClient;

use conclave_core::types::denial::DenialRecord;

/// An answer, whole, with no secret in it.
pub(crate) struct ScrubbedResponse {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// Where it came from, after redirects.
    pub(crate) url: String,
    pub(crate) body: Vec<u8>,
    pub(crate) hold: Hold,
}

/// What a call has of requests under way and of answers.
#[derive(Default)]
pub(crate) struct Fetching {
    pub(crate) holding: Holding,
    /// Refusals of requests that went on beside the guest, not yet recorded.
    pub(crate) late: std::sync::Arc<std::sync::Mutex<Vec<DenialRecord>>>,
    pub(crate) face: wasi_http::Face,
}
