//! Sentences that the host and the reference word differently, as one token on both sides:
//! `«max-iterations»`.

use regex::Regex;

/// A token, and the sentences that it replaces.
const SENTENCES: [(&str, &str); 7] = [
    ("«max-iterations»", r"^(RuntimeError: )?Agent reached maximum (number of )?iterations?\b.*$"),
    ("«max-iterations»", r"^.*limits\.run\.(task_)?turns.*$"),
    ("«delegate-error»", r"^Delegator agent encounters an error.*$"),
    ("«delegate-error»", r"^The delegate \S+ did not finish its task \(ERROR\).*$"),
    ("«no-action»", r"^No action was returned$"),
    (
        "«finished $1: $2»",
        r"^(?s)Delegated agent finished with result:\s+(\S+) finishes task with (.*)$",
    ),
    ("«finished $1: $2»", r"^(\S+) finishes its task with (.*)$"),
];

/// Returns the token of a sentence, or any other text unchanged.
pub(super) fn plain(text: &str) -> String {
    let found = SENTENCES.iter().find_map(|(token, pattern)| {
        let pattern = Regex::new(pattern).expect("the patterns are right");
        pattern.is_match(text).then(|| pattern.replace(text, *token).into_owned())
    });
    found.unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_sentences_become_one_token_and_others_stay() {
        let theirs =
            plain("Delegated agent finished with result:\n\nChildAgent finishes task with x: y");
        assert_eq!(
            (theirs.as_str(), plain("ChildAgent finishes its task with x: y")),
            ("«finished ChildAgent: x: y»", theirs.clone())
        );
        let limit = plain("the run made the 2 steps that limits.run.turns allows");
        assert_eq!(
            plain("Agent reached maximum iteration. Current iteration: 2, max iteration: 2"),
            limit
        );
        assert_eq!(plain("No action was returned, or so"), "No action was returned, or so");
    }
}
