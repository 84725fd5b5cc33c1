//! The notes, each under its own key with an increasing number, and their count. A note is written
//! before its index, so that an interrupted write can still be listed and forgotten. An index entry
//! without its note is ignored.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use conclave_sdk::kv::KvError;
use conclave_sdk::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::store::Store;
use crate::words::words;
use crate::{index, vectors};

pub(crate) const MOST_NOTES: u64 = 10_000;
const MOST_BYTES: usize = 32 * 1024;
const MOST_TAGS: usize = 16;
const MOST_TAG_BYTES: usize = 64;
/// Words of a query that are looked up.
const MOST_QUERY_WORDS: usize = 64;
/// The usual BM25 constants: the saturation of repeated words, and the penalty for long notes.
const SATURATION: f64 = 1.2;
const LENGTH_WEIGHT: f64 = 0.75;
/// The usual constant of reciprocal rank fusion: the weight of the first ranks against later ones.
const RANK_WEIGHT: f64 = 60.0;
const TOTALS: &str = "totals";

/// A note in its stored form.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Note {
    pub(crate) text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
}

impl Note {
    fn words(&self) -> Vec<String> {
        words(&self.searched())
    }

    /// Returns what a query is compared with.
    fn searched(&self) -> String {
        [self.tags.join(" "), self.text.clone()].join(" ")
    }
}

/// A note with its number.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Found {
    pub(crate) id: u64,
    #[serde(flatten)]
    pub(crate) note: Note,
}

/// The number of notes, their words, and the next number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Totals {
    next: u64,
    pub(crate) notes: u64,
    words: u64,
}

fn key_of(id: u64) -> String {
    format!("note/{id:012}")
}

fn totals(store: &impl Store) -> Result<Totals> {
    match store.get(TOTALS).map_err(readable)? {
        Some(bytes) => serde_json::from_slice(&bytes)
            .map_err(|error| Error::other(format!("the notes cannot be read: {error}"))),
        None => Ok(Totals { next: 1, ..Totals::default() }),
    }
}

fn set_totals(store: &mut impl Store, totals: Totals) -> Result<()> {
    store.set(TOTALS, &serde_json::to_vec(&totals)?).map_err(readable)
}

/// Adds a remedy for the operator or the model.
fn readable(error: KvError) -> Error {
    match error {
        KvError::QuotaExceeded(limit) => Error::other(format!(
            "The memory is full: it may hold {limit} (bytes or keys). Nothing was kept; forget notes that are not needed any more."
        )),
        error => error.into(),
    }
}

/// Stores a note. Returns its number and the count of notes.
pub(crate) fn remember(
    store: &mut impl Store,
    text: &str,
    tags: Vec<String>,
) -> Result<(u64, u64)> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Error::invalid_arguments("text: there is nothing to remember"));
    }
    if text.len() > MOST_BYTES {
        return Err(Error::invalid_arguments(format!(
            "text: has {} bytes, and a note may have {MOST_BYTES}; remember what matters of it",
            text.len()
        )));
    }
    if tags.len() > MOST_TAGS || tags.iter().any(|tag| tag.is_empty() || tag.len() > MOST_TAG_BYTES)
    {
        return Err(Error::invalid_arguments(format!(
            "tags: at most {MOST_TAGS}, each of 1 to {MOST_TAG_BYTES} bytes"
        )));
    }
    let before = totals(store)?;
    if before.notes >= MOST_NOTES {
        return Err(Error::other(format!(
            "The memory is full: it holds {MOST_NOTES} notes. Nothing was kept; forget notes that are not needed any more."
        )));
    }
    let (id, note) = (before.next, Note { text: text.to_owned(), tags });
    let words = note.words();
    // The number is reserved first, so that no other note ever gets it.
    let after =
        Totals { next: id + 1, notes: before.notes + 1, words: before.words + words.len() as u64 };
    set_totals(store, after)?;
    let written = store
        .set(&key_of(id), &serde_json::to_vec(&note)?)
        .and_then(|()| index::add(store, id, &words));
    if let Err(error) = written {
        let _ = store.delete(&key_of(id));
        set_totals(store, Totals { next: id + 1, ..before })?;
        return Err(readable(error));
    }
    Ok((id, after.notes))
}

/// Removes a note. Returns `None` if no note has that number.
pub(crate) fn forget(store: &mut impl Store, id: u64) -> Result<Option<Note>> {
    let Some(note) = note(store, id)? else { return Ok(None) };
    let words = note.words();
    store.delete(&key_of(id)).map_err(readable)?;
    vectors::remove(store, id).map_err(readable)?;
    index::remove(store, id, &words).map_err(readable)?;
    let before = totals(store)?;
    let after = Totals {
        notes: before.notes.saturating_sub(1),
        words: before.words.saturating_sub(words.len() as u64),
        ..before
    };
    set_totals(store, after)?;
    Ok(Some(note))
}

fn note(store: &impl Store, id: u64) -> Result<Option<Note>> {
    let bytes = store.get(&key_of(id)).map_err(readable)?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

/// A query and the model's vector of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryVector<'a> {
    pub(crate) model: &'a str,
    pub(crate) values: &'a [f32],
}

/// Returns the notes that fit a query best, by BM25, with the newest first among equals. With a
/// vector, the nearest notes are ranked too, and the two rankings are fused. Reads only the index
/// of the query's words, the signs of the vectors, and the notes that it returns.
pub(crate) fn search(
    store: &impl Store,
    query: &str,
    vector: Option<QueryVector>,
    limit: usize,
) -> Result<Vec<Found>> {
    let totals = totals(store)?;
    let mut ranked = by_words(store, query, totals)?;
    if let Some(QueryVector { model, values }) = vector {
        let near = vectors::nearest(store, model, values, totals.next).map_err(readable)?;
        ranked = fused([ranked, near]);
    }
    let mut found = Vec::new();
    for id in ranked {
        if found.len() >= limit {
            break;
        }
        // A note whose removal was interrupted may be in the index only.
        found.extend(note(store, id)?.map(|note| Found { id, note }));
    }
    Ok(found)
}

/// Returns the notes that contain words of the query, by BM25.
fn by_words(store: &impl Store, query: &str, totals: Totals) -> Result<Vec<u64>> {
    let mut wanted = words(query);
    wanted.sort_unstable();
    wanted.dedup();
    wanted.truncate(MOST_QUERY_WORDS);
    let mean = (totals.words as f64 / totals.notes.max(1) as f64).max(1.0);
    let mut scores: BTreeMap<u64, f64> = BTreeMap::new();
    for word in &wanted {
        let postings = index::postings(store, word).map_err(readable)?;
        let (all, having) = (totals.notes.max(postings.len() as u64) as f64, postings.len() as f64);
        let rarity = ((all - having + 0.5) / (having + 0.5)).ln_1p();
        for (id, count, length) in postings {
            let count = f64::from(count);
            let weight =
                SATURATION * (1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * f64::from(length) / mean);
            *scores.entry(id).or_default() +=
                rarity * count * (SATURATION + 1.0) / (count + weight);
        }
    }
    Ok(best_first(scores))
}

/// The notes of several rankings in one: a note counts by its rank in each.
fn fused(rankings: [Vec<u64>; 2]) -> Vec<u64> {
    let mut scores: BTreeMap<u64, f64> = BTreeMap::new();
    for ranking in rankings {
        for (rank, id) in (1_u32..).zip(ranking) {
            *scores.entry(id).or_default() += 1.0 / (RANK_WEIGHT + f64::from(rank));
        }
    }
    best_first(scores)
}

fn best_first(scores: BTreeMap<u64, f64>) -> Vec<u64> {
    let mut ranked: Vec<(f64, u64)> = scores.into_iter().map(|(id, score)| (score, id)).collect();
    ranked.sort_by(|one, other| {
        other.0.partial_cmp(&one.0).unwrap_or(Ordering::Equal).then(other.1.cmp(&one.1))
    });
    ranked.into_iter().map(|(_, id)| id).collect()
}

/// Returns the oldest notes that have no vector of this model, with the text to make one from.
pub(crate) fn without_vector(
    store: &impl Store,
    model: &str,
    count: u32,
) -> Result<Vec<(u64, String)>> {
    let next = vectors::next(store, model).map_err(readable)?;
    let mut found = Vec::new();
    for key in store.keys("note/", &key_of(next.saturating_sub(1)), count).map_err(readable)? {
        let Some(id) = key.strip_prefix("note/").and_then(|id| id.parse().ok()) else { continue };
        found.extend(note(store, id)?.map(|note| (id, note.searched())));
    }
    Ok(found)
}

/// Returns the newest notes, newest first, and their count.
pub(crate) fn newest(store: &impl Store, limit: usize) -> Result<(Vec<Found>, u64)> {
    let totals = totals(store)?;
    let mut found = Vec::new();
    let (mut end, mut width) = (totals.next, limit as u64 + 1);
    while end > 0 && found.len() < limit {
        let start = end.saturating_sub(width);
        // Numbers of forgotten notes are skipped without reading.
        let mut keys: Vec<String> = Vec::new();
        loop {
            let after = keys
                .last()
                .cloned()
                .unwrap_or_else(|| if start == 0 { "note/".to_owned() } else { key_of(start - 1) });
            let page = store.keys("note/", &after, 256).map_err(readable)?;
            let is_end = page.is_empty() || page.last().is_some_and(|key| *key >= key_of(end));
            keys.extend(page.into_iter().filter(|key| *key < key_of(end)));
            if is_end {
                break;
            }
        }
        for key in keys.iter().rev() {
            let Some(id) = key.strip_prefix("note/").and_then(|id| id.parse().ok()) else {
                continue;
            };
            if found.len() < limit {
                found.extend(note(store, id)?.map(|note| Found { id, note }));
            }
        }
        (end, width) = (start, width.saturating_mul(4));
    }
    Ok((found, totals.notes))
}

#[cfg(test)]
mod tests;
