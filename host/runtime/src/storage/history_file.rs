//! An agent's history as text that can be saved and imported again (L-183). It holds only messages:
//! no task state, and attachments by hash only. It reads and writes no file.

use std::collections::BTreeSet;

use conclave_core::types::history::History;
use conclave_core::types::message::{Message, ToolCall};
use serde::{Deserialize, Serialize};

/// The format version that is written.
pub const FORMAT: u32 = 1;

/// The reason why a text is no valid history.
#[derive(Debug, thiserror::Error)]
pub enum HistoryFileError {
    /// The text is no JSON of a history, or has unknown fields.
    #[error("this is not a history: {0}")]
    Malformed(serde_json::Error),
    /// Another version of the host wrote the history.
    #[error("the history has format {version}; this host reads format {FORMAT}")]
    OtherFormat {
        /// The format version of the text.
        version: u64,
    },
    /// Messages are counted from 0.
    #[error("message {message} of the history has two calls with the id {id:?}")]
    DuplicateCall {
        /// The index of the message.
        message: usize,
        /// The repeated id.
        id: String,
    },
    /// A result answers no earlier call, or one that already has a result.
    #[error(
        "message {message} of the history holds a result for the call {id:?}, which no message before it makes, or which has its result"
    )]
    ResultWithoutCall {
        /// The index of the message with the result, from 0.
        message: usize,
        /// The id of the call.
        id: String,
    },
}

#[derive(Serialize)]
struct HistoryWrite<'a> {
    format: u32,
    messages: Vec<&'a Message>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryRead {
    #[serde(rename = "format")]
    _format: u32,
    messages: Vec<Message>,
}

/// The header of a history, without its messages.
#[derive(Deserialize)]
struct HistoryHeader {
    format: u64,
}

/// The history as JSON: `{"format":1,"messages":[…]}`.
#[must_use]
pub fn to_text(history: &History) -> String {
    let written = HistoryWrite {
        format: FORMAT,
        messages: history.iter().map(|message| &**message).collect(),
    };
    serde_json::to_string(&written)
        .expect("a message holds nothing but JSON values, texts and numbers")
}

/// Returns the messages of a history written by [`to_text`]. Calls without results are allowed.
///
/// # Errors
/// `Malformed` if the text is no history, `OtherFormat` if another version wrote it. Otherwise the
/// first invalid message: call ids must be unique within a message, and a result must answer an
/// earlier call without one.
pub fn from_text(text: &str) -> Result<Vec<Message>, HistoryFileError> {
    let HistoryHeader { format } =
        serde_json::from_str(text).map_err(HistoryFileError::Malformed)?;
    if format != u64::from(FORMAT) {
        return Err(HistoryFileError::OtherFormat { version: format });
    }
    let HistoryRead { messages, .. } =
        serde_json::from_str(text).map_err(HistoryFileError::Malformed)?;
    let mut open = BTreeSet::new();
    for (index, message) in messages.iter().enumerate() {
        check(index, message, &mut open)?;
    }
    Ok(messages)
}

/// Checks one message; `open` holds the calls without results.
fn check<'a>(
    index: usize,
    message: &'a Message,
    open: &mut BTreeSet<&'a str>,
) -> Result<(), HistoryFileError> {
    for result in message.tool_results.iter().filter(|result| !result.call_id.is_empty()) {
        if !open.remove(result.call_id.as_str()) {
            return Err(HistoryFileError::ResultWithoutCall {
                message: index,
                id: result.call_id.clone(),
            });
        }
    }
    let mut own = BTreeSet::new();
    for id in ids(&message.tool_calls).chain(ids(&message.tools)) {
        if !own.insert(id) {
            return Err(HistoryFileError::DuplicateCall { message: index, id: id.to_owned() });
        }
    }
    // An id may occur again later, because some models restart their numbering in each answer.
    open.extend(own);
    Ok(())
}

/// The ids of the calls; calls made by the host have none.
fn ids(calls: &[ToolCall]) -> impl Iterator<Item = &str> {
    calls.iter().map(|call| call.id.as_str()).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use conclave_core::types::message::{Blob, Role, ToolResult};
    use serde_json::{Value, json};

    use super::*;

    fn messages() -> Vec<Message> {
        let call = |id: &str| ToolCall {
            id: id.to_owned(),
            ..ToolCall::new("search.find", json!({ "query": "lit" }))
        };
        let result = |id: &str| ToolResult {
            call_id: id.to_owned(),
            name: "search.find".to_owned(),
            content: "1844".to_owned(),
            value: None,
            is_error: false,
        };
        let chart = Blob {
            sha256: "ab".repeat(32),
            media_type: "image/png".to_owned(),
            length: 5,
            name: None,
        };
        vec![
            Message {
                content: Some("When?".to_owned()),
                attachments: vec![chart],
                ..Message::new(0, Role::User, "you")
            },
            Message {
                tool_calls: vec![call("1"), call("2")],
                ..Message::new(1, Role::Llm, "desk")
            },
            Message {
                tool_results: vec![result("2"), result("1")],
                ..Message::new(2, Role::Agent, "desk")
            },
            Message {
                tool_calls: vec![call("1")],
                tools: vec![call(""), call("")],
                ..Message::new(3, Role::Llm, "desk")
            },
        ]
    }

    fn written(change: impl FnOnce(&mut Value)) -> Result<Vec<Message>, String> {
        let mut history = History::default();
        messages().into_iter().for_each(|message| history.push(&Arc::new(message)));
        let mut file: Value = serde_json::from_str(&to_text(&history)).unwrap();
        change(&mut file);
        from_text(&file.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!(written(|_| ()).unwrap(), messages());
        assert_eq!(from_text(&to_text(&History::default())).unwrap(), Vec::new());
    }

    #[test]
    fn what_cannot_be_so_is_refused_and_says_where() {
        type Change = fn(&mut Value);
        let cases: [(Change, &str); 6] = [
            (
                |file| file["format"] = json!(2),
                "the history has format 2; this host reads format 1",
            ),
            (|file| file["more"] = json!(2), "this is not a history: unknown field `more`"),
            (
                |file| file["messages"][0]["sender"] = json!("ghost"),
                "this is not a history: unknown variant `ghost`",
            ),
            (
                |file| file["messages"][1]["tool_calls"][1]["id"] = json!("1"),
                "message 1 of the history has two calls with the id \"1\"",
            ),
            (
                |file| file["messages"][2]["tool_results"][0]["call_id"] = json!("9"),
                "message 2 of the history holds a result for the call \"9\"",
            ),
            (
                |file| file["messages"][2]["tool_results"][1]["call_id"] = json!("2"),
                "message 2 of the history holds a result for the call \"2\"",
            ),
        ];
        for (change, problem) in cases {
            let error = written(change).unwrap_err();
            assert!(error.starts_with(problem), "{error}");
        }
        assert!(from_text("[").unwrap_err().to_string().starts_with("this is not a history"));
        let deep = format!("{{\"format\":1,\"messages\":{}", "[".repeat(1_000_000));
        assert!(from_text(&deep).is_err(), "depth is bounded");
    }
}
