//! Which sentences fit a query, by BM25. Only the query's own terms are counted, so one pass over the text needs no index.

use std::cmp::Ordering;

use conclave_prose::{Format, Passage, passages, terms};
use serde::Serialize;

use crate::folder::Text;

/// The usual constants: how fast repetition stops to count, and how much a long sentence is held against it.
const SATURATION: f64 = 1.2;
const LENGTH_WEIGHT: f64 = 0.75;
/// What a term counts that stands in the heading above or in the file's name: a sentence under "Skerryvore" is about Skerryvore,
/// but one that says so is more so.
const CONTEXT_WEIGHT: f64 = 0.5;
/// A longer passage is cut for the answer: it is read by a model, and the place is given.
const MOST_CHARS: usize = 600;

/// A sentence that fits.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Hit {
    pub(crate) path: String,
    pub(crate) line: u32,
    pub(crate) text: String,
    pub(crate) score: f64,
}

/// A sentence with at least one of the query's terms.
struct Candidate<'t> {
    path: &'t str,
    passage: Passage,
    length: usize,
    /// Per term of the query: how often the sentence has it, and whether its surroundings do.
    counts: Vec<(u32, bool)>,
}

/// What scoring needs to know of all sentences.
struct Statistics {
    passages: usize,
    words: usize,
    /// Per term of the query: how many sentences have it.
    containing: Vec<usize>,
}

/// The best `limit` sentences, best first; ties in the order of the files.
pub(crate) fn best(texts: &[Text], query: &[String], limit: usize) -> Vec<Hit> {
    let mut query = query.to_vec();
    query.sort_unstable();
    query.dedup();
    let mut statistics = Statistics { passages: 0, words: 0, containing: vec![0; query.len()] };
    let candidates: Vec<_> = texts.iter().flat_map(|text| candidates(text, &query, &mut statistics)).collect();
    let mut scored: Vec<_> = candidates.into_iter().map(|candidate| (statistics.score(&candidate), candidate)).collect();
    scored.sort_by(|(one, _), (other, _)| other.partial_cmp(one).unwrap_or(Ordering::Equal));
    scored.truncate(limit);
    scored.into_iter().map(|(score, candidate)| hit(score, candidate)).collect()
}

fn candidates<'t>(text: &'t Text, query: &[String], statistics: &mut Statistics) -> Vec<Candidate<'t>> {
    let file_terms = terms(text.path.rsplit('/').next().unwrap_or_default());
    let mut context = file_terms.clone();
    let mut candidates = Vec::new();
    for passage in passages(&text.text, Format::of(&text.path)) {
        let words = terms(&passage.text);
        statistics.passages += 1;
        statistics.words += words.len();
        let counts: Vec<_> =
            query.iter().map(|term| (words.iter().filter(|word| *word == term).count() as u32, context.contains(term))).collect();
        for (containing, (count, _)) in statistics.containing.iter_mut().zip(&counts) {
            *containing += usize::from(*count > 0);
        }
        if passage.is_heading {
            context = [file_terms.as_slice(), words.as_slice()].concat();
        }
        // A heading is found through the sentences below it; alone it answers nothing.
        if !passage.is_heading && counts.iter().any(|(count, _)| *count > 0) {
            candidates.push(Candidate { path: &text.path, length: words.len(), passage, counts });
        }
    }
    candidates
}

impl Statistics {
    fn score(&self, candidate: &Candidate) -> f64 {
        let average = self.words as f64 / self.passages.max(1) as f64;
        let length = 1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * candidate.length as f64 / average.max(1.0);
        let terms = candidate.counts.iter().zip(&self.containing).map(|((count, in_context), containing)| {
            let count = f64::from(*count) + if *in_context { CONTEXT_WEIGHT } else { 0.0 };
            self.rarity(*containing) * count * (SATURATION + 1.0) / (count + SATURATION * length)
        });
        terms.sum()
    }

    fn rarity(&self, containing: usize) -> f64 {
        (1.0 + (self.passages as f64 - containing as f64 + 0.5) / (containing as f64 + 0.5)).ln()
    }
}

fn hit(score: f64, candidate: Candidate) -> Hit {
    let Passage { line, text, .. } = candidate.passage;
    // More digits would only make answers differ between machines.
    Hit { path: candidate.path.to_owned(), line, text: shortened(text), score: (score * 100.0).round() / 100.0 }
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{} …", text[..end].rsplit_once(' ').map_or(&text[..end], |(whole, _)| whole)),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use conclave_prose::terms;

    use super::{MOST_CHARS, best, shortened};
    use crate::folder::Text;

    fn files(files: &[(&str, &str)]) -> Vec<Text> {
        files.iter().map(|(path, text)| Text { path: (*path).into(), text: (*text).into() }).collect()
    }

    fn places(texts: &[Text], query: &str) -> Vec<(String, u32)> {
        best(texts, &terms(query), 5).into_iter().map(|hit| (hit.path, hit.line)).collect()
    }

    #[test]
    fn the_sentence_with_the_rare_terms_comes_first() {
        let texts = files(&[
            ("/f/boats.txt", "The lamp was lit. The boat was old. A lamp is lit at dusk."),
            ("/f/lights.txt", "Skerryvore was first lit in 1844.\nIt is tall."),
        ]);
        assert_eq!(places(&texts, "When was Skerryvore lit?")[0], ("/f/lights.txt".to_owned(), 1));
    }

    #[test]
    fn forms_of_a_word_find_each_other() {
        let texts = files(&[("/f/a.md", "Keepers watched the lights.")]);
        assert_eq!(places(&texts, "keeper watching light"), [("/f/a.md".to_owned(), 1)]);
    }

    #[test]
    fn a_heading_lifts_the_sentences_below_it() {
        let texts = files(&[("/f/a.md", "# Bell Rock\nIt was lit in 1811.\n# Skerryvore\nIt was lit in 1844.\n")]);
        assert_eq!(places(&texts, "when was Skerryvore lit"), [("/f/a.md".to_owned(), 4), ("/f/a.md".to_owned(), 2)]);
    }

    #[test]
    fn nothing_is_found_where_no_term_stands() {
        assert_eq!(places(&files(&[("/f/skerryvore.md", "A boat.")]), "Skerryvore"), []);
    }

    #[test]
    fn a_limit_keeps_the_best() {
        let texts = files(&[("/f/a.md", "Light. Light and more words. Other.")]);
        assert_eq!(best(&texts, &terms("light"), 1).len(), 1);
    }

    #[test]
    fn a_long_passage_is_cut_between_words() {
        let cut = shortened("word ".repeat(MOST_CHARS));
        assert!(cut.chars().count() <= MOST_CHARS + 2 && cut.ends_with("word …"), "{cut}");
    }
}
