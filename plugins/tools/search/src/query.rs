//! The query's terms, and their counts in a text. A search spends nearly all of its time here, so
//! other words cost only a look at their first letter, and no memory.

use conclave_prose::{spellings, stem};

/// Pronouns that refer to the sentence before.
const PRONOUNS: [&str; 9] = ["he", "her", "his", "it", "its", "she", "their", "they", "this"];

/// The terms of a query.
pub(crate) struct Query {
    terms: Vec<String>,
    /// For each first byte, whether some term begins with it.
    begins: [bool; 256],
}

/// The counts of one passage.
#[derive(Debug, PartialEq)]
pub(crate) struct Counted {
    pub(crate) words: usize,
    /// Per term, in the order of the query.
    pub(crate) counts: Vec<u32>,
    /// Whether a pronoun refers to the sentence before.
    pub(crate) refers_back: bool,
}

impl Query {
    /// Of stems; each counts once.
    pub(crate) fn new(terms: &[String]) -> Self {
        let mut terms = terms.to_vec();
        terms.sort_unstable();
        terms.dedup();
        let mut begins = [false; 256];
        for first in terms.iter().filter_map(|term| term.bytes().next()) {
            begins[usize::from(first)] = true;
        }
        Self { terms, begins }
    }

    /// The number of terms.
    pub(crate) fn len(&self) -> usize {
        self.terms.len()
    }

    pub(crate) fn count(&self, text: &str) -> Counted {
        let mut counted = Counted { words: 0, counts: vec![0; self.len()], refers_back: false };
        for word in spellings(text) {
            counted.words += 1;
            counted.refers_back |=
                PRONOUNS.iter().any(|pronoun| word.eq_ignore_ascii_case(pronoun));
            if let Some(term) = self.term(word) {
                counted.counts[term] += 1;
            }
        }
        counted
    }

    /// A stem keeps the beginning of its word, so only words with a matching first letter are
    /// stemmed. Lower case can change the first byte in other scripts, whose words are always
    /// stemmed.
    fn term(&self, word: &str) -> Option<usize> {
        let first = word.bytes().next()?;
        if first.is_ascii() && !self.begins[usize::from(first.to_ascii_lowercase())] {
            return None;
        }
        self.terms.binary_search(&stem(&word.to_lowercase())).ok()
    }
}

#[cfg(test)]
mod tests {
    use conclave_prose::terms;

    use super::Query;

    #[test]
    fn forms_are_counted_in_any_case_and_script() {
        let query = Query::new(&terms("light Ærø lighting"));
        assert_eq!(query.len(), 2);
        let counted = query.count("LIGHTS lit the lighted pier of ærø.");
        assert_eq!((counted.words, counted.counts), (7, vec![2, 1]));
    }

    #[test]
    fn a_pronoun_is_noticed_as_a_word() {
        let query = Query::new(&terms("light"));
        assert!(query.count("Masons built it.").refers_back);
        assert!(!query.count("Masons built the pit.").refers_back);
    }
}
