//! Bodies of every form: whole, split and truncated.

use std::sync::Mutex;

use conclave_core::config::ThinkingMarks;
use conclave_core::types::completion::{Completion, ModelApi};
use conclave_core::types::message::ToolCall;
use serde_json::{Value, json};

use super::{ReplyError, ReplyReader};
use crate::http::names::ToolNames;
use crate::http::quote::Quoter;
use crate::http::thinking::ThinkingFormat;
use crate::{NoText, TextSink};

const STREAM: &str = "\u{feff}: hello\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"Hé\"}}]}\n\n\
    data: {\"choices\":[{\"delta\":{\"content\":\"llo\"},\"finish_reason\":\"stop\"}]}\r\r\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2}}\n\ndata: [DONE]\n\ndata: not read\n\n";

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
    let mut reply = ReplyReader::new(
        ModelApi::ChatCompletions,
        limit,
        Quoter::default(),
        ThinkingFormat::default(),
    );
    for piece in pieces {
        reply.handle_bytes(piece, &sink)?;
    }
    let completion = reply.finish(&ToolNames::default(), "m", &sink)?;
    let text = sink.0.lock().unwrap().clone();
    Ok((completion, text))
}

fn text(body: &str) -> Result<String, ReplyError> {
    read([body.as_bytes()], 10_000).map(|(_, text)| text)
}

#[test]
fn a_stream_cut_at_every_byte_says_the_same() {
    let complete = read([STREAM.as_bytes()], 10_000).unwrap();
    assert_eq!((complete.1.as_str(), complete.0.usage.input_tokens), ("Héllo", 2));
    assert_eq!(read(STREAM.as_bytes().chunks(1), 10_000).unwrap(), complete);
    for cut in 0..STREAM.len() {
        let (first, second) = STREAM.as_bytes().split_at(cut);
        assert_eq!(read([first, second], 10_000).unwrap(), complete, "cut at {cut}");
    }
}

#[test]
fn a_whole_reply_is_read_after_any_white_space() {
    let body =
        json!({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}).to_string();
    assert_eq!(text(&format!("\n \n{body}\n")).unwrap(), "Hi");
    assert_eq!(read(format!("  {body}").as_bytes().chunks(1), 10_000).unwrap().1, "Hi");
}

#[test]
fn an_end_is_needed_but_not_both_of_them() {
    let chunk = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let finished = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    assert_eq!(text(&format!("{chunk}{finished}")).unwrap(), "a");
    assert_eq!(text(&format!("{chunk}{}", finished.trim_end())).unwrap(), "a");
    assert_eq!(text(&format!("{chunk}data: [DONE]")).unwrap(), "a");
    assert_eq!(text(chunk), Err(ReplyError::BrokenOff));
    assert_eq!(text(&format!("{chunk}data: {{\"choi")), Err(ReplyError::BrokenOff));
}

#[test]
fn an_error_in_the_answer_is_the_server_s() {
    for body in [
        "{\"error\":{\"message\":\"boom\",\"code\":502}}",
        "data: {\"error\":{\"message\":\"boom\",\"code\":502}}\n\n",
        "event: error\ndata: {\"message\":\"boom\",\"code\":502}\n\n",
        "data: {\"object\":\"error\",\"message\":\"boom\",\"code\":502}\n\n",
    ] {
        let Err(ReplyError::Server(error)) = text(body) else { panic!("{body}") };
        assert_eq!((error.message.as_str(), error.inner_status()), ("boom", 502), "{body}");
    }
}

#[test]
fn what_is_no_answer_is_shown_from_its_beginning() {
    for body in [
        "<html>login</html>",
        "",
        "  ",
        "{\"a\":1}",
        "{\"choices\":[]}",
        "{\"choices\":",
        "Not found",
        ": x\n\ndata: y\n\n",
        "[1]",
    ] {
        let Err(ReplyError::NotUnderstood { beginning }) = text(body) else { panic!("{body}") };
        assert_eq!(beginning, body);
    }
    let Err(ReplyError::NotUnderstood { beginning }) = text(&"<".repeat(5000)) else { panic!() };
    assert_eq!(beginning.len(), 400);
}

#[test]
fn what_a_server_puts_between_the_chunks_is_skipped() {
    let body = format!(
        "data: {{\"type\":\"ping\"}}\n\ndata:\n\n{}",
        STREAM.trim_start_matches('\u{feff}')
    );
    assert_eq!(text(&body).unwrap(), "Héllo");
}

#[test]
fn the_size_is_limited_for_what_is_said_and_for_what_wraps_it() {
    let body = json!({"choices": [{"message": {"content": "Hi"}}]}).to_string();
    assert_eq!(read([body.as_bytes()], 20), Err(ReplyError::TooLong));
    let many = "data: {\"choices\":[{\"delta\":{\"content\":\"0123456789\"}}]}\n\n".repeat(9);
    assert_eq!(read([many.as_bytes()], 80), Err(ReplyError::TooLong));
    assert_eq!(read([": alive\n".repeat(1000).as_bytes()], 100), Err(ReplyError::TooLong));
    assert_eq!(read(["data: ".repeat(100).as_bytes()], 100), Err(ReplyError::TooLong));
}

#[test]
fn an_answer_that_the_server_gave_up_broke_off() {
    for reason in ["error", "abort", "aborted"] {
        let given_up = format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"Half\"}},\"finish_reason\":\"{reason}\"}}]}}\n\ndata: [DONE]\n\n"
        );
        assert_eq!(text(&given_up), Err(ReplyError::BrokenOff), "{reason}");
    }
}

#[test]
fn what_is_whole_is_taken_although_something_beside_it_is_odd() {
    let stream = |chunks: &[&str]| {
        let events: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
        text(&format!("{events}data: {{\"choices\":[{{\"finish_reason\":\"stop\"}}]}}\n\n"))
    };
    let chunk = |text: &str| format!("{{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}");
    let halves = stream(&[&chunk("a\\ud83d"), &chunk("\\ude00b")]);
    assert_eq!(halves.as_deref(), Ok("a\u{fffd}\u{fffd}b"));
    assert_eq!(stream(&[&chunk("a\\ud83d\\ude00")]).as_deref(), Ok("a😀"));
    let usage = r#"{"choices":[{"delta":{"content":"x"},"index":"0"}],"usage":{"cost":NaN,"prompt_tokens":"many"}}"#;
    assert_eq!(stream(&[usage]).as_deref(), Ok("x"));
    assert_eq!(
        text("\u{feff}{\"choices\":[{\"message\":{\"content\":\"x\"},\"finish_reason\":7}]}"),
        Ok("x".to_owned())
    );
}

/// Returns the body of a form of `tests/data/servers/streams.json`.
fn body_of(form: &Value) -> String {
    let data = |chunk: &Value| chunk.as_str().map_or_else(|| chunk.to_string(), str::to_owned);
    match (&form["body"], &form["reply"], &form["chunks"]) {
        (Value::String(body), _, _) => body.clone(),
        (_, _, Value::Array(chunks)) => {
            chunks.iter().map(|chunk| format!("data: {}\n\n", data(chunk))).collect()
        }
        (_, reply, _) => reply.to_string(),
    }
}

fn read_part(api: ModelApi, bytes: &[u8]) -> Result<Completion, ReplyError> {
    let thinking = ThinkingFormat::new(Some(ThinkingMarks::default()));
    let mut reply = ReplyReader::new(api, 1 << 20, Quoter::default(), thinking);
    reply.handle_bytes(bytes, &NoText)?;
    reply.finish(&ToolNames::default(), "model", &NoText)
}

#[test]
fn an_answer_that_is_cut_at_any_byte_makes_no_call_that_the_whole_does_not() {
    const TABLE: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/servers/streams.json");
    let forms: Vec<Value> = serde_json::from_slice(&std::fs::read(TABLE).unwrap()).unwrap();
    let mut whole_parts = 0;
    for form in &forms {
        let api = ModelApi::ALL.into_iter().find(|api| form["api"] == api.kind()).unwrap();
        let body = body_of(form);
        let complete = read_part(api, body.as_bytes());
        for cut in 0..body.len() {
            let Ok(part) = read_part(api, &body.as_bytes()[..cut]) else { continue };
            let name = &form["name"];
            let complete =
                complete.as_ref().unwrap_or_else(|error| panic!("{name} at {cut}: {error}"));
            whole_parts += 1;
            let is_known = |call: &ToolCall| {
                let is_same = |other: &ToolCall| {
                    (&other.name, &other.arguments) == (&call.name, &call.arguments)
                };
                !call.arguments.is_object() || complete.tool_calls.iter().any(is_same)
            };
            assert!(part.tool_calls.iter().all(is_known), "{name} at {cut}: {part:?}");
            let text = |completion: &Completion| completion.content.clone().unwrap_or_default();
            assert!(text(complete).starts_with(&text(&part)), "{name} at {cut}: {part:?}");
        }
    }
    assert!(whole_parts > 100, "answers that lack their last bytes are whole: {whole_parts}");
}
