//! The subject of a question, and the kind of answer that it expects. Other modules look for the
//! answer.

use conclave_prose::{Format, is_common, passages, stem, terms, words};

/// The kind of fact that a good answer contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Time,
    Number,
    Name,
    Anything,
}

/// A parsed question.
#[derive(Debug)]
pub(crate) struct Question {
    /// Its significant words, as written.
    keywords: Vec<String>,
    /// Their stems, without duplicates.
    pub(crate) terms: Vec<String>,
    /// The stems of its names, as far as capitals show them.
    pub(crate) names: Vec<String>,
    pub(crate) wanted: Wanted,
    /// The stems of the subject to be explained, in order: `What is a manifest?`. Empty for other
    /// questions.
    pub(crate) explained: Vec<String>,
}

/// Words of a thing's name, at most.
const NAME_WORDS: usize = 3;

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
/// Words after "how" that ask for an amount.
const MEASURES: [&str; 16] = [
    "big", "deep", "far", "fast", "heavy", "high", "large", "long", "many", "much", "often", "old",
    "small", "tall", "wide", "young",
];

impl Question {
    /// Parses only the question itself: "When was it lit? Note it down." is about the light.
    pub(crate) fn new(text: &str) -> Self {
        let sentences: Vec<_> =
            passages(text, Format::Prose).into_iter().map(|passage| passage.text).collect();
        let asked: Vec<_> =
            sentences.iter().filter(|sentence| sentence.ends_with('?')).cloned().collect();
        let text = if asked.is_empty() { text.to_owned() } else { asked.join(" ") };
        let mut terms = terms(&text);
        terms.sort_unstable();
        terms.dedup();
        let names = names(&text);
        Self {
            keywords: keywords(&text),
            terms,
            names,
            wanted: Wanted::by(&text),
            explained: explained(&text),
        }
    }

    /// The keywords, for a search tool and for users.
    pub(crate) fn keywords(&self) -> String {
        self.keywords.join(" ")
    }
}

/// The stems of the subject that a question asks to explain.
fn explained(text: &str) -> Vec<String> {
    let words: Vec<_> = words(text).collect();
    let [what, is, rest @ ..] = words.as_slice() else { return Vec::new() };
    let name = without_article(rest);
    let asks = what == "what" && matches!(is.as_str(), "is" | "are");
    let is_name =
        (1..=NAME_WORDS).contains(&name.len()) && name.iter().all(|word| !is_common(word));
    if asks && is_name { name.iter().map(|word| stem(word)).collect() } else { Vec::new() }
}

/// The words without a leading article.
pub(crate) fn without_article(words: &[String]) -> &[String] {
    match words {
        [article, rest @ ..] if matches!(article.as_str(), "a" | "an" | "the") => rest,
        words => words,
    }
}

fn keywords(text: &str) -> Vec<String> {
    let bare = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
    let all: Vec<_> = text.split_whitespace().map(bare).filter(|word| !word.is_empty()).collect();
    let telling: Vec<_> =
        all.iter().filter(|word| !is_common(&word.to_lowercase())).cloned().collect();
    if telling.is_empty() { all } else { telling }
}

/// The first word is capitalised in any sentence, so it does not count.
fn names(text: &str) -> Vec<String> {
    let capitalised =
        text.split_whitespace().skip(1).filter(|word| word.starts_with(char::is_uppercase));
    capitalised.flat_map(words).filter(|word| !is_common(word)).map(|word| stem(&word)).collect()
}

impl Wanted {
    fn by(question: &str) -> Self {
        let words: Vec<_> = words(question).collect();
        for pair in words.windows(2) {
            match (pair[0].as_str(), pair[1].as_str()) {
                ("how", measure) if MEASURES.contains(&measure) => return Self::Number,
                ("what" | "which", "year" | "date" | "day" | "month" | "century") => {
                    return Self::Time;
                }
                _ => {}
            }
        }
        let asks = |word: &str| words.iter().any(|other| other == word);
        if asks("when") {
            Self::Time
        } else if asks("who") || asks("whom") || asks("whose") {
            Self::Name
        } else {
            Self::Anything
        }
    }

    /// Whether a sentence contains this kind of fact.
    pub(crate) fn is_in(self, sentence: &str) -> bool {
        match self {
            Self::Time => {
                words(sentence).any(|word| is_year(&word) || MONTHS.contains(&word.as_str()))
            }
            Self::Number => sentence.contains(|c: char| c.is_ascii_digit()),
            Self::Name => {
                sentence.split_whitespace().skip(1).any(|word| word.starts_with(char::is_uppercase))
            }
            Self::Anything => false,
        }
    }
}

fn is_year(word: &str) -> bool {
    let digits = word.trim_end_matches('s');
    digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{Question, Wanted};

    #[test]
    fn only_what_is_asked_counts() {
        let question = Question::new("I am curious. When was Skerryvore lit? Note it down.");
        assert_eq!(question.keywords(), "Skerryvore lit");
        assert_eq!(question.names, ["skerryvor"]);
        assert_eq!(Question::new("Tell me about lamps").keywords(), "lamps");
    }

    #[test]
    fn a_question_may_ask_what_something_is() {
        let cases = [
            ("What is a manifest?", &["manifest"][..]),
            ("What are the default limits?", &["default", "limit"]),
            ("What is the capital of Portugal?", &[]),
            ("What is it?", &[]),
            ("Who is a keeper?", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(Question::new(text).explained, expected, "{text}");
        }
    }

    #[test]
    fn the_question_word_says_what_is_wanted() {
        let cases = [
            ("When was it lit?", Wanted::Time),
            ("In which year was it lit?", Wanted::Time),
            ("How tall is it?", Wanted::Number),
            ("How many lamps are there?", Wanted::Number),
            ("Who built it?", Wanted::Name),
            ("How does it work?", Wanted::Anything),
            ("Where is it?", Wanted::Anything),
        ];
        for (text, wanted) in cases {
            assert_eq!(Question::new(text).wanted, wanted, "{text}");
        }
    }

    #[test]
    fn answers_are_told_by_what_they_hold() {
        assert!(
            Wanted::Time.is_in("It was lit in 1844.")
                && Wanted::Time.is_in("Lit in March.")
                && !Wanted::Time.is_in("It has 48 lamps.")
        );
        assert!(Wanted::Number.is_in("It is 48 m tall.") && !Wanted::Number.is_in("It is tall."));
        assert!(
            Wanted::Name.is_in("Built by Alan Stevenson.")
                && !Wanted::Name.is_in("Built by masons.")
        );
    }
}
