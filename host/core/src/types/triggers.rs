//! Triggers of knowledge files: an agent reads a file when a user's message contains one of its
//! triggers (O-126).

/// The first trigger that the message contains as whole words, ignoring case: `git` is not in
/// `digital`.
pub fn first<'a>(triggers: impl IntoIterator<Item = &'a str>, message: &str) -> Option<&'a str> {
    let message = message.to_lowercase();
    triggers.into_iter().find(|trigger| stands_in(&trigger.to_lowercase(), &message))
}

fn stands_in(trigger: &str, message: &str) -> bool {
    // An empty trigger would match every message.
    if trigger.trim().is_empty() {
        return false;
    }
    message.match_indices(trigger).any(|(start, found)| {
        let (before, after) = (&message[..start], &message[start + found.len()..]);
        // A trigger may begin or end with another character than a letter, such as `/review`; that
        // end needs no word boundary.
        let joins = |inner: Option<char>, outer: Option<char>| {
            inner.is_some_and(is_of_word) && outer.is_some_and(is_of_word)
        };
        !joins(found.chars().next(), before.chars().next_back())
            && !joins(found.chars().next_back(), after.chars().next())
    })
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_not_found_inside_another_one() {
        for (trigger, message, found) in [
            ("git", "digital", false),
            ("git", "use GIT, please", true),
            ("git", "git_hub", false),
            ("git", "digital git", true),
            ("pull request", "a Pull Request!", true),
            ("/review", "please /review this", true),
            ("c++", "in c++.", true),
            ("straße", "die Straße", true),
            ("", "anything", false),
            ("git", "", false),
        ] {
            assert_eq!(first([trigger], message).is_some(), found, "{trigger} in {message}");
        }
        assert_eq!(first(["x", "b", "a"], "a b"), Some("b"), "the first in the list");
    }
}
