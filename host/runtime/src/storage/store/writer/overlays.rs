//! Changes of overlays in a database that several hosts share: recorded by the writer's thread,
//! each with its content.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use conclave_core::overlay::changes::ChangeRecord;
use conclave_core::types::ids::RoomId;

use super::StoreWriter;
use super::attachments::ATTACHMENT_BYTES;
use super::queue::{Cause, WriterTask};
use crate::storage::store::record::{StoredBytes, part};
use crate::storage::store::{overlays, read};
use crate::support::durable_file::make_folders;
use crate::support::overlay_files::{
    self, ChangeRecorder, OverlayOrigin, OverlayPlace, RecordFailure, TakeChange, run_folder,
};

/// A change of one file in an overlay.
#[derive(Clone)]
pub(in crate::storage::store) struct OverlayChange {
    pub(in crate::storage::store) run: RoomId,
    /// The epoch by which this host has the run.
    pub(in crate::storage::store) epoch: u64,
    pub(in crate::storage::store) origin: OverlayOrigin,
    /// The number of the change in its overlay, from 1.
    pub(in crate::storage::store) number: u64,
    pub(in crate::storage::store) record: ChangeRecord,
    /// The bytes of a written file. Not stored as an attachment: no later record may name them, so
    /// they need no hold beyond the change.
    pub(in crate::storage::store) content: Option<StoredBytes>,
}

/// The answer to a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::storage::store) enum ChangeAnswer {
    Recorded,
    /// Another host has the run.
    Fenced,
    /// The overlay has changes that this host does not know.
    Behind,
    /// Retention of another host has removed the content.
    NoContent,
}

impl StoreWriter {
    /// The place of the overlays of a run that this process has by an epoch; `None` if it may keep no
    /// working copies.
    pub(super) fn overlay_place(
        self: &Arc<Self>,
        run: &RoomId,
        epoch: u64,
    ) -> Option<OverlayPlace> {
        // Each take-over has a copy of its own: one of before may have changes that were not
        // recorded.
        let name = format!("{run}.{epoch}");
        let folder = run_folder(&copies_of(self.copies.as_deref()?, self.host.as_deref()?), &name);
        let recorder = RunRecorder { writer: Arc::clone(self), run: run.clone(), epoch };
        Some(OverlayPlace::recorded(folder, Arc::new(recorder)))
    }

    /// Makes the folder of working copies with the first one.
    fn make_copies(&self) -> Result<(), RecordFailure> {
        let mut working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
        if working.is_none() {
            let (copies, host) =
                self.copies.as_deref().zip(self.host.as_deref()).ok_or_else(no_copies)?;
            let opened = WorkingCopies::open(copies, host);
            let failed =
                |error| RecordFailure::of_copy(format_args!("{}: {error}", copies.display()));
            *working = Some(opened.map_err(failed)?);
        }
        Ok(())
    }
}

/// Records the changes of a run that this process has.
struct RunRecorder {
    writer: Arc<StoreWriter>,
    run: RoomId,
    epoch: u64,
}

impl fmt::Debug for RunRecorder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("RunRecorder").field(&self.run).field(&self.epoch).finish()
    }
}

impl RunRecorder {
    fn send(&self, change: &OverlayChange) -> Result<ChangeAnswer, Cause> {
        self.writer.ask(|answer| WriterTask::Overlay(Box::new(change.clone()), answer))
    }
}

impl ChangeRecorder for RunRecorder {
    fn record(
        &self,
        origin: &OverlayOrigin,
        number: u64,
        record: &ChangeRecord,
        content: Option<&[u8]>,
    ) -> Result<(), RecordFailure> {
        let change = OverlayChange {
            run: self.run.clone(),
            epoch: self.epoch,
            origin: origin.clone(),
            number,
            record: record.clone(),
            content: content.map(|bytes| part(bytes.to_vec())),
        };
        let mut answer = self.send(&change);
        if matches!(answer, Ok(ChangeAnswer::NoContent)) {
            answer = self.send(&change);
        }
        match answer {
            Ok(ChangeAnswer::Recorded) => Ok(()),
            Ok(ChangeAnswer::Fenced) => Err(RecordFailure::Fenced),
            Ok(ChangeAnswer::Behind) => Err(RecordFailure::Behind),
            Ok(ChangeAnswer::NoContent) => {
                Err(RecordFailure::of_store("retention has removed the content meanwhile"))
            }
            Err(cause) => Err(RecordFailure::of_store(cause.text)),
        }
    }

    fn recorded(&self, origin: &OverlayOrigin, take: TakeChange<'_>) -> Result<u64, RecordFailure> {
        self.writer.make_copies()?;
        let (run, dir) = (self.run.clone(), origin.dir.clone());
        // The number first: changes that come meanwhile make the next one of this host refused.
        let number = self.writer.read_now(move |tables| overlays::number(tables, &run, &dir));
        let number = number.map_err(RecordFailure::of_store)?;
        let (run, dir) = (self.run.clone(), origin.dir.clone());
        let files = self.writer.read_now(move |tables| overlays::files(tables, &run, &dir));
        for file in files.map_err(RecordFailure::of_store)? {
            let content = match file.content {
                Some(sha256) => {
                    let content = self.writer.read_now(move |it| read::attachment(it, &sha256));
                    content.map_err(RecordFailure::of_store)?
                }
                None => None,
            };
            take(file.record, content.as_deref()).map_err(RecordFailure::of_copy)?;
        }
        Ok(number)
    }

    fn most_bytes(&self) -> u64 {
        ATTACHMENT_BYTES as u64
    }
}

fn no_copies() -> RecordFailure {
    RecordFailure::of_copy("this host has no folder for them")
}

/// The folder of this process's working copies, which goes with it.
pub(super) struct WorkingCopies {
    folder: PathBuf,
    _lock: File,
}

/// The folder of a host among those of all processes of this machine.
fn copies_of(copies: &Path, host: &str) -> PathBuf {
    copies.join(&crate::support::digest::sha256(host.as_bytes())[..16])
}

impl WorkingCopies {
    /// Makes the folder of this host, and removes those of processes that were killed.
    fn open(copies: &Path, host: &str) -> io::Result<Self> {
        make_folders(copies, 0o700)?;
        let mut options = OpenOptions::new();
        let all = options.create(true).truncate(false).write(true).open(copies.join("lock"))?;
        // Held while folders come and go, so that none is removed between its creation and its lock.
        all.lock()?;
        for entry in std::fs::read_dir(copies)? {
            let folder = entry?.path();
            if folder.is_dir() && overlay_files::lock(&folder).is_ok_and(|lock| lock.is_some()) {
                // What cannot be removed is in nobody's way.
                let _ = std::fs::remove_dir_all(folder);
            }
        }
        let folder = copies_of(copies, host);
        make_folders(&folder, 0o700)?;
        let lock = overlay_files::lock(&folder)?;
        let lock = lock.ok_or_else(|| io::Error::from(io::ErrorKind::ResourceBusy))?;
        Ok(Self { folder, _lock: lock })
    }
}

impl Drop for WorkingCopies {
    fn drop(&mut self) {
        // What stays is removed by the next process.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
