//! The places of a run's changes: files in the folder of a store, or tables and blobs of a database.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
#[cfg(feature = "postgres")]
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_core::overlay::apply::ChangeDecision;
use conclave_core::overlay::changes::{ChangeRecord, Changes};
use conclave_core::types::ids::RoomId;

#[cfg(feature = "postgres")]
use crate::storage::store::{PostgresAddress, StoreAddress, overlays, overlays::ChangesTables};
use crate::support::durable_file::read_own;
use crate::support::overlay_files::{
    self, FILES, FirstRead, OverlayLog, OverlayOrigin, append_decision, append_read, content_name,
    overlays_of, read_decisions, remove_overlays, run_folder,
};

/// A store, as the place of the changes of its runs.
#[derive(Clone, Copy, Debug)]
pub enum ChangeStore<'a> {
    /// A folder.
    Folder(&'a Path),
    /// A database. Its granted folders are those of the host that ran the call, and are looked for
    /// on this machine.
    #[cfg(feature = "postgres")]
    Database(&'a PostgresAddress),
}

impl<'a> From<&'a Path> for ChangeStore<'a> {
    fn from(folder: &'a Path) -> Self {
        Self::Folder(folder)
    }
}

impl<'a> From<&'a PathBuf> for ChangeStore<'a> {
    fn from(folder: &'a PathBuf) -> Self {
        Self::Folder(folder)
    }
}

#[cfg(feature = "postgres")]
impl<'a> From<&'a StoreAddress> for ChangeStore<'a> {
    fn from(address: &'a StoreAddress) -> Self {
        match address {
            StoreAddress::Folder(folder) => Self::Folder(folder),
            StoreAddress::Postgres(address) => Self::Database(address),
        }
    }
}

/// The changes of one run.
#[derive(Debug)]
pub(super) enum RunSource {
    Folder(PathBuf),
    #[cfg(feature = "postgres")]
    Database(RunTables),
}

/// The changes of a run in the tables of a database.
#[cfg(feature = "postgres")]
#[derive(Clone, Debug)]
pub(super) struct RunTables {
    tables: Arc<Mutex<ChangesTables>>,
    run: RoomId,
}

#[cfg(feature = "postgres")]
impl RunTables {
    fn tables(&self) -> MutexGuard<'_, ChangesTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held while a person applies or drops changes, so that no run continues with them.
#[derive(Debug)]
pub(super) enum ChangesLock {
    Folder {
        _file: File,
    },
    #[cfg(feature = "postgres")]
    Database {
        _lock: Box<overlays::RunLock>,
    },
}

impl RunSource {
    /// Opens the place of a run's changes.
    pub(super) fn open(store: ChangeStore<'_>, run: &RoomId) -> io::Result<Self> {
        match store {
            ChangeStore::Folder(folder) => Ok(Self::Folder(run_folder(folder, run.as_str()))),
            #[cfg(feature = "postgres")]
            ChangeStore::Database(address) => {
                let tables = Arc::new(Mutex::new(ChangesTables::open(address)?));
                Ok(Self::Database(RunTables { tables, run: run.clone() }))
            }
        }
    }

    /// The place for display.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Folder(folder) => folder.display().to_string(),
            #[cfg(feature = "postgres")]
            Self::Database(of_run) => of_run.tables().place(),
        }
    }

    /// Returns the overlays of the run in a stable order.
    pub(super) fn overlays(&self) -> io::Result<Vec<OverlaySource>> {
        match self {
            Self::Folder(folder) => {
                Ok(overlays_of(folder)?.into_iter().map(OverlaySource::Folder).collect())
            }
            #[cfg(feature = "postgres")]
            Self::Database(of_run) => {
                let origins = of_run.tables().origins(&of_run.run)?;
                let source = |origin| OverlaySource::Database(of_run.clone(), origin);
                Ok(origins.into_iter().map(source).collect())
            }
        }
    }

    /// Takes the lock of the run's changes; `None` if a process has the run open, or another command
    /// its changes.
    pub(super) fn lock(&self) -> io::Result<Option<ChangesLock>> {
        match self {
            Self::Folder(folder) => {
                Ok(overlay_files::lock(folder)?.map(|file| ChangesLock::Folder { _file: file }))
            }
            #[cfg(feature = "postgres")]
            Self::Database(of_run) => {
                let lock = of_run.tables().lock(&of_run.run)?;
                Ok(lock.map(|lock| ChangesLock::Database { _lock: Box::new(lock) }))
            }
        }
    }

    /// Stores a decision, which is durable when this returns.
    pub(super) fn add_decision(&self, decision: &ChangeDecision) -> io::Result<()> {
        match self {
            Self::Folder(folder) => append_decision(folder, decision),
            #[cfg(feature = "postgres")]
            Self::Database(of_run) => of_run.tables().add_decision(&of_run.run, decision),
        }
    }

    /// Returns the decisions, oldest first.
    pub(super) fn decisions(&self) -> io::Result<Vec<ChangeDecision>> {
        match self {
            Self::Folder(folder) => read_decisions(folder),
            #[cfg(feature = "postgres")]
            Self::Database(of_run) => of_run.tables().decisions(&of_run.run),
        }
    }

    /// Removes overlays without a change.
    pub(super) fn clean(&self) -> io::Result<()> {
        match self {
            Self::Folder(folder) => remove_overlays(folder),
            // Their rows count the changes, and go with the run.
            #[cfg(feature = "postgres")]
            Self::Database(_) => Ok(()),
        }
    }
}

/// The changes of one overlay.
#[derive(Clone, Debug)]
pub(super) enum OverlaySource {
    Folder(PathBuf),
    #[cfg(feature = "postgres")]
    Database(RunTables, OverlayOrigin),
}

impl OverlaySource {
    /// The place for display.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Folder(folder) => folder.display().to_string(),
            #[cfg(feature = "postgres")]
            Self::Database(of_run, _) => of_run.tables().place(),
        }
    }

    pub(super) fn read(&self) -> io::Result<(OverlayOrigin, Changes)> {
        match self {
            Self::Folder(overlay) => overlay_files::read(overlay),
            #[cfg(feature = "postgres")]
            Self::Database(of_run, origin) => {
                let files = of_run.tables().files(&of_run.run, &origin.dir)?;
                let mut changes = Changes::default();
                files.into_iter().for_each(|file| changes.take(file.record));
                Ok((origin.clone(), changes))
            }
        }
    }

    /// Returns the content of a written file; `None` if it is lost.
    pub(super) fn content(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::Folder(overlay) => {
                match read_own(&overlay.join(FILES).join(content_name(path))) {
                    Ok(bytes) => Ok(Some(bytes)),
                    // What is in its place, such as a link, is not what the run wrote.
                    Err(error) if is_absent_or_other(&error) => Ok(None),
                    Err(error) => Err(error),
                }
            }
            #[cfg(feature = "postgres")]
            Self::Database(of_run, origin) => {
                of_run.tables().content(&of_run.run, &origin.dir, path)
            }
        }
    }

    /// Forgets the change of a file. Returns whether there was an overlay to forget it in.
    pub(super) fn forget(
        &self,
        path: &str,
        changes: &Changes,
        log: &mut Option<OverlayLog>,
    ) -> io::Result<bool> {
        match self {
            Self::Folder(overlay) => forget_in_files(overlay, path, changes, log),
            #[cfg(feature = "postgres")]
            Self::Database(of_run, origin) => {
                of_run.tables().forget(&of_run.run, &origin.dir, path)?;
                Ok(true)
            }
        }
    }
}

fn forget_in_files(
    overlay: &Path,
    path: &str,
    changes: &Changes,
    log: &mut Option<OverlayLog>,
) -> io::Result<bool> {
    let log = match log {
        Some(log) => log,
        log => {
            let Some((open, _)) = OverlayLog::open(overlay)? else { return Ok(false) };
            log.insert(open)
        }
    };
    log.append(&ChangeRecord::Reverted { path: path.to_owned() }, changes, true)?;
    // The run reads the folder's file anew, which is as a person wants it now.
    append_read(overlay, &FirstRead { path: path.to_owned(), stamp: None })?;
    // Content without a record is not a change, and is removed with the overlay's folder.
    match std::fs::remove_file(overlay.join(FILES).join(content_name(path))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(true),
    }
}

fn is_absent_or_other(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData)
}
