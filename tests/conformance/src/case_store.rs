//! The journals of a case: in memory, or in a database where the tests of any store play on
//! PostgreSQL. A process plays one case after the other, so it has one database for all whose rooms
//! have names of their own, and one whose tables are made anew for each of the others.

use std::sync::{Arc, OnceLock};

use conclave_runtime::clock::{Clock, SystemClock};
use conclave_runtime::ids::RoomId;
use conclave_runtime::journal::{Journals, MemoryJournals, NoJournals};
use conclave_runtime::store::{Durability, RunOrigin, Store};
use conclave_test_servers::{TestDatabase, database_of_test_store};

/// The journals of a case whose rooms have names that other cases have too.
pub(crate) enum CaseStore {
    Memory(MemoryJournals),
    Database(Store, &'static TestDatabase),
}

impl CaseStore {
    pub(crate) fn new() -> Result<Self, String> {
        static DATABASE: OnceLock<Option<TestDatabase>> = OnceLock::new();
        let Some(database) = DATABASE.get_or_init(database_of_test_store) else {
            return Ok(Self::Memory(MemoryJournals::default()));
        };
        let without_tables = "DROP SCHEMA IF EXISTS conclave CASCADE";
        database.query(&[without_tables]).map_err(|failure| failure.to_string())?;
        Ok(Self::Database(open(database)?, database))
    }

    pub(crate) fn journals(&self) -> Arc<dyn Journals> {
        match self {
            Self::Memory(journals) => Arc::new(journals.clone()),
            Self::Database(store, _) => of_store(store),
        }
    }

    /// Returns what another host finds of a room if the present host is killed now. Nothing that the
    /// present host does afterwards is in there.
    pub(crate) async fn after_kill(&self, room: &RoomId) -> Result<Self, String> {
        match self {
            Self::Memory(journals) => {
                Ok(Self::Memory(MemoryJournals::of(room.clone(), journals.records(room))))
            }
            Self::Database(_, database) => {
                let end = "UPDATE conclave.hosts SET until = now() - interval '1 second'";
                database.query(&[end]).map_err(|failure| failure.to_string())?;
                let store = open(database)?;
                let taken = of_store(&store).reopen(room, SystemClock.now()).await;
                // From its record on, the store refuses the present host.
                drop(taken.map_err(|failure| failure.to_string())?);
                Ok(Self::Database(store, database))
            }
        }
    }
}

/// Returns the journals of a case whose rooms have names of their own.
pub(crate) fn any_journals() -> Result<Arc<dyn Journals>, String> {
    static STORE: OnceLock<Option<(Result<Store, String>, TestDatabase)>> = OnceLock::new();
    let opened = || {
        let database = database_of_test_store()?;
        Some((open(&database), database))
    };
    match STORE.get_or_init(opened) {
        Some((store, _)) => store.as_ref().map(of_store).map_err(Clone::clone),
        None => Ok(Arc::new(NoJournals)),
    }
}

fn open(database: &TestDatabase) -> Result<Store, String> {
    let address = database.url().parse::<conclave_runtime::store::StoreAddress>();
    let address = address.map_err(|error| error.to_string())?;
    Store::open(address).map_err(|error| error.to_string())
}

fn of_store(store: &Store) -> Arc<dyn Journals> {
    store.journals(Durability::Group, RunOrigin::default())
}
