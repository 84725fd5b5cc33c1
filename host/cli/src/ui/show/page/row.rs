//! A row of the page: a line with a bar, and a section with all details that opens below it.

use std::fmt::Write as _;

use conclave_core::inspect::telling::Tone;
use conclave_core::inspect::timeline::{RowSubject, TimelineRow};

use super::html::{escape, span};
use crate::ui::show::amounts::{computing, took};
use crate::ui::show::timeline::words::{RowText, details, words};
use crate::ui::show::{bytes, time};

/// The depth at which deeper rows are shown.
const DEEPEST: u32 = 8;

/// A group of rows that are shown and hidden together, and share a color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowGroup {
    Task,
    Step,
    Model,
    Tool,
    Effect,
    Approval,
    Refusal,
    Background,
    Other,
}

impl RowGroup {
    pub(super) const ALL: [Self; 9] = [
        Self::Task,
        Self::Step,
        Self::Model,
        Self::Tool,
        Self::Effect,
        Self::Approval,
        Self::Refusal,
        Self::Background,
        Self::Other,
    ];

    /// The suffix of its classes and ids.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Step => "step",
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Effect => "effect",
            Self::Approval => "approval",
            Self::Refusal => "refusal",
            Self::Background => "background",
            Self::Other => "other",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Task => "tasks",
            Self::Step => "steps",
            Self::Model => "model calls",
            Self::Tool => "tool calls",
            Self::Effect => "side effects",
            Self::Approval => "approvals and questions",
            Self::Refusal => "refusals",
            Self::Background => "background and delivery",
            Self::Other => "other",
        }
    }

    /// The offset from the top of a lane, and the height. Rows inside a step are drawn over it.
    pub(super) fn place(self) -> (u64, u64) {
        match self {
            Self::Refusal | Self::Other => (0, 22),
            Self::Step | Self::Task => (3, 16),
            _ => (6, 10),
        }
    }
}

pub(super) fn group(what: &RowSubject) -> RowGroup {
    match what {
        RowSubject::Task { .. } => RowGroup::Task,
        RowSubject::Step { .. } => RowGroup::Step,
        RowSubject::Model { .. } => RowGroup::Model,
        RowSubject::Tool { .. } => RowGroup::Tool,
        RowSubject::SideEffect { .. } => RowGroup::Effect,
        RowSubject::Approval { .. } | RowSubject::TopUp { .. } | RowSubject::User { .. } => {
            RowGroup::Approval
        }
        RowSubject::Denied { .. } => RowGroup::Refusal,
        RowSubject::Background { .. }
        | RowSubject::Strategy { .. }
        | RowSubject::Delivered { .. }
        | RowSubject::NotDelivered { .. } => RowGroup::Background,
        _ => RowGroup::Other,
    }
}

/// A row as one text, for its tooltip.
pub(super) fn tooltip(row: &TimelineRow) -> String {
    let RowText { name, text, amounts, .. } = words(row);
    let when = match row.end_ms {
        Some(end) if end > row.start_ms => format!("{} to {}", took(row.start_ms), took(end)),
        Some(_) => format!("at {}", took(row.start_ms)),
        None => format!("from {}, not over", took(row.start_ms)),
    };
    let text: String = text.chars().take(160).collect();
    format!("{name} {text}\n{when} {amounts}")
}

/// Appends the row, with the prompt of a model call.
pub(super) fn row(out: &mut String, row: &TimelineRow, span_ms: u64, prompt: Option<String>) {
    let RowText { name, text, amounts, tone } = words(row);
    let kind = group(&row.what).class();
    let stands = if row.what.stands_out() { " s" } else { "" };
    let out_class = if tone == Tone::Bad { " out" } else { "" };
    let (x, wide) = span(row.start_ms, row.end_ms, span_ms);
    let long = match row.end_ms {
        None => "…".to_owned(),
        Some(end) if end > row.start_ms => took(end - row.start_ms),
        Some(_) => row
            .what
            .sandbox()
            .map(|used| time(std::time::Duration::from_micros(used.wall_us)))
            .unwrap_or_default(),
    };
    let _ = write!(
        out,
        "<details class=\"row g-{kind}{stands}{out_class}\"><summary title=\"{}\"><span class=\"num\">{}</span><span class=\"num long\">{long}</span>\
         <svg class=\"bar\" viewBox=\"0 0 1000 12\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"track\" y=\"5\" width=\"1000\" height=\"2\"/>\
         <rect class=\"k-{kind}\" x=\"{x}\" width=\"{wide}\" height=\"12\" rx=\"1\"/></svg><span class=\"what d{}\"><b class=\"{}\">{}</b> <span>{}</span> <small>{}</small></span></summary>",
        escape(&tooltip(row)),
        start(row.start_ms),
        row.depth.min(DEEPEST),
        class_of(tone),
        escape(&name),
        escape(&text),
        escape(&amounts),
    );
    out.push_str("<dl>");
    for (name, value) in facts(row) {
        let _ = write!(out, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    if let Some(prompt) = prompt {
        let _ = write!(out, "<dt>prompt</dt><dd>{}</dd>", escape(&prompt));
    }
    out.push_str("</dl></details>\n");
}

fn class_of(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain | Tone::Faint => "t-plain",
        Tone::Name => "t-name",
        Tone::Good => "t-good",
        Tone::Odd => "t-odd",
        Tone::Bad => "t-bad",
    }
}

fn start(ms: u64) -> String {
    match ms {
        0..600_000 => format!("{}.{:02}", ms / 1_000, ms % 1_000 / 10),
        _ => took(ms),
    }
}

/// All details of a row.
fn facts(row: &TimelineRow) -> Vec<(&'static str, String)> {
    let mut facts = vec![("address", format!("{}:{}", row.room, row.seq))];
    let from_to = match row.end_ms {
        Some(end) => format!("{} to {}", took(row.start_ms), took(end)),
        None => format!("from {}; its end is not in the store", took(row.start_ms)),
    };
    facts.push(("when", from_to));
    facts.extend(details(&row.what));
    if matches!(row.what, RowSubject::Denied { .. }) {
        facts.push(("more", format!("conclave why {}:{}", row.room, row.seq)));
    }
    if let Some(used) = row.what.sandbox() {
        let wall = time(std::time::Duration::from_micros(used.wall_us));
        let cpu = computing(used.cpu_ms, used.wall_us / 1_000);
        let cpu = cpu.map(|time| format!("{time} of computing"));
        let (name, memory) = match used.is_sandboxed() {
            true => ("sandbox", Some(format!("{} of memory at most", bytes(used.memory)))),
            false => ("took", None),
        };
        let used: Vec<String> = [Some(wall), cpu, memory].into_iter().flatten().collect();
        facts.push((name, used.join(", ")));
    }
    if row.abandoned {
        facts.push(("given up", "nobody waited for its end any more".to_owned()));
    }
    facts.retain(|(_, value)| !value.is_empty());
    facts
}
