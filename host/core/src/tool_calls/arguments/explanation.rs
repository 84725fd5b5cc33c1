//! The text for a model about arguments that do not fit, and the parser of such a text.

use std::fmt;

use super::Wrong;

const OPENING: &str = "The call of ";
const OPENED: &str = " was not carried out: its arguments do not fit.";
const BULLET: &str = "- ";
/// Stands for the empty path.
const WHOLE: &str = "the arguments";

/// The text for the model: it names the tool and each wrong field, and asks for the whole call
/// again (L-114).
#[must_use]
pub fn explain(tool: &str, wrong: &[Wrong]) -> String {
    let mut text = format!("{OPENING}{}{OPENED}\n", quoted(tool));
    for field in wrong {
        text.push_str(&format!("{BULLET}{field}\n"));
    }
    text.push_str("Correct this and send the whole call again.");
    text
}

/// The quoted path, or `the arguments` for an empty one, and the reason, on one line.
impl fmt::Display for Wrong {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.path.is_empty() { WHOLE.to_owned() } else { quoted(&self.path) };
        write!(out, "{place} {}", self.reason.replace(char::is_control, " "))
    }
}

/// The tool and the sorted paths that a text of [`explain`] names; `None` for another text.
#[must_use]
pub fn explanation_fields(text: &str) -> Option<(String, Vec<String>)> {
    let (tool, rest) = unquoted(text.strip_prefix(OPENING)?)?;
    let mut lines = rest.strip_prefix(OPENED)?.strip_prefix('\n')?;
    let mut paths = Vec::new();
    while let Some((path, rest)) = lines.strip_prefix(BULLET).and_then(place) {
        paths.push(path);
        lines = rest.split_once('\n')?.1;
    }
    paths.sort();
    Some((tool, paths))
}

/// The text quoted on one line.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn place(line: &str) -> Option<(String, &str)> {
    match line.strip_prefix(WHOLE) {
        Some(rest) => Some((String::new(), rest)),
        None => unquoted(line),
    }
}

fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
    let value = values.next()?.ok()?;
    Some((value, text.get(values.byte_offset()..)?))
}
