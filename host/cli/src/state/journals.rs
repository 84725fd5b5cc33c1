//! The place in which a command stores its runs: a free store of the user's state folder, a named
//! store, or a folder of JSON lines. The runtime defines the contents; `stores` finds them
//! afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "mcp")]
use std::sync::atomic::{AtomicU64, Ordering};

use conclave_core::config::Config;
use conclave_core::permissions::grants::{FileGrant, FileMode};
use conclave_core::protocol::event::Record;
use conclave_core::types::ids::{PluginName, RoomId};
use conclave_runtime::blobs::Blobs;
#[cfg(feature = "mcp")]
use conclave_runtime::ids::Ids;
use conclave_runtime::journal::{Journals, JsonLines, NoJournals};
#[cfg(feature = "postgres")]
use conclave_runtime::store::StoreAddress;
use conclave_runtime::store::{Durability, Retention, RunOrigin, Store, StoreError, StoreReader};

use crate::args::{Approvals, Keep, Questions, word_of};
use crate::program::error::CliError;
use crate::state::state_folder::make_private;
use crate::state::stores::{bulk_folder, open, stores_folder, watch};
use crate::ui::show::printable;
use crate::ui::stderr;

/// Ended runs that stay in a store of the state folder.
const RUNS: usize = 200;
/// The same for batches and calls of clients, which have their own stores.
const BULK: usize = 1_000;

/// The origin of the runs that are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunCommand<'a> {
    /// The name on the command line.
    pub(crate) command: &'a str,
    pub(crate) file: &'a Path,
    /// The config, as read for this command.
    pub(crate) config: &'a Config,
    pub(crate) locked: bool,
    /// Who decides on approvals; `None` if the command has no such choice.
    pub(crate) approvals: Option<Approvals>,
    /// Who answers questions of tasks; `None` likewise.
    pub(crate) questions: Option<Questions>,
    /// Whether the command starts many runs.
    pub(crate) is_bulk: bool,
}

/// The place in which the runs of a command are stored.
#[derive(Clone)]
pub(crate) struct RunStorage(JournalPlace);

#[derive(Clone)]
enum JournalPlace {
    Nowhere,
    Lines(PathBuf),
    Store { store: Store, durability: Durability, about: RunOrigin },
}

impl RunStorage {
    /// Opens the place that the command line names. An unusable state folder is reported on stderr
    /// and does not prevent the run, unless the durability is `sync`.
    ///
    /// # Errors
    /// If a required store cannot be used, or if an overlay has none.
    pub(crate) fn open(keep: &Keep, of: RunCommand<'_>) -> Result<Self, CliError> {
        let storage = Self::open_place(keep, of)?;
        let Some(plugin) = overlay_grant(of.config) else { return Ok(storage) };
        let (why, hint) = match storage.store().map(Store::has_overlays) {
            Some(true) => return Ok(storage),
            Some(false) => (
                "an overlay has a working copy on this machine, and no state folder is known",
                "set HOME or CONCLAVE_STATE, or grant the folder as `read` or `read-write`",
            ),
            None => (
                "an overlay keeps its changes in a store, and this run is not stored",
                "leave out --journal and --no-journal, or grant the folder as `read` or `read-write`",
            ),
        };
        Err(CliError::usage(format!("plugins.{plugin}.grants.files: {why}")).hint(hint))
    }

    fn open_place(keep: &Keep, of: RunCommand<'_>) -> Result<Self, CliError> {
        let durability = keep.durability.map(Durability::from).or(of.config.durability);
        if let Some(folder) = &keep.journal {
            return Ok(Self(JournalPlace::Lines(folder.clone())));
        }
        if keep.no_journal {
            return Ok(Self(JournalPlace::Nowhere));
        }
        let opened = match &keep.store {
            Some(address) => open(address, of.command).map(Some),
            None => open_free(of.is_bulk),
        };
        match opened {
            Ok(Some(store)) => {
                Ok(Self::in_store(store, durability.unwrap_or_default(), of.about()))
            }
            Ok(None) if durability != Some(Durability::Sync) => Ok(Self(JournalPlace::Nowhere)),
            Ok(None) => Err(CliError::internal(
                "the durability `sync` needs a store, and no state folder is known",
            )
            .hint("set HOME or CONCLAVE_STATE")),
            Err(error) if keep.store.is_some() => Err(error.into()),
            Err(error) if durability == Some(Durability::Sync) => {
                let what =
                    format!("the durability `sync` needs a store, and none can be opened: {error}");
                Err(CliError::internal(what).hint("make the state folder writable, name a store with --store, or choose --durability group"))
            }
            Err(error) => {
                warn_unkept(&error);
                Ok(Self(JournalPlace::Nowhere))
            }
        }
    }

    /// Returns a store that was opened before.
    pub(crate) fn in_store(store: Store, durability: Durability, about: RunOrigin) -> Self {
        Self(JournalPlace::Store { store, durability, about })
    }

    /// The place of another command's runs in the same store, which is open.
    #[cfg(feature = "serve")]
    pub(crate) fn shared_with(&self, keep: &Keep, of: RunCommand<'_>) -> Self {
        let JournalPlace::Store { store, .. } = &self.0 else { return self.clone() };
        let durability = keep.durability.map(Durability::from).or(of.config.durability);
        Self::in_store(store.clone(), durability.unwrap_or_default(), of.about())
    }

    /// The place of runs that workers of this pool may take over.
    #[cfg(feature = "postgres")]
    pub(crate) fn for_pool(mut self, pool: String) -> Self {
        if let JournalPlace::Store { about, .. } = &mut self.0 {
            about.pool = Some(pool);
        }
        self
    }

    /// The same place for runs of another command, whose approvals and questions wait.
    #[cfg(feature = "serve")]
    pub(crate) fn of_command(&self, command: &str) -> Self {
        let mut storage = self.clone();
        if let JournalPlace::Store { about, .. } = &mut storage.0 {
            about.command = command.to_owned();
            about.approvals = word_of(Some(Approvals::Wait));
            about.questions = word_of(Some(Questions::Wait));
        }
        storage
    }

    /// The journals for the run's options.
    pub(crate) fn journals(&self) -> Arc<dyn Journals> {
        match &self.0 {
            JournalPlace::Nowhere => Arc::new(NoJournals),
            JournalPlace::Lines(folder) => Arc::new(JsonLines::in_folder(folder)),
            JournalPlace::Store { store, durability, about } => {
                store.journals(*durability, about.clone())
            }
        }
    }

    /// The place of attachments beside the journals. `None` keeps them in memory only.
    pub(crate) fn blobs(&self) -> Option<Arc<dyn Blobs>> {
        self.store().map(Store::blobs)
    }

    /// The number of files that a run changed in overlays, for a person to apply or drop.
    pub(crate) fn pending_changes(&self, run: &RoomId) -> usize {
        let reader = self.store().and_then(|store| StoreReader::open(store.address()).ok());
        // Without the store nobody can say, and `conclave diff` counts them later.
        reader.and_then(|reader| reader.pending_changes(run).ok()).unwrap_or(0)
    }

    /// Returns the records of a stored room; empty if they cannot be read.
    pub(crate) fn records(&self, room: &RoomId) -> Vec<Record> {
        let reader = self.store().and_then(|store| StoreReader::open(store.address()).ok());
        reader.and_then(|reader| reader.records(room).ok()).unwrap_or_default()
    }

    /// Returns the store, if it is one.
    pub(crate) fn store(&self) -> Option<&Store> {
        if let JournalPlace::Store { store, .. } = &self.0 { Some(store) } else { None }
    }

    /// The address of the store; `None` if it is none.
    #[cfg(feature = "postgres")]
    pub(crate) fn address(&self) -> Option<StoreAddress> {
        self.store().map(|store| store.address().clone())
    }

    /// The folder, which no plugin may write to; `None` if there is none.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match &self.0 {
            JournalPlace::Nowhere => None,
            JournalPlace::Lines(folder) => Some(folder),
            JournalPlace::Store { store, .. } => store.folder(),
        }
    }

    /// Whether refusals of this run can be looked up later.
    pub(crate) fn is_kept(&self) -> bool {
        !matches!(self.0, JournalPlace::Nowhere)
    }
}

impl<'a> RunCommand<'a> {
    /// A command that starts one run, without a choice of who decides.
    pub(crate) fn new(command: &'a str, file: &'a Path, config: &'a Config, locked: bool) -> Self {
        Self { command, file, config, locked, approvals: None, questions: None, is_bulk: false }
    }

    /// A command that starts many runs.
    pub(crate) fn bulk(command: &'a str, file: &'a Path, config: &'a Config, locked: bool) -> Self {
        Self { is_bulk: true, ..Self::new(command, file, config, locked) }
    }

    /// The command with the operator's choice of who decides on approvals.
    pub(crate) fn with_approvals(self, approvals: Approvals) -> Self {
        Self { approvals: Some(approvals), ..self }
    }

    fn about(&self) -> RunOrigin {
        let config = std::path::absolute(self.file).unwrap_or_else(|_| self.file.to_owned());
        RunOrigin {
            config: Some(config),
            command: self.command.to_owned(),
            locked: self.locked,
            approvals: word_of(self.approvals),
            questions: word_of(self.questions),
            pool: None,
        }
    }
}

/// A plugin with an overlay of a folder.
fn overlay_grant(config: &Config) -> Option<&PluginName> {
    let is_overlay = |grant: &FileGrant| grant.mode == FileMode::Overlay;
    let mut plugins = config.plugins.iter();
    plugins.find(|(_, plugin)| plugin.grants.files.iter().any(is_overlay)).map(|(name, _)| name)
}

/// Opens a store of the state folder that no other process uses, after removing old runs. `None` if
/// no state folder is known.
fn open_free(is_bulk: bool) -> Result<Option<Store>, StoreError> {
    let Some(folder) = (if is_bulk { bulk_folder() } else { stores_folder() }) else {
        return Ok(None);
    };
    make_private(&folder)
        .map_err(|error| StoreError::Other { store: (&folder).into(), what: error.to_string() })?;
    let store = Store::open_free(&folder)?;
    watch(&store);
    // Runs that cannot be removed now are left to the next start.
    let _ = store.collect(&Retention {
        runs: Some(if is_bulk { BULK } else { RUNS }),
        ..Retention::default()
    });
    Ok(Some(store))
}

fn warn_unkept(error: &StoreError) {
    let what = "this run is not stored, so it can be neither explained nor resumed:";
    stderr::warning(format_args!("{what} {}", printable(&error.to_string())));
}

/// The calls of one client: runs of one session, counted from 1.
#[derive(Debug)]
#[cfg(feature = "mcp")]
pub(crate) struct ClientCallIds {
    id: RoomId,
    last: AtomicU64,
}

#[cfg(feature = "mcp")]
impl ClientCallIds {
    pub(crate) fn new(id: RoomId) -> Self {
        Self { id, last: AtomicU64::new(0) }
    }
}

#[cfg(feature = "mcp")]
impl Ids for ClientCallIds {
    fn run(&self) -> RoomId {
        let call = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        RoomId::from(format!("{}.{call}", self.id).as_str())
    }
}
