//! One stored run, from the words of a command line to its open store. Every command that names a
//! run finds it here, and so reports an unknown, ambiguous or ended one in the same words.

use conclave_core::protocol::event::Record;
use conclave_core::types::ids::RoomId;
use conclave_core::types::outcome::Status;
use conclave_runtime::steering::SteeringError;
use conclave_runtime::store::{
    RunFilter, RunMatch, RunRow, RunState, StoreAddress, StoreError, StoreReader,
};

use crate::program::error::CliError;
use crate::state::state_folder::state_folder;
use crate::state::stores::OpenStores;
use crate::ui::show::printable;

/// Names that are listed if one is unknown or ambiguous.
const SHOWN: usize = 5;

/// A run and its store.
pub(crate) struct StoredRun {
    pub(crate) reader: StoreReader,
    /// The named room: the run's first one, or one below it.
    pub(crate) room: RoomId,
}

impl StoredRun {
    /// Opens the run or room with this name or prefix; without a name, the newest run.
    ///
    /// # Errors
    /// If there is none, with the names that exist; if the prefix is ambiguous; or if a store
    /// cannot be read.
    pub(crate) fn resolve(
        name: Option<&str>,
        store: Option<&StoreAddress>,
    ) -> Result<Self, CliError> {
        let stores = OpenStores::of(store)?;
        if let Some(name) = name {
            return stores.find(name);
        }
        let newest = stores.runs(&RunFilter { most: Some(1), ..RunFilter::default() })?;
        newest.first().map_or_else(|| Err(nothing_stored()), |row| stores.find(row.run.as_str()))
    }

    /// The run of the room: its name without those of child rooms.
    pub(crate) fn run(&self) -> RoomId {
        self.room.run()
    }

    /// Returns the run's row as it is now.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn row(&self) -> Result<RunRow, CliError> {
        let run = self.run();
        let row = self.reader.run(&run).map_err(|error| unread(error, &run))?;
        row.ok_or_else(|| CliError::usage(format!("the run {run} is not stored")))
    }

    /// The error of a command to a run that ended, was interrupted or cannot be read.
    pub(crate) fn not_in_progress(&self, error: SteeringError, what: &str) -> CliError {
        match error {
            SteeringError::Ended { .. } | SteeringError::Interrupted { .. } => {
                self.in_progress(what).err().unwrap_or_else(|| error.into())
            }
            SteeringError::Store(error) => unread(error, &self.run()),
            error => error.into(),
        }
    }

    /// Returns the run's row, if a process has the run in progress. `what` is the intended command,
    /// such as `pausing`.
    ///
    /// # Errors
    /// If the run has ended or was interrupted.
    pub(crate) fn in_progress(&self, what: &str) -> Result<RunRow, CliError> {
        let row = self.row()?;
        let run = &row.run;
        match row.state {
            // A worker takes a message to a run that waits for one.
            RunState::Running | RunState::Queued | RunState::Asleep => Ok(row),
            RunState::Ended(status) => {
                Err(has_ended(run, status, &format!("{what} is not possible")))
            }
            RunState::Interrupted => {
                let what = format!("the run {run} was interrupted, so {what} is not possible");
                Err(CliError::usage(what).hint(format!(
                    "`conclave resume {run}` resumes it, `conclave stop {run}` ends it"
                )))
            }
        }
    }
}

impl OpenStores {
    /// Returns the run or room with this name or prefix.
    ///
    /// # Errors
    /// Like [`StoredRun::resolve`].
    pub(crate) fn find(&self, name: &str) -> Result<StoredRun, CliError> {
        let (mut found, mut several) = (Vec::new(), Vec::new());
        for reader in self.readers()? {
            match reader.find(name)? {
                RunMatch::One(room) => found.push(StoredRun { reader, room }),
                RunMatch::Several(rooms) => several.extend(rooms),
                RunMatch::Nothing => {}
            }
        }
        // A full name takes precedence over longer names with the same beginning.
        let exact = found.iter().position(|one| one.room.as_str() == name);
        match (exact, found.len(), several.is_empty()) {
            (Some(index), _, _) => Ok(found.swap_remove(index)),
            (None, 1, true) => Ok(found.swap_remove(0)),
            (None, 0, true) => Err(self.unknown(name)),
            _ => {
                several.extend(found.into_iter().map(|one| one.room));
                Err(ambiguous(name, &several))
            }
        }
    }

    /// Returns readers of the stores to search: that of the named run, with the run, or all.
    ///
    /// # Errors
    /// Like [`StoredRun::resolve`].
    pub(crate) fn search(
        &self,
        name: Option<&str>,
    ) -> Result<Vec<(StoreReader, Option<RoomId>)>, CliError> {
        let Some(name) = name else {
            return Ok(self.readers()?.into_iter().map(|reader| (reader, None)).collect());
        };
        let found = self.find(name)?;
        let run = found.run();
        Ok(vec![(found.reader, Some(run))])
    }

    /// The error for a name that no stored run begins with.
    pub(crate) fn unknown(&self, name: &str) -> CliError {
        let newest =
            self.runs(&RunFilter { most: Some(SHOWN), ..RunFilter::default() }).unwrap_or_default();
        let newest: Vec<String> = newest.iter().map(|run| run.run.to_string()).collect();
        let there = match newest.as_slice() {
            [] if state_folder().is_none() && self.addresses().is_empty() => {
                return CliError::usage("no state folder is known, so no runs are stored")
                    .hint("set HOME or CONCLAVE_STATE");
            }
            [] => "no runs are stored".to_owned(),
            newest => format!("the newest are {}", newest.join(", ")),
        };
        CliError::usage(format!("no stored run begins with {}; {there}", printable(name)))
            .hint("`conclave runs` lists the stored runs; for a run with --store STORE, pass the same option")
    }
}

/// The error for stores without a run.
pub(crate) fn nothing_stored() -> CliError {
    CliError::usage("no runs are stored yet").hint(
        "`conclave run` and `conclave chat` store theirs; for a run with --store STORE, pass the same option; `conclave why --journal FOLDER` reads those with --journal",
    )
}

/// The error for a name that several runs begin with.
pub(crate) fn ambiguous(name: &str, runs: &[impl ToString]) -> CliError {
    let names: Vec<String> = runs.iter().take(SHOWN).map(ToString::to_string).collect();
    let what = format!("{} runs begin with {}: {}", runs.len(), printable(name), names.join(", "));
    CliError::usage(what).hint("write more of the id")
}

/// The error for a run that has ended. `so` is what does not happen therefore.
pub(crate) fn has_ended(run: &RoomId, status: Status, so: &str) -> CliError {
    CliError::usage(format!("the run {run} has ended ({}), so {so}", status.as_str()))
        .hint(format!("`conclave show {run}` shows what happened"))
}

/// Reads the journals of a run, room by room, its first room first.
///
/// # Errors
/// If the store cannot be read.
pub(crate) fn journals<'a>(
    reader: &'a StoreReader,
    run: &RoomId,
) -> Result<impl Iterator<Item = Result<(RoomId, Vec<Record>), CliError>> + use<'a>, CliError> {
    let rooms = reader.rooms(run)?.into_iter().map(|row| row.room);
    Ok(rooms.map(move |room| match reader.records(&room) {
        Ok(records) => Ok((room, records)),
        Err(error) => Err(unread(error, &room.run())),
    }))
}

/// The error for a run of which a part cannot be read.
fn unread(error: StoreError, run: &RoomId) -> CliError {
    let is_damaged = matches!(error, StoreError::Damaged { .. });
    let error = CliError::from(error);
    if !is_damaged {
        return error;
    }
    error.hint(format!("`conclave stop {run}` ends the run, whatever of it can be read"))
}
