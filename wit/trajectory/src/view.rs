//! What is left of a log after its condensations: the events a model is still shown, and where the summary stands (O-123).

use crate::action::Action;
use crate::event::Event;

/// The part of a log that a model is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The places of the kept events in the log, in order.
    pub kept: Vec<usize>,
    /// The newest summary, and how many kept events stand before it.
    pub summary: Option<Summary>,
    /// Whether a condensation was asked for and not done since.
    pub unhandled_request: bool,
}

/// What stands for the forgotten events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The summary.
    pub text: String,
    /// How many kept events stand before it.
    pub offset: usize,
}

/// One thing a view shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown<'a> {
    /// The event at this place of the log.
    Event(usize),
    /// The summary.
    Summary(&'a str),
}

impl View {
    /// The view of a log; an event without id counts by its place.
    pub fn of(events: &[Event]) -> View {
        let mut forgotten = Vec::new();
        for event in events {
            if let Some(Action::Condensation(condensation)) = event.action() {
                forgotten.extend(condensation.forgotten());
            }
        }
        let bookkeeping = |event: &Event| matches!(event.action(), Some(Action::Condensation(_) | Action::CondensationRequest(_)));
        let kept: Vec<usize> = (0..events.len())
            .filter(|at| {
                let event = &events[*at];
                let id = event.id.unwrap_or(*at as i64);
                !bookkeeping(event) && !forgotten.iter().any(|ids| ids.contains(id))
            })
            .collect();
        let summary = events.iter().rev().find_map(|event| match event.action() {
            Some(Action::Condensation(condensation)) => condensation.summary.clone().zip(condensation.summary_offset),
            _ => None,
        });
        let summary = summary.map(|(text, offset)| Summary { text, offset: place(offset, kept.len()) });
        let last = events.iter().rev().find(|event| bookkeeping(event));
        let unhandled_request = last.is_some_and(|event| matches!(event.action(), Some(Action::CondensationRequest(_))));
        View { kept, summary, unhandled_request }
    }

    /// What is shown, in order, the summary in its place.
    pub fn shown(&self) -> Vec<Shown<'_>> {
        let mut shown: Vec<Shown<'_>> = self.kept.iter().map(|at| Shown::Event(*at)).collect();
        if let Some(summary) = &self.summary {
            shown.insert(summary.offset.min(shown.len()), Shown::Summary(&summary.text));
        }
        shown
    }
}

/// An offset as a place in a list of that length: a negative one counts from the end, one too far is the end.
fn place(offset: i64, len: usize) -> usize {
    if offset < 0 {
        len.saturating_sub(usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX))
    } else {
        usize::try_from(offset).unwrap_or(usize::MAX).min(len)
    }
}
