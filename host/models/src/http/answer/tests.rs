//! Answers built from the chunks of various servers.

use std::sync::{Arc, Mutex};

use conclave_core::types::completion::{
    Completion, Prompt, PromptPiece, StopReason, TokenUsage, ToolChoice, ToolFormat,
};
use conclave_core::types::history::History;
use conclave_core::types::message::{Message, Role, ToolCall};
use serde_json::{Value, json};

use super::ServerReply;
use crate::TextSink;
use crate::http::names::ToolNames;
use crate::http::quote::Quoter;
use crate::http::thinking::ThinkingFormat;

#[derive(Default)]
struct Heard(Mutex<String>);

impl TextSink for Heard {
    fn text(&self, piece: &str) {
        assert!(!piece.is_empty());
        self.0.lock().unwrap().push_str(piece);
    }
}

fn read(chunks: &[Value]) -> Completion {
    let sink = Heard::default();
    let mut answer = ServerReply::new(10_000, Quoter::default(), ThinkingFormat::default());
    for chunk in chunks {
        answer.handle_chunk(serde_json::from_value(chunk.clone()).unwrap(), &sink).unwrap();
    }
    let completion = answer.finish(&ToolNames::default(), "asked-for", &sink);
    assert_eq!(completion.content.clone().unwrap_or_default(), *sink.0.lock().unwrap());
    completion
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta}]})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn calls(pieces: &[Value]) -> Vec<ToolCall> {
    let chunks: Vec<Value> =
        pieces.iter().map(|piece| delta(json!({"tool_calls": [piece]}))).collect();
    read(&chunks).tool_calls
}

fn call(id: &str, name: &str, arguments: Value) -> ToolCall {
    ToolCall { id: id.to_owned(), ..ToolCall::new(name, arguments) }
}

#[test]
fn text_reasoning_and_usage_are_put_together() {
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4.0, "prompt_tokens_details": {"cached_tokens": 5}}});
    let completion = read(&[
        json!({"id": "x", "model": "m-1", "choices": [{"delta": {"role": "assistant", "content": ""}}]}),
        delta(json!({"reasoning_content": "hm, "})),
        delta(json!({"reasoning": "yes"})),
        delta(json!({"content": "Hel"})),
        delta(json!({"content": "lo"})),
        finish("stop"),
        usage,
    ]);
    let usage = TokenUsage {
        input_tokens: 9,
        cached_input_tokens: 5,
        output_tokens: 4,
        cost_micro_usd: None,
    };
    assert_eq!(
        (completion.id.as_str(), completion.model.as_str(), completion.stop),
        ("x", "m-1", StopReason::End)
    );
    assert_eq!(
        (completion.content.as_deref(), completion.reasoning.as_deref()),
        (Some("Hello"), Some("hm, yes"))
    );
    assert_eq!(completion.usage, usage);
}

#[test]
fn arguments_grow_by_index_also_when_calls_are_mixed() {
    let made = calls(&[
        json!({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}),
        json!({"index": 1, "id": "b", "function": {"name": "g", "arguments": "{\"y\""}}),
        json!({"index": 0, "function": {"arguments": "{\"x\":1}"}}),
        json!({"index": 1, "function": {"arguments": ":2}"}}),
    ]);
    assert_eq!(made, [call("a", "f", json!({"x": 1})), call("b", "g", json!({"y": 2}))]);
}

#[test]
fn calls_without_an_index_are_told_apart() {
    let indexed = calls(&[
        json!({"id": "a", "function": {"name": "f", "arguments": "{}"}}),
        json!({"id": "b", "function": {"name": "f", "arguments": {"x": 1}}}),
    ]);
    assert_eq!(indexed, [call("a", "f", json!({})), call("b", "f", json!({"x": 1}))]);
    let pieces = calls(&[
        json!({"function": {"name": "f", "arguments": "{\"x\""}}),
        json!({"function": {"arguments": ":1}"}}),
        json!({"function": {"name": "g"}}),
    ]);
    assert_eq!(pieces, [call("call-1", "f", json!({"x": 1})), call("call-2", "g", json!({}))]);
}

#[test]
fn every_call_counted_as_the_first_is_one_of_its_own() {
    let made = calls(&[
        json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}),
        json!({"index": 0, "id": "b", "function": {"name": "g", "arguments": "{}"}}),
    ]);
    assert_eq!(made, [call("a", "f", json!({})), call("b", "g", json!({}))]);
}

#[test]
fn a_name_that_comes_with_every_piece_is_taken_once() {
    let piece =
        |text: &str| json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": text}});
    assert_eq!(calls(&[piece("{\"x\""), piece(":1}")]), [call("a", "f", json!({"x": 1}))]);
}

#[test]
fn ids_are_unique_within_the_message() {
    let same = json!({"id": "a", "function": {"name": "f"}});
    let completion = read(&[json!({"choices": [{"message": {"tool_calls": [
        same, {"function": {"name": "g"}}, {"index": 7, "id": "call-2", "function": {"name": "h"}}]}}]})]);
    let ids: Vec<&str> = completion.tool_calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["a", "call-2", "call-3"]);
}

#[test]
fn arguments_that_are_no_json_stay_text() {
    let made = |text: &str| {
        let called = calls(&[json!({"id": "a", "function": {"name": "f", "arguments": text}})]);
        Value::clone(&called[0].arguments)
    };
    assert_eq!((made(""), made("  ")), (json!({}), json!({})));
    assert_eq!((made("{\"x\":"), made("[1]")), (json!("{\"x\":"), json!([1])));
}

#[test]
fn a_server_that_says_stop_after_a_call_means_the_call() {
    let call =
        delta(json!({"content": "", "tool_calls": [{"id": "a", "function": {"name": "f"}}]}));
    for reason in ["stop", "tool_calls", "function_call"] {
        let completion = read(&[call.clone(), finish(reason)]);
        assert_eq!((completion.stop, completion.content), (StopReason::ToolCalls, None));
    }
    assert_eq!(read(&[call, finish("length")]).stop, StopReason::Length);
}

#[test]
fn reasons_to_stop_are_translated() {
    let stop = |reason: &str| read(&[finish(reason)]).stop;
    assert_eq!(
        [stop("stop"), stop("length"), stop("content_filter"), stop("paused")],
        [StopReason::End, StopReason::Length, StopReason::ContentFilter, StopReason::Other]
    );
}

#[test]
fn a_refusal_is_content_that_was_filtered() {
    let sink = Heard::default();
    let mut answer = ServerReply::new(100, Quoter::default(), ThinkingFormat::default());
    answer
        .handle_chunk(
            serde_json::from_value(delta(json!({"refusal": "I will not"}))).unwrap(),
            &sink,
        )
        .unwrap();
    let completion = answer.finish(&ToolNames::default(), "m", &sink);
    assert_eq!(
        (completion.content.as_deref(), completion.stop),
        (Some("I will not"), StopReason::ContentFilter)
    );
}

#[test]
fn content_in_parts_is_text() {
    let parts = json!([{"type": "thinking", "thinking": [{"type": "text", "text": "no"}]}, {"type": "text", "text": "a"}, {"text": "b"}]);
    assert_eq!(read(&[delta(json!({"content": parts}))]).content.as_deref(), Some("ab"));
}

#[test]
fn costs_are_taken_when_they_make_sense() {
    let cost =
        |cost: Value| read(&[json!({"choices": [], "usage": {"cost": cost}})]).usage.cost_micro_usd;
    assert_eq!((cost(json!(0.00123)), cost(json!(0))), (Some(1230), Some(0)));
    assert_eq!((cost(json!(-1)), cost(json!("x")), cost(Value::Null)), (None, None, None));
    assert_eq!(cost(json!(1e300)), Some(u64::MAX));
}

#[test]
fn nulls_and_other_choices_change_nothing() {
    let completion = read(&[
        json!({"id": null, "model": null, "usage": null, "choices": null}),
        json!({"choices": [{"index": 1, "delta": {"content": "other"}}, {"delta": {"content": null, "tool_calls": null, "reasoning": null}}]}),
        json!({"choices": [{"delta": null, "finish_reason": null}]}),
    ]);
    assert_eq!((completion.id.as_str(), completion.model.as_str()), ("completion", "asked-for"));
    assert_eq!((completion.content, completion.stop), (None, StopReason::End));
}

#[test]
fn an_answer_without_end_is_too_long() {
    for piece in [
        json!({"content": "12345"}),
        json!({"reasoning": "12345"}),
        json!({"tool_calls": [{"function": {"arguments": "12345"}}]}),
    ] {
        let mut answer = ServerReply::new(12, Quoter::default(), ThinkingFormat::default());
        let mut handle =
            || answer.handle_chunk(serde_json::from_value(delta(piece.clone())).unwrap(), &());
        assert!(handle().is_ok() && handle().is_ok() && handle().is_err(), "{piece}");
    }
}

#[test]
fn arguments_of_too_many_values_stay_text() {
    let parsed = |json: &str| super::arguments(json.to_owned(), false);
    let many = format!("[{}0]", "{},".repeat(60_000));
    assert_eq!(parsed(&many), Value::String(many));
    let text = json!([format!("\"{}", "[,".repeat(100_000))]);
    assert_eq!(parsed(&text.to_string()), text, "a text is one value");
}

#[test]
fn calls_with_one_index_and_no_id_of_their_own_are_told_apart() {
    let (one, two) = (r#"{"path":"a"}"#, r#"{"path":"b"}"#);
    let complete_call = |id: Value, name: &str, arguments: &str| json!({"index": 0, "id": id, "function": {"name": name, "arguments": arguments}});
    for id in [Value::Null, json!("")] {
        let made = calls(&[complete_call(id.clone(), "f", one), complete_call(id, "f", two)]);
        let expected =
            [call("call-1", "f", json!({"path": "a"})), call("call-2", "f", json!({"path": "b"}))];
        assert_eq!(made, expected);
    }
    let made = calls(&[complete_call(json!("x"), "f", one), complete_call(json!("x"), "g", two)]);
    assert_eq!(
        made,
        [call("x", "f", json!({"path": "a"})), call("call-2", "g", json!({"path": "b"}))]
    );
    // The end of the arguments may come with the name once more.
    let made = calls(&[
        complete_call(Value::Null, "f", "{\"path\":"),
        complete_call(Value::Null, "f", "\"a\"}"),
    ]);
    assert_eq!(made, [call("call-1", "f", json!({"path": "a"}))]);
    let made = calls(&[complete_call(Value::Null, "f", one), complete_call(Value::Null, "f", "")]);
    assert_eq!(made, [call("call-1", "f", json!({"path": "a"}))]);
}

#[test]
fn an_index_of_any_kind_tells_calls_apart_and_a_name_in_parts_is_one() {
    for (one, two) in [(json!("0"), json!("1")), (json!(0.0), json!(1.0)), (json!(-1), json!(-2))] {
        let piece =
            |index: &Value, text: &str| json!({"index": index, "function": {"arguments": text}});
        let begin = |index: &Value, name: &str| json!({"index": index, "function": {"name": name}});
        let made = calls(&[
            begin(&one, "f"),
            begin(&two, "g"),
            piece(&one, "{\"x\":1"),
            piece(&two, "{}"),
            piece(&one, "}"),
        ]);
        assert_eq!(made, [call("call-1", "f", json!({"x": 1})), call("call-2", "g", json!({}))]);
    }
    let made = calls(&[
        json!({"index": 0, "function": {"name": "sea"}}),
        json!({"index": 0, "function": {"name": "rch"}}),
        json!({"index": 0, "function": {"arguments": "{}"}}),
    ]);
    assert_eq!(made, [call("call-1", "search", json!({}))]);
}

#[test]
fn names_without_end_are_no_parts_of_one() {
    let pieces: Vec<Value> = (0..100)
        .map(|number| json!({"index": 0, "function": {"name": format!("f{number}")}}))
        .collect();
    let made = calls(&pieces);
    assert_eq!(made.len(), 100_usize.div_ceil(super::NAMES_MAX));
}

#[test]
fn a_message_beside_deltas_is_no_second_answer() {
    let both =
        |delta: Value, message: Value| json!({"choices": [{"delta": delta, "message": message}]});
    let text = |text: &str| json!({"content": text});
    for chunks in [
        vec![both(text("Sky"), text("Sky")), both(text(" is blue"), text("Sky is blue"))],
        vec![delta(text("Sky")), delta(text(" is blue")), both(json!({}), text("Sky is blue"))],
        vec![delta(text("Sky")), both(json!({}), text("Sky is blue"))],
        vec![both(json!({}), text("Sky")), both(json!({}), text("Sky is blue"))],
        vec![both(json!({}), text("Sky")), both(json!({}), text(" is blue"))],
        vec![both(json!({}), text("Sky is blue"))],
    ] {
        assert_eq!(read(&chunks).content.as_deref(), Some("Sky is blue"), "{chunks:?}");
    }
    let made = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]});
    let completion = read(&[delta(made.clone()), both(json!({}), made)]);
    assert_eq!(completion.tool_calls, [call("a", "f", json!({}))]);
}

#[test]
fn a_call_that_was_cut_before_its_arguments_is_none_without_them() {
    let piece = |arguments: &str| {
        delta(
            json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": arguments}}]}),
        )
    };
    let arguments = |text: &str, reason: &str| {
        let completion = read(&[piece(text), finish(reason)]);
        completion.tool_calls[0].arguments.as_ref().clone()
    };
    assert_eq!(arguments("", "length"), json!(""));
    assert_eq!(arguments("", "tool_calls"), json!({}));
    assert_eq!(arguments("{\"x\":", "length"), json!("{\"x\":"));
    assert_eq!(arguments("{\"x\":1}", "length"), json!({"x": 1}));
    assert_eq!(arguments(r#"{"x":"\ud83d"}"#, "stop"), json!({"x": "\u{fffd}"}));
}

#[test]
fn an_id_is_not_that_of_an_earlier_call() {
    let mut history = History::default();
    for (seq, id) in ["call-1", "x", "call-3"].into_iter().enumerate() {
        let call = ToolCall { id: id.to_owned(), ..ToolCall::new("f", json!({})) };
        let mut message = Message::new(seq as u64, Role::Llm, "a");
        message.tool_calls = vec![call];
        history.push(&Arc::new(message));
    }
    let prompt = Prompt {
        pieces: vec![PromptPiece::History { messages: history, start: 0, end: 3 }],
        tools: Vec::new(),
        tool_format: ToolFormat::Native,
        tool_choice: ToolChoice::Auto,
        output_schema: None,
        stream: false,
        options: Vec::new(),
    };
    let mut answer = ServerReply::new(10_000, Quoter::default(), ThinkingFormat::default());
    for (index, id) in ["", "x", "y"].into_iter().enumerate() {
        let piece = json!({"index": index, "id": id, "function": {"name": "f"}});
        let chunk = delta(json!({"tool_calls": [piece]}));
        answer.handle_chunk(serde_json::from_value(chunk).unwrap(), &Heard::default()).unwrap();
    }
    let completion = answer.finish(&ToolNames::of(&prompt), "m", &Heard::default());
    let ids: Vec<&str> = completion.tool_calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["call-2", "call-4", "y"]);
}
