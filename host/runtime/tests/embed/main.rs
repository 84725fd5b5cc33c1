//! The runtime as a library: it uses only what the embedding program provides. No component is
//! needed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod advisors;
mod approving;
mod batches;
#[cfg(feature = "fetch")]
mod endpoints;
mod events;
mod gates;
mod hosts;
mod judging;
mod keys;
mod native;
mod observers;
mod one_tool;
mod panics;
mod plugin_channels;
mod rooms;
mod sessions;
mod support;
#[cfg(feature = "tracing")]
mod telemetry;
