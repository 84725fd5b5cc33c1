//! The program's own words in a trace. This module knows nothing of the tasks.

use std::time::Duration;

use conclave_core::types::denial::DenialRecord;
use conclave_core::types::fault::CallReport;
use conclave_core::types::side_effect::{SideEffect, SideEffectAnswer};
use conclave_core::types::text::{show_command, show_size};

use super::calls::CallProgress;
use crate::ui::show::entry::EntryText;
use crate::ui::show::{FAINT, bytes, one_line, time};

/// Columns of a reason in full.
const REASON_COLUMNS: usize = 1_000;

/// A plugin's intended side effect, and its target.
pub(crate) fn told_side_effect(side_effect: &SideEffect, overlay: bool) -> (String, String) {
    match side_effect {
        SideEffect::Fetch { method, url, .. } => (format!("sends {method}"), url.to_string()),
        SideEffect::WriteFile { path, bytes, .. } => {
            let to = if overlay { " to an overlay" } else { "" };
            (format!("writes {}{to}", show_size(bytes.length)), path.to_string())
        }
        SideEffect::RemoveFile { path } if overlay => {
            ("removes in an overlay".to_owned(), path.to_string())
        }
        SideEffect::RemoveFile { path } => ("removes".to_owned(), path.to_string()),
        SideEffect::SetKey { key, value } => {
            (format!("sets a key of its own to {}", show_size(value.length)), key.to_string())
        }
        SideEffect::RunProgram { program, arguments, .. } => {
            ("runs outside the sandbox".to_owned(), show_command(program, arguments))
        }
        SideEffect::DeleteKey { key } => ("deletes a key of its own".to_owned(), key.to_string()),
    }
}

/// The result of a side effect, if it is worth a line.
pub(crate) fn told_answer(answer: &SideEffectAnswer) -> Option<String> {
    match answer {
        SideEffectAnswer::Fetched { status, body, .. } => {
            Some(format!("got {status}, {}", show_size(body.length)))
        }
        SideEffectAnswer::Ran { ending, stdout, stderr, .. } => {
            let length = stdout.length.saturating_add(stderr.length);
            Some(format!("{ending}, {} of output", show_size(length)))
        }
        SideEffectAnswer::Failed { .. }
        | SideEffectAnswer::Done { .. }
        | SideEffectAnswer::Denied { .. } => None,
    }
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
    EntryText::new(FAINT, progress.done.clone()).cut(FAINT, &progress.message)
}
