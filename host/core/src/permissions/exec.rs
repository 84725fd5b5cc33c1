//! The `exec` capability: programs of the machine, which run outside the sandbox. The operator lists
//! whole commands; a program starts only with arguments that one of them covers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::permissions::authorize::Refused;
use crate::permissions::grant::{ExecGrant, FileGrant, FileMode, Rights, list};
use crate::types::capability::Capability;
use crate::types::denial::Layer;
use crate::types::text::show_command;

/// Maximum arguments of a command.
pub const ARGUMENTS: usize = 1_000;
/// Maximum bytes of a command's arguments together.
pub const ARGUMENT_BYTES: usize = 96 << 10;

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

/// The smallest pattern that covers a command. A space in an argument can only be covered by
/// a `*`, and an argument that begins with `*`, or is empty, by nothing smaller than `*`.
fn smallest_pattern(program: &str, arguments: &[String]) -> Option<CommandPattern> {
    let path = if program.contains('/') {
        program.to_owned()
    } else {
        // The usual place; the operator sees the path before granting it.
        format!("/usr/bin/{program}")
    };
    let words = arguments.iter().map(|argument| {
        let word = argument.replace(' ', "*");
        let is_any = word.is_empty() || word == "**" || word.chars().any(char::is_control);
        if is_any { "*".to_owned() } else { word }
    });
    let text = [path].into_iter().chain(words).collect::<Vec<_>>().join(" ");
    let pattern = CommandPattern::parse(&text).ok()?;
    (pattern.names(program) && pattern.covers(arguments)).then_some(pattern)
}

impl<'a> Rights<'a> {
    /// The folders that the plugin's programs may use: those of its own `files`. A program cannot
    /// see an overlay, and must not reach the folder below it.
    pub fn program_folders(&self) -> impl Iterator<Item = &'a FileGrant> + use<'a> {
        let is_asked = self.manifest.ask(Capability::Files).is_some();
        let granted = self.grants.files.iter().filter(move |_| is_asked);
        granted.filter(|grant| grant.mode != FileMode::Overlay)
    }

    /// Returns the pattern that allows a command, and the grant with its limits. `program` is a path
    /// of the grant or its last component.
    ///
    /// # Errors
    /// The record, if programs are not requested or not granted, if no pattern covers the command, or
    /// if the name stands for several programs.
    pub fn may_run(
        &self,
        program: &str,
        arguments: &[String],
    ) -> Result<(&'a CommandPattern, &'a ExecGrant), Refused> {
        let command_text = show_command(program, arguments);
        let granted = || self.grants.exec.iter().flat_map(|grant| &grant.commands);
        let smallest = || {
            let pattern = smallest_pattern(program, arguments)?;
            let mut all: Vec<&str> = granted().map(CommandPattern::as_str).collect();
            all.push(pattern.as_str());
            Some(format!("[plugins.{}] grants.exec = {}", self.plugin, list(all)))
        };
        self.require(Capability::Exec, &command_text, smallest)?;
        let refuse = |reason: &str| {
            self.refuse(Capability::Exec, &command_text, Layer::Runtime, reason, None)
        };
        let length: usize = arguments.iter().map(String::len).sum();
        if arguments.len() > ARGUMENTS || length > ARGUMENT_BYTES {
            let reason =
                format!("a command has {ARGUMENTS} arguments and {ARGUMENT_BYTES} bytes at most");
            return Err(refuse(&reason));
        }
        let mut paths: Vec<&str> = granted()
            .filter(|pattern| pattern.names(program))
            .map(CommandPattern::program)
            .collect();
        paths.dedup();
        if paths.len() > 1 {
            let reason = format!("{program:?} names {}; write the path", paths.join(" and "));
            return Err(refuse(&reason));
        }
        let grant = self.grants.exec.as_ref();
        let found = grant.and_then(|grant| {
            let mut commands = grant.commands.iter().filter(|pattern| pattern.names(program));
            commands.find(|pattern| pattern.covers(arguments)).map(|pattern| (pattern, grant))
        });
        found.ok_or_else(|| {
            let known = granted().any(|pattern| pattern.names(program));
            let what = if known { "these arguments" } else { "this program" };
            let reason = format!("no command of plugins.{}.grants.exec covers {what}", self.plugin);
            self.refuse(Capability::Exec, &command_text, Layer::Config, &reason, smallest())
        })
    }
}

#[cfg(test)]
mod tests;
