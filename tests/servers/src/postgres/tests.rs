use std::net::TcpStream;

use super::*;

const TABLE: &str = "CREATE TABLE rows (value int)";
const COUNT: &str = "SELECT count(*) FROM rows";

fn insert(value: u32) -> String {
    format!("INSERT INTO rows VALUES ({value})")
}

#[test]
fn a_crash_loses_no_committed_row() -> Result<(), PostgresFailure> {
    let Some(server) = postgres_or_skip(TestPostgres::start()) else { return Ok(()) };
    let (one, two) = (server.database()?, server.database()?);
    one.query(&[TABLE, &insert(1)])?;
    assert!(two.query(&[COUNT]).is_err(), "each database is a new one");
    let address = server.address();

    server.restart()?;
    assert_eq!(one.query(&[COUNT])?, "1");
    server.stop()?;
    assert!(one.query(&[COUNT]).is_err(), "it is stopped");
    server.restart()?;
    assert_eq!((one.query(&[COUNT])?, server.address()), ("1".to_owned(), address));

    server.set("synchronous_commit", "remote_apply")?;
    assert_eq!(one.query(&["SHOW synchronous_commit", "SHOW fsync"])?, "remote_apply\non");
    assert!(server.set("synchronous_commit", "perhaps").is_err());

    let folder = server.folder.path().to_owned();
    drop(server);
    assert!(!folder.exists() && TcpStream::connect(address).is_err(), "nothing is left behind");
    Ok(())
}

#[test]
fn a_promoted_standby_has_every_committed_row() -> Result<(), PostgresFailure> {
    let Some(primary) = postgres_or_skip(TestPostgres::start()) else { return Ok(()) };
    let database = primary.database()?;
    database.query(&[TABLE])?;
    let standby = primary.standby()?;
    for value in 0..20 {
        database.query(&[&insert(value)])?;
    }
    primary.stop()?;
    standby.promote()?;
    let after = |sql: &str| database.query_through(standby.address(), &[sql]);
    assert_eq!(after(COUNT)?, "20");
    after(&insert(20))?;
    assert_eq!(after(COUNT)?, "21", "it takes writes, and waits for no other standby");
    assert!(standby.promote().is_err(), "it is no standby any more");
    Ok(())
}

#[test]
fn a_database_of_a_shared_server_is_removed_after_its_test() -> Result<(), PostgresFailure> {
    let Some(server) = postgres_or_skip(TestPostgres::start()) else { return Ok(()) };
    let database = TestDatabase::temporary(server.installation.clone(), &server.url())?;
    database.query(&[TABLE])?;
    let databases = "SELECT count(*) FROM pg_database WHERE datname LIKE 'test%'";
    assert_eq!(server.query(&[databases])?, "1");
    drop(database);
    assert_eq!(server.query(&[databases])?, "0");
    Ok(())
}
