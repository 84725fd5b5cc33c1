//! Replies of the Messages API: whole, as events, cut anywhere.

use std::sync::Mutex;

use conclave_core::types::completion::{Completion, ModelApi, StopReason};
use serde_json::{Value, json};

use crate::TextSink;
use crate::http::names::ToolNames;
use crate::http::quote::Quoter;
use crate::http::reply::{ReplyError, ReplyReader};
use crate::http::thinking::ThinkingFormat;

#[derive(Default)]
struct Heard(Mutex<String>);

impl TextSink for Heard {
    fn text(&self, piece: &str) {
        self.0.lock().unwrap().push_str(piece);
    }
}

fn read<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limit: u64,
) -> Result<(Completion, String), ReplyError> {
    let sink = Heard::default();
    let mut reply =
        ReplyReader::new(ModelApi::Messages, limit, Quoter::default(), ThinkingFormat::default());
    for piece in pieces {
        reply.handle_bytes(piece, &sink)?;
    }
    let completion = reply.finish(&ToolNames::default(), "m", &sink)?;
    let text = sink.0.lock().unwrap().clone();
    Ok((completion, text))
}

fn read_body(body: &Value) -> Result<Completion, ReplyError> {
    read([body.to_string().as_bytes()], 10_000).map(|(completion, _)| completion)
}

fn events(events: &[Value]) -> String {
    let event =
        |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(event).collect()
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
        "model": "claude-x", "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 5, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 20, "output_tokens": 1}}})
}

fn block(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(reason: &str, usage: Value) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": usage})
}

/// A stream of every kind of block and event.
fn stream() -> String {
    events(&[
        start(),
        json!({"type": "ping"}),
        block(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "Let me "})),
        delta(0, json!({"type": "thinking_delta", "thinking": "see."})),
        delta(0, json!({"type": "signature_delta", "signature": "EqQB"})),
        json!({"type": "content_block_stop", "index": 0}),
        block(1, json!({"type": "text", "text": ""})),
        delta(1, json!({"type": "text_delta", "text": "Hé"})),
        delta(1, json!({"type": "text_delta", "text": "llo"})),
        json!({"type": "content_block_stop", "index": 1}),
        block(2, json!({"type": "tool_use", "id": "toolu_1", "name": "a__b", "input": {}})),
        delta(2, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "{\"q\": \"x"})),
        block(3, json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
        block(4, json!({"type": "tool_use", "id": "toolu_2", "name": "a__c", "input": {}})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "y\"}"})),
        json!({"type": "a_new_event"}),
        stop("tool_use", json!({"output_tokens": 30, "cache_read_input_tokens": null})),
        json!({"type": "message_stop"}),
    ])
}

fn calls(completion: &Completion) -> Vec<(&str, &str, Value)> {
    let call = completion.tool_calls.iter();
    call.map(|call| (call.id.as_str(), call.name.as_str(), (*call.arguments).clone())).collect()
}

#[test]
fn a_stream_cut_anywhere_gives_the_same() {
    let stream = stream();
    let (completion, pieces) = read([stream.as_bytes()], 10_000).unwrap();
    assert_eq!(pieces, "Héllo");
    assert_eq!(completion.content.as_deref(), Some("Héllo"));
    assert_eq!(completion.reasoning.as_deref(), Some("Let me see."));
    assert_eq!(
        calls(&completion),
        [("toolu_1", "a__b", json!({"q": "xy"})), ("toolu_2", "a__c", json!({}))]
    );
    assert_eq!((completion.id.as_str(), completion.model.as_str()), ("msg_1", "claude-x"));
    assert_eq!(completion.stop, StopReason::ToolCalls);
    let usage = completion.usage;
    assert_eq!((usage.input_tokens, usage.cached_input_tokens, usage.output_tokens), (35, 20, 30));
    for size in [1, 2, 7] {
        let (completion_again, streamed) = read(stream.as_bytes().chunks(size), 10_000).unwrap();
        assert_eq!((&completion_again, streamed.as_str()), (&completion, "Héllo"));
    }
}

#[test]
fn a_whole_reply_is_read() {
    let completion = read_body(&json!({"id": "msg_2", "type": "message", "role": "assistant",
        "model": "claude-x", "stop_reason": "tool_use", "stop_sequence": null,
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "x"},
            {"type": "text", "text": "One "}, {"type": "text", "text": "two"},
            {"type": "tool_use", "id": "toolu_1", "name": "a__b", "input": {"q": [1, "x"]}},
            {"type": "web_search_tool_result", "content": [{"text": "no"}]}],
        "usage": {"input_tokens": 7, "output_tokens": 3}}))
    .unwrap();
    assert_eq!(completion.content.as_deref(), Some("One two"));
    assert_eq!(completion.reasoning.as_deref(), Some("hm"));
    assert_eq!(calls(&completion), [("toolu_1", "a__b", json!({"q": [1, "x"]}))]);
    assert_eq!((completion.usage.input_tokens, completion.usage.cached_input_tokens), (7, 0));
}

#[test]
fn the_reason_of_the_end_is_translated() {
    for (reason, expected) in [
        ("end_turn", StopReason::End),
        ("stop_sequence", StopReason::End),
        ("max_tokens", StopReason::Length),
        ("model_context_window_exceeded", StopReason::Length),
        ("refusal", StopReason::ContentFilter),
        ("pause_turn", StopReason::Other),
    ] {
        let reply = json!({"type": "message", "content": [{"type": "text", "text": "a"}], "stop_reason": reason});
        assert_eq!(read_body(&reply).unwrap().stop, expected, "{reason}");
    }
}

#[test]
fn an_error_is_known_whole_and_in_a_stream() {
    let error =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let status = |error| match error {
        Err(ReplyError::Server(error)) => error.inner_status(),
        other => panic!("{other:?}"),
    };
    assert_eq!(status(read_body(&error)), 503);
    let stream = events(&[start(), error]);
    assert_eq!(status(read([stream.as_bytes()], 10_000).map(|(completion, _)| completion)), 503);
}

#[test]
fn what_is_incomplete_or_no_reply_is_refused() {
    let stream = stream();
    let cut = &stream[..stream.find("message_delta").unwrap()];
    assert_eq!(read([cut.as_bytes()], 10_000), Err(ReplyError::BrokenOff));
    for body in ["", "<html>", "data: x\n\n"] {
        let error = read([body.as_bytes()], 10_000);
        assert!(matches!(error, Err(ReplyError::NotUnderstood { .. })), "{body:?} {error:?}");
    }
    // A server with the other API.
    let other = json!({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]});
    assert!(matches!(read_body(&other), Err(ReplyError::NotUnderstood { .. })));
    assert_eq!(read([stream.as_bytes()], 12), Err(ReplyError::TooLong));
}

#[test]
fn more_calls_than_allowed_are_refused() {
    let call = json!({"type": "tool_use", "id": "", "name": "a", "input": {}});
    let reply = |count| json!({"type": "message", "content": vec![call.clone(); count], "stop_reason": "tool_use"});
    let read = |count| read([reply(count).to_string().as_bytes()], 1 << 20);
    assert_eq!(read(1024).unwrap().0.tool_calls.len(), 1024);
    assert!(matches!(read(1025), Err(ReplyError::NotUnderstood { .. })));
}
