//! Reads a store without writing to it, while another process may write.

mod checks;
mod copy;
mod derived;
pub(super) mod lists;
pub(super) mod run_records;
mod totals;

use std::path::{Path, PathBuf};

use conclave_core::journal::ownership::one_history;
use conclave_core::overlay::apply::ChangeDecision;
#[cfg(feature = "postgres")]
use conclave_core::overlay::apply::summarized;
use conclave_core::protocol::event::Record;
use conclave_core::types::ids::{ControlId, Millis, Principal, RoomId};
use conclave_core::types::usage::Spent;
use rusqlite::Connection;
use serde::Serialize;

pub use self::run_records::{NoRunPosition, RunPosition, RunRecord};
pub use self::totals::{RunSpent, RunTotals};

#[cfg(feature = "postgres")]
use super::overlays;
use super::rows::{DamagedRow, QuestionRow, RoomRow, RunRow, WaitRow};
use super::sql::{Sql, SqlResult};
use super::writer::{RemovedRun, StoreCheck};
use super::{ControlMessage, Mail, StoreAddress, StoreError, lock, reached, read, schema, wal};
use crate::storage::overlay;

/// A filter for runs; fields that are `None` match every run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFilter {
    /// `running`, `interrupted`, or an ending's word such as `done`.
    pub status: Option<String>,
    /// A plugin that is the agent of one of the run's tasks.
    pub agent: Option<String>,
    /// A part of the first message, case-insensitive.
    pub text: Option<String>,
    /// The minimum cost in micro-US-dollars.
    pub cost: Option<u64>,
    /// The earliest start of a run.
    pub since: Option<Millis>,
    /// The config of the runs, as an absolute path.
    pub config: Option<PathBuf>,
    /// The principal on whose behalf the runs act.
    pub principal: Option<Principal>,
    /// The place behind which the list goes on.
    pub after: Option<RunListPlace>,
    /// The maximum number of runs, newest first.
    pub most: Option<usize>,
}

/// The place of a run in the list of runs. A list goes on behind it also when the run was removed
/// meanwhile; it may then repeat runs that started in the same millisecond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunListPlace {
    /// The time of the run's first record.
    pub started: Millis,
    /// The run.
    pub run: RoomId,
}

impl std::fmt::Display for RunListPlace {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{}", self.started.0, self.run)
    }
}

/// The text is not one that a place in a list was written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a place in the list of runs is written as `STARTED.RUN`")]
pub struct NoRunListPlace;

impl std::str::FromStr for RunListPlace {
    type Err = NoRunListPlace;

    fn from_str(text: &str) -> Result<Self, NoRunListPlace> {
        let (started, run) = text.split_once('.').ok_or(NoRunListPlace)?;
        // The engine's numbers have a sign.
        let started = started.parse::<i64>().ok().and_then(|at| u64::try_from(at).ok());
        let started = started.filter(|_| !run.is_empty()).ok_or(NoRunListPlace)?;
        Ok(Self { started: Millis(started), run: RoomId::from(run) })
    }
}

/// The rooms that match a name from the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunMatch {
    /// The room of this name, or the only one whose name begins with it.
    One(RoomId),
    /// The name is a prefix of several rooms.
    Several(Vec<RoomId>),
    /// No room has this name or prefix.
    Nothing,
}

/// Rows of a list, and those of its rows that cannot be read.
pub type WithDamaged<T> = (Vec<T>, Vec<DamagedRow>);

/// A line of an audit chain: one for each record, and in a database for each removal by retention.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditRow {
    /// The number of the chain, from 1. A store with one writing process has one.
    pub chain: u64,
    /// The line's number from 1, without gaps, over all rooms whose records are in the chain.
    pub number: u64,
    /// The room of the record.
    pub room: RoomId,
    /// The number of the record in its room's journal, from 0.
    pub seq: u64,
    /// The time of the record.
    pub at: Millis,
    /// The hash over the line before and this record, in lower-case hexadecimal.
    pub hash: String,
    /// The record; `None` if retention removed it, it cannot be parsed, or the line notes a removal.
    pub record: Option<Record>,
}

/// An open, read-only store.
pub struct StoreReader {
    address: StoreAddress,
    pub(super) tables: Box<dyn Sql>,
}

impl StoreReader {
    /// Opens a store for reading.
    ///
    /// # Errors
    /// `Missing`, `Newer`, `Damaged`, or `Other` for an error of the operating system or the
    /// database.
    pub fn open(store: impl Into<StoreAddress>) -> Result<Self, StoreError> {
        let address = store.into();
        let tables = match &address {
            StoreAddress::Folder(folder) => Box::new(open_folder(folder)?),
            StoreAddress::Postgres(_) => open_database(&address)?,
        };
        Ok(Self { address, tables })
    }

    /// The store's address.
    #[must_use]
    pub fn address(&self) -> &StoreAddress {
        &self.address
    }

    /// The store's folder; `None` for a database.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.address.folder()
    }

    /// Returns the runs that match a filter, newest first, without those whose rows cannot be read.
    ///
    /// # Errors
    /// `Damaged`, `Tables`, `Unreachable`, or `Other` for an error of the database; the same for all
    /// methods below.
    pub fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        self.run_list(filter).map(|(runs, _)| runs)
    }

    /// Does the same, and returns the rows of runs that cannot be read beside the others, whether
    /// they match or not.
    pub fn run_list(&self, filter: &RunFilter) -> Result<WithDamaged<RunRow>, StoreError> {
        self.of(lists::runs(self, filter))
    }

    /// Returns the row of a run; `None` if it is not stored.
    pub fn run(&self, run: &RoomId) -> Result<Option<RunRow>, StoreError> {
        self.of(lists::one_run(self, run))
    }

    /// Returns the run or room with this name or prefix.
    pub fn find(&self, name: &str) -> Result<RunMatch, StoreError> {
        self.of(lists::find(&*self.tables, name))
    }

    /// Returns the runs that retention removed, the oldest removal first.
    pub fn removed_runs(&self) -> Result<Vec<RemovedRun>, StoreError> {
        self.of(checks::removed_runs(&*self.tables))
    }

    /// Returns the rooms of a run, the root first.
    pub fn rooms(&self, run: &RoomId) -> Result<Vec<RoomRow>, StoreError> {
        self.of(lists::rooms(self, run))
    }

    /// Returns the records of one room that count, each checked against its hash; empty if there
    /// is no such room.
    pub fn records(&self, room: &RoomId) -> Result<Vec<Record>, StoreError> {
        let records = read::records(&*self.tables, room.as_str(), 0);
        let records = records.map_err(|error| error.of(&self.address))?;
        Ok(one_history(records).collect())
    }

    /// Returns at most `most` records of one room from this number on, each checked against its
    /// hash. Of a store that hosts share, those of an older epoch than one before them are void;
    /// records before `first` are not looked at.
    pub fn records_from(
        &self,
        room: &RoomId,
        first: u64,
        most: u64,
    ) -> Result<Vec<Record>, StoreError> {
        let records = read::some_records(&*self.tables, room.as_str(), first, most);
        records.map_err(|error| error.of(&self.address))
    }

    /// Returns at most `most` records of all rooms of a run that count, in the order in which they
    /// became durable, from the first one after a position.
    pub fn run_records(
        &self,
        run: &RoomId,
        after: Option<RunPosition>,
        most: u64,
    ) -> Result<Vec<RunRecord>, StoreError> {
        let records = run_records::run_records(&*self.tables, run, after, most);
        records.map_err(|error| error.of(&self.address))
    }

    /// Returns the position behind a run's newest record; `None` if it has none.
    pub fn run_end(&self, run: &RoomId) -> Result<Option<RunPosition>, StoreError> {
        self.of(run_records::run_end(&*self.tables, run))
    }

    /// Returns the figures of all runs of a config, which is an absolute path.
    pub fn run_totals(&self, config: &Path) -> Result<RunTotals, StoreError> {
        self.of(totals::run_totals(self, config))
    }

    /// Returns the runs of a principal and a config, which is an absolute path, with a record since
    /// this time, and what each has spent since its start.
    pub fn spent_since(
        &self,
        config: &Path,
        principal: &Principal,
        since: Millis,
    ) -> Result<Vec<RunSpent>, StoreError> {
        self.of(totals::spent_since(&*self.tables, (config, principal), since))
    }

    /// Returns what a run had spent before a moment, from its records.
    pub fn spent_before(&self, run: &RoomId, at: Millis) -> Result<Spent, StoreError> {
        totals::spent_before(self, run, at)
    }

    /// Returns the records as lines of JSON in the format of a JSON-lines journal, of any rules
    /// version.
    pub fn lines(&self, room: &RoomId) -> Result<Vec<String>, StoreError> {
        read::lines(&*self.tables, room.as_str()).map_err(|error| error.of(&self.address))
    }

    /// Returns the bytes of an attachment; `None` if the store does not have it, or
    /// other bytes in its place.
    pub fn blob(&self, sha256: &str) -> Result<Option<std::sync::Arc<[u8]>>, StoreError> {
        self.of(read::attachment(&*self.tables, sha256))
    }

    /// Returns the time in milliseconds in which the run was open and no host ran it, from its root
    /// room.
    pub fn down_ms(&self, run: &RoomId) -> Result<u64, StoreError> {
        self.of(lists::down_ms(&*self.tables, run))
    }

    /// The control messages of the store.
    #[must_use]
    pub fn mail(&self) -> Mail<'_> {
        match &self.address {
            StoreAddress::Folder(folder) => Mail::in_folder(folder),
            #[cfg(feature = "postgres")]
            StoreAddress::Postgres(_) => Mail::in_tables(&*self.tables, &self.address),
            #[cfg(not(feature = "postgres"))]
            StoreAddress::Postgres(_) => Mail::in_folder(Path::new("")),
        }
    }

    /// Whether a process has runs of the store in progress, and receives control messages for them.
    pub fn is_in_use(&self) -> Result<bool, StoreError> {
        match self.folder() {
            Some(folder) => Ok(lock::is_held(folder)),
            #[cfg(feature = "postgres")]
            None => self.of(self.tables.has_row("SELECT 1 FROM hosts WHERE until > now()", &[])),
            #[cfg(not(feature = "postgres"))]
            None => Ok(false),
        }
    }

    /// The number of files that a run changed in overlays and that wait for a person, as
    /// [`pending_changes`](crate::overlay::pending_changes).
    pub fn pending_changes(&self, run: &RoomId) -> Result<usize, StoreError> {
        match self.folder() {
            Some(folder) => Ok(overlay::pending_changes(folder, run)),
            #[cfg(feature = "postgres")]
            None => self.of(overlays::pending(&*self.tables, run)),
            #[cfg(not(feature = "postgres"))]
            None => Ok(0),
        }
    }

    /// The number of those that cannot be applied as they are, as
    /// [`blocked_changes`](crate::overlay::blocked_changes).
    pub fn blocked_changes(&self, run: &RoomId) -> Result<usize, StoreError> {
        match self.folder() {
            Some(folder) => Ok(overlay::blocked_changes(folder, run)),
            #[cfg(feature = "postgres")]
            None => self.of(overlays::blocked(&*self.tables, run)),
            #[cfg(not(feature = "postgres"))]
            None => Ok(0),
        }
    }

    /// Returns what persons decided about a run's changes, oldest first.
    pub fn change_decisions(&self, run: &RoomId) -> Result<Vec<ChangeDecision>, StoreError> {
        match self.folder() {
            Some(folder) => {
                let decisions = overlay::change_decisions(folder, run);
                let store = self.address.clone();
                decisions.map_err(|error| StoreError::Other { store, what: error.to_string() })
            }
            #[cfg(feature = "postgres")]
            None => {
                let decisions = self.of(overlays::decisions(&*self.tables, run))?;
                let has_pending = self.pending_changes(run)? > 0;
                Ok(summarized(decisions, || has_pending))
            }
            #[cfg(not(feature = "postgres"))]
            None => Ok(Vec::new()),
        }
    }

    /// Whether a room has journalled this control message.
    pub fn has_received(&self, room: &RoomId, id: &ControlId) -> Result<bool, StoreError> {
        self.of(lists::has_received(&*self.tables, room, id))
    }

    /// Returns the pending work of one run's rooms, or of all rooms, oldest first, without rows that
    /// cannot be read.
    pub fn waits(&self, run: Option<&RoomId>) -> Result<Vec<WaitRow>, StoreError> {
        self.of(lists::readable_waits(self, run)).map(|(waits, _)| waits)
    }

    /// Returns the pending approvals and top-ups of one run's rooms, or of all rooms, oldest first,
    /// each with its request as the records lead to it. The list itself is not in the audit chain,
    /// so no decision is taken from it alone.
    pub fn approvals(&self, run: Option<&RoomId>) -> Result<Vec<WaitRow>, StoreError> {
        self.approval_list(run).map(|(approvals, _)| approvals)
    }

    /// Does the same, and returns the rows of pending work that cannot be read beside the others.
    pub fn approval_list(&self, run: Option<&RoomId>) -> Result<WithDamaged<WaitRow>, StoreError> {
        self.of(lists::approvals(self, run))
    }

    /// Returns the pending work of one run's rooms, or of all rooms, that waits for a person, oldest
    /// first, and the rows that cannot be read. No records are read for it.
    pub fn waits_for_people(
        &self,
        run: Option<&RoomId>,
    ) -> Result<WithDamaged<WaitRow>, StoreError> {
        let (mut waits, damaged) = self.of(lists::readable_waits(self, run))?;
        waits.retain(WaitRow::asks_person);
        Ok((waits, damaged))
    }

    /// Returns each of these rows with its question: an approval, a limit increase or a question of a
    /// task to its user, as the records of its room lead to it, with a decision that is on its way.
    /// The rooms whose records cannot be folded are beside them.
    ///
    /// A conversation that waits for its next message asks a question, too.
    #[must_use]
    pub fn with_questions(&self, waits: Vec<WaitRow>) -> WithDamaged<QuestionRow> {
        let (mut rows, damaged) = self.with_recorded_questions(waits);
        self.mark_on_their_way(&mut rows);
        (rows, damaged)
    }

    /// Does the same, without the decisions that are on their way. Such a question stays as it is
    /// for as long as the row of its wait is there.
    #[must_use]
    pub fn with_recorded_questions(&self, waits: Vec<WaitRow>) -> WithDamaged<QuestionRow> {
        lists::with_questions(self, waits)
    }

    /// Marks the questions about which a decision is on its way.
    pub fn mark_on_their_way(&self, rows: &mut [QuestionRow]) {
        if rows.is_empty() {
            return;
        }
        // Unreadable mail is reported by the process that takes it out.
        let decisions = self.mail().decisions().unwrap_or_default();
        for question in rows.iter_mut().filter_map(|row| row.question.as_mut()) {
            let is_about = |mail: &&ControlMessage| {
                mail.room == question.room && mail.word.settles() == Some(question.call)
            };
            if let Some(mail) = decisions.iter().find(is_about) {
                question.mark_on_its_way(mail.clone().into_command());
            }
        }
    }

    /// Returns at most `most` lines of an audit chain, from `first` on.
    pub fn audit(&self, chain: u64, first: u64, most: usize) -> Result<Vec<AuditRow>, StoreError> {
        self.of(lists::audit(&*self.tables, chain, first, most))
    }

    /// Checks all chains and every record against them, and that each hash that was noted earlier is
    /// one of a line.
    pub fn verify(&self, noted_heads: &[&str]) -> Result<StoreCheck, StoreError> {
        self.with_log(|connection| checks::verify(connection, noted_heads))
    }

    /// Checks every page of the file, every hash and every reference.
    pub fn check(&self) -> Result<StoreCheck, StoreError> {
        self.with_log(checks::check)
    }

    /// Runs a check and adds the losses that SQLite does not report. These are missing acknowledged
    /// lines and, unless a process writes, unread frames of its log.
    fn with_log(
        &self,
        look: impl FnOnce(&dyn Sql) -> SqlResult<StoreCheck>,
    ) -> Result<StoreCheck, StoreError> {
        let Some(folder) = self.folder() else { return self.of(look(&*self.tables)) };
        // Read before the check begins: a process that writes meanwhile only adds to it.
        let reached = reached::read(folder);
        let mut checked = self.of(look(&*self.tables))?;
        if let Some(reached) = reached {
            checked.problems.splice(0..0, self.of(reached.lacking(&*self.tables))?);
        }
        let is_held = lock::is_held(folder);
        let lost_commits =
            if is_held { 0 } else { wal::lost_commits(&schema::wal(folder)).unwrap_or(0) };
        if lost_commits > 0 {
            checked.problems.insert(0, wal::damage(lost_commits));
        }
        Ok(checked)
    }

    /// Copies the store's present state into a new folder, even while a process writes.
    pub fn backup(&self, to: &Path) -> Result<(), StoreError> {
        copy::backup(self, to)
    }

    pub(super) fn of<T>(&self, result: SqlResult<T>) -> Result<T, StoreError> {
        result.map_err(|error| error.of(&self.address))
    }

    /// Returns the value by which a row shows that a process has its run open; `None` if no process
    /// writes. Where one process writes, it is that process's generation.
    fn live(&self) -> SqlResult<Option<i64>> {
        match self.folder() {
            Some(folder) if lock::is_held(folder) => {
                schema::meta(&*self.tables, "generation").map(Some)
            }
            Some(_) => Ok(None),
            None => Ok(Some(1)),
        }
    }
}

fn open_folder(folder: &Path) -> Result<Connection, StoreError> {
    let missing = || StoreError::Missing { store: folder.into() };
    if reached::is_empty(folder) {
        return Err(reached::damage_of_lost_log(folder).unwrap_or_else(missing));
    }
    let connection = schema::look(folder).map_err(|error| schema::failed(folder, error))?;
    match schema::known(folder, &connection)? {
        // Its process is about to create the tables, or ended before it did: frames of its
        // write-ahead log are then no damage, because nothing was committed.
        0 => Err(reached::untabled(folder).unwrap_or_else(missing)),
        schema::SCHEMA => Ok(connection),
        found => {
            Err(StoreError::Older { store: folder.into(), version: found, known: schema::SCHEMA })
        }
    }
}

#[cfg(feature = "postgres")]
fn open_database(address: &StoreAddress) -> Result<Box<dyn Sql>, StoreError> {
    let StoreAddress::Postgres(address) = address else {
        return Err(StoreError::Missing { store: address.clone() });
    };
    Ok(Box::new(super::postgres::open_reader(address)?))
}

#[cfg(not(feature = "postgres"))]
fn open_database(address: &StoreAddress) -> Result<Box<dyn Sql>, StoreError> {
    let what = super::AddressError::NoPostgres.to_string();
    Err(StoreError::Other { store: address.clone(), what })
}
