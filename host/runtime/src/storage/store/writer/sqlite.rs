//! SQLite as the committing engine: one process has the file's lock, so it owns every room.

use std::collections::HashSet;
use std::path::PathBuf;

use conclave_core::journal::recovery::Unfinished;
use conclave_core::types::ids::{Millis, RoomId};
use rusqlite::{Connection, TransactionBehavior};

use super::commit::{self, CommitGroup, DatabaseFile};
use super::engine::{Committed, Engine, Taken};
use super::{Collected, Retention, retention};
use crate::storage::store::record::StoredBytes;
use crate::storage::store::schema;
use crate::storage::store::sql::{Sql, SqlError, SqlResult};
use crate::support::overlay_files::count_changes;

/// The maximum number of pages freed at once, which limits the time that the file is locked.
const PAGES: u32 = 10_000;

pub(super) struct SqliteEngine {
    /// The store's folder.
    pub(super) folder: PathBuf,
    pub(super) connection: Connection,
    pub(super) file: DatabaseFile,
}

impl Engine for SqliteEngine {
    fn commit(&mut self, group: &CommitGroup<'_>) -> SqlResult<Committed> {
        let changes = self.connection.total_changes();
        self.file.commit(&mut self.connection, group)?;
        let has_changed = self.connection.total_changes() != changes;
        Ok(Committed { has_changed, refused: Vec::new() })
    }

    fn take(&mut self, _: &RoomId, _: Millis) -> SqlResult<Taken> {
        Ok(Taken::Owned { epoch: 0 })
    }

    fn keep_snapshot(
        &mut self,
        room: &RoomId,
        snapshot: &Unfinished,
        body: &str,
    ) -> SqlResult<bool> {
        commit::keep_snapshot(&mut self.connection, room, snapshot, body)
    }

    fn note_stop(&mut self, at: Millis) -> SqlResult<()> {
        Ok(commit::note_stop(&self.connection, self.file.generation, at)?)
    }

    fn collect(
        &mut self,
        keep: &Retention,
        live: &HashSet<RoomId>,
        stored: &HashSet<String>,
    ) -> SqlResult<Collected> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let has_changes = |run: &str| count_changes(&self.folder, run) > 0;
        let collected = retention::collect(&*transaction, keep, (live, stored), &has_changes)?;
        // A dry run performs the deletions and rolls them back, so its counts are exact.
        if keep.dry {
            transaction.rollback()?;
            return Ok(collected);
        }
        transaction.commit()?;
        // The cache may hold digests of blobs that were just removed.
        self.file.known.clear();
        let tables: &dyn Sql = &self.connection;
        tables.each(&format!("PRAGMA incremental_vacuum({PAGES})"), &[], |_| Ok(()))?;
        Ok(collected)
    }

    /// Makes everything durable, and marks the shutdown as clean, so that the next opening skips
    /// the page check.
    fn close(&mut self, blobs: &[StoredBytes]) {
        let last = CommitGroup { blobs, durable: true, ..CommitGroup::default() };
        let closed = self
            .file
            .commit(&mut self.connection, &last)
            .map_err(SqlError::from)
            .and_then(|()| schema::set_meta(&self.connection, "open", 0));
        if closed.is_ok() {
            self.file.reached.sync();
            // If the checkpoint fails, the records stay in the write-ahead log and are read from
            // there.
            let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        }
    }
}
