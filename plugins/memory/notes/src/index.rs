//! The index: the notes that contain a word, with its count and the length of each. It is split
//! into 64 pieces, so that neither a new note nor a search reads all of it.

use std::collections::BTreeMap;

use conclave_sdk::kv::KvError;
use serde::{Deserialize, Serialize};

use crate::store::Store;

const PIECES: u32 = 64;

/// A word in a note: the note's number, the word's count, and the number of words in the note.
pub(crate) type Posting = (u64, u32, u32);

/// One piece of the index, by word.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Piece(BTreeMap<String, Vec<Posting>>);

/// The key of a word's piece.
fn key_of(word: &str) -> String {
    // FNV-1a: the same in every version and on every machine.
    let hash = word
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("index/{:02}", hash % PIECES)
}

/// Returns a stored piece, empty if it is absent or unreadable.
fn read(store: &impl Store, key: &str) -> Result<(Option<Vec<u8>>, Piece), KvError> {
    let bytes = store.get(key)?;
    let piece =
        bytes.as_deref().and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default();
    Ok((bytes, piece))
}

/// Returns the notes that contain a word.
pub(crate) fn postings(store: &impl Store, word: &str) -> Result<Vec<Posting>, KvError> {
    Ok(read(store, &key_of(word))?.1.0.remove(word).unwrap_or_default())
}

/// Adds a note's words. If it fails, the index is unchanged.
pub(crate) fn add(store: &mut impl Store, note: u64, words: &[String]) -> Result<(), KvError> {
    change(store, words, |piece, word, count| {
        let postings = piece.0.entry(word.to_owned()).or_default();
        postings.retain(|(of, ..)| *of != note);
        postings.push((note, count, words.len() as u32));
    })
}

/// Removes a note's words.
pub(crate) fn remove(store: &mut impl Store, note: u64, words: &[String]) -> Result<(), KvError> {
    change(store, words, |piece, word, _| {
        let is_empty = piece.0.get_mut(word).is_some_and(|postings| {
            postings.retain(|(of, ..)| *of != note);
            postings.is_empty()
        });
        if is_empty {
            piece.0.remove(word);
        }
    })
}

fn change(
    store: &mut impl Store,
    words: &[String],
    change: impl Fn(&mut Piece, &str, u32),
) -> Result<(), KvError> {
    let mut pieces: BTreeMap<String, BTreeMap<&str, u32>> = BTreeMap::new();
    for word in words {
        *pieces.entry(key_of(word)).or_default().entry(word).or_default() += 1;
    }
    // The old bytes are kept, so that a failure can restore the pieces written before it.
    let mut changed: Vec<(String, Option<Vec<u8>>)> = Vec::new();
    for (key, counts) in pieces {
        let (bytes, mut piece) = read(store, &key)?;
        counts.iter().for_each(|(word, count)| change(&mut piece, word, *count));
        let new = serde_json::to_vec(&piece).map_err(|error| KvError::Other(error.to_string()))?;
        let set = if piece.0.is_empty() { store.delete(&key) } else { store.set(&key, &new) };
        if let Err(error) = set {
            // Restoring cannot exceed the quota: the old bytes fitted before.
            for (key, bytes) in changed {
                let _ = match bytes {
                    Some(bytes) => store.set(&key, &bytes),
                    None => store.delete(&key),
                };
            }
            return Err(error);
        }
        changed.push((key, bytes));
    }
    Ok(())
}
