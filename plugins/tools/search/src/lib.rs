//! Search: finds sentences in the text files of the granted folders. It asks for `files` and only
//! reads. Each call has its own sandbox, so there is no index: one pass over bounded text is fast
//! enough, and always current.

mod bm25;
mod folder;
mod query;

use conclave_prose::{files, one_line, terms};
use conclave_sdk::{Outcome, Result, tool};
use serde::Serialize;

use bm25::Hit;

/// An answer and not an error: a user who typed "?" needs no advice about arguments.
const NO_TERMS: &str = "There is no word in this query that could be searched for.";
const LIMIT: usize = 8;
const MOST_HITS: usize = 50;
/// Bytes that `read` returns at once, few enough for a model.
const MOST_BYTES: usize = 64 * 1024;

#[derive(Serialize)]
struct Found {
    /// The number of files searched.
    files: usize,
    /// The number of files that were too large, or came after the total was reached.
    left_out: usize,
    hits: Vec<Hit>,
}

/// Finds the sentences that fit a query best, in every text file of the folder. Use it to answer a
/// question from the folder, or to learn where something is written. Gives path, line and text of
/// each.
#[tool(idempotent)]
fn find(
    /// Words or a question. Forms of a word find each other; order does not matter.
    query: String,
    /// How many sentences at most, up to 50; 8 when absent.
    limit: Option<usize>,
) -> Result<Outcome> {
    let wanted = terms(&query);
    if wanted.is_empty() {
        return Ok(Outcome::text(NO_TERMS));
    }
    let texts = folder::texts()?;
    let hits = bm25::best(&texts.files, &wanted, limit.unwrap_or(LIMIT).min(MOST_HITS));
    let found = Found { files: texts.files.len(), left_out: texts.left_out, hits };
    Outcome::text(readable(&query, &found)).with_value(&found)
}

/// Reads lines of a text file of at most 1 MiB.
#[tool(idempotent)]
fn read(
    /// As `find` and `list` give it, such as `/folder/docs/a.md`.
    path: String,
    /// First line, from 1; the first of the file when absent.
    start: Option<usize>,
    /// Last line, included; the last of the file when absent.
    end: Option<usize>,
) -> Result<String> {
    let path = if path.starts_with('/') { path } else { format!("/{path}") };
    let text = folder::read(&path)?;
    Ok(lines(&text, start.unwrap_or(1), end.unwrap_or(usize::MAX)))
}

#[derive(Serialize)]
struct Listed {
    files: Vec<folder::Listing>,
}

/// Lists every file of the folder with its size in bytes.
#[tool(idempotent)]
fn list() -> Result<Outcome> {
    let files = folder::listings()?;
    Outcome::text(listed(&files)).with_value(&Listed { files })
}

fn listed(files: &[folder::Listing]) -> String {
    let lines = files.iter().map(|file| format!("{} {}", one_line(&file.path), file.bytes));
    lines.collect::<Vec<_>>().join("\n")
}

/// The text for the model: one line per hit, with places in the notation of compilers and editors.
fn readable(query: &str, found: &Found) -> String {
    let mut lines: Vec<_> = found
        .hits
        .iter()
        .map(|hit| format!("{}:{}: {}", one_line(&hit.path), hit.line, hit.text))
        .collect();
    if lines.is_empty() {
        lines.push(format!("nothing about \"{}\" in {}", one_line(query), files(found.files)));
    }
    if found.left_out > 0 {
        let were = if found.left_out == 1 { "was" } else { "were" };
        lines.push(format!("({} {were} too large to be searched)", files(found.left_out)));
    }
    lines.join("\n")
}

fn lines(text: &str, start: usize, end: usize) -> String {
    let skipped = start.saturating_sub(1);
    let mut cut = String::new();
    for (line, number) in
        text.lines().skip(skipped).take(end.saturating_sub(skipped)).zip(start.max(1)..)
    {
        if cut.len() + line.len() > MOST_BYTES {
            cut.push_str(&format!("… (goes on in line {number})"));
            break;
        }
        cut.push_str(line);
        cut.push('\n');
    }
    cut
}

conclave_sdk::export!(tools: [find, read, list]);

#[cfg(test)]
mod tests {
    use super::folder::Listing;
    use super::{Found, Hit, MOST_BYTES, NO_TERMS, find, lines, listed, readable};

    #[test]
    fn a_query_without_words_is_told_so_in_a_sentence() {
        let outcome = find(" ?! ".into(), None).unwrap();
        assert_eq!((outcome.content.as_deref(), outcome.value), (Some(NO_TERMS), None));
    }

    #[test]
    fn a_name_cannot_forge_a_place() {
        let path = "/folder/a.md:1: x\n/folder/b.md";
        let hit = Hit {
            path: path.into(),
            line: 3,
            text: "It was lit.".into(),
            score: 1.0,
            context: String::new(),
        };
        let found = Found { files: 2, left_out: 0, hits: vec![hit] };
        assert_eq!(readable("lit", &found), "/folder/a.md:1: x\\n/folder/b.md:3: It was lit.");
        assert_eq!(
            listed(&[Listing { path: path.into(), bytes: 3 }]),
            "/folder/a.md:1: x\\n/folder/b.md 3"
        );
    }

    #[test]
    fn lines_count_from_one_and_include_the_last() {
        assert_eq!(lines("a\nb\nc\nd", 2, 3), "b\nc\n");
        assert_eq!(lines("a\nb", 1, usize::MAX), "a\nb\n");
        assert_eq!(lines("a\nb", 0, 1), "a\n");
        assert_eq!(lines("a\nb", 3, 9), "");
    }

    #[test]
    fn a_long_file_says_where_it_goes_on() {
        let text = "x".repeat(MOST_BYTES / 2) + "\n" + &"y".repeat(MOST_BYTES / 2 + 1);
        assert!(lines(&text, 1, usize::MAX).ends_with("… (goes on in line 2)"));
    }

    #[test]
    fn hits_read_like_places() {
        let hit = Hit {
            path: "/folder/a.md".into(),
            line: 3,
            text: "It was lit.".into(),
            score: 1.0,
            context: String::new(),
        };
        assert_eq!(
            readable("lit", &Found { files: 2, left_out: 0, hits: vec![hit] }),
            "/folder/a.md:3: It was lit."
        );
        let nothing = readable("lit", &Found { files: 2, left_out: 1, hits: Vec::new() });
        assert_eq!(
            nothing,
            "nothing about \"lit\" in 2 files\n(1 file was too large to be searched)"
        );
        let nothing = readable("lit\n", &Found { files: 1, left_out: 2, hits: Vec::new() });
        assert_eq!(
            nothing,
            "nothing about \"lit\\n\" in 1 file\n(2 files were too large to be searched)"
        );
    }
}
