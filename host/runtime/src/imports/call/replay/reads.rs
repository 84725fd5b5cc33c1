//! What a call reads, and what may read otherwise later: told again in order, and journalled before
//! anything may leave that depends on it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use conclave_core::protocol::call_log::LoggedRead;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{CallReplay, ReplayState};
use crate::support::digest::sha256;

/// Bytes of the largest piece that stands in the journal itself; a larger one is a blob.
const PIECE: usize = 256 << 10;
/// Bytes of reads that wait to be journalled; past them they are, whatever comes next.
const LOOSE: usize = 1 << 20;
/// Bytes of reads that a call is held to be worth parking with.
const HELD: usize = 1 << 20;
/// What an entry costs besides its answer.
const ENTRY: usize = 64;

/// What a call read there before.
pub(crate) enum Recalled<T> {
    /// It was told this.
    Before(T),
    /// It has not come so far.
    Now,
    /// It read something else, and ends; whatever the guest is told, nothing comes of it.
    Lost,
}

/// Bytes in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Packed {
    /// As they are, where they are text.
    Text(String),
    Base64(String),
    /// Kept with the attachments, under its SHA-256.
    Blob(String),
}

impl CallReplay {
    /// What was read here before.
    pub(crate) fn recall<T: DeserializeOwned>(&self, import: &str, target: &str) -> Recalled<T> {
        if self.check().is_err() {
            return Recalled::Lost;
        }
        let mut known = self.known();
        let Some(read) = known.trace.reads.get(known.told) else { return Recalled::Now };
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
        known.told += 1;
        Recalled::Before(answer)
    }

    /// Keeps what was read now. `size` is about what it takes.
    pub(crate) fn keep<T: Serialize>(&self, import: &str, target: &str, answer: &T, size: usize) {
        if !self.records {
            return;
        }
        // What is kept is made of texts and numbers.
        let Ok(answer) = serde_json::to_value(answer) else { return self.forget() };
        let mut known = self.known();
        known.trace.reads.push(LoggedRead {
            import: import.to_owned(),
            target: target.to_owned(),
            answer,
        });
        known.told = known.trace.reads.len();
        let size = size + import.len() + target.len() + ENTRY;
        known.loose += size;
        known.held += size;
        known.forgetful |= known.held > HELD;
        if known.loose > LOOSE {
            self.keep_reads(&mut known);
        }
    }

    /// Journals what was read and is not journalled yet.
    pub(super) fn keep_reads(&self, known: &mut ReplayState) {
        let ReplayState { trace, told, kept, forgetful, .. } = known;
        if *kept < trace.reads.len() {
            self.effects.read(self.call, trace.reads[*kept..].to_vec());
            *kept = trace.reads.len();
            if *forgetful && *told == *kept {
                trace.reads.clear();
                (*told, *kept) = (0, 0);
            }
        }
        known.loose = 0;
    }

    /// Bytes as they are kept, and about what they take.
    pub(crate) fn pack(&self, bytes: &[u8]) -> (Packed, usize) {
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

    /// The bytes again; none when they are gone, and the call ends.
    pub(crate) fn unpack(&self, packed: Packed) -> Option<Vec<u8>> {
        let bytes = match packed {
            Packed::Text(text) => Some(text.into_bytes()),
            Packed::Base64(text) => BASE64.decode(text).ok(),
            Packed::Blob(sha256) => self.blob(&sha256, None),
        };
        if bytes.is_none() {
            self.lose("what it read is not kept any more");
        }
        bytes
    }

    /// A blob of this digest, and of this length where it is known.
    pub(crate) fn blob(&self, sha256: &str, length: Option<u64>) -> Option<Vec<u8>> {
        if length == Some(0) {
            return Some(Vec::new());
        }
        self.blobs.read(sha256).map(|bytes| bytes.to_vec())
    }
}
