//! The format of lines on stderr: text for people, or with `--log json` one JSON object for each.
//! Every line takes this way, so that no part of the program writes another format.

#[cfg(any(feature = "serve", feature = "postgres"))]
mod runs;

use std::sync::OnceLock;

use anstream::adapter::strip_str;
use conclave_core::types::ids::{Millis, Principal, RoomId};
use conclave_runtime::clock::{Clock as _, SystemClock};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::LogFormat;
use crate::ui::journald::{self, Priority};
#[cfg(any(feature = "serve", feature = "postgres"))]
use crate::ui::output::{self, OutputKind};
use crate::ui::show::amounts::moment;

#[cfg(any(feature = "serve", feature = "postgres"))]
pub(crate) use runs::RunLog;

/// The event of a line whose part of the program names none.
const LINE: &str = "line";

static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Chooses the format, before the first line.
#[cfg(any(feature = "serve", feature = "postgres"))]
pub(crate) fn begin(format: LogFormat) {
    let _ = FORMAT.set(format);
}

/// Whether lines are JSON.
#[cfg(any(feature = "serve", feature = "postgres"))]
pub(crate) fn is_json() -> bool {
    FORMAT.get() == Some(&LogFormat::Json)
}

/// What a line is about, for programs.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct LogFields {
    /// A stable code.
    #[serde(skip)]
    pub(crate) event: Option<&'static str>,
    /// The level, if the first word of the text does not say it.
    #[serde(skip)]
    pub(crate) level: Option<Priority>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<RoomId>,
    /// The room, and the number of its record, which `conclave why ROOM:RECORD` takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) room: Option<RoomId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) record: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) principal: Option<Principal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<String>,
}

impl LogFields {
    /// A line with this code.
    pub(crate) fn of(event: &'static str) -> Self {
        Self { event: Some(event), ..Self::default() }
    }

    #[cfg(any(feature = "serve", feature = "postgres"))]
    pub(crate) fn run(self, run: Option<&RoomId>) -> Self {
        Self { run: run.map(RoomId::run), ..self }
    }
}

/// Writes a line that exists for programs only.
#[cfg(any(feature = "serve", feature = "postgres"))]
pub(crate) fn write(fields: &LogFields, text: &str) {
    if is_json() {
        output::push_with(OutputKind::Live, format!("{text}\n"), fields);
    }
}

/// Returns text for stderr in the format of the log. It has its own line ends.
pub(crate) fn formatted(text: String, fields: &LogFields) -> String {
    match FORMAT.get() {
        Some(LogFormat::Json) => json_lines(&text, fields, SystemClock.now()),
        _ => journald::with_levels(text),
    }
}

fn json_lines(text: &str, fields: &LogFields, now: Millis) -> String {
    let plain = strip_str(text).to_string();
    let mut entries: Vec<String> = Vec::new();
    for line in plain.lines().filter(|line| !line.trim().is_empty()) {
        match entries.last_mut() {
            // A line that begins with a space belongs to the one before.
            Some(entry) if line.starts_with(' ') => {
                entry.push('\n');
                entry.push_str(line);
            }
            _ => entries.push(line.to_owned()),
        }
    }
    let lines = entries.iter().map(|entry| {
        let level = fields.level.unwrap_or_else(|| Priority::of_line(entry));
        format!("{}{}\n", journald::prefix(level), object(entry, level, fields, now))
    });
    lines.collect()
}

/// The object of one line: `time`, `level`, `event`, `message` and the fields of the entry.
fn object(entry: &str, level: Priority, fields: &LogFields, now: Millis) -> String {
    let message = entry.strip_prefix(level.word()).and_then(|rest| rest.strip_prefix(": "));
    let head = json!({
        "time": time(now), "level": level.word(), "event": fields.event.unwrap_or(LINE),
        "message": message.unwrap_or(entry).trim(),
    });
    let (mut all, more) = (head, json!(fields));
    if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
        all.extend(more);
    }
    all.to_string()
}

/// The time in the form of RFC 3339, in UTC.
fn time(now: Millis) -> String {
    format!("{}.{:03}Z", moment(now).replace(' ', "T"), now.0 % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_is_an_object_with_its_level_and_what_it_is_about() {
        let fields = LogFields {
            principal: Some(Principal("ada".into())),
            ..LogFields::of("budget-used-up").run(Some(&RoomId::from("7f/1")))
        };
        let text = "\u{1b}[31merror:\u{1b}[0m it failed\n  do this\n\nserving \"x\"\n";
        let lines = json_lines(text, &fields, Millis(1_500));
        let lines: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
        let rest = json!({ "event": "budget-used-up", "run": "7f", "principal": "ada" });
        let with = |level: &str, message: &str| {
            let mut line = rest.clone();
            (line["level"], line["message"]) = (level.into(), message.into());
            line["time"] = "1970-01-01T00:00:01.500Z".into();
            line
        };
        assert_eq!(lines, [with("error", "it failed\n  do this"), with("info", "serving \"x\"")]);
        let plain = json_lines("warning: odd\n", &LogFields::default(), Millis(0));
        assert!(plain.starts_with('{') && plain.contains("\"event\":\"line\""), "{plain}");
    }
}
