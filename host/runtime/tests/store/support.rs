//! Records of a fictitious run, and stores for them.

use std::path::Path;
use std::sync::Arc;

use conclave_runtime::event::{Event, Principal, RULES, Record, RunOpening};
use conclave_runtime::ids::{CallId, Millis, RoomId, TaskName};
use conclave_runtime::journal::{
    Journal, JournalBatch, JournalFailure, Journals, Keeping, Reopened,
};
use conclave_runtime::outcome::{Outcome, Status};
use conclave_runtime::policy_rules::Policy;
use conclave_runtime::room_secret::RoomSecret;
use conclave_runtime::setup::Setup;
use conclave_runtime::store::{
    Durability, RunOrigin, Store, StoreAddress, StoreCheck, StoreReader,
};
use conclave_runtime::usage::Spent;
#[cfg(feature = "postgres")]
use conclave_test_servers::TestPostgres;
use conclave_test_servers::{TestDatabase, database_of_test_store};
use futures_executor::block_on;

/// The secret of every room in these tests.
pub(crate) const SECRET: RoomSecret = RoomSecret::new([0x5e; RoomSecret::LENGTH]);

/// The place of a test's store: a folder, or a database if `CONCLAVE_TEST_STORE` is `postgres`.
pub(crate) struct StorePlace {
    address: StoreAddress,
    folder: tempfile::TempDir,
    database: Option<TestDatabase>,
}

impl StorePlace {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = database_of_test_store();
        let address = match &database {
            Some(database) => database.url().parse().unwrap(),
            None => folder.path().into(),
        };
        Self { address, folder, database }
    }

    /// A database of its own; `None` where no PostgreSQL is installed.
    #[cfg(feature = "postgres")]
    pub(crate) fn in_database() -> Option<Self> {
        let database = conclave_test_servers::postgres_or_skip(TestPostgres::shared())?;
        let address = database.url().parse().unwrap();
        Some(Self { address, database: Some(database), ..Self::new() })
    }

    pub(crate) fn address(&self) -> &StoreAddress {
        &self.address
    }

    /// The address as a word for another process.
    pub(crate) fn word(&self) -> String {
        match &self.database {
            Some(database) => database.url(),
            None => self.folder.path().to_string_lossy().into_owned(),
        }
    }

    /// Changes the tables by hand. The statement is of both engines.
    pub(crate) fn change(&self, statement: &str) {
        match &self.database {
            Some(database) => drop(database.query(&[TABLES, statement]).unwrap()),
            None => sql(self.folder.path()).execute_batch(statement).unwrap(),
        }
    }

    /// Returns the texts of the only column of a query, none of which has a line break. The query is
    /// of both engines.
    pub(crate) fn texts(&self, query: &str) -> Vec<String> {
        if let Some(database) = &self.database {
            return database.query(&[TABLES, query]).unwrap().lines().map(str::to_owned).collect();
        }
        let connection = sql(self.folder.path());
        let mut query = connection.prepare(query).unwrap();
        let rows = query.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    /// Returns the number of rows that a condition selects.
    pub(crate) fn count(&self, table: &str, condition: &str) -> usize {
        self.texts(&format!("SELECT 'x' FROM {table} WHERE {condition}")).len()
    }

    /// Ends the leases of the hosts of a database, as the time does.
    pub(crate) fn end_leases(&self) {
        if let Some(database) = &self.database {
            let end = "UPDATE conclave.hosts SET until = now() - interval '1 second'";
            database.query(&[end]).unwrap();
        }
    }
}

/// Makes the names of tables those of a store.
const TABLES: &str = "SET search_path = conclave";

pub(crate) fn setup() -> Arc<Setup> {
    let (entry, limits) = (TaskName::from("desk"), conclave_runtime::limits::RunLimits::default());
    let (tasks, plugins, models, channels) = Default::default();
    Arc::new(Setup {
        entry,
        tasks,
        plugins,
        models,
        channels,
        gates: Vec::new(),
        observers: Vec::new(),
        policy: Policy::default(),
        policy_now: None,
        limits,
    })
}

pub(crate) fn record(seq: u64, at: u64, event: Event) -> Arc<Record> {
    Arc::new(Record {
        seq,
        at: Millis(at),
        principal: Principal("ada".into()),
        rules: RULES,
        epoch: 0,
        event,
    })
}

pub(crate) fn opened(room: &str, text: &str) -> Arc<Record> {
    let opening = RunOpening {
        room: RoomId::from(room),
        entry: TaskName::from("desk"),
        content: Some(text.to_owned()),
        ..RunOpening::default()
    };
    record(0, 1_000, Event::RoomOpened { setup: setup(), opening, secret: SECRET })
}

pub(crate) fn message_record(seq: u64, text: &str) -> Arc<Record> {
    record(
        seq,
        1_000 + seq,
        Event::UserAnswered {
            call: CallId(seq),
            text: Some(text.to_owned()),
            attachments: Vec::new(),
            passed: false,
        },
    )
}

pub(crate) fn entry(records: &[Arc<Record>]) -> JournalBatch<'_> {
    JournalBatch { records, waits: &[], outcome: None, spent: Spent::default() }
}

pub(crate) fn settle(keeping: Keeping) -> Result<(), JournalFailure> {
    match keeping {
        Keeping::Kept => Ok(()),
        Keeping::Soon(durable) | Keeping::First(durable) => block_on(durable),
    }
}

/// The records with the epoch by which the journal's host owns the room.
pub(crate) fn of_epoch(journal: &dyn Journal, records: &[Arc<Record>]) -> Vec<Arc<Record>> {
    let epoch = journal.epoch();
    let owned = |record: &Arc<Record>| Arc::new(Record { epoch, ..Record::clone(record) });
    records.iter().map(owned).collect()
}

/// Appends records and waits until they are durable.
pub(crate) fn append(
    journal: &mut dyn Journal,
    records: &[Arc<Record>],
) -> Result<(), JournalFailure> {
    let records = of_epoch(journal, records);
    let keeping = journal.append(&entry(&records))?;
    journal.hurry();
    settle(keeping)
}

pub(crate) fn end(journal: &mut dyn Journal, record: Arc<Record>, status: Status) {
    let outcome = Arc::new(Outcome::new(status, "it was so"));
    let records = of_epoch(journal, &[record]);
    let spent = Spent { turns: 3, tokens: 40, cost_micro_usd: 500, ..Spent::default() };
    let batch = JournalBatch { records: &records, waits: &[], outcome: Some(&outcome), spent };
    let keeping = journal.append(&batch).unwrap();
    journal.hurry();
    settle(keeping).unwrap();
}

pub(crate) fn about() -> RunOrigin {
    RunOrigin {
        config: Some("/work/desk.toml".into()),
        command: "run".to_owned(),
        locked: true,
        approvals: "wait".to_owned(),
        questions: "prompt".to_owned(),
        pool: None,
    }
}

/// Opens a room's journal.
pub(crate) fn opened_in(
    journals: &dyn Journals,
    room: &str,
) -> Result<Box<dyn Journal>, JournalFailure> {
    journals.open(&RoomId::from(room)).and_then(block_on)
}

/// Reopens a room's journal, as its session does.
pub(crate) fn reopened_in(
    journals: &dyn Journals,
    room: &str,
) -> Result<Option<Reopened>, JournalFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(journals.reopen(&RoomId::from(room), Millis(1_000)))
}

pub(crate) fn open(store: &Store, room: &str) -> Box<dyn Journal> {
    opened_in(&*store.journals(Durability::Group, about()), room).unwrap()
}

pub(crate) fn reopen(store: &Store, room: &str) -> Reopened {
    reopened_in(&*store.journals(Durability::Group, about()), room).unwrap().unwrap()
}

/// Returns the journal of a run with this number of durable records.
pub(crate) fn run(store: &Store, room: &str, records: u64) -> Box<dyn Journal> {
    let mut journal = open(store, room);
    append(&mut *journal, &[opened(room, "Good morning")]).unwrap();
    for seq in 1..records {
        append(&mut *journal, &[message_record(seq, "yes")]).unwrap();
    }
    journal
}

/// Writes a run that has ended.
pub(crate) fn ended(store: &Store, room: &str) {
    let mut journal = run(store, room, 2);
    end(&mut *journal, message_record(2, "bye"), Status::Done);
}

/// The records without those of a take-over, which only a store has that hosts share.
pub(crate) fn without_owned(mut records: Vec<Record>) -> Vec<Record> {
    records.retain(|record| !matches!(record.event, Event::Owned { .. }));
    records
}

pub(crate) fn records(store: impl Into<StoreAddress>, room: &str) -> Vec<Record> {
    StoreReader::open(store).unwrap().records(&RoomId::from(room)).unwrap()
}

/// Copies the store's present files, without the lock of their writer.
pub(crate) fn copied(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for name in ["log.db", "log.db-wal"] {
        if from.join(name).exists() {
            std::fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

/// Returns the damage that a check found in fictitious runs. Their lists are made up, so they are not
/// what the records lead to; `derived.rs` compares those of real runs.
pub(crate) fn damage(checked: &StoreCheck) -> Vec<String> {
    let is_damage = |what: &&String| !what.ends_with("in the list is not what its records lead to");
    checked.problems.iter().filter(is_damage).cloned().collect()
}

pub(crate) fn sql(folder: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(folder.join("log.db")).unwrap()
}
