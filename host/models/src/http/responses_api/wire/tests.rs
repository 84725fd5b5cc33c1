//! What the table of answers cannot say: limits, and answers that are cut.

use conclave_core::types::completion::{Completion, ModelApi};
use serde_json::{Value, json};

use crate::NoText;
use crate::http::names::ToolNames;
use crate::http::quote::Quoter;
use crate::http::reply::{ReplyError, ReplyReader};
use crate::http::thinking::ThinkingFormat;

fn read(events: &[Value], limit: u64) -> Result<Completion, ReplyError> {
    let thinking = ThinkingFormat::default();
    let mut reply = ReplyReader::new(ModelApi::Responses, limit, Quoter::default(), thinking);
    for event in events {
        reply.handle_bytes(format!("data: {event}\n\n").as_bytes(), &NoText)?;
    }
    reply.finish(&ToolNames::default(), "m", &NoText)
}

fn announced(number: usize) -> Value {
    let item = json!({"type": "function_call", "id": format!("fc_{number}"),
        "call_id": format!("c{number}"), "name": "f", "arguments": ""});
    json!({"type": "response.output_item.added", "output_index": number, "item": item})
}

#[test]
fn calls_and_bytes_are_limited() {
    let many: Vec<Value> = (0..1025).map(announced).collect();
    assert_eq!(read(&many, 1 << 20), Err(ReplyError::TooLong));
    let piece = json!({"type": "response.output_text.delta", "delta": "x".repeat(600)});
    assert_eq!(read(&[piece.clone(), piece], 1000), Err(ReplyError::TooLong));
    let arguments = |text: &str| json!({"type": "response.function_call_arguments.delta", "item_id": "fc_0", "delta": text});
    let long = [announced(0), arguments(&"x".repeat(600)), arguments(&"x".repeat(600))];
    assert_eq!(read(&long, 1000), Err(ReplyError::TooLong));
}

/// Each event repeats the answer, and only what it adds is counted.
#[test]
fn what_is_repeated_counts_once() {
    let text = "x".repeat(8000);
    let message =
        json!({"type": "message", "id": "m", "content": [{"type": "output_text", "text": text}]});
    let events = [
        json!({"type": "response.output_text.delta", "item_id": "m", "delta": text}),
        json!({"type": "response.output_text.done", "item_id": "m", "text": text}),
        json!({"type": "response.output_item.done", "item": message}),
        json!({"type": "response.completed", "response": {"status": "completed", "output": [message]}}),
    ];
    assert_eq!(read(&events, 10_000).unwrap().content, Some(text));
}

#[test]
fn many_texts_stay_one_answer() {
    let mut events: Vec<Value> = (0..2000)
        .map(|number| {
            json!({"type": "response.output_item.done", "output_index": number,
                "item": {"type": "message", "id": format!("m{number}"), "content": "x"}})
        })
        .collect();
    events.push(json!({"type": "response.completed", "response": {}}));
    assert!(read(&events, 1 << 20).unwrap().content.unwrap().len() >= 256);
}
