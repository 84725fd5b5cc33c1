//! The program's own words in a trace. This module knows nothing of the tasks.

use std::time::Duration;

use anstyle::Style;
use conclave_core::inspect::telling::{Telling, TellingText, TextRole};
use conclave_core::protocol::notice::Notice;
use conclave_core::types::denial::DenialRecord;
use conclave_core::types::fault::CallReport;
use conclave_core::types::side_effect::SideEffectAnswer;

use super::calls::CallProgress;
use crate::ui::show::entry::EntryText;
use crate::ui::show::{FAINT, bytes, one_line, style_of, time};

/// Columns of a reason in full.
const REASON_COLUMNS: usize = 1_000;
/// Columns of the words in front of a text, which may hold names that a plugin chose.
const PREDICATE_COLUMNS: usize = 200;

/// The entry with predicate and text of a telling.
pub(crate) fn with_telling(entry: EntryText, telling: &Telling<'_>) -> EntryText {
    let style = style_of(telling.tone);
    let predicate = one_line(&telling.predicate(), PREDICATE_COLUMNS);
    let is_bare = predicate.is_empty();
    let entry = if is_bare { entry } else { entry.words(style, predicate) };
    let Some(TellingText { role, text }) = &telling.text else { return entry };
    match role {
        TextRole::Reason => entry.in_full(FAINT, text),
        // Without words of the host, the text has the tone.
        TextRole::Problem => entry.in_full(if is_bare { style } else { Style::new() }, text),
        TextRole::Message => entry.cut(Style::new(), text),
        TextRole::Aside => entry.cut(FAINT, text),
    }
}

/// Whether the notice is the end of a side effect about which there is nothing to say: it
/// succeeded, or its refusal is a notice of its own.
pub(crate) fn is_routine(notice: &Notice) -> bool {
    let Notice::SideEffectEnded { answer, .. } = notice else { return false };
    matches!(answer, SideEffectAnswer::Done { .. } | SideEffectAnswer::Denied { .. })
}

/// The reason of a refusal and its remedy, in lines.
pub(super) fn refusal(record: &DenialRecord) -> Vec<String> {
    let reason = one_line(&record.reason, REASON_COLUMNS);
    let mut lines = vec![format!("{} says no: {reason}", record.layer.as_str())];
    let suggestion = record.suggestion.as_ref();
    lines.extend(suggestion.map(|text| format!("to allow it: {}", one_line(text, REASON_COLUMNS))));
    lines
}

/// The time of a call, and its memory if it ran in a sandbox. Empty if nothing ran.
pub(crate) fn cost(report: &CallReport) -> String {
    if report.wall_us == 0 {
        return String::new();
    }
    let wall = time(Duration::from_micros(report.wall_us));
    if report.memory == 0 { wall } else { format!("{wall} · {}", bytes(report.memory)) }
}

/// The progress of a call.
pub(super) fn progress(progress: &CallProgress) -> EntryText {
    EntryText::new(FAINT, progress.amount.clone()).cut(FAINT, &progress.message)
}
