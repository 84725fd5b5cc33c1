//! The client against a server of our own, over loopback: what is sent, what comes back, and
//! everything that goes wrong between.

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
