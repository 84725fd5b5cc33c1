//! Hostile and ordinary servers and clients, against the whole crate. The servers are
//! `tests/data/mcp/hostile.py`; tests that need Python 3 report that they are skipped without it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "mcp/clients.rs"]
mod clients;
#[path = "mcp/http.rs"]
mod http;
#[path = "mcp/offers.rs"]
mod offers;
#[path = "mcp/servers.rs"]
mod servers;
