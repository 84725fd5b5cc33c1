//! The answers of the test server, and their faults.

use serde_json::{Value, json};

/// The connection after the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyEnd {
    /// The proper end; the connection stays open.
    Proper,
    /// Silence; the connection stays open until the client closes it.
    Silence,
    /// A close before the body is complete.
    Cut,
}

/// An answer, without faults at first; the methods that take `self` add them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestReply {
    /// `None` sends not even a status.
    pub(super) status: Option<u16>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// Bytes per write.
    pub(super) piece: usize,
    pub(super) ending: ReplyEnd,
}

impl TestReply {
    /// Returns an answer with any bytes.
    #[must_use]
    pub fn bytes(status: u16, media_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type".to_owned(), media_type.to_owned())];
        Self {
            status: Some(status),
            headers,
            body: body.into(),
            piece: usize::MAX,
            ending: ReplyEnd::Proper,
        }
    }

    /// Returns an answer with a JSON value.
    #[must_use]
    pub fn json(status: u16, body: &Value) -> Self {
        Self::bytes(status, "application/json", body.to_string())
    }

    /// Returns an error in OpenAI's format.
    #[must_use]
    pub fn error(status: u16, message: &str) -> Self {
        Self::json(status, &json!({"error": {"message": message, "type": null, "code": null}}))
    }

    /// Returns a whole completion with this text.
    #[must_use]
    pub fn says(text: &str) -> Self {
        Self::message(&json!({"role": "assistant", "content": text}), "stop")
    }

    /// Returns a whole completion with tool calls: wire names and arguments.
    #[must_use]
    pub fn calls(calls: &[(&str, Value)]) -> Self {
        let call = |(number, (name, arguments)): (usize, &(&str, Value))| {
            let function = json!({"name": name, "arguments": arguments.to_string()});
            json!({"id": format!("call_{number}"), "type": "function", "function": function})
        };
        let calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
        Self::message(
            &json!({"role": "assistant", "content": null, "tool_calls": calls}),
            "tool_calls",
        )
    }

    fn message(message: &Value, finish: &str) -> Self {
        Self::json(
            200,
            &json!({"id": "chatcmpl-1", "object": "chat.completion", "model": "test-model-1",
                "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}),
        )
    }

    /// Returns a stream of events with exactly these data.
    #[must_use]
    pub fn events<T: ToString>(data: &[T]) -> Self {
        let body: String =
            data.iter().map(|data| format!("data: {}\n\n", data.to_string())).collect();
        Self::bytes(200, "text/event-stream", body)
    }

    /// Returns a streamed completion of these pieces, with usage and a proper end.
    #[must_use]
    pub fn streams(pieces: &[&str]) -> Self {
        let chunk = |choices: Value| json!({"id": "chatcmpl-2", "object": "chat.completion.chunk", "model": "test-model-1", "choices": choices});
        let mut events = vec![chunk(
            json!([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]),
        )];
        events.extend(pieces.iter().map(|piece| {
            chunk(json!([{"index": 0, "delta": {"content": piece}, "finish_reason": null}]))
        }));
        events.push(chunk(json!([{"index": 0, "delta": {}, "finish_reason": "stop"}])));
        let mut usage = chunk(json!([]));
        usage["usage"] = json!({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10});
        events.push(usage);
        let mut events: Vec<String> = events.iter().map(Value::to_string).collect();
        events.push("[DONE]".to_owned());
        Self::events(&events)
    }

    /// Closes the connection without an answer.
    #[must_use]
    pub fn hang_up() -> Self {
        Self {
            status: None,
            headers: Vec::new(),
            body: Vec::new(),
            piece: usize::MAX,
            ending: ReplyEnd::Cut,
        }
    }

    /// Reads the request and never answers.
    #[must_use]
    pub fn silence() -> Self {
        Self { ending: ReplyEnd::Silence, ..Self::hang_up() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes the body in pieces of so many bytes.
    #[must_use]
    pub fn in_pieces_of(mut self, bytes: usize) -> Self {
        self.piece = bytes.max(1);
        self
    }

    /// Sends nothing after the body, without ending it.
    #[must_use]
    pub fn then_silence(mut self) -> Self {
        self.ending = ReplyEnd::Silence;
        self
    }

    /// Closes the connection after the body, without ending it.
    #[must_use]
    pub fn then_cut(mut self) -> Self {
        self.ending = ReplyEnd::Cut;
        self
    }
}
