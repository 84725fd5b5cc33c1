//! Reads and changes of files as a replay repeats them, for the `files` import and for the streams
//! of `wasi:filesystem`.

use conclave_core::types::side_effect::SideEffectAnswer;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::FileFailure;
use crate::imports::call::{CallReplay, Recalled};
use crate::imports::folder::FolderFailure;

/// Names of the reads in the journal.
pub(crate) const LOOK: &str = "files.look";
const READ: &str = "files.read";
pub(super) const LIST: &str = "files.list-entries";
pub(super) const SYNC: &str = "files.sync";

type Outcome<T> = Result<T, FileFailure>;

/// The recorded result of a read; `None` if the call reads for the first time.
pub(super) fn recall<T: DeserializeOwned>(
    replay: &CallReplay,
    import: &str,
    target: &str,
) -> Option<Outcome<T>> {
    match replay.recall(import, target) {
        Recalled::Before(result) => Some(result),
        Recalled::Lost => Some(Err(FileFailure::deviated())),
        Recalled::Now => None,
    }
}

/// Returns the recorded result of a read, or reads and records it.
pub(crate) fn recorded<T: DeserializeOwned + Serialize>(
    replay: &CallReplay,
    import: &str,
    target: &str,
    read: impl FnOnce() -> Outcome<T>,
) -> Outcome<T> {
    recall(replay, import, target).unwrap_or_else(|| {
        let result = read();
        replay.keep(import, target, &result, 64);
        result
    })
}

/// The recorded bytes of a read; `None` if the call reads for the first time.
pub(crate) fn recall_bytes(replay: &CallReplay, target: &str) -> Option<Outcome<Vec<u8>>> {
    let packed = recall(replay, READ, target)?;
    Some(packed.and_then(|packed| replay.unpack(packed).ok_or_else(FileFailure::deviated)))
}

/// Records the bytes of a read.
pub(crate) fn keep_bytes(replay: &CallReplay, target: &str, bytes: &Outcome<Vec<u8>>) {
    let packed = bytes.as_ref().map(|bytes| replay.pack(bytes)).map_err(FileFailure::clone);
    let size = packed.as_ref().map_or(0, |(_, size)| *size);
    replay.keep(READ, target, &packed.map(|(packed, _)| packed), size);
}

/// The outcome of a change for the journal, and for the plugin.
pub(crate) fn change_ended(
    replay: &CallReplay,
    ordinal: u32,
    result: Result<u64, FolderFailure>,
    failure_of: impl FnOnce(&FolderFailure) -> FileFailure,
) -> (SideEffectAnswer, Outcome<u64>) {
    let trouble = match result {
        Ok(length) => return (SideEffectAnswer::Done { length }, Ok(length)),
        Err(trouble) => trouble,
    };
    let failure = failure_of(&trouble);
    // Kept before the end of the effect is journalled: a replay needs the whole record.
    if let FileFailure::Denied(record) = &failure {
        replay.keep_record(ordinal, record);
    }
    (failure.answer(&trouble), Err(failure))
}

/// Returns the recorded outcome of a change.
pub(crate) fn changed_before(
    replay: &CallReplay,
    ordinal: u32,
    answer: SideEffectAnswer,
) -> Outcome<u64> {
    Err(match answer {
        SideEffectAnswer::Done { length } => return Ok(length),
        SideEffectAnswer::Denied { denial } => FileFailure::Denied(replay.record(ordinal, denial)),
        SideEffectAnswer::Failed { cause, message } => FileFailure::from_journal(cause, message),
        SideEffectAnswer::Fetched { .. } | SideEffectAnswer::Ran { .. } => FileFailure::deviated(),
    })
}
