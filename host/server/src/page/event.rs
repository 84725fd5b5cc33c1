//! An event of a run: a line with a bar, and below it all that is known about it, with the prompt
//! of a model call.

use std::collections::BTreeMap;
use std::time::Duration;

use conclave_core::inspect::amounts::{plural, time, took};
use conclave_core::inspect::prompts::{ModelPrompt, PromptMessage};
use conclave_core::inspect::timeline::groups::{group, span};
use conclave_core::inspect::timeline::row_text::{RowText, facts, words};
use conclave_core::inspect::timeline::{RowSubject, Timeline, TimelineRow};
use conclave_core::types::ids::RoomId;
use conclave_core::types::text::cut_bytes;
use maud::{Markup, html};

use super::text::{address, foreign, foreign_block, run_path, tone_class};

/// The depth at which deeper events are shown.
const DEEPEST: u32 = 8;
/// Bytes of one text of a prompt.
const PROMPT_TEXT: usize = 256 << 10;

/// The address of an event in its run: the number of the record that began it, behind the room's
/// place unless that is the run's first room. Further events of the record have a number behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventAddress(String);

impl EventAddress {
    /// Whether a query names this event.
    pub(super) fn is(&self, text: &str) -> bool {
        self.0 == text
    }

    /// The id of the event's element.
    pub(super) fn id(&self) -> String {
        format!("e{}", self.0)
    }

    /// The link to the event in full.
    pub(super) fn link(&self, run: &str) -> String {
        format!("{}#{}", address(&run_path(run), [("event", Some(&*self.0))]), self.id())
    }
}

/// The addresses of the rows, in their order.
pub(super) fn addresses(timeline: &Timeline) -> Vec<EventAddress> {
    let mut of_record: BTreeMap<(&RoomId, u64), u32> = BTreeMap::new();
    let root = timeline.run.as_str();
    let address = |row: &TimelineRow, number: u32| {
        let place = row.room.as_str().strip_prefix(root).unwrap_or(row.room.as_str());
        let place = place.trim_start_matches('/').replace('/', ".");
        let place = if place.is_empty() { place } else { place + "-" };
        let number = if number == 0 { String::new() } else { format!("~{}", number + 1) };
        EventAddress(format!("{place}{}{number}", row.seq))
    };
    let mut addresses = Vec::with_capacity(timeline.rows.len());
    for row in &timeline.rows {
        let number = of_record.entry((&row.room, row.seq)).or_default();
        addresses.push(address(row, *number));
        *number += 1;
    }
    addresses
}

/// An event; `is_chosen` opens it, and `prompt` is shown with it.
pub(super) fn event(
    row: &TimelineRow,
    address: &EventAddress,
    run: &str,
    span_ms: u64,
    is_chosen: bool,
    prompt: Option<&ModelPrompt>,
) -> Markup {
    let RowText { name, text, amounts, tone } = words(row);
    let kind = group(&row.what).class();
    let (x, wide) = span(row.start_ms, row.end_ms, span_ms);
    let is_model = matches!(row.what, RowSubject::Model { .. });
    html! {
        li id=(address.id()) class={ "d" (row.depth.min(DEEPEST)) } {
            details open[is_chosen] {
                summary {
                    span.at { (start(row.start_ms)) }
                    span.what {
                        b class=(tone_class(tone)) { (foreign(&name)) }
                        span.text { (foreign(&one_line(&text))) }
                        small { (amounts) }
                    }
                    svg.bar viewBox="0 0 1000 12" preserveAspectRatio="none" aria-hidden="true" {
                        rect.track y="5" width="1000" height="2" {}
                        rect class={ "k-" (kind) } x=(x) width=(wide) height="12" {}
                    }
                    span.long { (length(row)) }
                }
                dl.details {
                    @for (name, value) in facts(row) {
                        dt { (name) }
                        dd { (foreign_block(&value)) }
                    }
                }
                @if let Some(prompt) = prompt { (prompt_of(prompt)) }
                p.links {
                    @if is_model && prompt.is_none() {
                        a data-expand href=(address.link(run)) { "What the model read" }
                    } @else {
                        a href=(address.link(run)) { "Address of this event" }
                    }
                }
            }
        }
    }
}

/// A text in one line: the full one is among the details.
fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    conclave_core::types::text::cut_chars(&line, 240).into_owned()
}

fn start(ms: u64) -> String {
    match ms {
        0..600_000 => format!("{}.{:02}", ms / 1_000, ms % 1_000 / 10),
        _ => took(ms),
    }
}

fn length(row: &TimelineRow) -> String {
    match row.end_ms {
        None => "…".to_owned(),
        Some(end) if end > row.start_ms => took(end - row.start_ms),
        Some(_) => {
            let used = row.what.sandbox();
            used.map(|used| time(Duration::from_micros(used.wall_us))).unwrap_or_default()
        }
    }
}

/// The request to a model with all its texts.
fn prompt_of(prompt: &ModelPrompt) -> Markup {
    let written = prompt.written();
    html! {
        section.prompt {
            h3 {
                "What the model read "
                span.faint {
                    (plural(written.messages.len() as u64, "message", "messages")) ", "
                    (plural(written.tools.len() as u64, "tool", "tools"))
                }
            }
            @if !written.tools.is_empty() {
                dl.details {
                    @for tool in &written.tools {
                        dt { (foreign(&tool.name)) }
                        dd { (foreign_block(&tool.description)) }
                    }
                }
            }
            @for message in &written.messages { (message_of(message)) }
        }
    }
}

fn message_of(message: &PromptMessage) -> Markup {
    html! {
        div class={ "message r-" (message.role) } {
            b { (message.role) }
            @if !message.text.is_empty() { (foreign_block(&cut_bytes(&message.text, PROMPT_TEXT))) }
            @for call in &message.tool_calls {
                (foreign_block(&format!("calls {} {}", call.name, call.arguments)))
            }
            @for result in &message.tool_results {
                @let failed = if result.is_error { " failed" } else { "" };
                @let content = cut_bytes(&result.content, PROMPT_TEXT);
                (foreign_block(&format!("{}{failed}: {content}", result.name)))
            }
            @for blob in &message.attachments {
                p.faint { "attached: " (foreign(&blob.media_type)) ", " (blob.length) " bytes" }
            }
        }
    }
}
