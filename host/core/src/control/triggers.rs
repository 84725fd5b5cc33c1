//! When the text of a micro-agent is put before the model: one of its triggers stands in what the user said (O-126).

/// How a trigger is looked for; case never matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TriggerRules {
    /// As whole words: `git` is not in `digital`.
    #[default]
    WholeWords,
    /// Anywhere, as in the reference of 2025-11.
    Substring,
}

/// The first trigger that stands in the message.
pub fn first<'a>(triggers: impl IntoIterator<Item = &'a str>, message: &str, rules: TriggerRules) -> Option<&'a str> {
    let message = message.to_lowercase();
    triggers.into_iter().find(|trigger| stands_in(&trigger.to_lowercase(), &message, rules))
}

fn stands_in(trigger: &str, message: &str, rules: TriggerRules) -> bool {
    match rules {
        TriggerRules::Substring => message.contains(trigger),
        // An empty one would stand in everything.
        TriggerRules::WholeWords if trigger.trim().is_empty() => false,
        TriggerRules::WholeWords => message.match_indices(trigger).any(|(start, found)| {
            let (before, after) = (&message[..start], &message[start + found.len()..]);
            // A trigger may begin or end with something else, such as `/review`: nothing is to be bounded there.
            let joins = |inner: Option<char>, outer: Option<char>| inner.is_some_and(is_of_word) && outer.is_some_and(is_of_word);
            !joins(found.chars().next(), before.chars().next_back()) && !joins(found.chars().next_back(), after.chars().next())
        }),
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_not_found_inside_another_one() {
        for (trigger, message, ours, theirs) in [
            ("git", "digital", false, true),
            ("git", "use GIT, please", true, true),
            ("git", "git_hub", false, true),
            ("git", "digital git", true, true),
            ("pull request", "a Pull Request!", true, true),
            ("/review", "please /review this", true, true),
            ("c++", "in c++.", true, true),
            ("straße", "die Straße", true, true),
            ("", "anything", false, true),
            ("git", "", false, false),
        ] {
            let found = |rules| first([trigger], message, rules).is_some();
            assert_eq!([found(TriggerRules::WholeWords), found(TriggerRules::Substring)], [ours, theirs], "{trigger} in {message}");
        }
        assert_eq!(first(["x", "b", "a"], "a b", TriggerRules::WholeWords), Some("b"), "the first in the list");
    }
}
