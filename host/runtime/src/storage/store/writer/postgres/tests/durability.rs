//! Settings of the server that are changed while a host lives. Each test has a server of its own,
//! because they change all of it.

use conclave_test_servers::{PostgresFailure, TestPostgres, postgres_or_skip};

use super::*;
use crate::storage::store::StoreAddress;

fn address(url: &str) -> PostgresAddress {
    let Ok(StoreAddress::Postgres(address)) = url.parse() else { panic!("{url}") };
    address
}

/// A host that does not wait until the server is safe again.
fn impatient(address: &PostgresAddress) -> PostgresEngine {
    let entry = HostEntry { host: "one".to_owned(), ..HostEntry::default() };
    let engine = PostgresEngine::open(address, entry).unwrap();
    PostgresEngine { session: engine.session.with_patience(Duration::ZERO), ..engine }
}

fn refusal(engine: &mut PostgresEngine, writes: &[Write]) -> String {
    let error = engine.commit(&group(writes)).map(drop).unwrap_err();
    assert_eq!(error.kind, SqlErrorKind::Unknown, "{error}");
    error.to_string()
}

#[test]
fn nothing_is_acknowledged_after_the_server_has_become_unsafe() -> Result<(), PostgresFailure> {
    let Some(server) = postgres_or_skip(TestPostgres::start()) else { return Ok(()) };
    let database = server.database()?;
    let mut engine = impatient(&address(&database.url()));
    assert_eq!(commit(&mut engine, &[write("r", 1, 0..1)]), []);

    server.set("fsync", "off")?;
    let second = [write("r", 1, 1..2)];
    let error = refusal(&mut engine, &second);
    assert!(error.contains("ALTER SYSTEM SET fsync = on;"), "{error}");
    assert!(engine.take(&RoomId::from("r"), Millis(0)).is_err(), "a run is not taken either");

    // Once it is safe again, what was sent then counts once.
    server.set("fsync", "on")?;
    assert_eq!(commit(&mut engine, &second), []);
    assert_eq!(database.query(&["SELECT count(*) FROM conclave.events"])?, "2");
    Ok(())
}

#[test]
fn a_connection_stays_synchronous_whatever_is_set_for_others() -> Result<(), PostgresFailure> {
    let Some(server) = postgres_or_skip(TestPostgres::start()) else { return Ok(()) };
    let database = server.database()?;
    let address = address(&database.url());
    let mut engine = impatient(&address);
    let reader = crate::storage::store::postgres::open_reader(&address).unwrap();
    server.set("synchronous_commit", "off")?;
    database.query(&["ALTER ROLE conclave SET synchronous_commit = off"])?;
    let show = "SELECT current_setting('synchronous_commit')";
    let row = engine.session.retry(|link| link.row(show, &[])).unwrap();
    assert_eq!(row.get::<_, &str>(0), "on");
    // A connection for messages is not refused, so it decides for itself.
    for reader in [reader, crate::storage::store::postgres::open_reader(&address).unwrap()] {
        let reader: &dyn crate::storage::store::sql::Sql = &reader;
        assert_eq!(reader.first(show, &[], |row| row.get::<String>(0)).unwrap().unwrap(), "on");
    }
    let error = Session::open(&address).map(drop).unwrap_err().to_string();
    assert!(error.contains("ALTER ROLE … RESET synchronous_commit;"), "{error}");
    Ok(())
}

/// As Patroni does when the standby is gone: whoever waits for it is acknowledged then.
#[test]
fn a_commit_whose_standby_is_given_up_while_it_waits_does_not_count() -> Result<(), PostgresFailure>
{
    let Some(server) = postgres_or_skip(TestPostgres::start()) else { return Ok(()) };
    let database = server.database()?;
    let standby = server.standby()?;
    let both = format!("{},{}", server.address(), standby.address());
    let url = database.url().replace(&server.address().to_string(), &both);
    let mut engine = impatient(&address(&url));
    assert_eq!(commit(&mut engine, &[write("r", 1, 0..1)]), []);
    standby.stop()?;
    std::thread::scope(|scope| -> Result<(), PostgresFailure> {
        let waiting = scope.spawn(|| refusal(&mut engine, &[write("r", 1, 1..2)]));
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        while database.query(&[waits])? == "0" {
            std::thread::yield_now();
        }
        server.set("synchronous_standby_names", "")?;
        let error = waiting.join().unwrap();
        assert!(error.contains("synchronous_standby_names"), "{error}");
        Ok(())
    })
}

#[test]
fn a_server_of_several_acknowledges_nothing_without_a_standby() -> Result<(), PostgresFailure> {
    let Some(server) = postgres_or_skip(TestPostgres::start()) else { return Ok(()) };
    let database = server.database()?;
    let standby = server.standby()?;
    let both = format!("{},{}", server.address(), standby.address());
    let url = database.url().replace(&server.address().to_string(), &both);
    let mut engine = impatient(&address(&url));
    assert_eq!(commit(&mut engine, &[write("r", 1, 0..1)]), []);
    server.set("synchronous_standby_names", "")?;
    let error = refusal(&mut engine, &[write("r", 1, 1..2)]);
    assert!(error.contains("synchronous_standby_names"), "{error}");
    server.set("synchronous_standby_names", "*")?;
    assert_eq!(commit(&mut engine, &[write("r", 1, 1..2)]), []);
    Ok(())
}
