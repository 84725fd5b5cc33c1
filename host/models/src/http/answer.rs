//! Builds a completion from chunks in the form of Chat Completions. A whole reply is one chunk.

use std::sync::Arc;

use conclave_core::types::completion::{Completion, StopReason, TokenUsage};
use conclave_core::types::message::ToolCall;
use serde_json::Value;

use super::chat_completions::{CALLS_MAX, CallPiece, Chunk, Tokens, WireText};
use super::names::ToolNames;
use super::quote::Quoter;
use super::secrets::Masking;
use crate::TextSink;

/// Maximum values in the arguments of one call; a value of one byte may take 600 bytes in memory.
const VALUES_MAX: usize = 100_000;

/// The answer exceeds the limit of bytes or calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerTooLong;

#[derive(Debug)]
pub(crate) struct ServerReply {
    quoter: Quoter,
    /// Masks secrets between the text and the sink.
    masking: Masking,
    /// Remaining bytes.
    room: u64,
    id: String,
    model: String,
    content: Option<String>,
    reasoning: String,
    refusal: String,
    calls: Vec<GrowingCall>,
    finish: Option<String>,
    tokens: Tokens,
}

#[derive(Debug, Default)]
struct GrowingCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl ServerReply {
    /// Returns an empty answer with a limit in bytes, which masks the quoter's secrets.
    pub(crate) fn new(limit: u64, quoter: Quoter) -> Self {
        Self {
            masking: Masking::new(quoter.secrets().clone()),
            quoter,
            room: limit,
            id: String::new(),
            model: String::new(),
            content: None,
            reasoning: String::new(),
            refusal: String::new(),
            calls: Vec::new(),
            finish: None,
            tokens: Tokens::default(),
        }
    }

    /// Returns whether the model has finished, so that only the usage may follow.
    pub(crate) fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Adds a chunk; new text goes to the sink.
    ///
    /// # Errors
    /// If the answer becomes too long.
    pub(crate) fn handle_chunk(
        &mut self,
        chunk: Chunk,
        sink: &dyn TextSink,
    ) -> Result<(), AnswerTooLong> {
        for (kept, new) in [(&mut self.id, chunk.id), (&mut self.model, chunk.model)] {
            if kept.is_empty() {
                *kept = self.quoter.plain_name(&new);
            }
        }
        // Servers send it once at the end, or with every chunk as a running total.
        self.tokens = chunk.usage.unwrap_or(self.tokens);
        if let Some(choice) = chunk.choices.first {
            for said in [choice.delta, choice.message].into_iter().flatten() {
                self.handle_said(said, sink)?;
            }
            self.finish =
                choice.finish_reason.filter(|reason| !reason.is_empty()).or(self.finish.take());
        }
        Ok(())
    }

    fn handle_said(&mut self, said: WireText, sink: &dyn TextSink) -> Result<(), AnswerTooLong> {
        // Both names are in use; a server that sends both repeats the same text.
        if let Some(reasoning) = said.reasoning_content.or(said.reasoning) {
            let reasoning = reasoning.0;
            self.use_room(reasoning.len())?;
            self.reasoning.push_str(&reasoning);
        }
        if let Some(refusal) = said.refusal {
            self.use_room(refusal.len())?;
            self.refusal.push_str(&refusal);
        }
        if let Some(content) = said.content {
            let content = content.0;
            self.use_room(content.len())?;
            self.content.get_or_insert_default().push_str(&content);
            tell(&self.masking.handle_text(&content), sink);
        }
        said.tool_calls
            .unwrap_or_default()
            .0
            .into_iter()
            .try_for_each(|piece| self.handle_call(piece))
    }

    fn handle_call(&mut self, piece: CallPiece) -> Result<(), AnswerTooLong> {
        let function = piece.function.unwrap_or_default();
        let arguments = function.arguments;
        self.use_room(piece.id.len() + function.name.len() + arguments.len())?;
        let slot = match self.slot_of(piece.index, &piece.id, &function.name) {
            Some(slot) => slot,
            None if self.calls.len() == CALLS_MAX => return Err(AnswerTooLong),
            None => {
                self.calls.push(GrowingCall { index: piece.index, ..GrowingCall::default() });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[slot];
        if call.id.is_empty() {
            call.id = piece.id;
        }
        // Some servers repeat the name in every piece.
        if call.name.is_empty() {
            call.name = function.name;
        }
        call.arguments.push_str(&arguments);
        Ok(())
    }

    /// Returns the call that a piece continues. The protocol identifies calls by index. A new id
    /// starts another call even at a known index, because some servers use index 0 for all calls.
    /// Without an index the id decides; without both, a name starts a call.
    fn slot_of(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let other_id = |call: &GrowingCall| !id.is_empty() && !call.id.is_empty() && call.id != id;
        match index {
            Some(_) => self.calls.iter().rposition(|call| call.index == index && !other_id(call)),
            None if !id.is_empty() => self.calls.iter().rposition(|call| call.id == id),
            None if name.is_empty() => self.calls.len().checked_sub(1),
            None => None,
        }
    }

    fn use_room(&mut self, bytes: usize) -> Result<(), AnswerTooLong> {
        self.room = self.room.checked_sub(bytes as u64).ok_or(AnswerTooLong)?;
        Ok(())
    }

    /// Returns the completion and sends the remaining text to the sink. Tool names are mapped back
    /// to the host's; `model` is the default for the model's name.
    pub(crate) fn finish(
        mut self,
        names: &ToolNames<'_>,
        model: &str,
        sink: &dyn TextSink,
    ) -> Completion {
        tell(&self.masking.finish(), sink);
        let is_refused =
            !self.refusal.is_empty() && self.content.as_deref().unwrap_or_default().is_empty();
        let tool_calls = finished_calls(self.calls, names, &self.quoter);
        let stop = match self.finish.as_deref() {
            _ if is_refused => StopReason::ContentFilter,
            Some("length") => StopReason::Length,
            Some("content_filter") => StopReason::ContentFilter,
            // Some servers report `stop` although there are tool calls.
            Some("tool_calls" | "function_call" | "stop") | None if !tool_calls.is_empty() => {
                StopReason::ToolCalls
            }
            Some("stop") => StopReason::End,
            _ => StopReason::Other,
        };
        let content = if is_refused { Some(self.refusal) } else { self.content };
        let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
        Completion {
            id: or(self.id, "completion"),
            // Beside calls, servers send a missing text as null or as empty.
            content: content
                .filter(|text| tool_calls.is_empty() || !text.is_empty())
                .map(|text| self.quoter.mask(&text)),
            reasoning: Some(self.quoter.mask(&self.reasoning)).filter(|text| !text.is_empty()),
            tool_calls,
            stop,
            usage: usage(self.tokens),
            model: or(self.model, model),
        }
    }
}

fn tell(text: &str, sink: &dyn TextSink) {
    if !text.is_empty() {
        sink.text(text);
    }
}

fn finished_calls(
    calls: Vec<GrowingCall>,
    names: &ToolNames<'_>,
    quoter: &Quoter,
) -> Vec<ToolCall> {
    let mut finished: Vec<ToolCall> = Vec::with_capacity(calls.len());
    for (number, call) in calls.into_iter().enumerate() {
        let mut id = quoter.plain_name(&call.id);
        // Ids must be unique within a message, which servers do not guarantee.
        if id.is_empty() || finished.iter().any(|other| other.id == id) {
            id = format!("call-{}", number + 1);
        }
        // A known name is the host's own, so it contains no secret.
        let name = names.known(&call.name).map_or_else(|| quoter.mask(&call.name), str::to_owned);
        finished.push(ToolCall {
            id,
            name,
            arguments: Arc::new(masked(arguments(call.arguments), quoter)),
            untrusted: false,
            led_by: Vec::new(),
        });
    }
    finished
}

/// Parses the arguments. Invalid JSON stays text, which the host reports to the model.
fn arguments(text: String) -> Value {
    match text.trim() {
        "" => Value::Object(serde_json::Map::new()),
        json if values(json) > VALUES_MAX => Value::String(text),
        json => serde_json::from_str(json).unwrap_or(Value::String(text)),
    }
}

/// Returns an upper bound for the number of values in a JSON text.
fn values(json: &str) -> usize {
    let (mut count, mut is_text, mut is_escaped) = (1, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b'[' | b'{' | b',' if !is_text => count += 1,
            _ => {}
        }
    }
    count
}

/// Returns the value with secrets masked in texts and names.
fn masked(value: Value, quoter: &Quoter) -> Value {
    match value {
        Value::String(text) => Value::String(quoter.mask(&text)),
        Value::Array(items) => {
            Value::Array(items.into_iter().map(|item| masked(item, quoter)).collect())
        }
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(name, value)| (quoter.mask(&name), masked(value, quoter)))
                .collect(),
        ),
        other => other,
    }
}

fn usage(tokens: Tokens) -> TokenUsage {
    TokenUsage {
        input_tokens: tokens.prompt_tokens,
        cached_input_tokens: tokens.prompt_tokens_details.unwrap_or_default().cached_tokens,
        output_tokens: tokens.completion_tokens,
        // A cast from a float saturates.
        cost_micro_usd: tokens.cost.map(|dollars| (dollars * 1_000_000.0).round() as u64),
    }
}

#[cfg(test)]
mod tests;
