//! The laws on the store in a database.

use std::sync::Arc;

use conclave_runtime::kv::KvStore;
use conclave_runtime::store::{PostgresKv, Store, StoreAddress, StoreOptions};
use conclave_store_laws::{LAWS, LawResult, TestedHost, TestedStore, try_all};
use conclave_test_servers::{TestDatabase, TestPostgres, postgres_or_skip};

struct Database(TestDatabase);

impl Database {
    fn address(&self) -> StoreAddress {
        self.0.url().parse().unwrap()
    }
}

impl TestedStore for Database {
    fn open(&self, options: &StoreOptions) -> LawResult<Box<dyn TestedHost>> {
        Ok(Box::new(Store::open_with(self.address(), options)?))
    }

    /// The crashed host never releases its runs. Unlike a real one it renews its lease.
    fn crash(&self, host: Box<dyn TestedHost>) {
        std::mem::forget(host);
    }

    fn end_leases(&self) -> bool {
        let end = "DO $$ BEGIN IF to_regclass('conclave.hosts') IS NOT NULL THEN
            UPDATE conclave.hosts SET until = clock_timestamp() - INTERVAL '1 s'; END IF; END $$";
        self.0.query(&[end]).unwrap();
        true
    }

    fn kv(&self) -> Option<Arc<dyn KvStore>> {
        let StoreAddress::Postgres(address) = self.address() else { return None };
        Some(Arc::new(PostgresKv::new(address)))
    }

    fn change(&self, statement: &str) -> bool {
        self.0.query(&["SET search_path = conclave", statement]).unwrap();
        true
    }
}

#[test]
fn the_store_in_a_database_obeys_all_laws() {
    if postgres_or_skip(TestPostgres::shared()).is_none() {
        return;
    }
    let report = try_all(|| Database(TestPostgres::shared().unwrap()));
    assert_eq!(report.broken, [], "{report}");
    assert_eq!((report.held.len(), report.not_tried.len()), (LAWS.len(), 0), "{report}");
}
