//! Patterns of commands, which programs of the machine a plugin may run. Whether it may,
//! `grants/exec.rs` decides.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A pattern of commands, such as `/usr/bin/git log *`: the path of a program, and a word for each
/// argument. A `*` in a word covers any characters; a word that begins with it covers no option, that
/// is, no argument that begins with `-`. `**` as the last word covers any further arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommandPattern(String);

/// A text that is no pattern of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandPatternError {
    #[error("it must begin with the absolute path of a program, without `*` and `..`")]
    Program,
    #[error("`**` must be its last word")]
    Rest,
    #[error("it must not hold control characters")]
    Control,
}

impl CommandPattern {
    /// Parses a pattern; words are separated by spaces.
    ///
    /// # Errors
    /// `Program` if the first word is not an absolute path, `Rest` if `**` stands before the end,
    /// `Control` for a control character.
    pub fn parse(text: &str) -> Result<Self, CommandPatternError> {
        if text.chars().any(char::is_control) {
            return Err(CommandPatternError::Control);
        }
        let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
        let program = words.first().ok_or(CommandPatternError::Program)?;
        let has_name = program.rsplit('/').next().is_some_and(|name| !name.is_empty());
        let is_plain = program.split('/').all(|part| !matches!(part, ".." | "."));
        if !program.starts_with('/') || !has_name || !is_plain || program.contains('*') {
            return Err(CommandPatternError::Program);
        }
        if words.iter().rev().skip(1).any(|word| *word == "**") {
            return Err(CommandPatternError::Rest);
        }
        Ok(Self(words.join(" ")))
    }

    /// The pattern as text, with single spaces.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path of the program.
    #[must_use]
    pub fn program(&self) -> &str {
        self.0.split(' ').next().unwrap_or_default()
    }

    /// Whether `program` is the path of the program, or its last component.
    #[must_use]
    pub fn names(&self, program: &str) -> bool {
        let path = self.program();
        path == program || path.rsplit('/').next() == Some(program)
    }

    /// Whether the pattern covers these arguments.
    #[must_use]
    pub fn covers(&self, arguments: &[String]) -> bool {
        let mut words = self.0.split(' ').skip(1);
        let mut arguments = arguments.iter();
        loop {
            match (words.next(), arguments.as_slice().is_empty()) {
                (Some("**"), _) | (None, true) => return true,
                (Some(word), false) => {
                    let argument = arguments.next().map_or("", String::as_str);
                    if (word.starts_with('*') && argument.starts_with('-'))
                        || !word_covers(word, argument)
                    {
                        return false;
                    }
                }
                (Some(_), true) | (None, false) => return false,
            }
        }
    }
}

impl CommandPattern {
    /// The pattern of the commands that both cover, word by word; `None` if there are none, or if a
    /// word of both covers more than one word can say.
    pub(crate) fn overlap(&self, other: &Self) -> Option<Self> {
        let (mut one, mut two) = (self.0.split(' '), other.0.split(' '));
        let mut words = vec![one.next().filter(|program| two.next() == Some(*program))?];
        loop {
            match (one.next(), two.next()) {
                (None, None) => return Some(Self(words.join(" "))),
                (Some("**"), rest) => {
                    words.extend(rest.into_iter().chain(two));
                    return Some(Self(words.join(" ")));
                }
                (rest, Some("**")) => {
                    words.extend(rest.into_iter().chain(one));
                    return Some(Self(words.join(" ")));
                }
                (Some(one), Some(two)) => words.push(narrower_word(one, two)?),
                (Some(_), None) | (None, Some(_)) => return None,
            }
        }
    }
}

/// The word that covers fewer arguments, if all of them are covered by the other one too.
fn narrower_word<'a>(one: &'a str, two: &'a str) -> Option<&'a str> {
    // A `*` of the inner word can only meet a `*` of the outer one, which covers all that it does.
    let has = |outer: &str, inner: &str| {
        word_covers(outer, inner) && !(outer.starts_with('*') && inner.starts_with('-'))
    };
    if one == two || has(one, two) {
        return Some(two);
    }
    has(two, one).then_some(one)
}

impl fmt::Display for CommandPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Whether a word covers an argument; takes time in proportion to the product of their lengths at
/// most.
fn word_covers(word: &str, argument: &str) -> bool {
    let Some((first, rest)) = word.split_once('*') else { return word == argument };
    let Some(mut remaining) = argument.strip_prefix(first) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return remaining.ends_with(part);
        }
        // The first occurrence leaves the most for the parts after it.
        let Some(at) = remaining.find(part) else { return false };
        remaining = &remaining[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests;
