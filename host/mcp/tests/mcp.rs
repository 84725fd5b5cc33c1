//! Servers and clients that mean harm, and some that do not, over the whole crate. The servers are
//! `tests/data/mcp/hostile.py`: where there is no Python 3, what needs it is skipped and says so.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "mcp/clients.rs"]
mod clients;
#[path = "mcp/servers.rs"]
mod servers;
