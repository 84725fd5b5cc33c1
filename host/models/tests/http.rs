//! The client against a test server on loopback: requests, responses and all kinds of failures.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "http/answers.rs"]
mod answers;
#[path = "http/failures.rs"]
mod failures;
#[path = "http/keys.rs"]
mod keys;
#[path = "http/messages_api.rs"]
mod messages_api;
#[path = "http/patience.rs"]
mod patience;
#[path = "http/responses_api.rs"]
mod responses_api;
#[path = "http/servers.rs"]
mod servers;
#[path = "http/world.rs"]
mod world;
