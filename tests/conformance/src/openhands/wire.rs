//! Events in their wire forms, cut texts, and lines of files.

use conclave_core::trajectory::{self, MalformedKind, TrajectoryEvent};
use serde_json::{Value, json};

use super::Case;

/// The maximum length of a model's message in 2024, in characters (O-082).
const MESSAGE_CHARS: usize = 10_000;

pub(super) fn codec(case: &Case<'_>) -> Result<Value, String> {
    Ok(match TrajectoryEvent::from_json_of(case.input, case.wire()) {
        Ok(event) => {
            json!({ "dict": event.to_json(case.wire()), "memory": event.memory_form(MESSAGE_CHARS) })
        }
        // Cases name this error by the reference's class.
        Err(malformed) if malformed.kind == MalformedKind::ValueError => {
            json!({ "error": "ValueError" })
        }
        Err(malformed) => json!({ "error": malformed.kind.name() }),
    })
}

pub(super) fn truncate(case: &Case<'_>) -> Result<Value, String> {
    let max = usize::try_from(case.number("max_chars")?).map_err(|error| error.to_string())?;
    Ok(json!({ "content": trajectory::truncate(case.text("content")?, max) }))
}

pub(super) fn read_lines(case: &Case<'_>) -> Result<Value, String> {
    let content =
        trajectory::read_lines(case.text("text")?, case.number("start")?, case.number("end")?);
    Ok(json!({ "content": content }))
}

pub(super) fn write_lines(case: &Case<'_>) -> Result<Value, String> {
    let existing = case.get("existing").and_then(Value::as_str);
    let text = trajectory::write_lines(
        existing,
        case.text("content")?,
        case.number("start")?,
        case.number("end")?,
    );
    Ok(json!({ "text": text }))
}
