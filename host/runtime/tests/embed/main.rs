//! The runtime as a library: what an embedding program puts in, and that nothing else comes in or
//! goes out. No component is needed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod advisors;
mod approving;
mod batches;
mod events;
mod gates;
mod hosts;
mod keys;
mod native;
mod one_tool;
mod panics;
mod rooms;
mod sessions;
mod support;
#[cfg(feature = "tracing")]
mod telemetry;
