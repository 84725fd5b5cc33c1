//! Done sequences: a small language for sequences of answers that end a task, with its matcher.
//! Does not know the origin of the answers, nor the existing tools.

use std::fmt;

use regex::{Regex, RegexBuilder};
use regex_syntax::ast::ErrorKind;
use serde::{Deserialize, Serialize};

use crate::types::text::cut_chars;

/// One event of a sequence. Its text, also in a journal, is its token: `T`, `T[name]`,
/// `C[pattern]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Expected {
    /// `T`: any tool call.
    Tool,
    /// `T[name]`: a call of exactly this tool, by its name or title.
    SpecificTool(String),
    /// `A`: an answer of the agent itself.
    AgentResponse,
    /// `L`: a text of the model.
    LlmResponse,
    /// `U`: a message of the user.
    UserResponse,
    /// `N`: no answer.
    NoResponse,
    /// `C[pattern]`: the content matches, from any author. `C` alone never matches (L-095).
    ContentMatch(Option<SequencePattern>),
}

/// A regular expression that ignores case; two are equal if their texts are.
#[derive(Clone, Debug)]
pub struct SequencePattern(Regex);

/// Events that end a task when they occur in direct succession. Serialised as its text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sequence {
    source: String,
    events: Vec<Expected>,
}

/// The error for a text that is not a done sequence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    #[error("a done sequence may have {MOST_BYTES} bytes, this one has {bytes}")]
    TooLong { bytes: usize },
    #[error("a done sequence needs at least one event: {MAY_STAND}")]
    Empty,
    #[error("only T[tool] and C[pattern] take brackets, {letter} does not: `{token}`")]
    Brackets { letter: char, token: String },
    #[error("`{token}` is no event of a done sequence: {MAY_STAND}")]
    Unknown { token: String },
    #[error(transparent)]
    Pattern(#[from] SequencePatternError),
}

/// A pattern that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pattern `{pattern}` cannot be used: {why}")]
pub struct SequencePatternError {
    pub problem: PatternProblem,
    /// The beginning of the pattern, for people.
    pattern: String,
    /// The reason, for people.
    why: String,
}

/// The kind of error in a pattern, for a suggestion how to write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternProblem {
    /// It looks ahead or behind.
    LookAround,
    /// It refers to an earlier group's match.
    Backreference,
    /// It needs too much memory when compiled.
    TooBig,
    /// It has another syntax error.
    Syntax,
}

/// A message of a chain, as its task classified it (L-094).
#[derive(Clone, Copy, Debug)]
pub struct Happened<'a> {
    pub kind: MessageKind,
    /// The tool, if the message calls exactly one.
    pub tool: Option<&'a str>,
    /// Further names of this tool.
    pub titles: &'a [String],
    pub content: &'a str,
}

/// The kind of a message in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    Tool,
    AgentResponse,
    LlmResponse,
    UserResponse,
    NoResponse,
}

/// The limit of a sequence in bytes: each pattern takes time to compile.
const MOST_BYTES: usize = 16 << 10;
/// The memory limit of one compiled pattern in bytes: a Unicode class or a count of hundreds fits,
/// a hostile pattern does not.
const PATTERN_BYTES: usize = 1 << 20;
const MAY_STAND: &str =
    "there are T, A, L, U, N and C, the words tool, agent, llm and user, T[tool] and C[pattern]";

impl Sequence {
    /// Parses a sequence: events separated by commas; a comma in brackets belongs to the name or
    /// pattern (L-092).
    ///
    /// # Errors
    /// More than 16 KiB, an unknown event, brackets after a letter other than `T` or `C`, an
    /// unusable pattern, or no event at all.
    pub fn parse(text: &str) -> Result<Self, SequenceError> {
        if text.len() > MOST_BYTES {
            return Err(SequenceError::TooLong { bytes: text.len() });
        }
        let tokens = split(text);
        let events = tokens
            .iter()
            .map(|token| token.trim())
            .filter(|token| !token.is_empty())
            .map(event)
            .collect::<Result<Vec<_>, _>>()?;
        if events.is_empty() {
            return Err(SequenceError::Empty);
        }
        Ok(Self { source: text.to_owned(), events })
    }

    /// The events, first to last; at least one.
    #[must_use]
    pub fn events(&self) -> &[Expected] {
        &self.events
    }

    /// The text that it was parsed from.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.source
    }

    /// Whether the chain, oldest first, ends with these events, one message for each and none
    /// between (L-093).
    #[must_use]
    pub fn is_met_by(&self, chain: &[Happened<'_>]) -> bool {
        chain.len() >= self.events.len()
            && self
                .events
                .iter()
                .rev()
                .zip(chain.iter().rev())
                .all(|(expected, happened)| expected.is(happened))
    }
}

impl Expected {
    fn is(&self, happened: &Happened<'_>) -> bool {
        match self {
            Self::Tool => happened.kind == MessageKind::Tool,
            // L-095: a message with several calls never matches
            Self::SpecificTool(name) => {
                happened.kind == MessageKind::Tool
                    && happened
                        .tool
                        .is_some_and(|tool| tool == name || happened.titles.contains(name))
            }
            Self::AgentResponse => happened.kind == MessageKind::AgentResponse,
            Self::LlmResponse => happened.kind == MessageKind::LlmResponse,
            Self::UserResponse => happened.kind == MessageKind::UserResponse,
            Self::NoResponse => happened.kind == MessageKind::NoResponse,
            Self::ContentMatch(pattern) => {
                pattern.as_ref().is_some_and(|pattern| pattern.0.is_match(happened.content))
            }
        }
    }
}

/// Splits the text into tokens at its commas. A bracket closes only before a comma or the end, so
/// that a pattern may contain brackets.
fn split(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut start = 0;
    let (mut inside, mut in_class, mut escaped) = (false, false, false);
    for (at, c) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == '[' && !inside {
            inside = true;
        } else if c == '[' && !in_class {
            in_class = true;
        } else if c == ']' && in_class {
            in_class = false;
        } else if c == ']' && inside {
            let after = text.get(at + 1..).unwrap_or_default().trim_start();
            inside = !(after.is_empty() || after.starts_with(','));
        }
        if c == ',' && !inside {
            tokens.push(text.get(start..at).unwrap_or_default());
            start = at + 1;
        }
    }
    tokens.push(text.get(start..).unwrap_or_default());
    tokens
}

fn event(token: &str) -> Result<Expected, SequenceError> {
    if let Some((letter, inside)) = bracketed(token) {
        return match letter {
            'T' => Ok(Expected::SpecificTool(inside.to_owned())),
            'C' => Ok(Expected::ContentMatch(Some(SequencePattern::new(inside)?))),
            _ => Err(SequenceError::Brackets { letter, token: excerpt(token) }),
        };
    }
    match token {
        "T" => Ok(Expected::Tool),
        "A" => Ok(Expected::AgentResponse),
        "L" => Ok(Expected::LlmResponse),
        "U" => Ok(Expected::UserResponse),
        "N" => Ok(Expected::NoResponse),
        "C" => Ok(Expected::ContentMatch(None)),
        word if word.eq_ignore_ascii_case("tool") => Ok(Expected::Tool),
        word if word.eq_ignore_ascii_case("agent") => Ok(Expected::AgentResponse),
        word if word.eq_ignore_ascii_case("llm") => Ok(Expected::LlmResponse),
        word if word.eq_ignore_ascii_case("user") => Ok(Expected::UserResponse),
        _ => Err(SequenceError::Unknown { token: excerpt(token) }),
    }
}

/// A capital letter and the non-empty text in its brackets.
fn bracketed(token: &str) -> Option<(char, &str)> {
    let letter = token.chars().next().filter(char::is_ascii_uppercase)?;
    let inside = token.get(1..)?.strip_prefix('[')?.strip_suffix(']')?;
    (!inside.is_empty()).then_some((letter, inside))
}

fn excerpt(token: &str) -> String {
    cut_chars(token, 60).into_owned()
}

impl SequencePattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// `SequencePatternError` if it is not a regular expression, uses look-around or
    /// back-references, or needs too much memory.
    pub fn new(source: &str) -> Result<Self, SequencePatternError> {
        let compiled = RegexBuilder::new(source)
            .case_insensitive(true)
            .size_limit(PATTERN_BYTES)
            .dfa_size_limit(PATTERN_BYTES)
            .build();
        compiled.map(Self).map_err(|error| {
            let (problem, why) = match error {
                regex::Error::CompiledTooBig(limit) => (
                    PatternProblem::TooBig,
                    format!("it needs more than {limit} bytes when compiled"),
                ),
                // The last line of a syntax error states the reason; the lines before it draw its
                // position.
                error => {
                    let message = error.to_string();
                    (
                        problem_of(source),
                        message
                            .lines()
                            .last()
                            .unwrap_or_default()
                            .trim_start_matches("error: ")
                            .to_owned(),
                    )
                }
            };
            SequencePatternError { problem, pattern: excerpt(source), why }
        })
    }

    /// The pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// The kind of a syntax error. The regex crate provides only a text that contains the pattern, so
/// the pattern is parsed again.
fn problem_of(source: &str) -> PatternProblem {
    match regex_syntax::ast::parse::Parser::new()
        .parse(source)
        .map_err(|error| error.kind().clone())
    {
        Err(ErrorKind::UnsupportedLookAround) => PatternProblem::LookAround,
        Err(ErrorKind::UnsupportedBackreference) => PatternProblem::Backreference,
        _ => PatternProblem::Syntax,
    }
}

impl PartialEq for SequencePattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool => out.write_str("T"),
            Self::SpecificTool(name) => write!(out, "T[{name}]"),
            Self::AgentResponse => out.write_str("A"),
            Self::LlmResponse => out.write_str("L"),
            Self::UserResponse => out.write_str("U"),
            Self::NoResponse => out.write_str("N"),
            Self::ContentMatch(None) => out.write_str("C"),
            Self::ContentMatch(Some(pattern)) => write!(out, "C[{}]", pattern.as_str()),
        }
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.source)
    }
}

impl From<Expected> for String {
    fn from(expected: Expected) -> Self {
        expected.to_string()
    }
}

impl TryFrom<String> for Expected {
    type Error = SequenceError;

    fn try_from(token: String) -> Result<Self, SequenceError> {
        event(&token)
    }
}

impl From<Sequence> for String {
    fn from(sequence: Sequence) -> Self {
        sequence.source
    }
}

impl TryFrom<String> for Sequence {
    type Error = SequenceError;

    fn try_from(text: String) -> Result<Self, SequenceError> {
        Self::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sequences_are_read() {
        for (text, events) in [
            ("T, A", vec!["T", "A"]),
            (" L,T , A,L ", vec!["L", "T", "A", "L"]),
            ("T, A, L, U, N, C", vec!["T", "A", "L", "U", "N", "C"]),
            ("tool, Agent, LLM, uSeR", vec!["T", "A", "L", "U"]),
            ("T[my-tool], A", vec!["T[my-tool]", "A"]),
            ("T[com.example.tool],,A,", vec!["T[com.example.tool]", "A"]),
            ("L, C[done.*complete]", vec!["L", "C[done.*complete]"]),
            ("C[a,b], A", vec!["C[a,b]", "A"]),
            ("C[[a,b],[c]], A", vec!["C[[a,b],[c]]", "A"]),
            ("C[[0-9]+] ,A", vec!["C[[0-9]+]", "A"]),
            (r"C[a\],b], A", vec![r"C[a\],b]", "A"]),
            (r"C[[\],]x], A", vec![r"C[[\],]x]", "A"]),
            ("C[a\nb], A", vec!["C[a\nb]", "A"]),
            ("C[a]b], A", vec!["C[a]b]", "A"]),
            // An open bracket takes all that follows into it
            ("T[a, A]", vec!["T[a, A]"]),
            ("T[ a ]", vec!["T[ a ]"]),
        ] {
            let sequence = Sequence::parse(text).unwrap();
            let written: Vec<_> = sequence.events().iter().map(ToString::to_string).collect();
            assert_eq!(written, events, "{text:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, why) in [
            ("T, X", "`X` is no event"),
            ("t", "`t` is no event"),
            ("no", "T, A, L, U, N and C"),
            ("A[x]", "A does not"),
            ("X[something]", "X does not"),
            ("T[]", "`T[]` is no event"),
            ("T[a", "`T[a` is no event"),
            ("", "at least one"),
            (" ,, ", "at least one"),
            ("C[(]", "unclosed group"),
            ("C[a(?=b)]", "look-around"),
            (r"C[(a)\1]", "backreferences"),
            (&"T,".repeat(9000), "may have 16384 bytes"),
            ("C[(?:a{1000}){1000}]", "bytes when compiled"),
        ] {
            let error = Sequence::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_pattern_is_not_read_in_its_words() {
        let problem = |text: &str| match Sequence::parse(text) {
            Err(SequenceError::Pattern(error)) => error.problem,
            other => panic!("{other:?}"),
        };
        for (text, expected) in [
            ("C[a(?=b)]", PatternProblem::LookAround),
            ("C[(?<!b)a]", PatternProblem::LookAround),
            (r"C[(a)\1]", PatternProblem::Backreference),
            ("C[(?:a{1000}){1000}]", PatternProblem::TooBig),
            ("C[(]", PatternProblem::Syntax),
            ("C[look-around backreference when compiled (]", PatternProblem::Syntax),
        ] {
            assert_eq!(problem(text), expected, "{text}");
        }
    }

    #[test]
    fn a_chain_ends_with_the_events() {
        let titles = ["Calculator".to_owned()];
        let happened = |letter: char| {
            let (kind, tool, content) = match letter {
                't' => (MessageKind::Tool, Some("calc"), "{}"),
                // Several calls in one message
                'm' => (MessageKind::Tool, None, "{}{}"),
                'a' => (MessageKind::AgentResponse, None, "result"),
                'l' => (MessageKind::LlmResponse, None, "I am Finished\nnow"),
                'u' => (MessageKind::UserResponse, None, "go"),
                _ => (MessageKind::NoResponse, None, ""),
            };
            Happened { kind, tool, titles: if tool.is_some() { &titles } else { &[] }, content }
        };
        for (sequence, met, unmet) in [
            ("T, A", vec!["ta", "lta", "ma"], vec!["t", "a", "tla", "tal", "at", ""]),
            ("T[calc]", vec!["t", "at"], vec!["m", "a"]),
            ("T[Calculator], A", vec!["ta"], vec!["ma"]),
            ("T[other]", vec![], vec!["t"]),
            ("C[finished$|^fin.*NOW|am fin]", vec!["l"], vec!["la"]),
            ("T, C[^res]", vec!["ta"], vec!["tl"]),
            ("C", vec![], vec!["l", "n", "a"]),
            ("U", vec!["u"], vec!["n"]),
            ("N", vec!["n"], vec!["u"]),
            ("L, T, A, L", vec!["ltal", "altal"], vec!["tal", "ltatl"]),
        ] {
            let sequence = Sequence::parse(sequence).unwrap();
            for (chains, expected) in [(met, true), (unmet, false)] {
                for chain in chains {
                    let happened: Vec<_> = chain.chars().map(happened).collect();
                    assert_eq!(sequence.is_met_by(&happened), expected, "{sequence} {chain}");
                }
            }
        }
    }

    #[test]
    fn a_journal_holds_the_text() {
        let sequence = Sequence::parse("T[a] ,C[b|c]").unwrap();
        let written = serde_json::to_string(&sequence).unwrap();
        assert_eq!(written, r#""T[a] ,C[b|c]""#);
        assert_eq!(serde_json::from_str::<Sequence>(&written).unwrap(), sequence);
        assert!(serde_json::from_str::<Sequence>(r#""X""#).is_err());
        let events = serde_json::to_string(sequence.events()).unwrap();
        assert_eq!(events, r#"["T[a]","C[b|c]"]"#);
        assert_eq!(serde_json::from_str::<Vec<Expected>>(&events).unwrap(), sequence.events());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in any::<String>(), marks in r"[TALUNC,\[\]\\ ab|]{0,40}") {
            for text in [text, marks] {
                if let Ok(sequence) = Sequence::parse(&text) {
                    // A parsed sequence can be written and parsed again.
                    let written: Vec<_> = sequence.events().iter().map(ToString::to_string).collect();
                    let reparsed = Sequence::parse(&written.join(",")).unwrap();
                    prop_assert_eq!(reparsed.events(), sequence.events());
                }
            }
        }
    }
}
