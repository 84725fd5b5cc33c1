//! Databases for tests.

use conclave_test_servers::{TestPostgres, postgres_or_skip};

use super::Link;
use crate::storage::store::{PostgresAddress, StoreAddress};

/// A database of one test's own.
pub(crate) struct TestDatabase {
    pub(crate) address: PostgresAddress,
    /// The database goes with it.
    _database: conclave_test_servers::TestDatabase,
}

impl TestDatabase {
    /// A new database; `None` where no PostgreSQL is installed.
    pub(crate) fn new() -> Option<Self> {
        let database = postgres_or_skip(TestPostgres::shared())?;
        let StoreAddress::Postgres(address) = database.url().parse().unwrap() else {
            panic!("{}", database.url())
        };
        Some(Self { address, _database: database })
    }

    pub(crate) fn name(&self) -> &str {
        self.address.url().path().trim_start_matches('/')
    }

    pub(crate) fn link(&self) -> Link {
        let link = Link::to(&self.address).unwrap();
        link.batch("SET search_path = conclave").unwrap();
        link
    }

    pub(crate) fn number(&self, query: &str) -> i64 {
        self.link().row(query, &[]).unwrap().get(0)
    }
}
