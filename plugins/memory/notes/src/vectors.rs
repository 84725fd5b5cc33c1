//! The vectors of notes, one key each, and their signs in pages of 512 notes. A search compares the
//! signs of all notes, and then the vectors of those that come nearest, so it reads 64 bytes of
//! each note and 64 vectors.
//!
//! Vectors of another model are ignored, and replaced when their notes are embedded again.

use std::cmp::Reverse;

use conclave_sdk::kv::KvError;
use serde::{Deserialize, Serialize};

use crate::store::Store;

const PROGRESS: &str = "vectors";
const PAGE_NOTES: u64 = 512;
const SIGN_BYTES: usize = 64;
/// The last bit of the signs of a note that has a vector.
const PRESENT: u8 = 0x80;
/// The hash of the model's name, in front of each page and each vector.
const MODEL_BYTES: usize = 8;
/// Notes whose vectors a search compares.
const CANDIDATES: usize = 64;

/// The progress of embedding the notes in their order.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Progress {
    model: String,
    /// Each note below this number has its vector.
    next: u64,
}

fn page_key(page: u64) -> String {
    format!("signs/{page:03}")
}

fn vector_key(note: u64) -> String {
    format!("vector/{note:012}")
}

/// FNV-1a: the same in every version and on every machine.
fn mark(model: &str) -> [u8; MODEL_BYTES] {
    let hash = model.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.to_le_bytes()
}

/// Returns the number of the first note that may have no vector.
pub(crate) fn next(store: &impl Store, model: &str) -> Result<u64, KvError> {
    let progress = store.get(PROGRESS)?;
    let progress: Option<Progress> = progress.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    Ok(progress.filter(|progress| progress.model == model).map_or(1, |progress| progress.next))
}

/// Records that each note below `next` has its vector, or cannot have one.
pub(crate) fn advance(store: &mut impl Store, model: &str, next: u64) -> Result<(), KvError> {
    let progress = Progress { model: model.to_owned(), next };
    let bytes = serde_json::to_vec(&progress).map_err(|error| KvError::Other(error.to_string()))?;
    store.set(PROGRESS, &bytes)
}

/// Stores the vector of a note.
pub(crate) fn add(
    store: &mut impl Store,
    model: &str,
    note: u64,
    vector: &[f32],
) -> Result<(), KvError> {
    let mut bytes = mark(model).to_vec();
    bytes.extend(quantized(vector).map(|value| value as u8));
    store.set(&vector_key(note), &bytes)?;
    set_signs(store, Some(model), note, signs(vector))
}

/// Removes the vector of a note, if it has one.
pub(crate) fn remove(store: &mut impl Store, note: u64) -> Result<(), KvError> {
    store.delete(&vector_key(note))?;
    set_signs(store, None, note, [0; SIGN_BYTES])
}

/// Without a model, a page stays that of its model, and no page is made.
fn set_signs(
    store: &mut impl Store,
    model: Option<&str>,
    note: u64,
    signs: [u8; SIGN_BYTES],
) -> Result<(), KvError> {
    let (key, slot) = (page_key(note / PAGE_NOTES), (note % PAGE_NOTES) as usize);
    let mut page = store.get(&key)?.unwrap_or_default();
    match model.map(mark) {
        None if page.is_empty() => return Ok(()),
        Some(mark) if !page.starts_with(&mark) => page = mark.to_vec(),
        _ => {}
    }
    let start = MODEL_BYTES + slot * SIGN_BYTES;
    page.resize(page.len().max(start + SIGN_BYTES), 0);
    page[start..start + SIGN_BYTES].copy_from_slice(&signs);
    store.set(&key, &page)
}

/// Returns the notes whose vectors are nearest to this one by their cosine, nearest first. Those
/// that point away are left out. `end` is above the number of each note.
pub(crate) fn nearest(
    store: &impl Store,
    model: &str,
    vector: &[f32],
    end: u64,
) -> Result<Vec<u64>, KvError> {
    let (mark, wanted) = (mark(model), signs(vector));
    let mut near: Vec<(u32, u64)> = Vec::new();
    for page in 0..end.div_ceil(PAGE_NOTES) {
        let bytes = store.get(&page_key(page))?.unwrap_or_default();
        let Some(all) = bytes.strip_prefix(&mark) else { continue };
        let notes = all.chunks_exact(SIGN_BYTES).zip(page * PAGE_NOTES..);
        let with_vectors = notes.filter(|(signs, _)| signs[SIGN_BYTES - 1] & PRESENT != 0);
        near.extend(with_vectors.map(|(signs, note)| (distance(signs, &wanted), note)));
    }
    near.sort_unstable();
    near.truncate(CANDIDATES);
    let wanted: Vec<i8> = quantized(vector).collect();
    let mut found: Vec<(f64, u64)> = Vec::new();
    for (_, note) in near {
        let bytes = store.get(&vector_key(note))?.unwrap_or_default();
        let Some(values) = bytes.strip_prefix(&mark) else { continue };
        let cosine = cosine(&wanted, values);
        if cosine > 0.0 {
            found.push((cosine, note));
        }
    }
    found.sort_by(|one, other| {
        other.0.total_cmp(&one.0).then(Reverse(one.1).cmp(&Reverse(other.1)))
    });
    Ok(found.into_iter().map(|(_, note)| note).collect())
}

/// Returns which of the first 511 values are positive, a bit each, and a last bit that is set.
fn signs(vector: &[f32]) -> [u8; SIGN_BYTES] {
    let mut signs = [0; SIGN_BYTES];
    for (index, value) in vector.iter().take(8 * SIGN_BYTES - 1).enumerate() {
        signs[index / 8] |= u8::from(*value > 0.0) << (index % 8);
    }
    signs[SIGN_BYTES - 1] |= PRESENT;
    signs
}

fn distance(one: &[u8], other: &[u8]) -> u32 {
    one.iter().zip(other).map(|(one, other)| (one ^ other).count_ones()).sum()
}

/// Each value in a byte: the one that is farthest from zero becomes 127 or -127.
fn quantized(vector: &[f32]) -> impl Iterator<Item = i8> {
    let largest = vector.iter().fold(f32::MIN_POSITIVE, |largest, value| largest.max(value.abs()));
    vector.iter().map(move |value| (value / largest * 127.0).round() as i8)
}

/// The cosine of two vectors; 0 if they have different lengths.
fn cosine(one: &[i8], other: &[u8]) -> f64 {
    if one.len() != other.len() {
        return 0.0;
    }
    let (mut both, mut of_one, mut of_other) = (0.0, 0.0, 0.0);
    for (one, other) in one.iter().zip(other) {
        let (one, other) = (f64::from(*one), f64::from(*other as i8));
        both += one * other;
        of_one += one * one;
        of_other += other * other;
    }
    if of_one == 0.0 || of_other == 0.0 { 0.0 } else { both / (of_one * of_other).sqrt() }
}
