//! The stores of the state folder, and the lookup of runs by name in all of them. This module only
//! reads, but for a store of an older format; `journals` writes.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use conclave_core::types::ids::RoomId;
use conclave_runtime::store::{
    self, RunFilter, RunMatch, RunRow, RunState, Store, StoreError, StoreReader,
};

use crate::program::error::CliError;
use crate::state::control::pause_reason;
use crate::state::observers;
use crate::state::state_folder::state_folder;
use crate::ui::show::run_state::SERVED;
use crate::ui::show::{ODD, paint, printable};

/// Kinds of waits that only a user can end.
const USER_WAITS: [&str; 3] = ["approval", "top-up", "user"];
/// Names that are listed if one is ambiguous.
const SHOWN: usize = 5;

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
    folders: Vec<PathBuf>,
    is_given: bool,
}

/// A store that exists and cannot be read.
pub(crate) struct UnreadableStore {
    pub(crate) folder: PathBuf,
    pub(crate) reason: String,
}

impl UnreadableStore {
    fn warn(&self) {
        let mut err = crate::ui::output::stderr();
        let _ = writeln!(err, "{} {}", paint(ODD, "warning:"), printable(&self.reason));
    }
}

/// A room and its store.
pub(crate) struct StoredRoom {
    pub(crate) reader: StoreReader,
    pub(crate) room: RoomId,
}

impl OpenStores {
    /// Opens the named store, or else all of the state folder.
    pub(crate) fn of(store: Option<&Path>) -> Self {
        if let Some(folder) = store {
            return Self { folders: vec![folder.to_owned()], is_given: true };
        }
        let folders = [stores_folder(), bulk_folder()];
        let folders = folders.into_iter().flatten().flat_map(|folder| store::all(&folder));
        Self { folders: folders.chain(named_rooms()).collect(), is_given: false }
    }

    /// The folders of the stores.
    pub(crate) fn folders(&self) -> &[PathBuf] {
        &self.folders
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
        let (mut readers, mut unreadable) = (Vec::with_capacity(self.folders.len()), Vec::new());
        for folder in &self.folders {
            match read(folder) {
                Ok(reader) => readers.push(reader),
                Err(error) if self.is_given => return Err(unusable(&error)),
                // Its process is about to create it, or ended before it did.
                Err(StoreError::Missing { .. }) => {}
                Err(error) => unreadable
                    .push(UnreadableStore { folder: folder.clone(), reason: error.to_string() }),
            }
        }
        Ok((readers, unreadable))
    }

    /// Returns the runs of all stores, newest first.
    ///
    /// # Errors
    /// If a store cannot be read.
    pub(crate) fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, CliError> {
        let mut all = Vec::new();
        for reader in self.readers()? {
            all.extend(reader.runs(filter).map_err(|error| unusable(&error))?);
        }
        all.sort_by_key(|run| std::cmp::Reverse(run.started));
        all.truncate(filter.most.unwrap_or(usize::MAX));
        Ok(all)
    }

    /// Returns the newest run.
    ///
    /// # Errors
    /// If there is none, or a store cannot be read.
    pub(crate) fn newest(&self) -> Result<StoredRoom, CliError> {
        let newest = self.runs(&RunFilter { most: Some(1), ..RunFilter::default() })?;
        let Some(row) = newest.first() else {
            return Err(CliError::usage("no runs are stored yet")
                .hint("`conclave run` and `conclave chat` store theirs"));
        };
        self.find(row.run.as_str())
    }

    /// Returns the runs that wait for a user, with the kinds of their waits: `approval`, `top-up`
    /// or `user`.
    ///
    /// # Errors
    /// If a store cannot be read.
    pub(crate) fn waits(&self) -> Result<BTreeMap<RoomId, Vec<String>>, CliError> {
        let mut all: BTreeMap<RoomId, Vec<String>> = BTreeMap::new();
        for reader in self.readers_quietly() {
            for wait in reader.waits(None).map_err(|error| unusable(&error))? {
                if USER_WAITS.contains(&wait.wait.kind.as_str()) {
                    all.entry(wait.room.run()).or_default().push(wait.wait.kind);
                }
            }
        }
        Ok(all)
    }

    /// Returns, for each run, the milliseconds during which no host ran.
    ///
    /// # Errors
    /// If a store cannot be read.
    pub(crate) fn down_ms(&self, runs: &[RunRow]) -> Result<BTreeMap<RoomId, u64>, CliError> {
        let mut all = BTreeMap::new();
        for reader in self.readers_quietly() {
            for run in runs.iter().filter(|run| run.store == reader.folder()) {
                all.insert(
                    run.run.clone(),
                    reader.down_ms(&run.run).map_err(|error| unusable(&error))?,
                );
            }
        }
        Ok(all)
    }

    /// The number of events that the observers of each run did not take, for ended runs.
    pub(crate) fn undelivered(&self, runs: &[RunRow]) -> BTreeMap<RoomId, u64> {
        let mut all = BTreeMap::new();
        for reader in self.readers_quietly() {
            for run in runs.iter().filter(|run| run.store == reader.folder()) {
                let count: u64 = observers::undelivered(&reader, run).values().sum();
                if count > 0 {
                    all.insert(run.run.clone(), count);
                }
            }
        }
        all
    }

    /// The reason of each pause, for runs that are paused and have not ended.
    pub(crate) fn paused(&self, runs: &[RunRow]) -> BTreeMap<RoomId, String> {
        let mut all = BTreeMap::new();
        for reader in self.readers_quietly() {
            let here = runs.iter().filter(|run| {
                run.store == reader.folder() && !matches!(run.state, RunState::Ended(_))
            });
            all.extend(
                here.filter_map(|run| Some((run.run.clone(), pause_reason(&reader, &run.run)?))),
            );
        }
        all
    }

    /// The readers of all readable stores. The errors of others were reported before.
    fn readers_quietly(&self) -> impl Iterator<Item = StoreReader> {
        self.folders.iter().filter_map(|folder| read(folder).ok())
    }

    /// Returns the run or room with this name or prefix.
    ///
    /// # Errors
    /// If there is none, with the names that exist; if the prefix is ambiguous; or if a store
    /// cannot be read.
    pub(crate) fn find(&self, name: &str) -> Result<StoredRoom, CliError> {
        let mut found: Vec<StoredRoom> = Vec::new();
        let mut several: Vec<RoomId> = Vec::new();
        for reader in self.readers()? {
            match reader.find(name).map_err(|error| unusable(&error))? {
                RunMatch::One(room) => found.push(StoredRoom { reader, room }),
                RunMatch::Several(rooms) => several.extend(rooms),
                RunMatch::Nothing => {}
            }
        }
        // A full name takes precedence over longer names with the same beginning.
        let exact = found.iter().position(|one| one.room.as_str() == name);
        match (exact, found.len(), several.is_empty()) {
            (Some(index), _, _) => Ok(found.swap_remove(index)),
            (None, 1, true) => Ok(found.swap_remove(0)),
            (None, 0, true) => Err(self.none(name)),
            _ => {
                several.extend(found.into_iter().map(|one| one.room));
                let rooms: Vec<String> =
                    several.iter().take(SHOWN).map(ToString::to_string).collect();
                let what = format!(
                    "{} runs begin with {}: {}",
                    several.len(),
                    printable(name),
                    rooms.join(", ")
                );
                Err(CliError::usage(what).hint("write more of the id"))
            }
        }
    }

    /// The error of every command for a name that no stored run begins with.
    pub(crate) fn none(&self, name: &str) -> CliError {
        let newest =
            self.runs(&RunFilter { most: Some(SHOWN), ..RunFilter::default() }).unwrap_or_default();
        let newest: Vec<String> = newest.iter().map(|run| run.run.to_string()).collect();
        let there = match newest.as_slice() {
            [] if state_folder().is_none() && self.folders.is_empty() => {
                return CliError::usage("no state folder is known, so no runs are stored")
                    .hint("set HOME or CONCLAVE_STATE");
            }
            [] => "no runs are stored".to_owned(),
            newest => format!("the newest are {}", newest.join(", ")),
        };
        CliError::usage(format!("no stored run begins with {}; {there}", printable(name)))
            .hint("`conclave runs` lists the stored runs; for a run with --store FOLDER, pass the same option")
    }
}

impl StoredRoom {
    /// The run of the room: its name without those of child rooms.
    pub(crate) fn run(&self) -> RoomId {
        self.room.run()
    }

    /// Returns the store's row of that run.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn row(&self) -> Result<RunRow, CliError> {
        let run = self.run();
        let row = self.reader.run(&run).map_err(|error| unusable(&error))?;
        row.ok_or_else(|| CliError::usage(format!("the run {run} is not stored")))
    }
}

/// Opens a store for reading. One of an older host is brought up to this host's format first, unless
/// a process has it open: else none of its runs could be named.
pub(crate) fn read(folder: &Path) -> Result<StoreReader, StoreError> {
    match StoreReader::open(folder) {
        Err(StoreError::Older { .. }) => {
            drop(Store::open(folder)?);
            StoreReader::open(folder)
        }
        opened => opened,
    }
}

/// Whether the run was interrupted and has not been resumed. A conversation of browsers is resumed
/// by its server.
pub(crate) fn is_interrupted(run: &RunRow) -> bool {
    run.state == RunState::Interrupted && run.command != SERVED
}

/// The command line's error for a store that cannot be used.
pub(crate) fn unusable(error: &StoreError) -> CliError {
    let failure = CliError::internal(error.to_string());
    match error {
        StoreError::InUse { .. } => {
            failure.hint("wait until that process has ended, or name another folder with --store")
        }
        StoreError::Missing { .. } => failure.hint("`conclave run --store FOLDER` creates a store"),
        StoreError::Newer { .. } => failure.hint("use the conclave that wrote it, or a newer one"),
        StoreError::Older { .. } | StoreError::Damaged { .. } | StoreError::Other { .. } => failure,
    }
}
