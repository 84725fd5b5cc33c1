//! The laws on the stores of the runtime, and on a store that breaks some.

mod broken;
mod memory;
mod postgres;
mod sqlite;
