//! Reading a store in PostgreSQL.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::blob_folder::{self, BlobFolder};
use super::connecting::Connecting;
use super::link::Link;
use super::schema::{self, Tables};
use crate::storage::store::closing::CloseTime;
use crate::storage::store::sql::{
    EngineKind, Sql, SqlError, SqlErrorKind, SqlResult, SqlRow, TakeRow, Value,
};
use crate::storage::store::{PostgresAddress, StoreAddress, StoreError};

/// The settings of a connection for questions. A few of them write, such as a message to a run. They
/// read few rows, and where the server expects more it would compile them for a second. A person may
/// take time while a transaction holds a lock or a state, so the server ends none for being idle.
const SETTINGS: &str = "SET search_path = conclave;
    SET default_transaction_isolation = 'read committed';
    SET default_transaction_read_only = off; SET jit = off;
    SET statement_timeout = 0; SET lock_timeout = 0;
    SET idle_in_transaction_session_timeout = 0; SET idle_session_timeout = 0";

pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Connections for questions. A question within the rows of another has its own connection, because
/// the first one is busy.
pub(in crate::storage::store) struct PostgresReader {
    connecting: Connecting,
    /// The folder with the large blobs, if the address names one.
    folder: Option<BlobFolder>,
    /// The free connections.
    links: RefCell<Vec<Link>>,
    /// The state that all connections see during a consistent look.
    snapshot: RefCell<Option<String>>,
    /// The time for which a question is asked again whose connection was lost.
    patience: Duration,
    close: CloseTime,
}

/// The time without a row for a question of a consistent look.
const CHECKING: Duration = Duration::from_secs(3_600);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// Opens the tables of an address for questions.
pub(in crate::storage::store) fn open_reader(
    address: &PostgresAddress,
) -> Result<PostgresReader, StoreError> {
    let place = StoreAddress::Postgres(address.clone());
    let failed = |error: SqlError| error.of(&place);
    let connecting = Connecting::of(address).map_err(failed)?;
    let link = connected(&connecting).map_err(failed)?;
    let known = schema::VERSION;
    match schema::tables(&link).map_err(failed)? {
        Tables::Current => {}
        Tables::Missing => return Err(StoreError::Missing { store: place.clone() }),
        Tables::Older(version) => {
            return Err(StoreError::Older { store: place.clone(), version, known });
        }
        Tables::Newer(version) => {
            return Err(StoreError::Newer { store: place.clone(), version, known });
        }
    }
    let folder = blob_folder::of_reader(&link, address).map_err(failed)?;
    let snapshot = RefCell::default();
    let (links, patience) = (RefCell::new(vec![link]), Duration::ZERO);
    let close = CloseTime::default();
    Ok(PostgresReader { connecting, folder, links, snapshot, patience, close })
}

impl PostgresReader {
    /// The same, which asks a question again for this long if its connection was lost, and no longer
    /// than until its store has closed. A change that may not happen twice is never repeated.
    pub(in crate::storage::store) fn with_patience(
        self,
        patience: Duration,
        close: &CloseTime,
    ) -> Self {
        Self { patience, close: close.clone(), ..self }
    }

    /// Returns a connection that no question shares, for a transaction.
    pub(in crate::storage::store) fn own_link(&self) -> SqlResult<Link> {
        connected(&self.connecting)
    }

    /// Runs one question on a connection that no other question has.
    fn on_a_link<T>(&self, ask: impl FnOnce(&Link) -> SqlResult<T>) -> SqlResult<T> {
        let free = self.links.borrow_mut().pop().filter(|link| !link.is_lost());
        let link = match free {
            Some(link) => link,
            None => {
                let link = connected(&self.connecting)?;
                if let Some(snapshot) = &*self.snapshot.borrow() {
                    link.set_patience(CHECKING);
                    link.batch(&format!("{BEGIN}; SET TRANSACTION SNAPSHOT '{snapshot}'"))?;
                }
                link
            }
        };
        let result = ask(&link);
        if !link.is_lost() {
            self.links.borrow_mut().push(link);
        }
        result
    }
}

pub(super) fn connected(connecting: &Connecting) -> SqlResult<Link> {
    let link = Link::open(connecting, None)?;
    // A message that a person has sent is as safe as a record.
    link.batch(schema::KEEP_SYNCHRONOUS)?;
    link.batch(SETTINGS)?;
    Ok(link)
}

impl Sql for PostgresReader {
    fn query(&self, statement: &str, values: &[Value<'_>], take: TakeRow<'_>) -> SqlResult<()> {
        let until = Instant::now() + self.patience;
        // Statements that begin so only read, but for a call of `give_back`, which may run twice:
        // other questions with a change have it in a `WITH` before their `SELECT`.
        let may_repeat = statement.trim_start().starts_with("SELECT");
        loop {
            let mut has_rows = false;
            let mut take_row = |row: &SqlRow<'_>| {
                has_rows = true;
                take(row)
            };
            let result = self.on_a_link(|link| {
                link.query(statement, values, &mut take_row)?;
                if may_repeat { Ok(()) } else { schema::check_commit(link) }
            });
            let is_lost = |error: &SqlError| {
                matches!(error.kind, SqlErrorKind::Unknown | SqlErrorKind::ReadOnly)
            };
            let is_final = !may_repeat || has_rows || self.snapshot.borrow().is_some();
            if is_final
                || !result.as_ref().is_err_and(is_lost)
                || Instant::now() >= self.close.or(until)
            {
                return result;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn execute(&self, statement: &str, values: &[Value<'_>]) -> SqlResult<u64> {
        self.on_a_link(|link| {
            let changed = link.execute(statement, values)?;
            schema::check_commit(link)?;
            Ok(changed)
        })
    }

    fn begin_snapshot(&self) -> SqlResult<()> {
        let link = connected(&self.connecting)?;
        // A check of everything reads whole tables before its first row.
        link.set_patience(CHECKING);
        link.batch(BEGIN)?;
        let snapshot = link.row("SELECT pg_export_snapshot()", &[])?.try_get(0)?;
        *self.snapshot.borrow_mut() = Some(snapshot);
        *self.links.borrow_mut() = vec![link];
        Ok(())
    }

    fn end_snapshot(&self) {
        self.snapshot.borrow_mut().take();
        // Dropping a connection ends its transaction.
        self.links.borrow_mut().clear();
    }

    fn engine(&self) -> EngineKind {
        EngineKind::Postgres
    }

    fn check_blob_folder(&self) -> SqlResult<()> {
        self.on_a_link(|link| blob_folder::require(link, self.folder.as_ref()))
    }

    fn large_blob(&self, sha256: &str) -> SqlResult<Option<Arc<[u8]>>> {
        let folder = self.folder.as_ref().ok_or_else(blob_folder::not_named)?;
        if let Some(bytes) = folder.read(sha256)? {
            return Ok(Some(bytes));
        }
        // A consistent look may see a row that retention has removed since, and then the file.
        let link = connected(&self.connecting)?;
        if link.rows("SELECT 1 FROM blobs WHERE sha256 = ?1", &[&sha256])?.is_empty() {
            return Ok(None);
        }
        let missing = || {
            let what = format!("the blob {sha256} is not in {}", folder.path().display());
            SqlError::new(SqlErrorKind::Damaged, what)
        };
        // Retention may have moved it aside for a moment.
        folder.read(sha256)?.ok_or_else(missing).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::store::{Store, TestDatabase};

    #[test]
    fn a_question_whose_connection_is_cut_is_asked_again_unless_it_writes() {
        let Some(database) = TestDatabase::new() else { return };
        let address = database.address.clone();
        let _store = Store::open(StoreAddress::Postgres(address.clone())).unwrap();
        // The first call of each sequence ends its own connection.
        database
            .link()
            .batch(
                "CREATE SEQUENCE reads; CREATE SEQUENCE writes;
                 CREATE FUNCTION cut(calls REGCLASS) RETURNS BIGINT LANGUAGE plpgsql AS $$
                 DECLARE call BIGINT := nextval(calls);
                 BEGIN
                     IF call = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
                     RETURN call;
                 END $$",
            )
            .unwrap();
        let reader = open_reader(&address).unwrap();
        let reader: &dyn Sql =
            &reader.with_patience(Duration::from_secs(60), &CloseTime::default());
        let read = reader.first("SELECT cut('reads')", &[], |row| row.get::<i64>(0)).unwrap();
        assert_eq!(read, Some(2));
        let write = "WITH written AS (SELECT cut('writes') AS call) SELECT call FROM written";
        let error = reader.first(write, &[], |row| row.get::<i64>(0)).unwrap_err();
        assert_eq!(error.kind, SqlErrorKind::Unknown, "{error}");
        assert_eq!(database.number("SELECT last_value FROM writes"), 1);
    }
}
