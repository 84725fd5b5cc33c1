//! The opening of a store: its folder, lock and file, the migration of an older format, and the
//! check of its pages.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "postgres")]
use std::sync::Mutex;

use rusqlite::{Connection, OptionalExtension};

use super::StoreWriter;
use super::commit::DatabaseFile;
use super::engine::Engine;
#[cfg(feature = "postgres")]
use super::postgres::PostgresEngine;
use super::queue::WriterQueue;
use super::reading::ReaderThread;
use super::sqlite::SqliteEngine;
use super::thread::{Thread, WriterState};
#[cfg(feature = "postgres")]
use crate::storage::store::PostgresAddress;
use crate::storage::store::chain::ChainHead;
use crate::storage::store::closing::{CloseTime, StoreThread};
use crate::storage::store::lock::{NotLocked, StoreLock};
#[cfg(feature = "postgres")]
use crate::storage::store::postgres::{self, HostEntry};
use crate::storage::store::reached::ReachedFile;
use crate::storage::store::record::Rows;
use crate::storage::store::sql::{SqlError, SqlResult};
use crate::storage::store::{
    SNAPSHOT_EVERY, Store, StoreAddress, StoreError, StoreOptions, reached, schema, wal,
};
use crate::support::clock::{Clock, SystemClock};

/// The maximum number of stores of one user.
const STORES: usize = 64;
/// The interval of page checks after clean shutdowns, in milliseconds.
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

impl StoreWriter {
    pub(in crate::storage::store) fn open(
        folder: &Path,
        options: &StoreOptions,
    ) -> Result<Self, StoreError> {
        let other =
            |error: io::Error| StoreError::Other { store: folder.into(), what: error.to_string() };
        schema::make_folder(folder).map_err(other)?;
        // The lock comes first, because everything below assumes a single writer.
        let lock = StoreLock::take(folder).map_err(|not| match not {
            NotLocked::InUse(who) => StoreError::InUse { store: folder.into(), who },
            NotLocked::Failed(error) => other(error),
        })?;
        // Checked before SQLite overwrites the lost frames.
        match wal::lost_commits(&schema::wal(folder)).map_err(other)? {
            0 => {}
            commits => {
                return Err(StoreError::Damaged {
                    store: folder.into(),
                    what: wal::damage(commits),
                });
            }
        }
        reached::check(folder)?;
        schema::make(folder).map_err(other)?;
        let failed = |error: SqlError| error.of(folder);
        let of_sqlite = |error: rusqlite::Error| schema::failed(folder, error);
        let mut connection = schema::connect(folder).map_err(of_sqlite)?;
        let found = schema::known(folder, &connection)?;
        // A new file has no pages to check.
        if found > 0 && is_to_be_checked(&connection).map_err(failed)? {
            check(folder, &connection)?;
        }
        schema::migrate(&mut connection, found).map_err(of_sqlite)?;
        limit(&connection, options).map_err(of_sqlite)?;
        let file = begin(folder, &connection).map_err(failed)?;
        // Opened after the migration, so that it sees the present tables.
        let reading = ReaderThread::start(Box::new(schema::look(folder).map_err(of_sqlite)?));
        let engine = SqliteEngine { folder: folder.to_owned(), connection, file };
        let mut writer = Self::start(folder.into(), Box::new(engine), reading, options)?;
        writer.lock = Some(lock);
        Ok(writer)
    }

    /// Opens a store that other hosts write to, too.
    #[cfg(feature = "postgres")]
    pub(in crate::storage::store) fn join(
        address: &PostgresAddress,
        options: &StoreOptions,
    ) -> Result<Self, StoreError> {
        let host = unique_name(&options.host);
        let entry = HostEntry {
            host: host.clone(),
            command: options.command.clone(),
            ..HostEntry::default()
        };
        let place = StoreAddress::Postgres(address.clone());
        let close = CloseTime::default();
        let engine = PostgresEngine::open(address, entry).map_err(|error| error.of(&place))?;
        let engine = engine.with_close(&close);
        let tables = postgres::open_reader(address)?.with_patience(postgres::PATIENCE, &close);
        let reading = ReaderThread::start(Box::new(tables));
        let mut writer = Self::start(place, Box::new(engine), reading, options)?;
        (writer.host, writer.close) = (Some(host), close);
        writer.copies.clone_from(&options.copies);
        Ok(writer)
    }

    /// Starts the thread that commits.
    fn start(
        address: StoreAddress,
        engine: Box<dyn Engine>,
        reading: io::Result<ReaderThread>,
        options: &StoreOptions,
    ) -> Result<Self, StoreError> {
        let other = |error: io::Error| StoreError::Other {
            store: address.clone(),
            what: error.to_string(),
        };
        let queue = WriterQueue::new(options.group_delay);
        let shared = Arc::new(WriterState { queue, ..WriterState::default() });
        let thread = Thread {
            engine,
            shared: Arc::clone(&shared),
            blobs: Vec::new(),
            stored: HashMap::new(),
            rejected: HashMap::new(),
        };
        let reading = reading.map_err(other)?;
        let thread = StoreThread::spawn("store", move || thread.run()).map_err(other)?;
        Ok(Self {
            address,
            host: None,
            shared,
            rows: Rows::default(),
            snapshot_every: options.snapshot_every.unwrap_or(SNAPSHOT_EVERY),
            reading: Some(reading),
            thread: Some(thread),
            close: CloseTime::default(),
            #[cfg(feature = "postgres")]
            copies: None,
            #[cfg(feature = "postgres")]
            working: Mutex::default(),
            lock: None,
            open: Arc::new(()),
        })
    }
}

/// A name that no other process has, which begins with that of the machine.
#[cfg(feature = "postgres")]
fn unique_name(machine: &str) -> String {
    let mut random = [0; 8];
    // Without randomness the start of the process in milliseconds is distinct enough.
    let random = match getrandom::fill(&mut random) {
        Ok(()) => u64::from_ne_bytes(random),
        Err(_) => now().cast_unsigned(),
    };
    let machine = if machine.is_empty() { "host" } else { machine };
    format!("{machine}-{}-{random:016x}", std::process::id())
}

/// Whether to check the pages: after an unclean shutdown, and once a day.
fn is_to_be_checked(connection: &Connection) -> SqlResult<bool> {
    let (open, checked) = (schema::meta(connection, "open")?, schema::meta(connection, "checked")?);
    let since = now().saturating_sub(checked);
    // A clock that was set back gives no valid age, so the check runs.
    Ok(open != 0 || !(0..DAY_MS).contains(&since))
}

fn check(folder: &Path, connection: &Connection) -> Result<(), StoreError> {
    let problems =
        schema::pages(connection, "quick_check").map_err(|error| schema::failed(folder, error))?;
    match problems.first() {
        Some(first) => Err(StoreError::Damaged { store: folder.into(), what: first.clone() }),
        None => schema::set_meta(connection, "checked", now())
            .map_err(|error| schema::failed(folder, error)),
    }
}

fn limit(connection: &Connection, options: &StoreOptions) -> rusqlite::Result<()> {
    let Some(most) = options.most_bytes else { return Ok(()) };
    let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let pages = (i64::try_from(most).unwrap_or(i64::MAX) / page.max(1)).max(1);
    // SQLite never sets the limit below the present size.
    connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
}

/// Begins a new generation: runs of earlier generations that are still open were interrupted.
fn begin(folder: &Path, connection: &Connection) -> SqlResult<DatabaseFile> {
    let generation = schema::meta(connection, "generation")? + 1;
    let transaction = connection.unchecked_transaction()?;
    schema::set_meta(&*transaction, "generation", generation)?;
    schema::set_meta(&*transaction, "open", 1)?;
    if generation == 1 {
        schema::set_meta(&*transaction, "checked", now())?;
        schema::set_meta(&*transaction, "settled", 0)?;
    }
    transaction.commit()?;
    let (head, mut reached) = (head(connection)?, ReachedFile::open(folder));
    // The commit above was synced, and with it all earlier ones.
    reached.note(&head);
    Ok(DatabaseFile { head, generation, reached, ..DatabaseFile::default() })
}

/// Returns the newest line of the audit chain.
fn head(connection: &Connection) -> rusqlite::Result<ChainHead> {
    let newest = connection.query_row(
        "SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1",
        [],
        |row| Ok(ChainHead { number: row.get::<_, i64>(0)?.cast_unsigned(), hash: row.get(1)? }),
    );
    Ok(newest.optional()?.unwrap_or_default())
}

fn now() -> i64 {
    i64::try_from(SystemClock.now().0).unwrap_or(i64::MAX)
}

/// Opens the first of a user's stores that no other process writes. A damaged store stays untouched
/// for its operator, and new runs go to the next one.
pub(in crate::storage::store) fn open_free(stores: &Path) -> Result<Store, StoreError> {
    let mut passed_over = None;
    for number in 1..=STORES {
        match Store::open(stores.join(number.to_string())) {
            Err(
                error @ (StoreError::InUse { .. }
                | StoreError::Damaged { .. }
                | StoreError::Newer { .. }),
            ) => passed_over = Some(error),
            opened => return opened,
        }
    }
    Err(passed_over.unwrap_or_else(|| StoreError::Missing { store: stores.into() }))
}

/// The stores below a folder, in order of their numbers.
pub(in crate::storage::store) fn all(stores: &Path) -> Vec<PathBuf> {
    let numbers = (1..=STORES).map(|number| stores.join(number.to_string()));
    numbers.filter(|folder| schema::path(folder).is_file() || reached::is_noted(folder)).collect()
}
