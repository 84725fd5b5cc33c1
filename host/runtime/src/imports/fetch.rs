//! Outgoing requests of plugins, through one path for the `fetch` import and `wasi:http`. The core
//! decides about each request and redirect. It is journalled and sent to a checked address, and its
//! response is scrubbed of secrets before use.

mod client;
mod exchange;
mod headers;
mod interim;
mod replay;
#[cfg(test)]
mod tests;

pub(crate) use client::{ConnectionError, send};
pub(crate) use exchange::{ExchangeFailure, FetchExchange};
pub(crate) use headers::{check_method, checked_headers};

use crate::imports::outgoing::Hold;

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
