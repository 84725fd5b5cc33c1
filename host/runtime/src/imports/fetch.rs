//! Outgoing requests of plugins, through one path for the `fetch` import and `wasi:http`. The core
//! decides about each request and redirect. It is journalled and sent to a checked address, and its
//! response is scrubbed of secrets before use.

mod client;
mod exchange;
mod headers;
mod hold;
mod interim;
mod outgoing;
mod replay;
mod resolver;
#[cfg(test)]
mod tests;
pub(crate) mod wasi_http;

pub(crate) use exchange::{ExchangeFailure, FetchExchange};
pub(crate) use headers::{check_method, checked_headers};
pub(crate) use hold::{Hold, Holding};
pub(crate) use outgoing::FetchClient;

use conclave_core::types::denial::DenialRecord;

/// A whole response without secrets.
pub(crate) struct ScrubbedResponse {
    pub(crate) status: u16,
    /// Headers by lower-case name.
    pub(crate) headers: Vec<(String, String)>,
    /// The source after redirects.
    pub(crate) url: String,
    pub(crate) body: Vec<u8>,
    pub(crate) hold: Hold,
}

/// The fetch state of a call.
#[derive(Default)]
pub(crate) struct Fetching {
    pub(crate) holding: Holding,
    /// Unrecorded refusals of requests that ran beside the guest.
    pub(crate) late: std::sync::Arc<std::sync::Mutex<Vec<DenialRecord>>>,
    pub(crate) face: wasi_http::Face,
}
