//! The store of a rig's runs: folders, or a database of the rig's own where the tests of any store
//! play on PostgreSQL.

use std::path::Path;
use std::process::Child;
use std::sync::OnceLock;

use conclave_runtime::store::{Store, StoreAddress};
use conclave_test_servers::{TestDatabase, database_of_test_store};

use crate::{Rig, kill};

/// The database of a rig, created when a command of the rig first needs it.
#[derive(Default)]
pub(crate) struct RigDatabase(OnceLock<Option<TestDatabase>>);

impl RigDatabase {
    pub(crate) fn get(&self) -> Option<&TestDatabase> {
        let with_tables = || {
            let database = database_of_test_store()?;
            // As its operator has prepared it: a command that only reads creates no tables.
            drop(Store::open(address(&database)).expect("the store opens"));
            Some(database)
        };
        self.0.get_or_init(with_tables).as_ref()
    }
}

/// The address of the store in a database.
pub(crate) fn address(database: &TestDatabase) -> StoreAddress {
    database.url().parse().expect("the URL of a database")
}

impl Rig {
    /// Returns the address of the store of the runs that the program keeps by itself: the first one
    /// below its state folder, or the database.
    #[must_use]
    pub fn store(&self, state: &Path) -> StoreAddress {
        self.store_word(state).parse().expect("the address of a store")
    }

    /// Returns the same as a word for another process, with the password of the database.
    #[must_use]
    pub fn store_word(&self, state: &Path) -> String {
        match self.database().get() {
            Some(database) => database.url(),
            None => state.join("stores/1").to_string_lossy().into_owned(),
        }
    }

    /// Kills a process at once. Other hosts of a database take its runs as if its lease were over.
    ///
    /// # Panics
    /// If the process cannot be killed.
    pub fn kill(&self, child: Child) {
        kill(child);
        self.end_leases();
    }

    /// Ends the leases of all hosts of a database, as the time does. A host that lives renews its
    /// own.
    ///
    /// # Panics
    /// If the database cannot be reached.
    pub fn end_leases(&self) {
        if let Some(database) = self.database().get() {
            let end = "UPDATE conclave.hosts SET until = now() - interval '1 second'";
            database.query(&[end]).expect("the leases end");
        }
    }
}
