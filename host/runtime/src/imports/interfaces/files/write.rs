//! The `files` import: changes in writable folders. A change is journalled before it is made, and
//! its end before the plugin learns of it.

use conclave_core::permissions::paths::GuestPath;
use conclave_core::types::capability::Capability;
use conclave_core::types::denial::{DenialRecord, Layer};
use conclave_core::types::side_effect::SideEffect;

use super::replay::{SYNC, change_ended, changed_before, recall};
use super::{FileError, FilesImport, GrantedPath};
use crate::imports::call::digest;
use crate::imports::folder::{CallFolder, FileChange, FileModes, FolderFailure};

impl FilesImport<'_> {
    /// Resolves a path for writing, without changing anything, and records a refusal.
    pub(crate) fn may_write(&mut self, path: &str) -> Result<GrantedPath, FileError> {
        let record = match self.find(path, true).and_then(|place| self.writable(path, place)) {
            Ok(place) if place.rest.is_empty() => return Err(FileError::NotAFile),
            Ok(place) => return Ok(place),
            Err(record) => record,
        };
        Err(FileError::Denied(self.core.refuse(*record)))
    }

    fn writable(&self, path: &str, place: GrantedPath) -> Result<GrantedPath, Box<DenialRecord>> {
        let refused = |reason: &str| {
            self.core.rights().refuse(Capability::Files, path, Layer::Runtime, reason, None)
        };
        let refuse = |reason: &str| Box::new(DenialRecord { writes: true, ..*refused(reason) });
        let parsed = GuestPath::parse(path).map_err(refuse)?;
        match parsed.check_new() {
            Ok(()) => Ok(place),
            Err(reason) => Err(refuse(reason)),
        }
    }

    /// Writes a file and returns its new length.
    pub(crate) async fn write_file(
        &mut self,
        path: &str,
        offset: u64,
        bytes: Vec<u8>,
        truncate: bool,
    ) -> Result<u64, FileError> {
        let place = self.may_write(path)?;
        let quota = self.core.plugin.folders[place.folder].byte_quota();
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
        let durable = self.core.replay.survives_power_cuts();
        let change = move |folder: &CallFolder, rest: &str| {
            let modes = FileModes::Plugin;
            folder.write(FileChange { rest, offset, bytes: &bytes, truncate, durable, modes })
        };
        self.change_file(path, place, side_effect, change).await
    }

    /// Removes a file; an absent file is no error.
    pub(crate) async fn remove_file(&mut self, path: &str) -> Result<(), FileError> {
        let place = self.may_write(path)?;
        let side_effect = SideEffect::RemoveFile { path: path.to_owned() };
        let durable = self.core.replay.survives_power_cuts();
        self.change_file(path, place, side_effect, move |folder, rest| {
            folder.remove(rest, durable).map(|()| 0)
        })
        .await
        .map(drop)
    }

    /// Syncs a path to the disk, regardless of the journal's durability.
    pub(crate) async fn sync_file(&mut self, path: &str) -> Result<(), FileError> {
        let place = self.may_read(path)?;
        let synced = match recall(&self.core.replay, SYNC, path) {
            Some(synced) => synced,
            None => {
                let folder = self.folder(place.folder);
                let synced = self.off_loop(move || folder.sync(&place.rest)).await;
                let synced = synced.map_err(|trouble| self.failure_of(path, &trouble));
                self.core.replay.keep(SYNC, path, &synced, 0);
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
        let (ordinal, before) = self.core.begin(side_effect).await.map_err(FileError::Denied)?;
        let outcome = if let Some(answer) = before {
            changed_before(&self.core.replay, ordinal, answer)
        } else {
            let folder = self.folder(place.folder);
            let result = self.off_loop(move || change(&folder, &place.rest)).await;
            let failure_of = |trouble: &FolderFailure| self.failure_of(path, trouble);
            let (answer, outcome) = change_ended(&self.core.replay, ordinal, result, failure_of);
            self.core.end(ordinal, answer).await;
            outcome
        };
        outcome.map_err(|failure| self.file_error(failure))
    }
}
