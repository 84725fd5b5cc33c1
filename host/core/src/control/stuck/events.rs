//! The detector of 2025-11, over a flat list of events: what it finds, of which kind, and where it says that the loop begins (O-098…O-105,
//! O-108).

use serde_json::Value;

use super::alike;
use crate::control::fingerprint::{Fingerprint, fingerprint};

pub use super::alike::LoopKind;

/// What a detector found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    pub kind: LoopKind,
    pub repeats: u32,
    /// Where it begins in the history without what detectors leave out; counted, where only what came after the user's last message is
    /// looked at, from that message on. An accident: it is the first event that is *equal* to the one that begins it (C-148).
    pub start: usize,
}

/// An event of a history, as far as the detector looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    kind: Kind,
    whole: Fingerprint,
    /// None: it is not even the same as itself, which edits of a line or two are not.
    alike: Option<Fingerprint>,
    syntax: Option<SyntaxError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    UserMessage,
    Nothing,
    Action,
    AgentMessage,
    Observation,
    Error,
    Cell,
    Condensed,
}

impl Kind {
    fn is_action(self) -> bool {
        matches!(self, Self::Action | Self::AgentMessage)
    }
}

/// A syntax error of a cell, in the one form that the detector knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SyntaxError {
    /// The line of the error.
    line: Fingerprint,
    /// Where it is; none where only the error is looked at.
    place: Option<Fingerprint>,
}

impl Seen {
    /// Of an event in the form of rule O-003.
    #[must_use]
    pub fn of(event: &Value) -> Self {
        let whole = alike::whole(event);
        if let Some(name) = alike::action_name(event) {
            let from = event.get("source").and_then(Value::as_str);
            let kind = match (name, from) {
                ("null", _) => Kind::Nothing,
                ("message", Some("user")) => Kind::UserMessage,
                ("message", Some("agent")) => Kind::AgentMessage,
                _ => Kind::Action,
            };
            let alike = if name == "run_ipython" { cell(event, whole) } else { Some(whole) };
            return Self { kind, whole, alike, syntax: None };
        }
        let kind = match alike::observation_name(event) {
            Some("null") | None => Kind::Nothing,
            Some("error") => Kind::Error,
            Some("run_ipython") => Kind::Cell,
            Some("condense") => Kind::Condensed,
            Some(_) => Kind::Observation,
        };
        let content = event.get("content").and_then(Value::as_str).unwrap_or_default();
        let syntax = if kind == Kind::Cell { syntax_error(content) } else { None };
        Self { kind, whole, alike: Some(alike::result(event)), syntax }
    }

    fn is_like(&self, other: &Self) -> bool {
        self.alike.is_some() && self.alike == other.alike
    }
}

/// O-105: edits are compared by their first three lines, and short ones not at all.
fn cell(event: &Value, whole: Fingerprint) -> Option<Fingerprint> {
    let code = alike::arg(event, "code").as_str().unwrap_or_default();
    if !code.contains("edit_file_by_replace(") {
        return Some(whole);
    }
    let start: Vec<&str> = code.split('\n').take(3).collect();
    (start.len() == 3).then(|| fingerprint(&("edit", start)))
}

/// O-103: the error's line, third from the end, when our own two lines follow it.
fn syntax_error(content: &str) -> Option<SyntaxError> {
    const UNTERMINATED: &str = "SyntaxError: unterminated string literal (detected at line";
    const OTHERS: [&str; 2] = ["SyntaxError: invalid syntax. Perhaps you forgot a comma?", "SyntaxError: incomplete input"];
    let content = content.trim();
    let mut from_end = content.rsplit('\n');
    let interpreter = from_end.next()?.starts_with("[Jupyter Python interpreter:");
    let folder = from_end.next()?.starts_with("[Jupyter current working directory:");
    let line = from_end.next()?;
    if !(interpreter && folder) {
        return None;
    }
    if line.contains(UNTERMINATED) {
        return Some(SyntaxError { line: fingerprint(line), place: None });
    }
    let first = content.split('\n').next().unwrap_or_default().trim();
    let is_whole = content.split('\n').count() >= 6 && first.starts_with("Cell In[1], line");
    (is_whole && OTHERS.iter().any(|error| line.contains(error)))
        .then(|| SyntaxError { line: fingerprint(line), place: Some(fingerprint(first)) })
}

/// How a history is stuck at its end; none: it is not. Where somebody is there to talk to (not `headless`), only what came after the user's
/// last message counts; else what the user said is left out (O-104).
#[must_use]
pub fn find(history: &[Seen], headless: bool) -> Option<Loop> {
    let after_user = if headless { 0 } else { history.iter().rposition(|seen| seen.kind == Kind::UserMessage).map_or(0, |last| last + 1) };
    let kept: Vec<&Seen> = history.iter().skip(after_user).filter(|seen| !matches!(seen.kind, Kind::UserMessage | Kind::Nothing)).collect();
    if kept.len() < 3 {
        return None;
    }
    let found = repeating(&kept).or_else(|| monologue(&kept)).or_else(|| pattern(&kept)).or_else(|| condensing(&kept))?;
    Some(Loop { start: found.start + after_user, ..found })
}

/// The newest first, wherever they stand.
fn newest<'a>(kept: &[&'a Seen], count: usize) -> (Vec<&'a Seen>, Vec<&'a Seen>) {
    let of = |is_action: bool| kept.iter().rev().filter(move |seen| seen.kind.is_action() == is_action).take(count).copied().collect();
    (of(true), of(false))
}

fn first_equal(kept: &[&Seen], wanted: Option<&&Seen>) -> usize {
    kept.iter().position(|seen| wanted.is_some_and(|wanted| seen.kind.is_action() && seen.whole == wanted.whole)).unwrap_or_default()
}

fn all_like(seen: &[&Seen]) -> bool {
    seen.first().is_some_and(|newest| seen.iter().all(|seen| newest.is_like(seen)))
}

fn repeating(kept: &[&Seen]) -> Option<Loop> {
    let (actions, observations) = newest(kept, 4);
    let start = || first_equal(kept, actions.last());
    if actions.len() == 4 && observations.len() == 4 && all_like(&actions) && all_like(&observations) {
        return Some(Loop { kind: LoopKind::ActionObservation, repeats: 4, start: start() });
    }
    let (three, results) = (actions.get(..3)?, observations.get(..3)?);
    let is_error = results.iter().all(|seen| seen.kind == Kind::Error);
    let first = results.first()?;
    let is_syntax = results.iter().all(|seen| seen.kind == Kind::Cell && seen.syntax.is_some() && seen.syntax == first.syntax);
    (all_like(three) && (is_error || is_syntax)).then(|| Loop { kind: LoopKind::ActionError, repeats: 3, start: start() })
}

fn monologue(kept: &[&Seen]) -> Option<Loop> {
    let mut said = kept.iter().enumerate().rev().filter(|(_, seen)| seen.kind == Kind::AgentMessage);
    let ((last, newest), (_, middle), (start, oldest)) = (said.next()?, said.next()?, said.next()?);
    let is_same = newest.whole == middle.whole && newest.whole == oldest.whole;
    let is_answered = kept.get(start..last)?.iter().any(|seen| !seen.kind.is_action());
    (is_same && !is_answered).then_some(Loop { kind: LoopKind::Monologue, repeats: 3, start })
}

fn pattern(kept: &[&Seen]) -> Option<Loop> {
    let (actions, observations) = newest(kept, 6);
    let takes_turns = |seen: &[&Seen]| seen.len() == 6 && seen.iter().zip(seen.iter().skip(2)).all(|(seen, before)| seen.is_like(before));
    (takes_turns(&actions) && takes_turns(&observations)).then(|| Loop {
        kind: LoopKind::Pattern,
        repeats: 3,
        start: first_equal(kept, actions.last()),
    })
}

/// An accident: of ten condensations any two neighbours with nothing between are enough (O-102).
fn condensing(kept: &[&Seen]) -> Option<Loop> {
    let condensed: Vec<usize> = kept.iter().enumerate().filter(|(_, seen)| seen.kind == Kind::Condensed).map(|(at, _)| at).collect();
    let last = condensed.get(condensed.len().checked_sub(10)?..)?;
    let start = last.iter().zip(last.iter().skip(1)).find(|(one, next)| *one + 1 == **next)?.0;
    Some(Loop { kind: LoopKind::ContextWindow, repeats: 2, start: *start })
}
