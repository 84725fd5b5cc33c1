//! Words and their stems. The stemming is light on purpose: a stem need not be a word, but should
//! be the same for all forms of one word, and differ between words more often than not. Scripts
//! without spaces between words are split into pairs of letters.

use std::collections::BTreeSet;

/// Words without a topic. Question words are among them: they ask, but do not name.
const COMMON: [&str; 132] = [
    "a", "about", "after", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be",
    "been", "before", "being", "between", "both", "but", "by", "can", "could", "did", "do", "does",
    "down", "each", "even", "ever", "every", "few", "first", "for", "from", "had", "has", "have",
    "he", "her", "here", "him", "his", "how", "however", "i", "if", "in", "into", "is", "it",
    "its", "just", "like", "made", "make", "many", "may", "me", "might", "more", "most", "much",
    "must", "my", "new", "no", "nor", "not", "now", "of", "on", "one", "only", "or", "other",
    "our", "out", "over", "own", "please", "same", "shall", "she", "should", "since", "so", "some",
    "still", "such", "tell", "than", "that", "the", "their", "them", "then", "there", "these",
    "they", "this", "those", "through", "to", "too", "two", "under", "until", "up", "us", "use",
    "used", "using", "very", "was", "we", "well", "were", "what", "when", "where", "which",
    "while", "who", "whom", "whose", "why", "will", "with", "within", "without", "would", "you",
];

/// The words of a text as written, in order: runs of letters and digits, with an apostrophe inside.
/// Chinese, Japanese and Korean yield overlapping pairs of letters instead, and a single letter in
/// such a script yields itself.
pub fn spellings(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '’')
        .flat_map(pieces)
        .map(|word| word.trim_matches(['\'', '’']))
        .filter(|word| !word.is_empty())
}

/// The words of a text in lower case, in order.
pub fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    spellings(text).map(str::to_lowercase)
}

/// The stems of the significant words, in order, or of all words if none is significant.
pub fn terms(text: &str) -> Vec<String> {
    let telling: Vec<String> =
        words(text).filter(|word| !is_common(word)).map(|word| stem(&word)).collect();
    if telling.is_empty() { words(text).map(|word| stem(&word)).collect() } else { telling }
}

/// Whether the word has no topic. A word in Hiragana only usually joins or inflects, and names
/// nothing.
pub fn is_common(word: &str) -> bool {
    COMMON.binary_search(&word).is_ok()
        || (!word.is_empty()
            && word.chars().all(|letter| WritingSystem::of(letter) == WritingSystem::Hiragana))
}

/// The script of a letter. In text without spaces, a change of script usually ends a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WritingSystem {
    Han,
    Hiragana,
    Katakana,
    Hangul,
    /// Has spaces between its words, as far as is known here.
    Spaced,
}

impl WritingSystem {
    fn of(letter: char) -> Self {
        match letter {
            '々'
            | '〇'
            | '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{3ffff}' => Self::Han,
            '\u{3041}'..='\u{309f}' => Self::Hiragana,
            '\u{30a0}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' | '\u{ff66}'..='\u{ff9f}' => {
                Self::Katakana
            }
            '\u{1100}'..='\u{11ff}' | '\u{3130}'..='\u{318f}' | '\u{ac00}'..='\u{d7af}' => {
                Self::Hangul
            }
            _ => Self::Spaced,
        }
    }
}

/// Splits a run without spaces into pairs if its script has no spaces, and returns it whole
/// otherwise.
fn pieces(run: &str) -> impl Iterator<Item = &str> {
    let mut rest = run;
    std::iter::from_fn(move || {
        if rest.is_ascii() {
            let whole = std::mem::take(&mut rest);
            return (!whole.is_empty()).then_some(whole);
        }
        let (piece, after) = first_piece(rest);
        rest = after;
        Some(piece)
    })
}

/// The first word or pair, and the start of the next. The last letter of a run is part of the pair
/// before, so it yields none of its own.
fn first_piece(run: &str) -> (&str, &str) {
    let script = run.chars().next().map_or(WritingSystem::Spaced, WritingSystem::of);
    if script == WritingSystem::Spaced {
        return run.split_at(
            run.find(|letter| WritingSystem::of(letter) != WritingSystem::Spaced)
                .unwrap_or(run.len()),
        );
    }
    let mut ends = run
        .char_indices()
        .take_while(|(_, letter)| WritingSystem::of(*letter) == script)
        .map(|(at, letter)| at + letter.len_utf8());
    let one = ends.next().unwrap_or(run.len());
    match (ends.next(), ends.next()) {
        (None, _) => run.split_at(one),
        (Some(two), None) => run.split_at(two),
        (Some(two), Some(_)) => (&run[..two], &run[one..]),
    }
}

/// The overlap of two lists of terms: 0 for nothing, 1 if one contains the other.
pub fn overlap(one: &[String], other: &[String]) -> f64 {
    let one: BTreeSet<_> = one.iter().collect();
    let other: BTreeSet<_> = other.iter().collect();
    let smaller = one.len().min(other.len());
    if smaller == 0 { 0.0 } else { one.intersection(&other).count() as f64 / smaller as f64 }
}

/// The stem of a word in lower case, without `'s`, plural, `ing`, `ed` and final `e`. Words with
/// digits or other scripts stay.
pub fn stem(word: &str) -> String {
    let word = word.strip_suffix("'s").or_else(|| word.strip_suffix("’s")).unwrap_or(word);
    if word.len() < 4 || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let singular = singular(word);
    let base = without_ending(&singular);
    // Without this, `named` and `name` would differ.
    base.strip_suffix('e').filter(|rest| rest.len() >= 3).unwrap_or(base).to_owned()
}

fn singular(word: &str) -> String {
    if let Some(rest) = word.strip_suffix("ies").filter(|rest| rest.len() >= 2) {
        return format!("{rest}y");
    }
    for hissing in ["sses", "shes", "ches", "xes", "zes"] {
        if word.ends_with(hissing) {
            return word[..word.len() - 2].to_owned();
        }
    }
    let keeps_its_s = ["ss", "us", "is"].iter().any(|ending| word.ends_with(ending));
    word.strip_suffix('s').filter(|_| !keeps_its_s).unwrap_or(word).to_owned()
}

fn without_ending(word: &str) -> &str {
    for ending in ["ing", "ed"] {
        if let Some(rest) =
            word.strip_suffix(ending).filter(|rest| rest.len() >= 3 && rest.contains(is_vowel))
        {
            return without_doubled_end(rest);
        }
    }
    word
}

/// `stopp` from `stopped`, but `fall` from `falling`.
fn without_doubled_end(word: &str) -> &str {
    let bytes = word.as_bytes();
    let last = bytes[bytes.len() - 1];
    let doubled = bytes[bytes.len() - 2] == last
        && !matches!(last, b'l' | b's' | b'z')
        && !is_vowel(char::from(last));
    if doubled { &word[..word.len() - 1] } else { word }
}

fn is_vowel(letter: char) -> bool {
    matches!(letter, 'a' | 'e' | 'i' | 'o' | 'u' | 'y')
}

#[cfg(test)]
mod tests {
    use super::{COMMON, overlap, stem, terms, words};

    #[test]
    fn forms_of_a_word_share_a_stem() {
        let families: [&[&str]; 9] = [
            &["light", "lights", "lighted", "lighting"],
            &["house", "houses", "housed", "housing"],
            &["name", "names", "named", "naming"],
            &["city", "cities"],
            &["box", "boxes"],
            &["stop", "stops", "stopped", "stopping"],
            &["tower", "towers", "tower's"],
            &["watch", "watches", "watched", "watching"],
            &["build", "builds", "building", "buildings"],
        ];
        for family in families {
            for word in family {
                assert_eq!(stem(word), stem(family[0]), "{word}");
            }
        }
    }

    #[test]
    fn different_words_keep_different_stems() {
        for (one, other) in [
            ("glass", "gla"),
            ("bus", "bu"),
            ("bring", "br"),
            ("red", "r"),
            ("1844s", "1844"),
            ("this", "thi"),
        ] {
            assert_ne!(stem(one), other);
        }
    }

    #[test]
    fn words_are_found_in_any_script() {
        assert_eq!(
            words("It's Ærø's light—built 1844.").collect::<Vec<_>>(),
            ["it's", "ærø's", "light", "built", "1844"]
        );
    }

    #[test]
    fn scripts_without_spaces_are_cut_into_pairs() {
        assert_eq!(words("東京湾の灯台").collect::<Vec<_>>(), ["東京", "京湾", "の", "灯台"]);
        assert_eq!(
            words("1869年 LED灯 スカイ 등대는").collect::<Vec<_>>(),
            ["1869", "年", "led", "灯", "スカ", "カイ", "등대", "대는"]
        );
        assert_eq!(terms("東京湾の灯台"), ["東京", "京湾", "灯台"]);
        assert_eq!(terms("どこ"), ["どこ"]);
        let text = terms("横浜の人は東京湾の灯台を1869年に建てた。");
        assert!(
            terms("東京湾の灯台はどこですか？").iter().all(|term| text.contains(term)),
            "{text:?}"
        );
    }

    #[test]
    fn terms_leave_out_what_only_asks() {
        assert_eq!(terms("When was Skerryvore lit?"), ["skerryvor", "lit"]);
        assert_eq!(terms("Who is it?"), ["who", "is", "it"]);
    }

    #[test]
    fn overlap_is_measured_on_the_shorter_list() {
        assert!(
            (overlap(&terms("the old tower"), &terms("an old stone tower")) - 1.0).abs()
                < f64::EPSILON
        );
        assert!(overlap(&terms("tower"), &terms("boat")).abs() < f64::EPSILON);
    }

    #[test]
    fn common_words_are_sorted_for_the_binary_search() {
        assert!(COMMON.is_sorted());
    }
}
