//! The `files` import: changes in writable folders. A change is journalled before it is made, and
//! its end before the plugin learns of it.

use conclave_core::types::capability::Capability;
use conclave_core::types::denial::{DenialRecord, Layer};
use conclave_core::types::side_effect::{SideEffect, SideEffectAnswer};

use super::{FileError, FileFailure, GrantedPath, SYNC};
use crate::imports::call::{CallState, Recalled};
use crate::imports::interfaces::folder::{CallFolder, FileChange, FileModes, FolderFailure};
use crate::imports::interfaces::journalled::{EffectStart, digest};
use crate::imports::interfaces::path::GuestPath;

impl CallState {
    /// Resolves a path for writing, and records a refusal.
    fn place_to_write(&mut self, path: &str) -> Result<GrantedPath, FileError> {
        let record = match self.find(path, true).and_then(|place| self.writable(path, place)) {
            Ok(place) if place.rest.is_empty() => return Err(FileError::NotAFile),
            Ok(place) => return Ok(place),
            Err(record) => record,
        };
        Err(FileError::Denied(self.refuse(*record)))
    }

    fn writable(&self, path: &str, place: GrantedPath) -> Result<GrantedPath, Box<DenialRecord>> {
        let refused = |reason: &str| {
            self.rights().refuse(Capability::Files, path, Layer::Runtime, reason, None)
        };
        let refuse = |reason: &str| Box::new(DenialRecord { writes: true, ..*refused(reason) });
        let parsed = GuestPath::parse(path).map_err(refuse)?;
        match parsed.check_new() {
            Ok(()) => Ok(place),
            Err(reason) => Err(refuse(reason)),
        }
    }

    /// Checks a path like a write, without changing anything.
    pub(crate) fn may_write(&mut self, path: &str) -> Result<GrantedPath, FileError> {
        self.place_to_write(path)
    }

    /// Writes a file and returns its new length.
    pub(crate) async fn write_file(
        &mut self,
        path: &str,
        offset: u64,
        bytes: Vec<u8>,
        truncate: bool,
    ) -> Result<u64, FileError> {
        let place = self.place_to_write(path)?;
        let quota = self.plugin.folders[place.folder].byte_quota();
        // A change that can never fit is not journalled.
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > quota) {
            return Err(FileError::QuotaExceeded(quota));
        }
        let side_effect = SideEffect::WriteFile {
            path: path.to_owned(),
            offset,
            truncate,
            bytes: digest(&bytes),
        };
        let durable = self.replay.survives_power_cuts();
        let change = move |folder: &CallFolder, rest: &str| {
            let modes = FileModes::Plugin;
            folder.write(FileChange { rest, offset, bytes: &bytes, truncate, durable, modes })
        };
        self.change_file(path, place, side_effect, change).await
    }

    /// Removes a file; an absent file is no error.
    pub(crate) async fn remove_file(&mut self, path: &str) -> Result<(), FileError> {
        let place = self.place_to_write(path)?;
        let side_effect = SideEffect::RemoveFile { path: path.to_owned() };
        let durable = self.replay.survives_power_cuts();
        self.change_file(path, place, side_effect, move |folder, rest| {
            folder.remove(rest, durable).map(|()| 0)
        })
        .await
        .map(drop)
    }

    /// Syncs a path to the disk, regardless of the journal's durability.
    pub(crate) async fn sync_file(&mut self, path: &str) -> Result<(), FileError> {
        let place = self.may_read(path)?;
        let synced = match self.replay.recall::<Result<(), FileFailure>>(SYNC, path) {
            Recalled::Before(synced) => synced,
            Recalled::Lost => Err(FileFailure::deviated()),
            Recalled::Now => {
                let folder = self.folder(place.folder);
                let synced = self.off_loop(move || folder.sync(&place.rest)).await;
                let synced = synced
                    .unwrap_or_else(|| Err(FolderFailure::Other(std::io::ErrorKind::Other.into())));
                let synced = synced.map_err(|trouble| self.failure_of(path, &trouble));
                self.replay.keep(SYNC, path, &synced, 0);
                synced
            }
        };
        synced.map_err(|failure| self.file_error(failure))
    }

    async fn change_file(
        &mut self,
        path: &str,
        place: GrantedPath,
        side_effect: SideEffect,
        change: impl FnOnce(&CallFolder, &str) -> Result<u64, FolderFailure> + Send + 'static,
    ) -> Result<u64, FileError> {
        let ordinal = match self.begin(side_effect).await.map_err(FileError::Denied)? {
            EffectStart::Now(ordinal) => ordinal,
            EffectStart::Before(ordinal, answer) => {
                return self.file_changed_before(ordinal, answer);
            }
        };
        let folder = self.folder(place.folder);
        let result = self.off_loop(move || change(&folder, &place.rest)).await;
        let result =
            result.unwrap_or_else(|| Err(FolderFailure::Other(std::io::ErrorKind::Other.into())));
        let (answer, outcome) = match result {
            Ok(length) => (SideEffectAnswer::Done { length }, Ok(length)),
            Err(trouble) => {
                let failure = self.failure_of(path, &trouble);
                (failure.answer(&trouble), Err(failure))
            }
        };
        // Kept before the end of the effect is journalled: a replay needs the whole record.
        if let Err(FileFailure::Denied(record)) = &outcome {
            self.replay.keep_record(ordinal, record);
        }
        self.end(ordinal, answer).await;
        outcome.map_err(|failure| self.file_error(failure))
    }

    /// Returns the recorded outcome of a change.
    fn file_changed_before(
        &mut self,
        ordinal: u32,
        answer: SideEffectAnswer,
    ) -> Result<u64, FileError> {
        let failure = match answer {
            SideEffectAnswer::Done { length } => return Ok(length),
            SideEffectAnswer::Denied { denial } => {
                FileFailure::Denied(self.replay.record(ordinal, denial))
            }
            SideEffectAnswer::Failed { cause, message } => {
                FileFailure::from_journal(cause, message)
            }
            SideEffectAnswer::Fetched { .. } | SideEffectAnswer::Ran { .. } => {
                FileFailure::deviated()
            }
        };
        Err(self.file_error(failure))
    }
}
