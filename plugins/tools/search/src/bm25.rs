//! Ranks sentences by BM25. Only the query's terms are counted, so one pass over the text needs no
//! index.

use std::cmp::Ordering;

use conclave_prose::{Format, Passage, passages};
use serde::Serialize;

use crate::folder::Text;
use crate::query::{Counted, Query};

/// The usual BM25 constants: the saturation of repeated terms, and the penalty for long sentences.
const SATURATION: f64 = 1.2;
const LENGTH_WEIGHT: f64 = 0.75;
/// The weight of a term in the heading above, in the sentence before or in the file's name. A
/// sentence under "Skerryvore" is about Skerryvore, but one that contains the name is a better
/// match.
const CONTEXT_WEIGHT: f64 = 0.5;
/// Characters of a passage in the answer. A model reads it, and has the place to read on.
const MOST_CHARS: usize = 600;

/// A matching sentence.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Hit {
    pub(crate) path: String,
    pub(crate) line: u32,
    pub(crate) text: String,
    pub(crate) score: f64,
    /// The heading above, and the sentence before if a pronoun refers to it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) context: String,
}

/// A sentence with at least one of the query's terms.
struct Candidate<'t> {
    path: &'t str,
    passage: Passage,
    context: String,
    length: usize,
    /// For each term of the query, its count in the sentence, and whether the surroundings contain
    /// it.
    counts: Vec<(u32, bool)>,
}

/// Statistics of all sentences, for the scores.
struct Statistics {
    passages: usize,
    words: usize,
    /// For each term of the query, the number of sentences with it.
    containing: Vec<usize>,
}

/// The best `limit` sentences, best first, with ties in the order of the files.
pub(crate) fn best(texts: &[Text], query: &[String], limit: usize) -> Vec<Hit> {
    let query = Query::new(query);
    let mut statistics = Statistics { passages: 0, words: 0, containing: vec![0; query.len()] };
    let candidates: Vec<_> =
        texts.iter().flat_map(|text| candidates(text, &query, &mut statistics)).collect();
    let mut scored: Vec<_> =
        candidates.into_iter().map(|candidate| (statistics.score(&candidate), candidate)).collect();
    scored.sort_by(|(one, _), (other, _)| other.partial_cmp(one).unwrap_or(Ordering::Equal));
    scored.truncate(limit);
    scored.into_iter().map(|(score, candidate)| hit(score, candidate)).collect()
}

fn candidates<'t>(
    text: &'t Text,
    query: &Query,
    statistics: &mut Statistics,
) -> Vec<Candidate<'t>> {
    let file = query.count(text.path.rsplit('/').next().unwrap_or_default());
    let mut heading = Surrounding::none(query);
    let mut before = Surrounding::none(query);
    let mut candidates = Vec::new();
    for passage in passages(&text.text, Format::of(&text.path)) {
        let Counted { words, counts, refers_back } = query.count(&passage.text);
        statistics.add(words, &counts);
        if passage.is_heading {
            // A heading is found through the sentences below it; alone it answers nothing.
            heading = Surrounding { text: passage.text, counts };
            before = Surrounding::none(query);
            continue;
        }
        // A chain of pronouns refers to the sentence where it began.
        if !refers_back {
            before = Surrounding { text: passage.text.clone(), counts: counts.clone() };
        }
        if counts.iter().any(|count| *count > 0) {
            let around: Vec<_> = if refers_back { vec![&heading, &before] } else { vec![&heading] };
            let in_context = |term: usize| {
                file.counts[term] > 0 || around.iter().any(|part| part.counts[term] > 0)
            };
            let counts =
                counts.iter().enumerate().map(|(term, count)| (*count, in_context(term))).collect();
            candidates.push(Candidate {
                path: &text.path,
                length: words,
                context: joined(&around),
                passage,
                counts,
            });
        }
    }
    candidates
}

/// The text around a sentence, with its counts of the query's terms.
struct Surrounding {
    text: String,
    counts: Vec<u32>,
}

impl Surrounding {
    fn none(query: &Query) -> Self {
        Self { text: String::new(), counts: vec![0; query.len()] }
    }
}

fn joined(parts: &[&Surrounding]) -> String {
    parts
        .iter()
        .map(|part| part.text.as_str())
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join(" · ")
}

impl Statistics {
    fn add(&mut self, words: usize, counts: &[u32]) {
        self.passages += 1;
        self.words += words;
        for (containing, count) in self.containing.iter_mut().zip(counts) {
            *containing += usize::from(*count > 0);
        }
    }

    fn score(&self, candidate: &Candidate) -> f64 {
        let average = self.words as f64 / self.passages.max(1) as f64;
        let length =
            1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * candidate.length as f64 / average.max(1.0);
        let terms = candidate.counts.iter().zip(&self.containing).map(
            |((count, in_context), containing)| {
                let count = f64::from(*count) + if *in_context { CONTEXT_WEIGHT } else { 0.0 };
                self.rarity(*containing) * count * (SATURATION + 1.0)
                    / (count + SATURATION * length)
            },
        );
        terms.sum()
    }

    fn rarity(&self, containing: usize) -> f64 {
        (1.0 + (self.passages as f64 - containing as f64 + 0.5) / (containing as f64 + 0.5)).ln()
    }
}

fn hit(score: f64, candidate: Candidate) -> Hit {
    let Passage { line, text, .. } = candidate.passage;
    // More digits would only make answers differ between machines.
    let score = (score * 100.0).round() / 100.0;
    Hit {
        path: candidate.path.to_owned(),
        line,
        text: shortened(text),
        score,
        context: candidate.context,
    }
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => {
            format!("{} …", text[..end].rsplit_once(' ').map_or(&text[..end], |(whole, _)| whole))
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use conclave_prose::terms;

    use super::{MOST_CHARS, best, shortened};
    use crate::folder::Text;

    fn files(files: &[(&str, &str)]) -> Vec<Text> {
        files
            .iter()
            .map(|(path, text)| Text { path: (*path).into(), text: (*text).into() })
            .collect()
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
    fn text_without_spaces_finds_itself() {
        let texts = files(&[("/f/a.txt", "横浜の人は東京湾の灯台を見た。\n\n海は青い。")]);
        assert_eq!(places(&texts, "東京湾の灯台"), [("/f/a.txt".to_owned(), 1)]);
    }

    #[test]
    fn a_heading_lifts_the_sentences_below_it() {
        let texts = files(&[(
            "/f/a.md",
            "# Bell Rock\nIt was lit in 1811.\n# Skerryvore\nIt was lit in 1844.\n",
        )]);
        assert_eq!(
            places(&texts, "when was Skerryvore lit"),
            [("/f/a.md".to_owned(), 4), ("/f/a.md".to_owned(), 2)]
        );
    }

    #[test]
    fn a_pronoun_takes_the_sentence_before_along() {
        let texts = files(&[(
            "/f/a.md",
            "# Lights\nSkerryvore is a reef. Alan Stevenson built it. Masons built piers.",
        )]);
        let hits = best(&texts, &terms("Who built Skerryvore?"), 5);
        let contexts: Vec<_> = hits.iter().map(|hit| hit.context.as_str()).collect();
        assert_eq!(contexts, ["Lights · Skerryvore is a reef.", "Lights", "Lights"]);
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
