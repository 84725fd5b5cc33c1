//! The laws on the stores of the runtime, and on a store that breaks some.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod broken;
mod memory;
mod postgres;
mod sqlite;
