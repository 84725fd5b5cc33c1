//! Selects the found sentences that answer the question. A search tool ranks by rare words. An
//! answer must also cover the question, contain the requested kind of fact, and state something.

use std::cmp::Ordering;

use conclave_prose::{Format, is_scrap, overlap, stem, terms, words};

use crate::found::Hit;
use crate::question::{Question, without_article};
use crate::quote::is_table_row;

/// Sentences of an answer: more would be a list.
const MOST: usize = 3;
/// The bonus for the requested kind of fact, as a share of the question's coverage.
const KIND_BONUS: f64 = 0.25;
/// The penalty for a sentence that needs its surroundings. Smaller than [`KIND_BONUS`], and without
/// effect if no other sentence answers.
const NOT_ALONE: f64 = 0.2;
/// Words that refer to the sentence before.
const DANGLING: [&str; 9] =
    ["both", "he", "it", "its", "otherwise", "she", "their", "they", "theirs"];
/// Words that do so only before one of `GOES_ON`: "Each is enforced", but "Each plugin is alone".
const MAYBE_DANGLING: [&str; 8] = ["all", "each", "none", "some", "that", "these", "this", "those"];
const GOES_ON: [&str; 17] = [
    "are", "can", "does", "had", "has", "have", "is", "may", "means", "must", "of", "one", "page",
    "section", "was", "were", "will",
];
/// The bonus for a definition, if the question asks for one.
const EXPLAINS: f64 = 0.6;
/// The score below which a sentence shares words with the question, but has another subject.
const LEAST: f64 = 0.6;
/// The share of the first sentence's score that a further one needs.
const NEARLY: f64 = 0.9;
/// The overlap from which two sentences say the same.
const SAME: f64 = 0.8;

/// The sentences to quote, best first. Empty if none answers.
pub(crate) fn best<'h>(question: &Question, hits: &'h [Hit]) -> Vec<&'h Hit> {
    let highest = hits.iter().map(|hit| hit.score).fold(f64::MIN_POSITIVE, f64::max);
    let relevant = hits.iter().filter(|hit| !is_noise(hit) && relevance(question, hit) >= LEAST);
    let value =
        |hit: &Hit| relevance(question, hit) + manner(question, hit) + 0.1 * hit.score / highest;
    let mut ranked: Vec<_> = relevant.map(|hit| (value(hit), hit)).collect();
    ranked.sort_by(|(one, _), (other, _)| other.partial_cmp(one).unwrap_or(Ordering::Equal));
    let Some((best, first)) = ranked.first() else { return Vec::new() };
    // If the first sentence is a definition, other facts about its subject are no part of the
    // answer.
    let enough = if explains(question, first) { *best } else { best * NEARLY };
    let mut chosen: Vec<&Hit> = Vec::new();
    for (_, hit) in ranked.iter().filter(|(score, _)| *score >= enough) {
        let adds_nothing = chosen.iter().any(|other| says_the_same(other, hit));
        // After a sentence from another place, its reference would be misread.
        let misleads = !chosen.is_empty() && dangles(&hit.text);
        if chosen.len() < MOST && !adds_nothing && !misleads {
            chosen.push(hit);
        }
    }
    chosen
}

/// The share of the question's terms in the sentence or around it, with a bonus for the requested
/// kind of fact. 0 if it contains none of the question's names, since it has another subject then.
fn relevance(question: &Question, hit: &Hit) -> f64 {
    let file = hit.path.rsplit('/').next().unwrap_or_default();
    let about = [terms(&hit.text), terms(&hit.context), terms(file)].concat();
    if !question.names.is_empty() && !question.names.iter().any(|name| about.contains(name)) {
        return 0.0;
    }
    let covered = question.terms.iter().filter(|term| about.contains(term)).count();
    let coverage = covered as f64 / question.terms.len().max(1) as f64;
    coverage + if question.wanted.is_in(&hit.text) { KIND_BONUS } else { 0.0 }
}

/// Whether a piece of prose is no statement. Source code always looks so, and is
/// exempt.
fn is_noise(hit: &Hit) -> bool {
    Format::of(&hit.path) == Format::Prose && !is_table_row(hit) && is_scrap(&hit.text)
}

/// The bonus for the form: a statement answers, while a question, a title or code does not. A
/// sentence that needs its surroundings is worse, and a definition of the subject is best.
fn manner(question: &Question, hit: &Hit) -> f64 {
    if explains(question, hit) {
        return EXPLAINS;
    }
    form(hit) - if is_table_row(hit) || dangles(&hit.text) { NOT_ALONE } else { 0.0 }
}

/// Whether the sentence begins with the subject and defines it, or is a row of a table about it.
fn explains(question: &Question, hit: &Hit) -> bool {
    if question.explained.is_empty() {
        return false;
    }
    if is_table_row(hit) {
        // Two cells are a word and its meaning; a longer row says other things about the word.
        let mut cells = hit.text.split('|').map(str::trim).filter(|cell| !cell.is_empty());
        let (Some(first), Some(second), None) = (cells.next(), cells.next(), cells.next()) else {
            return false;
        };
        let cell: Vec<String> = words(first).collect();
        let is_it = without_article(&cell)
            .iter()
            .map(|word| stem(word))
            .eq(question.explained.iter().cloned());
        return is_it && !second.ends_with('?');
    }
    let said: Vec<String> = words(&hit.text).take(question.explained.len() + 2).collect();
    let said = without_article(&said);
    let (name, rest) = said.split_at(question.explained.len().min(said.len()));
    let is_it = name.iter().map(|word| stem(word)).eq(question.explained.iter().cloned());
    is_it
        && rest
            .first()
            .is_some_and(|verb| matches!(verb.as_str(), "is" | "are" | "means" | "was" | "were"))
}

fn form(hit: &Hit) -> f64 {
    let words = hit.text.split_whitespace().count();
    if hit.text.ends_with('?') || Format::of(&hit.path) == Format::Source {
        -0.4
    } else if hit.text.ends_with('.') && (4..=40).contains(&words) {
        0.1
    } else {
        0.0
    }
}

/// Whether the sentence begins with a word that refers to an earlier sentence.
fn dangles(text: &str) -> bool {
    let mut words = words(text);
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let first = first.split(['\'', '’']).next().unwrap_or_default();
    DANGLING.contains(&first)
        || (MAYBE_DANGLING.contains(&first) && GOES_ON.contains(&second.as_str()))
}

fn says_the_same(one: &Hit, other: &Hit) -> bool {
    overlap(&terms(&one.text), &terms(&other.text)) >= SAME
}

#[cfg(test)]
mod tests {
    use super::{Hit, best, dangles};
    use crate::question::Question;

    fn hits(texts: &[&str]) -> Vec<Hit> {
        let hit = |(text, index): (&&str, u32)| Hit {
            path: "/folder/notes.md".into(),
            line: index,
            text: (*text).into(),
            score: 10.0 / f64::from(index),
            context: String::new(),
        };
        texts.iter().zip(1..).map(hit).collect()
    }

    fn chosen(question: &str, texts: &[&str]) -> Vec<String> {
        best(&Question::new(question), &hits(texts))
            .into_iter()
            .map(|hit| hit.text.clone())
            .collect()
    }

    #[test]
    fn the_kind_of_answer_beats_the_rank_of_the_tool() {
        let texts = [
            "Skerryvore was lit by oil for years.",
            "When was Skerryvore lit?",
            "Skerryvore was first lit in 1844.",
        ];
        assert_eq!(
            chosen("When was Skerryvore lit?", &texts),
            ["Skerryvore was first lit in 1844."]
        );
        let texts = ["The tower of Skerryvore is tall.", "Skerryvore is 48 metres tall."];
        assert_eq!(chosen("How tall is Skerryvore?", &texts)[0], "Skerryvore is 48 metres tall.");
    }

    #[test]
    fn what_explains_a_thing_beats_what_speaks_of_it() {
        let texts = [
            "A manifest may narrow itself with `urls`.",
            "| **manifest** | what a plugin says about itself and asks for |",
            "The manifest of a plugin stands beside it.",
            "| `manifest` | did the plugin ask for it? |",
            "| manifest | a section | read and written |",
        ];
        assert_eq!(chosen("What is a manifest?", &texts), texts[1..2]);
        let texts = [
            "Each keeper has a lamp.",
            "A keeper is a person who tends a light.",
            "Ask the keeper.",
        ];
        assert_eq!(chosen("What is a keeper?", &texts), texts[1..2]);
    }

    #[test]
    fn a_drawing_or_a_command_is_no_answer() {
        assert_eq!(
            chosen("What is a manifest?", &["┌── manifest ──▶ ┐", "$ conclave manifest --all"]),
            [""; 0]
        );
    }

    #[test]
    fn the_same_is_said_once() {
        let texts = ["Skerryvore was first lit in 1844.", "In 1844 Skerryvore was first lit."];
        assert_eq!(chosen("When was Skerryvore lit?", &texts).len(), 1);
    }

    #[test]
    fn equally_good_sentences_stand_together() {
        let texts =
            ["Alan Stevenson built Skerryvore.", "Skerryvore was built by masons from Mull."];
        assert_eq!(chosen("Who built Skerryvore?", &texts).len(), 2);
    }

    #[test]
    fn somebody_else_is_no_answer() {
        assert_eq!(
            chosen("Who built Skerryvore?", &["The Bell Rock was built by Robert Stevenson."]),
            [""; 0]
        );
    }

    #[test]
    fn a_sentence_of_its_own_beats_one_that_points_back() {
        let mut hits = hits(&[
            "Each is enforced, the wall limit too.",
            "This page has the limits.",
            "The default wall limit is 30 s.",
        ]);
        hits[0].context = "Limits and their default".into();
        let chosen = best(&Question::new("What is the default wall limit?"), &hits);
        assert_eq!(
            chosen.iter().map(|hit| hit.text.as_str()).collect::<Vec<_>>(),
            ["The default wall limit is 30 s."]
        );
    }

    #[test]
    fn a_sentence_that_points_back_answers_when_no_other_does() {
        let mut hits = hits(&["It was lit in 1844."]);
        hits[0].context = "Skerryvore".into();
        assert_eq!(best(&Question::new("When was Skerryvore lit?"), &hits).len(), 1);
    }

    #[test]
    fn what_points_back_stands_behind_no_other() {
        let texts = [
            "The default wall limit is 30 s.",
            "It holds for calls, and the default wall limit ends them.",
        ];
        assert_eq!(chosen("What is the default wall limit?", &texts), texts[..1]);
    }

    #[test]
    fn a_statement_beats_a_row_of_a_table() {
        let texts = ["| wall | 30 s | the default limit |", "The default wall limit is 30 s."];
        assert_eq!(chosen("What is the default wall limit?", &texts)[0], texts[1]);
        assert_eq!(chosen("What is the default wall limit?", &texts[..1]), texts[..1]);
    }

    #[test]
    fn only_a_beginning_without_its_noun_dangles() {
        for text in [
            "Each is enforced.",
            "It ends.",
            "It's over.",
            "They end.",
            "This page is new.",
            "Both end.",
            "Otherwise it ends.",
        ] {
            assert!(dangles(text), "{text}");
        }
        for text in [
            "Each plugin is alone.",
            "This limit holds.",
            "A tool is a function; it ends.",
            "All plugins end.",
            "",
        ] {
            assert!(!dangles(text), "{text}");
        }
    }

    #[test]
    fn text_without_spaces_answers() {
        let text = "東京湾の灯台は1869年に点灯した。";
        assert_eq!(chosen("東京湾の灯台はどこですか？", &[text, "海は青い。"]), [text]);
    }

    #[test]
    fn what_a_sentence_stands_under_counts() {
        let mut hits = hits(&["Lit in 1854."]);
        let question = Question::new("When was Muckle Flugga lit?");
        assert!(best(&question, &hits).is_empty());
        hits[0].context = "Muckle Flugga".into();
        assert_eq!(best(&question, &hits).len(), 1);
    }

    #[test]
    fn sharing_a_word_is_no_answer() {
        assert_eq!(chosen("What does the harbour master earn?", &["The harbour is old."]), [""; 0]);
    }
}
