//! The inputs of a batch, one per line, each a text or a JSON object. All unusable lines are
//! reported at once, before any run starts.

use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

use conclave_core::config::Config;
use conclave_runtime::RunInput;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::program::error::CliError;
use crate::ui::show::show_path;

/// Bad lines that are listed; the rest is counted.
const NAMED: usize = 50;

/// One input.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BatchInput {
    /// The id as written: a text or a number.
    pub(crate) id: Option<Value>,
    pub(crate) text: String,
    pub(crate) inputs: Map<String, Value>,
}

impl BatchInput {
    /// The input of the config's run.
    pub(crate) fn ask(&self, turns: Option<u32>) -> RunInput {
        RunInput {
            inputs: Value::Object(self.inputs.clone()),
            turns,
            ..RunInput::from(self.text.as_str())
        }
    }
}

/// A line that is a JSON object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InputLine {
    input: Value,
    #[serde(default)]
    inputs: Option<Value>,
    #[serde(default)]
    id: Option<Value>,
}

/// Reads a file; `-` is stdin.
///
/// # Errors
/// If the file cannot be read or holds no input. All lines that are no inputs are listed.
pub(crate) fn read(file: &Path) -> Result<Vec<BatchInput>, CliError> {
    let (mut bytes, from_stdin) = (Vec::new(), file.as_os_str() == "-");
    let label = if from_stdin { "stdin".to_owned() } else { show_path(file) };
    let read = if from_stdin {
        std::io::stdin().read_to_end(&mut bytes).map(drop)
    } else {
        std::fs::read(file).map(|read| bytes = read)
    };
    read.map_err(|error| {
        CliError::usage(format!("{label} could not be read: {error}"))
            .hint("name a file with one input per line; `-` reads stdin")
    })?;
    // Each line of a config would be an input too, and start a run.
    if is_config(file, &bytes) {
        let what = format!("{label} is a config, not a file of inputs");
        return Err(CliError::usage(what).hint(format!(
            "name the inputs, and the config as an option: conclave batch INPUTS --config {label}"
        )));
    }
    parse(&bytes, &label).map_err(CliError::usage)
}

/// Whether the file has a config's name, or parses as one.
fn is_config(file: &Path, bytes: &[u8]) -> bool {
    let is_named_so = file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("toml"));
    is_named_so || std::str::from_utf8(bytes).is_ok_and(|text| Config::parse("", "", text).is_ok())
}

fn parse(bytes: &[u8], label: &str) -> Result<Vec<BatchInput>, String> {
    // Some editors put a byte order mark before the first line; it is not part of the text.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let (mut inputs, mut bad) = (Vec::new(), Vec::new());
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        match input(line) {
            Ok(input) => inputs.extend(input),
            Err(why) => bad.push((index + 1, why)),
        }
    }
    if bad.is_empty() {
        return if inputs.is_empty() {
            Err(format!("{label} contains no input"))
        } else {
            Ok(inputs)
        };
    }
    let lines = if bad.len() == 1 { "a line".to_owned() } else { format!("{} lines", bad.len()) };
    let mut what = format!("{label} has {lines} that cannot be parsed; nothing was run\n");
    for (number, why) in bad.iter().take(NAMED) {
        let _ = write!(what, "\n  {label}:{number}: {why}");
    }
    if bad.len() > NAMED {
        let _ = write!(what, "\n  and {} more", bad.len() - NAMED);
    }
    Err(what)
}

/// Parses a line. Returns `None` if it is empty.
fn input(line: &[u8]) -> Result<Option<BatchInput>, String> {
    let line =
        std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?.trim_end_matches('\r');
    let trimmed = line.trim();
    if trimmed.is_empty() {
        return Ok(None);
    }
    if !trimmed.starts_with('{') {
        return Ok(Some(BatchInput { id: None, text: line.to_owned(), inputs: Map::new() }));
    }
    let InputLine { input, inputs, id } =
        serde_json::from_str(trimmed).map_err(|error| because(&error))?;
    let Value::String(text) = input else {
        return Err(format!("its `input` is {}, not a text", kind(&input)));
    };
    let inputs = match inputs {
        None => Map::new(),
        Some(Value::Object(inputs)) => inputs,
        Some(other) => return Err(format!("its `inputs` is {}, not an object", kind(&other))),
    };
    match id {
        Some(Value::String(_) | Value::Number(_)) | None => {
            Ok(Some(BatchInput { id, text, inputs }))
        }
        Some(other) => Err(format!("its `id` is {}, neither a text nor a number", kind(&other))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The error without its line number, which is always 1.
fn because(error: &serde_json::Error) -> String {
    let what = error.to_string();
    let what = what.split(" at line ").next().unwrap_or_default();
    format!(
        "{what}, at column {}; an object is {{\"input\": \"…\", \"inputs\": {{…}}, \"id\": …}}",
        error.column()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_text_or_an_object() {
        let text = "\u{feff}When was it lit?\r\n\n  spaces stay \n{\"input\": \"Where?\", \"inputs\": {\"language\": \"Gaelic\"}, \"id\": 7}\n";
        let inputs = parse(text.as_bytes(), "in").unwrap();
        let texts: Vec<&str> = inputs.iter().map(|input| input.text.as_str()).collect();
        assert_eq!(texts, ["When was it lit?", "  spaces stay ", "Where?"]);
        assert_eq!(
            (&inputs[2].id, &inputs[2].inputs["language"]),
            (&Some(json!(7)), &json!("Gaelic"))
        );
    }

    #[test]
    fn every_invalid_line_is_reported_with_its_number() {
        let text = b"fine\n{\"inputs\": {}}\n{broken\n\xff\n{\"input\": \"a\", \"more\": 1}\n{\"input\": \"a\", \"id\": []}\n{\"input\": \"a\", \"inputs\": []}\n{\"input\": 5}";
        let why = parse(text, "in").unwrap_err();
        for part in [
            "in has 7 lines",
            "in:2: missing field `input`",
            "in:3: key must be a string",
            "in:4: it is not UTF-8",
            "in:5: unknown field `more`",
            "in:6: its `id` is a list",
            "in:7: its `inputs` is a list, not an object",
            "in:8: its `input` is a number, not a text",
        ] {
            assert!(why.contains(part), "{part}\n{why}");
        }
        assert!(parse("{\n".repeat(80).as_bytes(), "in").unwrap_err().ends_with("and 30 more"));
        assert_eq!(parse(b"\n \n", "in").unwrap_err(), "in contains no input");
        assert!(
            parse(format!("{{\"input\":{}", "[".repeat(1_000_000)).as_bytes(), "in").is_err(),
            "depth is bounded"
        );
    }
}
