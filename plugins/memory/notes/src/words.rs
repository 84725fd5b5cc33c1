//! The words of a text in the form for lookups: lower case, with plurals reduced to singulars. No
//! language data is needed.

/// Words of one text that are indexed.
const MOST_WORDS: usize = 8_192;
/// Letters of a word; longer runs are not words.
const LONGEST: usize = 64;

/// The words in order. Scripts without spaces yield each letter as a word.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for run in text.split(|letter: char| !letter.is_alphanumeric()).filter(|run| !run.is_empty()) {
        if words.len() >= MOST_WORDS {
            break;
        }
        if run.chars().any(is_alone) {
            words.extend(run.chars().map(|letter| letter.to_lowercase().collect::<String>()));
        } else {
            let word: String = run.chars().take(LONGEST).flat_map(char::to_lowercase).collect();
            words.push(singular(word));
        }
    }
    words.truncate(MOST_WORDS);
    words
}

/// Whether the letter is Chinese, Japanese or Korean, which have no spaces between words.
fn is_alone(letter: char) -> bool {
    let scripts = [
        '\u{3040}'..='\u{30ff}',
        '\u{3400}'..='\u{4dbf}',
        '\u{4e00}'..='\u{9fff}',
        '\u{ac00}'..='\u{d7af}',
    ];
    scripts.iter().any(|script| script.contains(&letter))
}

/// Simple plurals of English: `berries`, `boxes`, `keys`; not `glass`, `status`, `is`.
fn singular(mut word: String) -> String {
    let is_plain = word.is_ascii();
    if !is_plain || word.len() < 4 || !word.ends_with('s') {
        return word;
    }
    if word.ends_with("ies") && word.len() > 4 {
        word.truncate(word.len() - 3);
        word.push('y');
    } else if ["sses", "xes", "ches", "shes", "zes"].iter().any(|end| word.ends_with(end)) {
        word.truncate(word.len() - 2);
    } else if !["ss", "us", "is"].iter().any(|end| word.ends_with(end)) {
        word.truncate(word.len() - 1);
    }
    word
}

#[cfg(test)]
mod tests {
    use super::{MOST_WORDS, words};

    #[test]
    fn forms_of_a_word_are_one_word() {
        for (text, expected) in [
            ("Keys, BOXES; berries!", "key box berry"),
            ("glass status is bus news", "glass status is bus new"),
            ("classes watches dies", "class watch die"),
            ("don't a1b2", "don t a1b2"),
            ("Ärger ÇA naïve", "ärger ça naïve"),
            ("灯台は", "灯 台 は"),
            ("_-,. ", ""),
        ] {
            assert_eq!(words(text).join(" "), expected, "{text}");
        }
    }

    #[test]
    fn a_text_of_many_words_is_bounded() {
        assert_eq!(words(&"a ".repeat(100_000)).len(), MOST_WORDS);
        assert_eq!(words(&"台".repeat(100_000)).len(), MOST_WORDS);
        assert_eq!(words(&"x".repeat(100_000))[0].len(), 64);
    }
}
