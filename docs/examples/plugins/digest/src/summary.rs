//! An extractive summary: the words that most files share, and the sentences that contain most of
//! them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use conclave_prose::{
    Format, files as files_in_words, is_common, is_scrap, overlap, passages, stem, words,
};

const TOPICS: usize = 3;
const MOST_SENTENCES: usize = 2;
/// Words of a sentence: a shorter one says little alone, and a longer one is hard to read out of
/// context.
const WORDS_OF_A_SENTENCE: std::ops::RangeInclusive<usize> = 5..=25;
/// The overlap from which a sentence adds nothing to one that is chosen already.
const REPEATS: f64 = 0.5;

/// A file's sentences.
pub(crate) struct Document {
    path: String,
    sentences: Vec<Sentence>,
    /// Every significant word of the file, headings included: its spelling, by its stem.
    words: Vec<(String, String)>,
}

struct Sentence {
    line: u32,
    text: String,
    terms: Vec<String>,
}

/// The frequency of a term in all files.
#[derive(Default)]
struct Weight<'d> {
    files: u32,
    count: u32,
    /// The spellings of the term, with their counts.
    spellings: BTreeMap<&'d str, u32>,
}

impl Document {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let passages = passages(text, Format::of(path));
        let words = passages.iter().flat_map(|passage| telling(&passage.text)).collect();
        let quotable = passages
            .into_iter()
            .filter(|passage| !passage.is_heading && is_quotable(&passage.text));
        let sentences = quotable.map(|passage| Sentence {
            line: passage.line,
            terms: telling(&passage.text).map(|(stem, _)| stem).collect(),
            text: passage.text,
        });
        Self {
            path: path.trim_start_matches('/').to_owned(),
            sentences: sentences.collect(),
            words,
        }
    }
}

/// Returns "41 files, mostly about a, b and c.", and the most central sentences with their places.
/// `left_out` of the files were too large.
pub(crate) fn of(files: usize, left_out: usize, documents: &[Document]) -> String {
    let weights = weights(documents);
    let about = match topics(&weights).as_slice() {
        [] => String::new(),
        [only] => format!(", mostly about {only}"),
        [others @ .., last] => format!(", mostly about {} and {last}", others.join(", ")),
    };
    let read = match (documents.len(), left_out) {
        (read, 0) if read == files => String::new(),
        (read, 0) => format!(" ({read} read)"),
        (read, _) => format!(" ({read} read, {left_out} left out as too large)"),
    };
    let mut lines = vec![format!("{}{read}{about}.", files_in_words(files))];
    lines.extend(
        central(documents, &weights)
            .into_iter()
            .map(|(path, sentence)| format!("{}  ({path}:{})", sentence.text, sentence.line)),
    );
    lines.join("\n")
}

/// The stems and spellings of the significant words. Numbers are facts, not topics.
fn telling(text: &str) -> impl Iterator<Item = (String, String)> + '_ {
    let says_something = |word: &String| {
        word.chars().count() > 3 && word.chars().all(char::is_alphabetic) && !is_common(word)
    };
    words(text).filter(says_something).map(|word| (stem(&word), word))
}

fn is_quotable(text: &str) -> bool {
    text.ends_with('.')
        && WORDS_OF_A_SENTENCE.contains(&text.split_whitespace().count())
        && !is_scrap(text)
}

fn weights(documents: &[Document]) -> BTreeMap<&str, Weight<'_>> {
    let mut weights: BTreeMap<&str, Weight> = BTreeMap::new();
    for document in documents {
        for (stem, spelling) in &document.words {
            let weight = weights.entry(stem).or_default();
            weight.count += 1;
            *weight.spellings.entry(spelling).or_default() += 1;
        }
        for stem in document.words.iter().map(|(stem, _)| stem.as_str()).collect::<BTreeSet<_>>() {
            weights.entry(stem).or_default().files += 1;
        }
    }
    weights
}

impl Weight<'_> {
    /// A term that many files share counts more than one that a single file repeats.
    fn value(&self) -> f64 {
        f64::from(self.files) * f64::from(self.count + 1).ln()
    }

    fn spelling(&self) -> &str {
        let most = self
            .spellings
            .iter()
            .max_by_key(|(spelling, count)| (**count, std::cmp::Reverse(**spelling)));
        most.map_or("", |(spelling, _)| spelling)
    }
}

fn topics<'w>(weights: &'w BTreeMap<&str, Weight>) -> Vec<&'w str> {
    let mut ranked: Vec<_> =
        weights.iter().map(|(stem, weight)| (weight.value(), *stem, weight)).collect();
    ranked.sort_by(|one, other| descending(one.0, other.0).then_with(|| one.1.cmp(other.1)));
    ranked.into_iter().take(TOPICS).map(|(_, _, weight)| weight.spelling()).collect()
}

/// Greedy: chooses the best sentence that does not repeat earlier ones, at first one from each
/// file.
fn central<'d>(
    documents: &'d [Document],
    weights: &BTreeMap<&str, Weight>,
) -> Vec<(&'d str, &'d Sentence)> {
    let all = documents.iter().flat_map(|document| {
        document.sentences.iter().map(|sentence| (document.path.as_str(), sentence))
    });
    let mut ranked: Vec<_> =
        all.map(|(path, sentence)| (centrality(sentence, weights), path, sentence)).collect();
    ranked.sort_by(|one, other| descending(one.0, other.0));
    let mut chosen: Vec<(&str, &Sentence)> = Vec::new();
    for one_of_each_file in [true, false] {
        for (_, path, sentence) in &ranked {
            let repeats =
                chosen.iter().any(|(_, other)| overlap(&other.terms, &sentence.terms) >= REPEATS);
            let has_its_file = one_of_each_file && chosen.iter().any(|(other, _)| other == path);
            if chosen.len() < MOST_SENTENCES && !repeats && !has_its_file {
                chosen.push((path, sentence));
            }
        }
    }
    chosen
}

/// The weight of the sentence's terms, divided by a root of its length, since the longest sentence
/// would always win otherwise.
fn centrality(sentence: &Sentence, weights: &BTreeMap<&str, Weight>) -> f64 {
    let terms: BTreeSet<_> = sentence.terms.iter().collect();
    let sum: f64 =
        terms.iter().filter_map(|term| weights.get(term.as_str())).map(Weight::value).sum();
    sum / (sentence.terms.len().max(1) as f64).sqrt()
}

fn descending(one: f64, other: f64) -> Ordering {
    other.partial_cmp(&one).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::{Document, of};

    fn documents(texts: &[(&str, &str)]) -> Vec<Document> {
        texts.iter().map(|(path, text)| Document::new(path, text)).collect()
    }

    #[test]
    fn what_most_files_share_comes_first() {
        let documents = documents(&[
            (
                "/folder/a.md",
                "# Bell Rock\nThe lighthouse stands on a reef near Arbroath. Tea is served.",
            ),
            (
                "/folder/b.md",
                "Lighthouses on a reef need a strong tower. My uncle once collected stamps from abroad.",
            ),
            ("/folder/c.txt", "Every lighthouse has a keeper and a tower."),
        ]);
        let summary = of(3, 0, &documents);
        let lines: Vec<_> = summary.lines().collect();
        assert_eq!(lines[0], "3 files, mostly about lighthouse, reef and tower.");
        assert!(
            lines[1].starts_with("Lighthouses on a reef need a strong tower.  (folder/b.md:1)"),
            "{summary}"
        );
    }

    #[test]
    fn a_repeated_sentence_is_quoted_once() {
        let same = "The tower was built of granite in six summers.";
        let documents = documents(&[("/folder/a.md", same), ("/folder/b.md", same)]);
        assert_eq!(of(2, 0, &documents).matches("granite in six").count(), 1);
    }

    #[test]
    fn folders_without_sentences_are_only_counted() {
        assert_eq!(of(1, 0, &documents(&[("/folder/a.csv", "1;2;3")])), "1 file.");
        assert_eq!(
            of(90, 0, &documents(&[("/folder/a.txt", "reef")])),
            "90 files (1 read), mostly about reef."
        );
    }

    #[test]
    fn what_was_too_large_is_counted() {
        let reef = documents(&[("/folder/a.txt", "reef")]);
        assert_eq!(
            of(3, 2, &reef),
            "3 files (1 read, 2 left out as too large), mostly about reef."
        );
    }
}
