//! The search tool's result, from its structured value, or parsed from its lines if only text
//! arrived.

use conclave_sdk::ToolOutput;
use serde::Deserialize;

/// A sentence and its place.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Hit {
    pub(crate) path: String,
    pub(crate) line: u32,
    pub(crate) text: String,
    /// The tool's own score; higher is better.
    #[serde(default)]
    pub(crate) score: f64,
    /// The heading above, and the text that it refers to. Empty if the tool does not report them.
    #[serde(default)]
    pub(crate) context: String,
}

/// All hits, best first.
#[derive(Debug, PartialEq, Deserialize)]
pub(crate) struct Found {
    /// The number of files searched; `None` if the tool does not report it.
    pub(crate) files: Option<usize>,
    /// The number of files that were too large to search.
    #[serde(default)]
    pub(crate) left_out: usize,
    #[serde(default)]
    pub(crate) hits: Vec<Hit>,
}

impl Found {
    pub(crate) fn read(output: &ToolOutput) -> Self {
        let structured = output.value.as_deref().and_then(|value| serde_json::from_str(value).ok());
        structured.unwrap_or_else(|| Self {
            files: None,
            left_out: 0,
            hits: output.content.lines().filter_map(hit).collect(),
        })
    }
}

/// Parses `path:line: text`.
fn hit(line: &str) -> Option<Hit> {
    let (place, text) = line.split_once(": ")?;
    let (path, line) = place.rsplit_once(':')?;
    Some(Hit {
        path: path.to_owned(),
        line: line.parse().ok()?,
        text: text.to_owned(),
        score: 0.0,
        context: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Found, Hit, ToolOutput};

    #[test]
    fn lines_are_read_when_there_is_no_value() {
        let content =
            "/folder/a.md:3: It was: lit.\n(1 file was too large to be searched)".to_owned();
        let output = ToolOutput {
            call_id: "1".into(),
            name: "search.find".into(),
            content,
            value: None,
            is_error: false,
        };
        let hit = Hit {
            path: "/folder/a.md".into(),
            line: 3,
            text: "It was: lit.".into(),
            score: 0.0,
            context: String::new(),
        };
        assert_eq!(Found::read(&output), Found { files: None, left_out: 0, hits: vec![hit] });
    }
}
