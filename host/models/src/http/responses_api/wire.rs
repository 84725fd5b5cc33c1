//! Replies of the Responses API, whole or as events, as chunks of Chat Completions, so that one
//! accumulator serves all APIs. Memory is a small multiple of the received bytes.

use serde::Deserialize;

use super::items::{AnswerItems, CallState, GAP, ItemRef, TextKind};
use crate::http::chat_completions::{
    BoundedCalls, CALLS_MAX, CallPiece, Chunk, Content, FromItems, Items, TokenDetails, Tokens,
    WireChoice, WireText, index, is_something, json_text, object, some_amount, text,
};
use crate::http::reply::Decoded;

/// Translates the events of one reply.
#[derive(Debug, Default)]
pub(crate) struct ResponseReader {
    items: AnswerItems,
}

impl ResponseReader {
    /// Returns the meaning of an event, or of a whole reply.
    ///
    /// # Errors
    /// If it is not JSON of the API.
    pub(crate) fn decode(&mut self, json: &[u8]) -> Result<Decoded, serde_json::Error> {
        let event: Event = serde_json::from_slice(json)?;
        let item = ItemRef { id: &event.item_id, index: event.output_index };
        let part = event.content_index.or(event.summary_index);
        let delta = match event.kind.as_str() {
            "" => return Ok(self.decode_untyped(serde_json::from_slice(json)?)),
            "response.created" | "response.queued" | "response.in_progress" => {
                let Response { id, model, .. } = event.response.unwrap_or_default();
                return Ok(Decoded::Chunk(Box::new(Chunk { id, model, ..Chunk::of_choice(None) })));
            }
            "response.completed"
            | "response.incomplete"
            | "response.cancelled"
            | "response.failed" => {
                let (_, ending) = event.kind.split_once('.').unwrap_or_default();
                return Ok(self.end(event.response.unwrap_or_default(), ending));
            }
            "error" => return Ok(Decoded::Error),
            _ if event.is_error => return Ok(Decoded::Error),
            "response.output_item.added" => {
                let added = event.item.filter(OutputItem::is_call).map(OutputItem::into_call);
                of_call(added.map(|call| self.items.announce_call(&call, event.output_index)))
            }
            "response.output_item.done" => {
                event.item.map(|item| self.complete(item, event.output_index)).unwrap_or_default()
            }
            "response.function_call_arguments.delta" => {
                of_call(Some(self.items.handle_arguments(item, &event.delta)))
            }
            "response.function_call_arguments.done" => {
                let Event { name, arguments, .. } = &event;
                let call = CallState {
                    name: name.clone(),
                    arguments: arguments.clone(),
                    ..CallState::default()
                };
                of_call(Some(self.items.finish_arguments(item, &call)))
            }
            kind => {
                let Some((kind, is_whole)) = text_event(kind) else { return Ok(Decoded::Nothing) };
                let full_text =
                    if kind == TextKind::Refusal { &event.refusal } else { &event.text };
                of_text(
                    kind,
                    match is_whole {
                        true => self.items.handle_part(kind, item, part, full_text),
                        false => self.items.handle_text(kind, item, part, &event.delta),
                    },
                )
            }
        };
        let choice = WireChoice { delta: Some(delta), ..WireChoice::default() };
        Ok(Decoded::Chunk(Box::new(Chunk::of_choice(Some(choice)))))
    }

    /// Returns the meaning of a value without a type.
    fn decode_untyped(&mut self, response: Response) -> Decoded {
        if response.is_error || response.object == "error" {
            Decoded::Error
        } else if response.output.is_some() || response.object == "response" {
            self.end(response, "")
        } else {
            Decoded::Nothing
        }
    }

    /// Returns what a complete item adds.
    fn complete(&mut self, item: OutputItem, index: Option<i64>) -> WireText {
        if item.is_call() {
            return of_call(Some(self.items.complete_call(&item.into_call(), index)));
        }
        let item_ref = ItemRef { id: &item.id, index };
        let content = item.content.unwrap_or_default().0;
        let summary = item.summary.unwrap_or_default().0;
        let mut complete = |kind, text: &str| self.items.complete_text(kind, item_ref, text);
        match item.kind.as_str() {
            "message" => WireText {
                content: Some(Content(complete(TextKind::Content, &content.text))),
                refusal: some(complete(TextKind::Refusal, &content.refusal)),
                ..WireText::default()
            },
            "reasoning" => {
                let summary = complete(TextKind::Summary, &summary.reasoning);
                let reasoning = complete(TextKind::Reasoning, &content.reasoning);
                of_text(TextKind::Reasoning, summary + &reasoning)
            }
            _ => WireText::default(),
        }
    }

    /// Returns the end of the answer. Its list repeats what the events said, or is all there is.
    fn end(&mut self, response: Response, ending: &str) -> Decoded {
        let Response { id, model, status, output, usage, incomplete_details, is_error, .. } =
            response;
        if is_error {
            return Decoded::Error;
        }
        // A server in a hurry sends the status of the beginning with the end.
        let status = if matches!(status.as_str(), "in_progress" | "queued" | "") {
            if ending.is_empty() { &status } else { ending }
        } else {
            &status
        };
        let reason = incomplete_details.map(|details| details.reason).unwrap_or_default();
        let finish = if status == "incomplete" && !reason.is_empty() { &reason } else { status };
        let OutputList { text, refusal, reasoning, calls } = output.unwrap_or_default().0;
        let calls = calls.iter().map(|call| self.items.list_call(call)).collect();
        let choice = WireChoice {
            delta: Some(WireText { tool_calls: Some(BoundedCalls(calls)), ..WireText::default() }),
            message: Some(WireText {
                content: text.map(Content),
                refusal: some(refusal),
                reasoning_content: some(reasoning).map(Content),
                ..WireText::default()
            }),
            finish_reason: some(finish.to_owned()),
            ..WireChoice::default()
        };
        let usage = usage.map(Usage::tokens);
        Decoded::Last(Box::new(Chunk { id, model, usage, ..Chunk::of_choice(Some(choice)) }))
    }
}

/// The kind of an event about text, and whether it has the whole text.
fn text_event(name: &str) -> Option<(TextKind, bool)> {
    let (name, form) = name.strip_prefix("response.")?.rsplit_once('.')?;
    let kind = match name {
        "output_text" => TextKind::Content,
        "refusal" => TextKind::Refusal,
        "reasoning_summary_text" | "reasoning_summary" => TextKind::Summary,
        "reasoning_text" | "reasoning" => TextKind::Reasoning,
        _ => return None,
    };
    match form {
        "delta" => Some((kind, false)),
        "done" => Some((kind, true)),
        _ => None,
    }
}

fn of_text(kind: TextKind, text: String) -> WireText {
    match kind {
        TextKind::Content => WireText { content: Some(Content(text)), ..WireText::default() },
        TextKind::Refusal => WireText { refusal: Some(text), ..WireText::default() },
        TextKind::Summary | TextKind::Reasoning => {
            WireText { reasoning_content: Some(Content(text)), ..WireText::default() }
        }
    }
}

fn of_call(piece: Option<CallPiece>) -> WireText {
    let calls = piece.map(|piece| BoundedCalls(vec![piece]));
    WireText { tool_calls: calls, ..WireText::default() }
}

/// An event. A whole reply is a [`Response`] without a type.
#[derive(Debug, Default, Deserialize)]
struct Event {
    #[serde(default, rename = "type", deserialize_with = "text")]
    kind: String,
    #[serde(default, deserialize_with = "object")]
    response: Option<Response>,
    #[serde(default, deserialize_with = "object")]
    item: Option<OutputItem>,
    #[serde(default, deserialize_with = "text")]
    item_id: String,
    #[serde(default, deserialize_with = "index")]
    output_index: Option<i64>,
    #[serde(default, deserialize_with = "index")]
    content_index: Option<i64>,
    #[serde(default, deserialize_with = "index")]
    summary_index: Option<i64>,
    #[serde(default, deserialize_with = "json_text")]
    delta: String,
    #[serde(default, deserialize_with = "text")]
    text: String,
    #[serde(default, deserialize_with = "text")]
    refusal: String,
    #[serde(default, deserialize_with = "text")]
    name: String,
    #[serde(default, deserialize_with = "json_text")]
    arguments: String,
    #[serde(default, deserialize_with = "is_something", rename = "error")]
    is_error: bool,
}

#[derive(Debug, Default, Deserialize)]
struct Response {
    #[serde(default, deserialize_with = "text")]
    object: String,
    #[serde(default, deserialize_with = "text")]
    id: String,
    #[serde(default, deserialize_with = "text")]
    model: String,
    #[serde(default, deserialize_with = "text")]
    status: String,
    #[serde(default)]
    output: Option<Items<OutputList>>,
    #[serde(default, deserialize_with = "object")]
    usage: Option<Usage>,
    #[serde(default, deserialize_with = "object")]
    incomplete_details: Option<IncompleteDetails>,
    #[serde(default, deserialize_with = "is_something", rename = "error")]
    is_error: bool,
}

#[derive(Debug, Default, Deserialize)]
struct IncompleteDetails {
    #[serde(default, deserialize_with = "text")]
    reason: String,
}

/// An item of the answer. Items of other types, such as the calls of tools that the server runs
/// itself, have none of these fields in use.
#[derive(Debug, Default, Deserialize)]
struct OutputItem {
    #[serde(default, rename = "type", deserialize_with = "text")]
    kind: String,
    #[serde(default, deserialize_with = "text")]
    id: String,
    #[serde(default, deserialize_with = "text")]
    call_id: String,
    #[serde(default, deserialize_with = "text")]
    name: String,
    #[serde(default, deserialize_with = "json_text")]
    arguments: String,
    #[serde(default)]
    content: Option<Items<Parts>>,
    #[serde(default)]
    summary: Option<Items<Parts>>,
}

impl OutputItem {
    fn is_call(&self) -> bool {
        self.kind == "function_call"
    }

    fn into_call(self) -> CallState {
        let Self { id, call_id, name, arguments, .. } = self;
        CallState { id, call_id, name, arguments }
    }
}

/// The used parts of a list of items.
#[derive(Debug, Default)]
struct OutputList {
    /// `None` if there is no message.
    text: Option<String>,
    refusal: String,
    reasoning: String,
    calls: Vec<CallState>,
}

impl FromItems for OutputList {
    type Item = OutputItem;

    fn add(&mut self, _: i64, item: OutputItem) -> bool {
        if item.is_call() {
            self.calls.push(item.into_call());
            return self.calls.len() <= CALLS_MAX;
        }
        let content = item.content.unwrap_or_default().0;
        match item.kind.as_str() {
            "message" => {
                self.text.get_or_insert_default().push_str(&content.text);
                self.refusal.push_str(&content.refusal);
            }
            "reasoning" => {
                let summary = item.summary.unwrap_or_default().0;
                join(&mut self.reasoning, &summary.reasoning);
                join(&mut self.reasoning, &content.reasoning);
            }
            _ => {}
        }
        true
    }
}

/// The texts of an item's parts.
#[derive(Debug, Default)]
struct Parts {
    text: String,
    refusal: String,
    reasoning: String,
}

#[derive(Debug, Default, Deserialize)]
struct Part {
    #[serde(default, rename = "type", deserialize_with = "text")]
    kind: String,
    #[serde(default, deserialize_with = "text")]
    text: String,
    #[serde(default, deserialize_with = "text")]
    refusal: String,
}

impl FromItems for Parts {
    type Item = Part;

    fn add(&mut self, _: i64, part: Part) -> bool {
        match part.kind.as_str() {
            "output_text" | "text" => self.text.push_str(&part.text),
            "refusal" => self.refusal.push_str(&part.refusal),
            "summary_text" | "reasoning_text" => join(&mut self.reasoning, &part.text),
            _ => {}
        }
        true
    }

    /// Reads a text alone, which is also a form of an input's content.
    fn of_text(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str(GAP);
    }
    text.push_str(more);
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Usage {
    #[serde(default, deserialize_with = "some_amount")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "object")]
    input_tokens_details: Option<TokenDetails>,
    /// With those of the reasoning.
    #[serde(default, deserialize_with = "some_amount")]
    output_tokens: Option<u64>,
}

impl Usage {
    fn tokens(self) -> Tokens {
        Tokens {
            prompt_tokens: self.input_tokens.unwrap_or_default(),
            completion_tokens: self.output_tokens.unwrap_or_default(),
            prompt_tokens_details: self.input_tokens_details,
            cost: None,
        }
    }
}

#[cfg(test)]
mod tests;
