//! The client against a test server on loopback: requests, responses and all kinds of failures.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "openai/answers.rs"]
mod answers;
#[path = "openai/failures.rs"]
mod failures;
#[path = "openai/keys.rs"]
mod keys;
#[path = "openai/patience.rs"]
mod patience;
#[path = "openai/world.rs"]
mod world;
