//! A row of the page: a line with a bar, and a section with all details that opens below it.

use std::fmt::Write as _;

use conclave_core::inspect::telling::Tone;
use conclave_core::inspect::timeline::TimelineRow;
use conclave_core::inspect::timeline::groups::{group, span};
use conclave_core::inspect::timeline::row_text::{RowText, facts, tooltip, words};

use super::html::escape;
use crate::ui::show::amounts::took;
use crate::ui::show::time;

/// The depth at which deeper rows are shown.
const DEEPEST: u32 = 8;

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
