//! Servers for tests and soaks: PostgreSQL servers that live no longer than their test, a provider of
//! OpenID Connect, and a proxy that makes the faults of a network. This crate knows nothing of the
//! host.

mod certificates;
mod fault_proxy;
mod oidc;
mod patroni;
mod pooler;
mod postgres;
mod skip;

pub use certificates::{TestAuthority, TestCertificate};
pub use fault_proxy::{Direction, Ending, FaultProxy};
pub use oidc::{ProviderBehaviour, TestProvider, TokenSignature};
pub use patroni::TestPatroni;
pub use pooler::TestPooler;
pub use postgres::{
    PostgresFailure, TestDatabase, TestPostgres, database_of_test_store, postgres_or_skip,
};
pub use skip::is_skipped;
