//! The recorded reads of a call whose result may differ later. They are replayed in order, and
//! journalled before anything that depends on them may leave the call.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use conclave_core::protocol::call_log::LoggedRead;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{CallReplay, ReplayState};
use crate::support::digest::sha256;

/// Maximum bytes of a piece in the journal itself. A larger one is stored as a blob.
const PIECE: usize = 256 << 10;
/// Bytes of buffered reads above which they are journalled at once.
const LOOSE: usize = 1 << 20;
/// Bytes of recorded reads above which a call is no longer suspended.
const HELD: usize = 1 << 20;
/// Overhead of a recorded read, in bytes.
const ENTRY: usize = 64;

/// The recorded result of a read.
pub(crate) enum Recalled<T> {
    /// The recorded result.
    Before(T),
    /// None is recorded: the call reads for the first time.
    Now,
    /// The read differs from the recorded one. The call ends, so the answer to the guest does not
    /// matter.
    Lost,
}

/// Bytes as the journal stores them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Packed {
    /// Valid UTF-8, unchanged.
    Text(String),
    Base64(String),
    /// The SHA-256 of a blob.
    Blob(String),
}

impl CallReplay {
    /// The recorded result of the next read.
    pub(crate) fn recall<T: DeserializeOwned>(&self, import: &str, target: &str) -> Recalled<T> {
        if self.check().is_err() {
            return Recalled::Lost;
        }
        let mut state = self.state();
        let Some(read) = state.trace.reads.get(state.replayed) else { return Recalled::Now };
        if read.import != import || read.target != target {
            self.lose(&format!(
                "it read something else than before: {import} {target} and not {} {}",
                read.import, read.target
            ));
            return Recalled::Lost;
        }
        let Ok(answer) = T::deserialize(&read.answer) else {
            self.lose(&format!(
                "what it read is kept in a form that this version does not know: {import} {target}"
            ));
            return Recalled::Lost;
        };
        state.replayed += 1;
        Recalled::Before(answer)
    }

    /// Records the result of a read. `size` is its approximate size in bytes.
    pub(crate) fn keep<T: Serialize>(&self, import: &str, target: &str, answer: &T, size: usize) {
        if !self.records {
            return;
        }
        // Recorded values consist of texts and numbers, so this does not fail in practice.
        let Ok(answer) = serde_json::to_value(answer) else { return self.forget() };
        let mut state = self.state();
        state.trace.reads.push(LoggedRead {
            import: import.to_owned(),
            target: target.to_owned(),
            answer,
        });
        state.replayed = state.trace.reads.len();
        let size = size + import.len() + target.len() + ENTRY;
        state.loose += size;
        state.read_bytes += size;
        state.forgetful |= state.read_bytes > HELD;
        if state.loose > LOOSE {
            self.keep_reads(&mut state);
        }
    }

    /// Journals the reads that are not journalled yet.
    pub(super) fn keep_reads(&self, state: &mut ReplayState) {
        let ReplayState { trace, replayed, journalled, forgetful, .. } = state;
        if *journalled < trace.reads.len() {
            self.effects.read(self.call, trace.reads[*journalled..].to_vec());
            *journalled = trace.reads.len();
            // The call cannot be replayed any more, so the memory of its reads is released.
            if *forgetful && *replayed == *journalled {
                trace.reads.clear();
                (*replayed, *journalled) = (0, 0);
            }
        }
        state.loose = 0;
    }

    /// Packs bytes for the journal; also returns their approximate size.
    pub(crate) fn pack(&self, bytes: &[u8]) -> (Packed, usize) {
        // The result is discarded by `keep`, so packing would be wasted.
        if !self.records {
            return (Packed::Text(String::new()), 0);
        }
        if bytes.len() > PIECE {
            if self.blobs.keep(bytes, "application/octet-stream", None).is_err() {
                self.forget();
            }
            return (Packed::Blob(sha256(bytes)), 64);
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => (Packed::Text(text.to_owned()), bytes.len()),
            Err(_) => (Packed::Base64(BASE64.encode(bytes)), bytes.len() / 3 * 4),
        }
    }

    /// Returns the packed bytes. If they are gone, returns `None` and ends the call.
    pub(crate) fn unpack(&self, packed: Packed) -> Option<Vec<u8>> {
        let bytes = match packed {
            Packed::Text(text) => Some(text.into_bytes()),
            Packed::Base64(text) => BASE64.decode(text).ok(),
            Packed::Blob(sha256) => return self.blob(&sha256, None, "what it read"),
        };
        if bytes.is_none() {
            self.lose("what it read is not kept any more");
        }
        bytes
    }

    /// Returns the blob of this digest; an empty one is not stored. If it is gone or cannot be read,
    /// returns `None` and ends the call, whose fault names it as `what`.
    pub(crate) fn blob(&self, sha256: &str, length: Option<u64>, what: &str) -> Option<Vec<u8>> {
        if length == Some(0) {
            return Some(Vec::new());
        }
        match self.blobs.read(sha256) {
            Ok(Some(bytes)) => return Some(bytes.to_vec()),
            Ok(None) => self.lose(&format!("{what} is not kept any more")),
            Err(error) => self.lose(&format!("{what} is not known: {error}")),
        }
        None
    }
}
