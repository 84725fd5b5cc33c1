//! Searches by words and, where the operator has set `embeddings`, by meaning. A note gets its
//! vector with the next request to the server, so notes from before the setting, and those that
//! were kept while the server was down, get theirs a few at a time. A search without an answer of
//! the server goes by words alone.

use conclave_sdk::{Result, config, log};
use serde::Deserialize;

use crate::book::{self, Found, QueryVector};
use crate::embeddings::{EmbeddingError, Embeddings};
use crate::store::Store;
use crate::vectors;

/// Notes that get their vectors with one request.
const BATCH: u32 = 16;

/// The `config` table of this plugin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    embeddings: Option<Embeddings>,
}

/// Gives the next notes their vectors.
pub(crate) fn catch_up(store: &mut impl Store) -> Result<()> {
    let Settings { embeddings } = config::get()?;
    if let Some(embeddings) = embeddings {
        vector(store, &embeddings, None)?;
    }
    Ok(())
}

/// Returns the notes that fit a query best.
pub(crate) fn search(store: &mut impl Store, query: &str, limit: usize) -> Result<Vec<Found>> {
    let Settings { embeddings } = config::get()?;
    let Some(embeddings) = embeddings else { return book::search(store, query, None, limit) };
    let values = vector(store, &embeddings, Some(query))?;
    let vector = values.as_deref().map(|values| QueryVector { model: &embeddings.model, values });
    book::search(store, query, vector, limit)
}

/// Returns the vector of a query, and gives the next notes theirs in the same request.
fn vector(
    store: &mut impl Store,
    embeddings: &Embeddings,
    query: Option<&str>,
) -> Result<Option<Vec<f32>>> {
    let model = embeddings.model.as_str();
    let mut batch = BATCH;
    loop {
        let notes =
            if batch == 0 { Vec::new() } else { book::without_vector(store, model, batch)? };
        let texts: Vec<&str> =
            query.into_iter().chain(notes.iter().map(|(_, text)| text.as_str())).collect();
        if texts.is_empty() {
            return Ok(None);
        }
        match embeddings.embed(&texts) {
            Ok(mut vectors) => {
                let of_notes = vectors.split_off(vectors.len() - notes.len());
                for ((id, _), vector) in notes.iter().zip(of_notes) {
                    vectors::add(store, model, *id, &vector)?;
                }
                if let Some((last, _)) = notes.last() {
                    vectors::advance(store, model, last + 1)?;
                }
                return Ok(vectors.pop());
            }
            // One text may be the reason: the notes are tried one by one, and passed over.
            Err(error @ EmbeddingError::Refused(_)) if !notes.is_empty() => {
                batch = match &notes[..] {
                    [(id, _)] => {
                        log::warn!("note {id} is found by its words only: {error}");
                        vectors::advance(store, model, id + 1)?;
                        0
                    }
                    _ => 1,
                };
            }
            Err(error) => {
                log::warn!("searching by words only: {error}");
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests;
