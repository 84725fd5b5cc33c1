//! Connections through PgBouncer.

use conclave_runtime::store::{Store, StoreAddress, StoreReader};
use conclave_test_servers::{PostgresFailure, TestPooler, TestPostgres, postgres_or_skip};

use crate::support::{append, open, opened};

#[test]
fn a_pooler_of_sessions_is_used_and_one_of_transactions_is_refused() -> Result<(), PostgresFailure>
{
    let Some(server) = postgres_or_skip(TestPostgres::start()) else { return Ok(()) };
    let Some(sessions) = postgres_or_skip(TestPooler::before(&server, "session")) else {
        return Ok(());
    };
    let database = server.database()?;
    let address = |pooler: &TestPooler| -> StoreAddress {
        database.url_through(pooler.address()).parse().unwrap()
    };
    let of_sessions = address(&sessions);
    for room in ["one", "two"] {
        let store = Store::open(&of_sessions).unwrap();
        let mut journal = open(&store, room);
        let mut record = std::sync::Arc::unwrap_or_clone(opened(room, "hello"));
        record.epoch = journal.epoch();
        append(&mut *journal, &[record.into()]).unwrap();
        drop(journal);
        drop(store);
        let reader = StoreReader::open(&of_sessions).unwrap();
        assert!(reader.check().is_ok(), "{room}");
    }
    let transactions = TestPooler::before(&server, "transaction")?;
    let refusal = Store::open(address(&transactions)).map(drop).unwrap_err().to_string();
    assert!(refusal.contains("pool_mode = session"), "{refusal}");
    Ok(())
}
