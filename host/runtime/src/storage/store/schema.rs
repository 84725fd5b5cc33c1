//! The tables of a store, and the migration of older files. The columns are specified in
//! docs/reference/journal-format.md.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::StoreError;
use super::sql::{Sql, SqlError, SqlResult};
use crate::support::durable_file::{make_folders, sync_folder};

/// The version of the tables below; a newer host wrote a file with a higher one.
pub(super) const SCHEMA: i64 = MIGRATIONS.len() as i64;
/// The name of the file in the store's folder.
const NAME: &str = "log.db";
/// The time a connection waits for a lock on the file.
const PATIENCE: Duration = Duration::from_secs(5);

/// The migrations from each format to the next. A released one never changes.
const MIGRATIONS: [&str; 5] = [
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
    include_str!("schema/5.sql"),
];

pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

/// The path of SQLite's write-ahead log.
pub(super) fn wal(folder: &Path) -> PathBuf {
    folder.join(format!("{NAME}-wal"))
}

/// Creates the folder and an empty file with permissions for their owner only, which SQLite copies
/// to its other files.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    make_folder(folder)?;
    let mut file = std::fs::OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut file, 0o600);
    file.write(true).create(true).truncate(false).open(path(folder))?;
    // Also for an existing file, because its creator may have crashed before the sync.
    sync_folder(folder)?;
    is_ours(&path(folder))
}

pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    make_folders(folder, 0o700)?;
    #[cfg(unix)]
    is_our_folder(folder)?;
    Ok(())
}

/// Checks that only this user can write into the folder: a file placed there could approve calls.
#[cfg(unix)]
fn is_our_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(folder)?;
    if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
        let name = folder.display();
        return Err(io::Error::other(format!(
            "{name} must belong to this user, and nobody else may write into it: chmod 700 {name}"
        )));
    }
    Ok(())
}

#[cfg(unix)]
fn is_ours(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::symlink_metadata(path)?;
    if !metadata.is_file()
        || metadata.uid() != rustix::process::geteuid().as_raw()
        || metadata.mode() & 0o022 != 0
    {
        let name = path.display();
        return Err(io::Error::other(format!(
            "{name} must be a file that belongs to this user, and that nobody else can write"
        )));
    }
    Ok(())
}

#[cfg(not(unix))]
fn is_ours(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Returns a connection for writing.
pub(super) fn connect(folder: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        path(folder),
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(PATIENCE)?;
    // Must be set before the first table. It lets freed pages be returned to the file system later.
    // SQLite writes and syncs it even if it is set already, so only a new file gets it.
    if connection.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0))? == 0 {
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // On macOS an fsync alone does not reach the disk.
    connection.pragma_update(None, "fullfsync", true)?;
    distrust(&connection)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Returns a connection for reading.
pub(super) fn look(folder: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path(folder), flags)?;
    settle(&connection)?;
    match version(&connection) {
        // The folder has no place for the files that readers and a writer share, and no process
        // writes: the file does not change.
        Err(error) if is_unshared(folder, &error) => still(folder),
        Err(error) => Err(error),
        Ok(_) => Ok(connection),
    }
}

/// Returns a connection to an unchanging file in a read-only folder.
fn still(folder: &Path) -> rusqlite::Result<Connection> {
    let mut name = String::from("file:");
    for byte in path(folder).as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                name.push(char::from(*byte))
            }
            _ => name.push_str(&format!("%{byte:02x}")),
        }
    }
    name.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(name, flags)?;
    settle(&connection)?;
    version(&connection)?;
    Ok(connection)
}

fn is_unshared(folder: &Path, error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, ReadOnly};
    let is_that = matches!(error.sqlite_error_code(), Some(CannotOpen | ReadOnly));
    let wal = folder.join(format!("{NAME}-wal"));
    is_that
        && !super::lock::is_held(folder)
        && std::fs::metadata(wal).map_or(true, |wal| wal.len() == 0)
}

fn settle(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(PATIENCE)?;
    distrust(connection)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

/// Disables functions that the file's own schema could call.
fn distrust(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "trusted_schema", false)
}

pub(super) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Returns the version of a file that this host can read; 0 for an empty file.
pub(super) fn known(folder: &Path, connection: &Connection) -> Result<i64, StoreError> {
    let found = version(connection).map_err(|error| failed(folder, error))?;
    if !(0..=SCHEMA).contains(&found) {
        return Err(StoreError::Newer { store: folder.into(), version: found, known: SCHEMA });
    }
    Ok(found)
}

/// Migrates the file to this host's format, in one transaction.
pub(super) fn migrate(connection: &mut Connection, found: i64) -> rusqlite::Result<()> {
    if found == SCHEMA {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for migration in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "user_version", SCHEMA)?;
    transaction.commit()
}

/// Returns the tables, indexes, triggers and views of a file by kind and name, such as
/// `table rooms`, with the statement that made each. SQLite's own are left out.
pub(super) fn objects(tables: &dyn Sql) -> SqlResult<BTreeMap<String, String>> {
    let all = "SELECT type || ' ' || name, sql FROM sqlite_schema WHERE sql IS NOT NULL";
    Ok(tables.rows(all, &[], |row| Ok((row.get(0)?, row.get(1)?)))?.into_iter().collect())
}

/// Returns the same for the tables of this host.
pub(super) fn own_objects() -> SqlResult<BTreeMap<String, String>> {
    let mut connection = Connection::open_in_memory()?;
    migrate(&mut connection, 0)?;
    objects(&connection)
}

/// Returns a number of the table `meta`; 0 if it is not there.
pub(super) fn meta(tables: &dyn Sql, name: &str) -> SqlResult<i64> {
    let value = "SELECT value FROM meta WHERE name = ?1";
    Ok(tables.first(value, &[name.into()], |row| row.get(0))?.unwrap_or(0))
}

pub(super) fn set_meta(tables: &dyn Sql, name: &str, value: i64) -> SqlResult<()> {
    let set = "INSERT INTO meta (name, value) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    tables.execute(set, &[name.into(), value.into()]).map(drop)
}

/// Returns SQLite's problems of a store's pages; empty if there are none. `quick_check` reads
/// pages, `integrity_check` also indexes.
pub(super) fn pages(tables: &dyn Sql, check: &str) -> SqlResult<Vec<String>> {
    let lines = tables.rows(&format!("PRAGMA {check}(20)"), &[], |row| row.get::<String>(0))?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

/// Converts an error of SQLite to one of the store.
pub(super) fn failed(folder: &Path, error: impl Into<SqlError>) -> StoreError {
    error.into().of(folder)
}
