//! Problems of an operator's file: position, mistake, reason and remedy. Shown in the short style
//! of rustc. Does not know the rules, only how to report them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::problem_code::ProblemCode;
use crate::types::ids::PluginName;
use crate::types::wording::plain;

/// The limit of characters shown before and after a mistake: a file of one long line must not fill
/// the screen.
const SHOWN_BEFORE: usize = 60;
const SHOWN_AFTER: usize = 100;

/// Whether the file can still be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    Error,
    Warning,
}

/// One mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigProblem {
    pub code: ProblemCode,
    pub severity: Severity,
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The mistake, in one sentence.
    #[serde(rename = "message")]
    pub what: String,
    /// The reason, if `what` does not include it.
    #[serde(rename = "reason", default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The remedy.
    #[serde(rename = "hint", default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The plugin that has no effect; `None` for every other problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused_plugin: Option<PluginName>,
    excerpt: Excerpt,
}

/// The source line, safe to print, and its marked part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Excerpt {
    text: String,
    start: usize,
    width: usize,
}

impl ConfigProblem {
    /// Adds the reason.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.why = Some(clean(&why.into()));
        self
    }

    /// Adds the remedy.
    #[must_use]
    pub fn help(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(clean(&remedy.into()));
        self
    }

    /// Removes the excerpt, which may hold a secret: problems of a config end up in logs.
    pub(crate) fn without_excerpt(mut self) -> Self {
        self.excerpt.text.clear();
        self
    }

    pub(crate) fn maybe_help(self, remedy: Option<String>) -> Self {
        match remedy {
            Some(remedy) => self.help(remedy),
            None => self,
        }
    }

    /// Turns the problem into a warning.
    #[must_use]
    pub fn as_warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, file, line, column, what, .. } = self;
        let severity = if self.severity == Severity::Warning { "warning" } else { "error" };
        writeln!(out, "{file}:{line}:{column}: {severity}[{code}]: {what}")?;
        if !self.excerpt.text.trim().is_empty() {
            let number = self.line.to_string();
            let margin = " ".repeat(number.len());
            let (indent, marks) = (" ".repeat(self.excerpt.start), "^".repeat(self.excerpt.width));
            writeln!(out, "{number} | {}", self.excerpt.text)?;
            writeln!(out, "{margin} | {indent}{marks}")?;
        }
        if let Some(why) = &self.why {
            writeln!(out, "why: {why}")?;
        }
        if let Some(remedy) = &self.remedy {
            writeln!(out, "help: {remedy}")?;
        }
        Ok(())
    }
}

/// The sentence on one line without hidden characters, because names in it are untrusted.
fn clean(sentence: &str) -> String {
    sentence.chars().map(plain).collect()
}

/// All mistakes of a file, in the order of its lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Problems(pub Vec<ConfigProblem>);

impl Problems {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them is an error, not only a warning.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|problem| problem.severity == Severity::Error)
    }

    /// The code of each, in order.
    #[must_use]
    pub fn codes(&self) -> Vec<ProblemCode> {
        self.0.iter().map(|problem| problem.code).collect()
    }

    /// Adds a problem.
    pub fn push(&mut self, problem: ConfigProblem) {
        self.0.push(problem);
    }

    /// Returns the problems in the order of lines and columns, without duplicates.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        self.0.sort_by(|a, b| (a.line, a.column, &a.what).cmp(&(b.line, b.column, &b.what)));
        self.0.dedup();
        self
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            problem.fmt(out)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// A range of a file's bytes.
pub(crate) type Span = std::ops::Range<usize>;

/// A file's text, with an index of its lines.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SourceText {
    file: Arc<str>,
    text: Arc<str>,
    /// The beginning of each line, so that many problems do not scan the file once each.
    lines: Arc<[usize]>,
}

impl SourceText {
    pub(crate) fn new(file: &str, text: &str) -> Self {
        let lines = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(newline, _)| newline + 1))
            .collect();
        Self { file: file.chars().map(plain).collect::<String>().into(), text: text.into(), lines }
    }

    /// The file's name in problems.
    pub(crate) fn name(&self) -> &str {
        &self.file
    }

    /// Returns line and column, both from 1, of a byte.
    pub(crate) fn position(&self, offset: usize) -> (usize, usize) {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.line(offset);
        (line, self.text[self.lines[line - 1]..offset].chars().count() + 1)
    }

    /// An error at these bytes.
    pub(crate) fn problem(
        &self,
        code: ProblemCode,
        span: &Span,
        what: impl Into<String>,
    ) -> ConfigProblem {
        let (line, column) = self.position(span.start);
        ConfigProblem {
            code,
            severity: Severity::Error,
            file: Arc::clone(&self.file),
            line,
            column,
            what: clean(&what.into()),
            why: None,
            remedy: None,
            unused_plugin: None,
            excerpt: self.excerpt(span),
        }
    }

    /// The line of a byte, from 1.
    fn line(&self, offset: usize) -> usize {
        self.lines.partition_point(|start| *start <= offset)
    }

    fn line_start(&self, offset: usize) -> usize {
        self.lines[self.line(offset) - 1]
    }

    fn excerpt(&self, span: &Span) -> Excerpt {
        let start = self.text.floor_char_boundary(span.start);
        let line_start = self.line_start(start);
        let rest = &self.text[start..];
        let line_end = start + rest.find('\n').unwrap_or(rest.len());
        let end = self.text.floor_char_boundary(span.end).clamp(start, line_end);
        let before: Vec<char> = self.text[line_start..start].chars().collect();
        let cut = before.len().saturating_sub(SHOWN_BEFORE);
        let prefix = if cut > 0 { "…" } else { "" };
        let after = self.text[start..line_end].trim_end();
        let suffix = if after.chars().count() > SHOWN_AFTER { "…" } else { "" };
        let visible_chars =
            before[cut..].iter().copied().chain(after.chars().take(SHOWN_AFTER)).map(plain);
        Excerpt {
            text: format!("{prefix}{}{suffix}", visible_chars.collect::<String>()),
            start: before.len() - cut + prefix.chars().count(),
            width: self.text[start..end].chars().count().clamp(1, SHOWN_AFTER),
        }
    }
}
