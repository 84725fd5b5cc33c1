//! Databases for tests.

use super::Link;
use crate::storage::store::{PostgresAddress, StoreAddress};

/// The server of these tests; without it they do nothing.
const SERVER: &str = "CONCLAVE_TEST_POSTGRES";

/// A database of one test's own.
pub(crate) struct TestDatabase {
    pub(crate) address: PostgresAddress,
    admin: PostgresAddress,
    pub(crate) name: String,
}

impl TestDatabase {
    pub(crate) fn new() -> Option<Self> {
        let url = std::env::var(SERVER).ok()?;
        let mut random = [0; 8];
        getrandom::fill(&mut random).unwrap();
        let name = format!("conclave_{:016x}", u64::from_ne_bytes(random));
        let admin = address(&url);
        link(&admin).batch(&format!("CREATE DATABASE {name}")).unwrap();
        let (start, options) = url.split_once('?').unwrap_or((&url, ""));
        let start = start.rsplit_once('/').unwrap().0;
        let address = address(&format!("{start}/{name}?{options}"));
        Some(Self { address, admin, name })
    }

    pub(crate) fn link(&self) -> Link {
        let link = link(&self.address);
        link.batch("SET search_path = conclave").unwrap();
        link
    }

    pub(crate) fn number(&self, query: &str) -> i64 {
        self.link().row(query, &[]).unwrap().get(0)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let _ = link(&self.admin).batch(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}

fn address(url: &str) -> PostgresAddress {
    let StoreAddress::Postgres(address) = url.parse().unwrap() else { panic!("{url}") };
    address
}

fn link(address: &PostgresAddress) -> Link {
    Link::to(address).unwrap()
}
