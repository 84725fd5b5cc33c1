//! Notes: a memory that outlives a run. The action `recall` finds notes by their words (BM25);
//! tools write, list and forget them. Everything is in the plugin's own key-value store. A search
//! reads the index of its words and the notes that it returns, however many there are. With
//! `embeddings` in its config it also finds notes by their meaning.
//!
//! Two simultaneous calls may overwrite each other's index: `limits.at_once = 1` serializes them.

mod book;
mod embeddings;
mod index;
mod meaning;
mod store;
mod vectors;
mod words;

use conclave_sdk::memory::Memory;
use conclave_sdk::trajectory::cut_chars;
use conclave_sdk::{Error, Outcome, Result, log, tool};
use serde::Serialize;

use book::Found;
use store::Granted;

/// Notes that `memories` returns at once, and their total characters.
const LISTED: usize = 10;
const MOST_LISTED: usize = 50;
const MOST_CHARS: usize = 100_000;

#[derive(Serialize)]
struct Remembered {
    id: u64,
    notes: u64,
}

#[derive(Serialize)]
struct Listed {
    /// The number of all notes.
    notes: Option<u64>,
    memories: Vec<Found>,
}

/// Keeps a note for later runs. Use it for what will be needed again: what the user likes, what was
/// decided, what was learnt. Write it so that it can be understood on its own.
#[tool]
fn remember(
    /// The note, at most 32 KiB.
    text: String,
    /// Words to find it by that are not in it.
    tags: Option<Vec<String>>,
) -> Result<Outcome> {
    let (id, notes) = book::remember(&mut Granted, &text, tags.unwrap_or_default())?;
    // The note is kept, with its vector or without.
    if let Err(error) = meaning::catch_up(&mut Granted) {
        log::warn!("notes without vectors are found by their words only: {error}");
    }
    Outcome::text(format!("Remembered as note {id}.")).with_value(&Remembered { id, notes })
}

/// Takes a note away for good.
#[tool]
fn forget(
    /// The note's number, as `memories` gives it.
    id: u64,
) -> Result<String> {
    match book::forget(&mut Granted, id)? {
        Some(note) => Ok(format!("Forgot note {id}: {}", start_of(&note.text))),
        None => Err(Error::invalid_arguments(format!("id: there is no note {id}"))),
    }
}

/// Finds notes of earlier runs with their numbers: those that fit a query, or the newest.
#[tool(idempotent)]
fn memories(
    /// Words or a question; the newest notes when absent.
    query: Option<String>,
    /// How many at most, up to 50; 10 when absent.
    limit: Option<usize>,
) -> Result<Outcome> {
    let limit = limit.unwrap_or(LISTED).min(MOST_LISTED);
    let listed = match query.filter(|query| !query.trim().is_empty()) {
        Some(query) => {
            Listed { notes: None, memories: meaning::search(&mut Granted, &query, limit)? }
        }
        None => {
            let (memories, notes) = book::newest(&Granted, limit)?;
            Listed { notes: Some(notes), memories }
        }
    };
    shown(listed)
}

fn shown(mut listed: Listed) -> Result<Outcome> {
    let mut chars = 0;
    listed.memories.retain(|found| {
        chars += found.note.text.len();
        chars <= MOST_CHARS
    });
    let line = |found: &Found| {
        let tags = if found.note.tags.is_empty() {
            String::new()
        } else {
            format!(" [{}]", found.note.tags.join(", "))
        };
        format!("{}.{tags} {}", found.id, found.note.text)
    };
    let mut lines: Vec<String> = listed.memories.iter().map(line).collect();
    match listed.notes {
        _ if lines.is_empty() => lines.push("There is no such note.".into()),
        Some(notes) if notes > lines.len() as u64 => {
            lines.push(format!("({notes} notes altogether; ask with a query for others.)"))
        }
        _ => {}
    }
    Outcome::text(lines.join("\n")).with_value(&listed)
}

fn start_of(text: &str) -> String {
    cut_chars(text, 80).into_owned()
}

struct Notes;

impl Memory for Notes {
    fn search(query: &str, limit: u32) -> Result<Vec<String>> {
        Ok(meaning::search(&mut Granted, query, limit as usize)?
            .into_iter()
            .map(|found| found.note.text)
            .collect())
    }
}

conclave_sdk::export!(tools: [remember, forget, memories], memory: Notes);

#[cfg(test)]
mod tests {
    use super::{Found, Listed, MOST_CHARS, book::Note, shown, start_of};

    fn found(id: u64, text: &str, tags: &[&str]) -> Found {
        Found {
            id,
            note: Note {
                text: text.into(),
                tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            },
        }
    }

    #[test]
    fn notes_are_listed_with_numbers_and_tags() {
        let listed = Listed {
            notes: Some(9),
            memories: vec![
                found(7, "Likes tea.", &["drink", "taste"]),
                found(2, "Lives in Mull.", &[]),
            ],
        };
        let outcome = shown(listed).unwrap();
        let expected = "7. [drink, taste] Likes tea.\n2. Lives in Mull.\n(9 notes altogether; ask with a query for others.)";
        assert_eq!(outcome.content.as_deref(), Some(expected));
        assert!(
            outcome
                .value
                .unwrap()
                .starts_with(r#"{"notes":9,"memories":[{"id":7,"text":"Likes tea.""#)
        );
        let nothing = shown(Listed { notes: None, memories: Vec::new() }).unwrap();
        assert_eq!(nothing.content.as_deref(), Some("There is no such note."));
    }

    #[test]
    fn a_list_is_bounded() {
        let memories = (0..50).map(|id| found(id, &"x".repeat(30_000), &[])).collect();
        let outcome = shown(Listed { notes: None, memories }).unwrap();
        assert!(outcome.content.unwrap().len() < MOST_CHARS + 1_000);
    }

    #[test]
    fn a_long_note_is_named_by_its_start() {
        assert_eq!(start_of("short"), "short");
        assert_eq!(start_of(&"é".repeat(100)), format!("{}…", "é".repeat(80)));
    }
}
