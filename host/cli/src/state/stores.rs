//! The stores of the state folder. This module only reads, but for a store of an older format;
//! `journals` writes, and `stored_run` finds a run by its name.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use conclave_core::types::ids::RoomId;
use conclave_runtime::store::{
    self, DamagedRow, OpenStore, RunFilter, RunRow, RunState, Store, StoreAddress, StoreError,
    StoreOptions, StoreReader, WithDamaged,
};

use crate::program::error::CliError;
use crate::state::state_folder::state_folder;
use crate::state::store_address::named_store;
use crate::ui::show::run_state::is_of_server;
use crate::ui::show::{plural, printable};
use crate::ui::stderr;

/// The time that the end of the process waits for its stores. A look into the mail, which no signal
/// interrupts, takes milliseconds unless the database is away.
const CLOSED_WITHIN: Duration = Duration::from_secs(3);

/// The interval between two looks at stores that close.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The pauses between the attempts to reach a database, 5 s together.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(1_250),
    Duration::from_secs(2),
];
/// The time after which no further attempt begins.
const REACHED_WITHIN: Duration = Duration::from_secs(5);
/// Kinds of waits that only a user can end.
const USER_WAITS: [&str; 3] = ["approval", "top-up", "user"];

/// The folder of the stores of runs and conversations. Processes that ran at the same time have a
/// store each. `None` if nothing is stored.
pub(crate) fn stores_folder() -> Option<PathBuf> {
    state_folder().map(|folder| folder.join("stores"))
}

/// The same for batches and calls of clients. They are many, and must not push out runs.
pub(crate) fn bulk_folder() -> Option<PathBuf> {
    state_folder().map(|folder| folder.join("bulk"))
}

/// The folder of the stores of rooms with a name, one for each. So a name is unique, and no newer
/// run removes its room.
fn rooms_folder() -> Option<PathBuf> {
    state_folder().map(|folder| folder.join("rooms"))
}

/// The store of the room with this name; `None` if no state folder is known.
pub(crate) fn room_folder(name: &str) -> Option<PathBuf> {
    rooms_folder().map(|folder| folder.join(name))
}

/// The stores of all rooms with a name, in their order.
fn named_rooms() -> Vec<PathBuf> {
    let entries = rooms_folder().and_then(|folder| std::fs::read_dir(folder).ok());
    let folders = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = folders.filter(|folder| folder.is_dir()).collect();
    folders.sort();
    folders
}

/// The stores that are searched.
#[derive(Clone, Debug)]
pub(crate) struct OpenStores {
    addresses: Vec<StoreAddress>,
    /// Whether the user named the only one.
    is_named: bool,
}

/// A store that exists and cannot be read.
pub(crate) struct UnreadableStore {
    pub(crate) store: StoreAddress,
    pub(crate) reason: String,
}

impl UnreadableStore {
    fn warn(&self) {
        stderr::warning(printable(&self.reason));
    }
}

impl OpenStores {
    /// Returns the store of `--store` or of the environment, or else all of the state folder.
    ///
    /// # Errors
    /// If the environment names a store that cannot be one.
    pub(crate) fn of(option: Option<&StoreAddress>) -> Result<Self, CliError> {
        Ok(named_store(option)?.map_or_else(Self::of_state_folder, Self::only))
    }

    /// This store alone.
    pub(crate) fn only(store: StoreAddress) -> Self {
        Self { addresses: vec![store], is_named: true }
    }

    /// All stores of the state folder.
    pub(crate) fn of_state_folder() -> Self {
        let folders = [stores_folder(), bulk_folder()];
        let folders = folders.into_iter().flatten().flat_map(|folder| store::all(&folder));
        let addresses = folders.chain(named_rooms()).map(StoreAddress::from).collect();
        Self { addresses, is_named: false }
    }

    /// The addresses of the stores.
    pub(crate) fn addresses(&self) -> &[StoreAddress] {
        &self.addresses
    }

    /// Whether the user named the only store.
    pub(crate) fn is_named(&self) -> bool {
        self.is_named
    }

    /// Returns readers of the stores, in order. A store of the state folder that cannot be read is
    /// reported on stderr and skipped.
    ///
    /// # Errors
    /// If the named store cannot be read.
    pub(crate) fn readers(&self) -> Result<Vec<StoreReader>, CliError> {
        let (readers, unreadable) = self.readers_and_unreadable()?;
        unreadable.iter().for_each(UnreadableStore::warn);
        Ok(readers)
    }

    /// Returns the number of stores of the state folder that exist and cannot be read. Each is
    /// reported on stderr.
    ///
    /// # Errors
    /// If the named store cannot be read.
    pub(crate) fn report_unreadable(&self) -> Result<usize, CliError> {
        let (_, unreadable) = self.readers_and_unreadable()?;
        unreadable.iter().for_each(UnreadableStore::warn);
        Ok(unreadable.len())
    }

    /// Returns readers of the stores, in order, and the stores of the state folder that exist and
    /// cannot be read. A command that says that all is well must report these as damaged.
    ///
    /// # Errors
    /// If the named store cannot be read.
    pub(crate) fn readers_and_unreadable(
        &self,
    ) -> Result<(Vec<StoreReader>, Vec<UnreadableStore>), CliError> {
        let (mut readers, mut unreadable) = (Vec::with_capacity(self.addresses.len()), Vec::new());
        for address in &self.addresses {
            match read(address) {
                Ok(reader) => readers.push(reader),
                Err(error) if self.is_named => return Err(error.into()),
                // Its process is about to create it, or ended before it did.
                Err(StoreError::Missing { .. }) => {}
                Err(error) => unreadable
                    .push(UnreadableStore { store: address.clone(), reason: error.to_string() }),
            }
        }
        Ok((readers, unreadable))
    }

    /// Returns the runs of all stores, newest first, without those whose rows cannot be read.
    ///
    /// # Errors
    /// If a store cannot be read.
    pub(crate) fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, CliError> {
        self.run_list(filter).map(|(runs, _)| runs)
    }

    /// Does the same, and returns the rows of runs that cannot be read beside the others.
    ///
    /// # Errors
    /// If a store cannot be read.
    pub(crate) fn run_list(&self, filter: &RunFilter) -> Result<WithDamaged<RunRow>, CliError> {
        let (mut all, mut damaged) = (Vec::new(), Vec::new());
        for reader in self.readers()? {
            let (of_store, damaged_of_store) = reader.run_list(filter)?;
            all.extend(of_store);
            damaged.extend(damaged_of_store);
        }
        all.sort_by_key(|run| std::cmp::Reverse(run.started));
        all.truncate(filter.most.unwrap_or(usize::MAX));
        Ok((all, damaged))
    }

    /// Returns the runs that wait for a user, with the kinds of their waits: `approval`, `top-up`
    /// or `user`.
    ///
    /// # Errors
    /// If a store cannot be read.
    pub(crate) fn waits(&self) -> Result<BTreeMap<RoomId, Vec<String>>, CliError> {
        let mut all: BTreeMap<RoomId, Vec<String>> = BTreeMap::new();
        for reader in self.readers_quietly() {
            for wait in reader.waits(None)? {
                if USER_WAITS.contains(&wait.wait.kind.as_str()) {
                    all.entry(wait.room.run()).or_default().push(wait.wait.kind);
                }
            }
        }
        Ok(all)
    }

    /// The readers of all readable stores. The errors of others were reported before.
    pub(crate) fn readers_quietly(&self) -> impl Iterator<Item = StoreReader> {
        self.addresses.iter().filter_map(|address| read(address).ok())
    }
}

/// Opens a store, for a few seconds again and again if its database cannot be reached: it may be
/// restarting.
pub(crate) fn when_reached<T>(open: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let (mut pauses, began) = (PAUSES.iter(), Instant::now());
    loop {
        match (open(), pauses.next()) {
            // A server that does not answer has taken the time already.
            (Err(StoreError::Unreachable { .. }), Some(pause))
                if began.elapsed() < REACHED_WITHIN =>
            {
                std::thread::sleep(*pause);
            }
            (result, _) => return result,
        }
    }
}

/// The error behind a list of which some rows cannot be read; `None` if all can. A list with gaps must
/// not pass for a whole one.
pub(crate) fn damage_of(rows: &[DamagedRow]) -> Option<CliError> {
    let first = rows.first()?;
    let (count, run) = (plural(rows.len() as u64, "row", "rows"), first.room.run());
    let what = format!("{count} cannot be read; {}: {}", first.room, first.what);
    Some(CliError::internal(printable(&what)).hint(format!(
        "`conclave store check` says how far the store is damaged, `conclave stop {run}` ends this run"
    )))
}

/// Opens a store for reading. A folder of an older host is brought up to this host's format first,
/// unless a process has it open: else none of its runs could be named. A database is not, because
/// hosts of the older version may use it.
pub(crate) fn read(store: &StoreAddress) -> Result<StoreReader, StoreError> {
    match when_reached(|| StoreReader::open(store)) {
        Err(StoreError::Older { .. }) if store.folder().is_some() => {
            drop(open(store, "")?);
            StoreReader::open(store)
        }
        opened => opened,
    }
}

/// Opens a store for writing. Where other hosts write to it too, they read the name of this machine
/// and of the command.
pub(crate) fn open(store: &StoreAddress, command: &str) -> Result<Store, StoreError> {
    when_reached(|| open_once(store, command))
}

/// Does the same, and fails at once if its database cannot be reached.
pub(crate) fn open_once(store: &StoreAddress, command: &str) -> Result<Store, StoreError> {
    let host = machine_name().unwrap_or_default();
    let command = command.to_owned();
    // In the state folder, because no plugin may reach them.
    let copies = state_folder().map(|folder| folder.join("copies"));
    let options = StoreOptions { host, command, copies, ..StoreOptions::default() };
    Store::open_with(store, &options).inspect(watch)
}

/// The stores that this process has opened for writing.
static OPENED: Mutex<Vec<OpenStore>> = Mutex::new(Vec::new());

/// Notes a store that this process has opened, for [`wait_until_closed`].
pub(crate) fn watch(store: &Store) {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner).push(store.watch_open());
}

/// Waits, before the process ends, until the stores that it has opened are closed. Otherwise other
/// hosts could take its runs only after its lease has expired. A store that does not close in time
/// is abandoned, as by a killed process.
pub(crate) fn wait_until_closed() {
    let opened = std::mem::take(&mut *OPENED.lock().unwrap_or_else(PoisonError::into_inner));
    let until = Instant::now() + CLOSED_WITHIN;
    while opened.iter().any(OpenStore::is_open) && Instant::now() < until {
        std::thread::sleep(LOOK_AGAIN);
    }
}

#[cfg(unix)]
fn machine_name() -> Option<String> {
    let system = rustix::system::uname();
    system.nodename().to_str().ok().map(str::to_owned)
}

#[cfg(not(unix))]
fn machine_name() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
}

/// Whether the run was interrupted and has not been resumed. A conversation of browsers is resumed
/// by its server.
pub(crate) fn is_interrupted(run: &RunRow) -> bool {
    run.state == RunState::Interrupted && !is_of_server(&run.command)
}

/// The command line's error for a store that cannot be used.
impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        let failure = match error {
            StoreError::Unreachable { .. } => Self::unreachable(error.to_string()),
            _ => Self::internal(error.to_string()),
        };
        match error {
            StoreError::Unreachable { .. } => failure.hint(
                "start its database, or correct the address; a command tries for 5 s, and \
                 `conclave worker` until the database is there",
            ),
            StoreError::InUse { .. } => failure
                .hint("wait until that process has ended, or name another folder with --store"),
            StoreError::Missing { .. } => {
                failure.hint("`conclave run --store STORE` creates a store")
            }
            StoreError::Newer { .. } => {
                failure.hint("use the conclave that wrote it, or a newer one")
            }
            StoreError::Tables { remedy, .. } => failure.hint(remedy),
            StoreError::Older { .. } => failure.hint(
                "the next `conclave worker`, `run` or `resume` of this version brings it up to date, once no host of the older one uses it",
            ),
            StoreError::Damaged { .. }
            | StoreError::BlobFolder { .. }
            | StoreError::UnknownRoom { .. }
            | StoreError::Other { .. } => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn only_a_database_that_cannot_be_reached_is_asked_again() {
        let (tries, store) = (Cell::new(0), StoreAddress::from(PathBuf::from("store")));
        let open = |what: &'static str| {
            when_reached(|| {
                tries.set(tries.get() + 1);
                let (store, what) = (store.clone(), what.to_owned());
                match tries.get() {
                    3 => Ok(()),
                    _ if what == "restarting" => Err(StoreError::Unreachable { store, what }),
                    _ => Err(StoreError::Other { store, what }),
                }
            })
        };
        open("restarting").expect("it is there at the third attempt");
        tries.set(0);
        assert!(matches!(open("wrong password"), Err(StoreError::Other { .. })));
        assert_eq!(tries.get(), 1);
    }
}
