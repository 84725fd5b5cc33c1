//! Servers for tests and soaks: PostgreSQL servers that live no longer than their test, and a proxy
//! that makes the faults of a network. This crate knows nothing of the host.

mod fault_proxy;
mod postgres;
mod skip;

pub use fault_proxy::{Direction, Ending, FaultProxy};
pub use postgres::{
    PostgresFailure, TestDatabase, TestPostgres, database_of_test_store, postgres_or_skip,
};
pub use skip::is_skipped;
