//! Promises of the journal that the disk must keep: the digests of files and keys. An attempt
//! without a recorded end may have happened or not, so the file or key that it touched is not
//! checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use conclave_core::protocol::event::Event;
use conclave_core::types::side_effect::{Digest, SideEffect, SideEffectAnswer};
use sha2::{Digest as _, Sha256};

use crate::kept::Kept;

/// The expected content of a path or a key.
#[derive(Clone, Debug, Default)]
enum Content {
    /// Unknown, because a change has no recorded end.
    #[default]
    Unknown,
    Absent,
    Bytes {
        /// The offset and digest of each written piece. No two overlap.
        pieces: Vec<(u64, Digest)>,
        length: u64,
    },
}

/// The promises about files or about keys.
#[derive(Default)]
struct Promises {
    content: BTreeMap<String, Content>,
    /// The rooms that changed it, and the digests of all values that it may have.
    writers: BTreeMap<String, (BTreeSet<String>, Vec<Digest>)>,
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The number of files and keys with the promised content.
    pub(crate) checked: u64,
    pub(crate) problems: Vec<String>,
}

/// Compares a child's folder with the journals in it.
pub(crate) fn check(kept: &Kept, folder: &Path) -> Found {
    let (mut files, mut keys) = (Promises::default(), Promises::default());
    for (room, records) in &kept.rooms {
        let mut open = BTreeMap::new();
        for record in records {
            match &record.event {
                Event::SideEffectAsked { call, ordinal, side_effect } => {
                    let Some(promises) = of_kind(side_effect, &mut files, &mut keys) else {
                        continue;
                    };
                    let before = promises.asked(room.as_str(), side_effect);
                    open.insert((*call, *ordinal), (side_effect, before));
                }
                Event::SideEffectEnded {
                    call,
                    ordinal,
                    answer: SideEffectAnswer::Done { length },
                } => {
                    let Some((side_effect, before)) = open.remove(&(*call, *ordinal)) else {
                        continue;
                    };
                    if let Some(promises) = of_kind(side_effect, &mut files, &mut keys) {
                        promises.done(side_effect, before, *length);
                    }
                }
                _ => {}
            }
        }
    }
    let mut found = Found::default();
    for (path, content) in &files.content {
        let on_disk = folder.join("files").join(path.trim_start_matches("/data/"));
        found.compare(&format!("file {path}"), content, std::fs::read(on_disk).ok().as_deref());
    }
    check_keys(&keys, &folder.join("kv.sqlite"), &mut found);
    found
}

fn of_kind<'a>(
    side_effect: &SideEffect,
    files: &'a mut Promises,
    keys: &'a mut Promises,
) -> Option<&'a mut Promises> {
    match side_effect {
        SideEffect::WriteFile { .. } | SideEffect::RemoveFile { .. } => Some(files),
        SideEffect::SetKey { .. } | SideEffect::DeleteKey { .. } => Some(keys),
        SideEffect::Fetch { .. } | SideEffect::RunProgram { .. } => None,
    }
}

impl Promises {
    /// Marks the content as unknown until the side effect has ended. Returns the promise before it.
    fn asked(&mut self, room: &str, side_effect: &SideEffect) -> Content {
        let target = side_effect.target().into_owned();
        let (rooms, may_be) = self.writers.entry(target.clone()).or_default();
        rooms.insert(room.to_owned());
        if let SideEffect::WriteFile { bytes, .. } | SideEffect::SetKey { value: bytes, .. } =
            side_effect
        {
            may_be.push(bytes.clone());
        }
        self.content.insert(target, Content::Unknown).unwrap_or_default()
    }

    fn done(&mut self, side_effect: &SideEffect, before: Content, length: u64) {
        let content = match side_effect {
            SideEffect::RemoveFile { .. } | SideEffect::DeleteKey { .. } => Content::Absent,
            SideEffect::SetKey { value, .. } => {
                Content::Bytes { pieces: vec![(0, value.clone())], length: value.length }
            }
            SideEffect::WriteFile { offset, truncate, bytes, .. } => {
                let end = offset + bytes.length;
                let mut pieces = match before {
                    Content::Bytes { pieces, .. } => pieces,
                    Content::Unknown | Content::Absent => Vec::new(),
                };
                pieces.retain(|(at, piece)| {
                    at + piece.length <= *offset || (*at >= end && !truncate)
                });
                pieces.push((*offset, bytes.clone()));
                Content::Bytes { pieces, length }
            }
            SideEffect::Fetch { .. } | SideEffect::RunProgram { .. } => Content::Unknown,
        };
        self.content.insert(side_effect.target().into_owned(), content);
    }
}

fn check_keys(keys: &Promises, file: &Path, found: &mut Found) {
    let values = match values(file) {
        Ok(values) => values,
        Err(error) => return found.problems.push(format!("the keys cannot be read: {error}")),
    };
    for (key, content) in &keys.content {
        let (value, (rooms, may_be)) = (values.get(key).map(Vec::as_slice), &keys.writers[key]);
        if rooms.len() == 1 {
            found.compare(&format!("key {key}"), content, value);
            continue;
        }
        // The journals of several rooms have no common order.
        match value {
            Some(value) if may_be.iter().any(|digest| is_same(value, digest)) => found.checked += 1,
            None if matches!(content, Content::Unknown | Content::Absent) => {}
            value => found.problems.push(format!("key {key}: no room has written {value:?}")),
        }
    }
}

/// Returns every value by its key, or no values if the file was never created.
fn values(file: &Path) -> rusqlite::Result<BTreeMap<String, Vec<u8>>> {
    if !file.exists() {
        return Ok(BTreeMap::new());
    }
    let connection = rusqlite::Connection::open(file)?;
    let is_made: bool = connection.query_row(
        "SELECT count(*) FROM sqlite_master WHERE name = 'kv'",
        [],
        |row| row.get(0),
    )?;
    if !is_made {
        return Ok(BTreeMap::new());
    }
    let mut query = connection.prepare("SELECT key, value FROM kv")?;
    let rows = query.query_map([], |row| {
        Ok((String::from_utf8_lossy(&row.get::<_, Vec<u8>>(0)?).into_owned(), row.get(1)?))
    })?;
    rows.collect()
}

fn is_same(bytes: &[u8], digest: &Digest) -> bool {
    let sha256: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.len() as u64 == digest.length && sha256 == digest.sha256
}

impl Found {
    fn compare(&mut self, what: &str, content: &Content, there: Option<&[u8]>) {
        let problem = match (content, there) {
            (Content::Unknown, _) => return,
            (Content::Absent, None) => None,
            (Content::Absent, Some(_)) => Some("was removed and is there".to_owned()),
            (Content::Bytes { .. }, None) => Some("was written and is not there".to_owned()),
            (Content::Bytes { length, .. }, Some(there)) if there.len() as u64 != *length => {
                Some(format!("was written with {length} bytes and has {}", there.len()))
            }
            (Content::Bytes { pieces, .. }, Some(there)) => {
                pieces.iter().find_map(|(at, digest)| {
                    let from = usize::try_from(*at).unwrap_or(usize::MAX);
                    let piece = there.get(from..).unwrap_or_default();
                    let piece = &piece
                        [..piece.len().min(usize::try_from(digest.length).unwrap_or(usize::MAX))];
                    (!is_same(piece, digest))
                        .then(|| format!("has other bytes from {at} than were written"))
                })
            }
        };
        match problem {
            Some(problem) => {
                self.problems.push(format!("{what}: the journal says done, but it {problem}"))
            }
            None => self.checked += 1,
        }
    }
}

#[cfg(test)]
mod tests;
