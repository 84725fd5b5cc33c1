//! Overlays whose changes are recorded where other hosts find them. The files of an overlay on this
//! machine are then a working copy, which is built from the recorded changes.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conclave_core::overlay::changes::{ChangeRecord, Changes};
use conclave_core::types::ids::RoomId;

use super::{FILES, LOG, OverlayLog, OverlayOrigin, content_name, run_folder};

/// The place of a run's overlays.
#[derive(Clone, Debug)]
pub struct OverlayPlace {
    folder: PathBuf,
    recorder: Option<Arc<dyn ChangeRecorder>>,
}

impl OverlayPlace {
    /// The place of a run in the folder of a store, beside its journals.
    #[must_use]
    pub fn in_folder(store: &Path, run: &RoomId) -> Self {
        Self { folder: run_folder(store, run.as_str()), recorder: None }
    }

    /// A working copy in a folder of this process, whose changes are recorded elsewhere.
    #[cfg(feature = "postgres")]
    pub(crate) fn recorded(folder: PathBuf, recorder: Arc<dyn ChangeRecorder>) -> Self {
        Self { folder, recorder: Some(recorder) }
    }

    /// The folder of the run's overlays, which need not exist.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The recorder of the changes; `None` if the folder itself is the store.
    pub(crate) fn recorder(&self) -> Option<&Arc<dyn ChangeRecorder>> {
        self.recorder.as_ref()
    }
}

/// The reason why a change was not recorded. A plugin reads the text, and the operator the cause, too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "one place has a recorder"))]
pub(crate) enum RecordFailure {
    #[error("another host has taken the run over")]
    Fenced,
    #[error("somebody else has changed the run's changes meanwhile, such as `conclave diff`")]
    Behind,
    #[error("no working copy of the changes can be kept on this machine")]
    Copy { cause: String },
    #[error("the store of the run cannot be used")]
    Store { cause: String },
}

impl RecordFailure {
    /// What the operator must mend on this machine or in the store; `None` if nothing is broken.
    pub(crate) fn cause(&self) -> Option<&str> {
        match self {
            Self::Copy { cause } | Self::Store { cause } => Some(cause),
            Self::Fenced | Self::Behind => None,
        }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn of_store(error: impl fmt::Display) -> Self {
        Self::Store { cause: error.to_string() }
    }

    pub(crate) fn of_copy(error: impl fmt::Display) -> Self {
        Self::Copy { cause: error.to_string() }
    }
}

/// Records the changes of one run's overlays, as the host that has the run.
pub(crate) trait ChangeRecorder: fmt::Debug + Send + Sync {
    /// Records the next change of an overlay. `content` is that of a written file. The change
    /// survives a power cut when this returns.
    fn record(
        &self,
        origin: &OverlayOrigin,
        number: u64,
        change: &ChangeRecord,
        content: Option<&[u8]>,
    ) -> Result<(), RecordFailure>;

    /// Passes the recorded changes of an overlay to `take`, each with its content unless it is lost,
    /// and returns the number of the newest change.
    fn recorded(&self, origin: &OverlayOrigin, take: TakeChange<'_>) -> Result<u64, RecordFailure>;

    /// Maximum bytes of a changed file.
    fn most_bytes(&self) -> u64;
}

/// Takes a recorded change with its content.
pub(crate) type TakeChange<'a> = &'a mut dyn FnMut(ChangeRecord, Option<&[u8]>) -> io::Result<()>;

/// Builds the working copy of an overlay anew, and returns the number of its newest change. The
/// first reads of this host stay. Without a change there is no working copy.
pub(crate) fn check_out(
    recorder: &dyn ChangeRecorder,
    origin: &OverlayOrigin,
    overlay: &Path,
) -> Result<u64, RecordFailure> {
    let failed =
        |error: io::Error| RecordFailure::of_copy(format_args!("{}: {error}", overlay.display()));
    remove_if_there(std::fs::remove_file(overlay.join(LOG))).map_err(failed)?;
    remove_if_there(std::fs::remove_dir_all(overlay.join(FILES))).map_err(failed)?;
    let (mut log, mut changes) = (None, Changes::default());
    let number = recorder.recorded(origin, &mut |change, content| {
        if log.is_none() {
            log = Some(OverlayLog::create(overlay, origin)?);
        }
        if let (ChangeRecord::Written { path, .. }, Some(bytes)) = (&change, content) {
            let file = overlay.join(FILES).join(content_name(path));
            write_new(&file, bytes)?;
        }
        changes.take(change);
        Ok(())
    })?;
    if let Some(mut log) = log {
        log.rewrite(&changes).map_err(failed)?;
    }
    Ok(number)
}

/// Writes a file of a working copy, which need not survive a power cut.
fn write_new(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.create_new(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)?.write_all(bytes)
}

fn remove_if_there(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}
