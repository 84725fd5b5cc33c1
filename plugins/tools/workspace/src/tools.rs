//! The tools' descriptions for the model, and their arguments. Irrelevant arguments of the fixed
//! JSON, such as a thought, are accepted.

use conclave_sdk::{Error, Result, ToolSpec};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

#[derive(Deserialize)]
pub(crate) struct Read {
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) start: i64,
    #[serde(default = "end")]
    pub(crate) end: i64,
    #[serde(default)]
    pub(crate) view_range: Option<Vec<i64>>,
}

#[derive(Deserialize)]
pub(crate) struct Write {
    pub(crate) path: String,
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) start: i64,
    #[serde(default = "end")]
    pub(crate) end: i64,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Edit {
    pub(crate) path: String,
    pub(crate) command: String,
    pub(crate) file_text: Option<String>,
    pub(crate) old_str: Option<String>,
    pub(crate) new_str: Option<String>,
    pub(crate) insert_line: Option<i64>,
    pub(crate) view_range: Option<Vec<i64>>,
}

fn end() -> i64 {
    -1
}

/// Parses the arguments of a tool.
pub(crate) fn arguments<T: DeserializeOwned>(arguments: Value) -> Result<T> {
    serde_json::from_value(arguments).map_err(|error| Error::invalid_arguments(error.to_string()))
}

/// The tools' descriptions for a model.
pub(crate) fn specs() -> Vec<ToolSpec> {
    let path = json!({ "type": "string", "description": "Relative to the workspace, such as `a/b.rs`, or absolute, such as `/folder/a/b.rs`." });
    let read = json!({
        "type": "object",
        "required": ["path"],
        "properties": {
            "path": path,
            "start": { "type": "integer", "description": "First line, from 0, included; 0 when absent." },
            "end": { "type": "integer", "description": "Line after the last, from 0; -1 or absent for the end of the file." },
            "view_range": {
                "type": ["array", "null"],
                "items": { "type": "integer" },
                "description": "Instead of start and end: first and last line, from 1, both included, -1 for the end. Numbers the lines.",
            },
        },
    });
    let write = json!({
        "type": "object",
        "required": ["path", "content"],
        "properties": {
            "path": path,
            "content": { "type": "string", "description": "The new lines, without a newline after the last." },
            "start": { "type": "integer", "description": "First line that is replaced, from 0, included; 0 when absent." },
            "end": { "type": "integer", "description": "Line after the last that is replaced; -1 or absent for the end of the file." },
        },
    });
    let text = |what: &str| json!({ "type": ["string", "null"], "description": what });
    let edit = json!({
        "type": "object",
        "required": ["path", "command"],
        "properties": {
            "path": path,
            "command": {
                "type": "string",
                "enum": ["view", "create", "str_replace", "insert", "undo_edit"],
                "description": "`view` shows a file with line numbers, or what is in a directory. `create` makes a file that is not there \
                                yet. `str_replace` replaces one place. `insert` adds lines. `undo_edit` takes the last edit of the file back.",
            },
            "file_text": text("For `create`: the whole text of the file."),
            "old_str": text("For `str_replace`: the text to replace, word for word with all blanks. It must be in the file exactly once: \
                             add lines around it."),
            "new_str": text("For `str_replace`: what stands there afterwards, or nothing. For `insert`: the lines to add."),
            "insert_line": { "type": ["integer", "null"], "description": "For `insert`: the line, from 1, after which it goes; 0 for the start." },
            "view_range": {
                "type": ["array", "null"],
                "items": { "type": "integer" },
                "description": "For `view`: first and last line, from 1, both included, -1 for the end.",
            },
        },
    });
    let mut read = ToolSpec::new(
        "read",
        "Reads a text file, or some of its lines. Use it before you change a file.",
        read.to_string(),
    );
    read.idempotent = true;
    let write = ToolSpec::new(
        "write",
        "Writes a text file: a new one, a whole one anew, or some of its lines. Directories on the way are made. To change a few words \
         of a file, use `edit`.",
        write.to_string(),
    );
    let edit = ToolSpec::new(
        "edit",
        "Views, creates and edits text files, a place at a time. Edits can be undone.",
        edit.to_string(),
    );
    vec![read, write, edit]
}
