//! Builds a completion from chunks in the form of Chat Completions. A whole reply is one chunk.

use std::sync::Arc;

use conclave_core::types::completion::{Completion, StopReason, TokenUsage};
use conclave_core::types::message::ToolCall;
use serde_json::Value;

use super::chat_completions::{CALLS_MAX, CallPiece, Chunk, Content, Tokens, WireText};
use super::names::ToolNames;
use super::quote::Quoter;
use super::repair::repaired;
use super::secrets::Masking;
use super::thinking::{ThinkingFilter, ThinkingFormat};
use crate::TextSink;

/// Maximum values in the arguments of one call; a value of one byte may take 600 bytes in memory.
const VALUES_MAX: usize = 100_000;

/// Maximum names of one call: a name arrives in a few parts.
const NAMES_MAX: usize = 16;

/// The answer exceeds the limit of bytes or calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerTooLong;

#[derive(Debug)]
pub(crate) struct ServerReply {
    quoter: Quoter,
    /// Masks secrets between the text and the sink.
    masking: Masking,
    /// Separates the thinking from the text.
    thinking: ThinkingFilter,
    /// Remaining bytes.
    room: u64,
    id: String,
    model: String,
    /// The text with the thinking in it, as the server sent it.
    content: Option<String>,
    reasoning: String,
    refusal: String,
    calls: Vec<GrowingCall>,
    finish: Option<String>,
    /// Whether a chunk had a `delta` that is not empty. Then a `message` repeats earlier content.
    has_deltas: bool,
    tokens: Tokens,
    /// The length in tokens that was asked for.
    max_output: Option<u64>,
}

#[derive(Debug, Default)]
struct GrowingCall {
    index: Option<i64>,
    id: String,
    /// The names of the pieces before the first of the arguments: the name, or its parts, or the
    /// names of several calls without arguments.
    names: Vec<String>,
    arguments: String,
    end: ObjectEnd,
}

impl GrowingCall {
    /// Whether a piece belongs to this call. Servers number all calls 0, give all the same id or
    /// none, repeat the name in every piece, and send it in parts.
    fn is_continued_by(&self, name: &str, arguments: &str) -> bool {
        if name.is_empty() || self.names.is_empty() {
            return true;
        }
        if self.arguments.is_empty() {
            // With more names it is no name in parts.
            return self.names.len() < NAMES_MAX || self.names.iter().any(|known| known == name);
        }
        let is_same = self.names[0] == name || self.is_named(name);
        is_same && (arguments.is_empty() || !self.end.is_reached)
    }

    /// Whether a piece with another id belongs to it nevertheless: one without a name, or in
    /// the middle of the arguments.
    fn is_unfinished_before(&self, name: &str, arguments: &str) -> bool {
        match name.is_empty() {
            true => arguments.is_empty() || !self.end.is_reached,
            false => self.is_named(name) && !self.arguments.is_empty() && !self.end.is_reached,
        }
    }

    /// Whether the parts of its name are together this one. It joins nothing, because every piece
    /// of a server's answer may bring a name.
    fn is_named(&self, name: &str) -> bool {
        let rest = self.names.iter().try_fold(name, |rest, part| rest.strip_prefix(part.as_str()));
        rest == Some("")
    }

    /// The calls that the pieces hold: several if each name is that of a tool, and the joined
    /// names are not.
    fn split(self, names: &ToolNames<'_>) -> Vec<Self> {
        let is_one = self.names.len() < 2 || names.known(&self.names.concat()).is_some();
        let are_tools = self.names.iter().all(|name| names.known(name).is_some());
        if is_one || !are_tools {
            return vec![self];
        }
        let last = self.names.len() - 1;
        let mut arguments = self.arguments;
        let of = |(number, name): (usize, String)| Self {
            id: if number == 0 { self.id.clone() } else { String::new() },
            names: vec![name],
            arguments: if number == last { std::mem::take(&mut arguments) } else { String::new() },
            ..Self::default()
        };
        self.names.into_iter().enumerate().map(of).collect()
    }
}

/// Finds the end of a JSON object while its text grows.
#[derive(Debug, Default)]
struct ObjectEnd {
    depth: usize,
    is_in_text: bool,
    is_escaped: bool,
    is_reached: bool,
}

impl ObjectEnd {
    fn handle_text(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                _ if std::mem::take(&mut self.is_escaped) => {}
                b'\\' => self.is_escaped = self.is_in_text,
                b'"' => self.is_in_text = !self.is_in_text,
                _ if self.is_in_text => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.is_reached |= self.depth == 0;
                }
                _ => {}
            }
        }
    }
}

impl ServerReply {
    /// Returns an empty answer with a limit in bytes, which masks the quoter's secrets.
    pub(crate) fn new(limit: u64, quoter: Quoter, thinking: ThinkingFormat) -> Self {
        Self {
            thinking: ThinkingFilter::new(thinking),
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
            has_deltas: false,
            tokens: Tokens::default(),
            max_output: None,
        }
    }

    /// Sets the length in tokens that was asked for.
    pub(crate) fn set_max_output(&mut self, max_output: Option<u64>) {
        self.max_output = max_output;
    }

    /// Whether the model has finished, so that only the usage may follow.
    pub(crate) fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Whether the server says that it gave the answer up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.ending() == AnswerEnd::GivenUp
    }

    fn ending(&self) -> AnswerEnd {
        let is_spent = self.max_output.is_some_and(|most| self.tokens.completion_tokens >= most);
        match self.finish.as_deref() {
            // llama.cpp says `completed` of every answer of the Responses API, and other servers
            // send no reason at all.
            None | Some("completed") if is_spent => AnswerEnd::Limit,
            // The end of the stream was proper.
            None => AnswerEnd::Whole,
            Some(reason) => AnswerEnd::of(reason),
        }
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
        for (stored, new) in [(&mut self.id, chunk.id), (&mut self.model, chunk.model)] {
            if stored.is_empty() {
                *stored = self.quoter.plain_name(&new);
            }
        }
        // Servers send it once at the end, or with every chunk as a running total.
        self.tokens = chunk.usage.unwrap_or(self.tokens);
        if let Some(choice) = chunk.choices.first {
            if let Some(delta) = choice.delta {
                self.has_deltas |= !delta.is_empty();
                self.handle_delta(delta, sink)?;
            }
            if let Some(message) = choice.message {
                let rest = self.beyond(message);
                self.handle_delta(rest, sink)?;
            }
            self.finish =
                choice.finish_reason.filter(|reason| !reason.is_empty()).or(self.finish.take());
        }
        Ok(())
    }

    /// Returns what a `message` adds. Beside deltas, and in chunks that grow, it repeats the answer
    /// so far.
    fn beyond(&self, mut message: WireText) -> WireText {
        let rest = |known: &str, text: Content| {
            let is_repeated = !known.is_empty() && text.0.starts_with(known);
            match text.0.get(known.len()..).filter(|_| is_repeated) {
                Some(rest) => Some(Content(rest.to_owned())),
                // Other words in place of those that were shown cannot be taken back.
                None if self.has_deltas && !known.is_empty() => None,
                None => Some(text),
            }
        };
        let known = self.content.as_deref().unwrap_or_default();
        message.content = message.content.and_then(|text| rest(known, text));
        let reasoning = message.reasoning_content.or(message.reasoning.take());
        message.reasoning_content = reasoning.and_then(|text| rest(&self.reasoning, text));
        let refusal = message.refusal.map(Content).and_then(|text| rest(&self.refusal, text));
        message.refusal = refusal.map(|text| text.0);
        if self.has_deltas && !self.calls.is_empty() {
            message.tool_calls = None;
        }
        message
    }

    fn handle_delta(&mut self, text: WireText, sink: &dyn TextSink) -> Result<(), AnswerTooLong> {
        // Both names are in use; a server that sends both repeats the same text.
        if let Some(reasoning) = text.reasoning_content.or(text.reasoning) {
            let reasoning = reasoning.0;
            self.use_room(reasoning.len())?;
            self.reasoning.push_str(&reasoning);
        }
        if let Some(refusal) = text.refusal {
            self.use_room(refusal.len())?;
            self.refusal.push_str(&refusal);
        }
        if let Some(content) = text.content {
            let content = content.0;
            self.use_room(content.len())?;
            self.content.get_or_insert_default().push_str(&content);
            let visible = self.thinking.handle_text(&content);
            tell(&self.masking.handle_text(&visible), sink);
        }
        text.tool_calls
            .unwrap_or_default()
            .0
            .into_iter()
            .try_for_each(|piece| self.handle_call(piece))
    }

    fn handle_call(&mut self, piece: CallPiece) -> Result<(), AnswerTooLong> {
        let function = piece.function.unwrap_or_default();
        let arguments = function.arguments;
        self.use_room(piece.id.len() + function.name.len() + arguments.len())?;
        let slot = self.slot_of(piece.index, &piece.id, &function.name, &arguments);
        let continued =
            slot.filter(|slot| self.calls[*slot].is_continued_by(&function.name, &arguments));
        let slot = match continued {
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
        if (call.arguments.is_empty() || call.names.is_empty())
            && !function.name.is_empty()
            && !call.names.contains(&function.name)
        {
            call.names.push(function.name);
        }
        if piece.is_whole {
            call.arguments.clear();
            call.end = ObjectEnd::default();
        }
        call.end.handle_text(&arguments);
        call.arguments.push_str(&arguments);
        Ok(())
    }

    /// The call that a piece may continue. The protocol identifies calls by index. A new id
    /// starts another call even at a known index, because some servers use index 0 for all calls,
    /// but not in the middle of a call, because others send another id with each piece.
    /// Without an index the id decides; without both, it is the last call, or with a name a new one.
    fn slot_of(&self, index: Option<i64>, id: &str, name: &str, arguments: &str) -> Option<usize> {
        let is_same = |call: &GrowingCall| {
            let is_other = !id.is_empty() && !call.id.is_empty() && call.id != id;
            !is_other || call.is_unfinished_before(name, arguments)
        };
        match index {
            Some(_) => self.calls.iter().rposition(|call| call.index == index && is_same(call)),
            None if !id.is_empty() => {
                let known = self.calls.iter().rposition(|call| call.id == id);
                let last = self.calls.len().checked_sub(1).filter(|last| {
                    let last = &self.calls[*last];
                    !last.id.is_empty() && is_same(last)
                });
                known.or(last)
            }
            None => {
                let last = self.calls.len().checked_sub(1)?;
                // A name that is repeated in every piece continues its call.
                let is_known = self.calls[last].names.iter().any(|known| known == name);
                (name.is_empty() || is_known).then_some(last)
            }
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
        let ending = self.ending();
        let is_cut = ending != AnswerEnd::Whole;
        let mut rest = self.thinking.finish(is_cut);
        let is_refused =
            !self.refusal.is_empty() && self.content.as_deref().unwrap_or_default().is_empty();
        if is_refused {
            rest.push_str(&self.refusal);
        }
        tell(&self.masking.handle_text(&rest), sink);
        tell(&self.masking.finish(), sink);
        let tool_calls = finished_calls(self.calls, is_cut, names, &self.quoter);
        let stop = match ending {
            _ if is_refused => StopReason::ContentFilter,
            AnswerEnd::Limit => StopReason::Length,
            AnswerEnd::Filter => StopReason::ContentFilter,
            // Some servers report `stop` although there are tool calls.
            AnswerEnd::Whole if !tool_calls.is_empty() => StopReason::ToolCalls,
            AnswerEnd::Whole => StopReason::End,
            AnswerEnd::GivenUp | AnswerEnd::Unknown => StopReason::Other,
        };
        let (text, thinking) = self.thinking.into_parts();
        let content = if is_refused { Some(self.refusal) } else { self.content.map(|_| text) };
        let gap = if self.reasoning.is_empty() || thinking.is_empty() { "" } else { "\n" };
        let reasoning = self.reasoning + gap + &thinking;
        let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
        Completion {
            id: or(self.id, "completion"),
            // Beside calls, servers send a missing text as null or as empty.
            content: content
                .filter(|text| tool_calls.is_empty() || !text.is_empty())
                .map(|text| self.quoter.mask(&text)),
            reasoning: Some(self.quoter.mask(&reasoning)).filter(|text| !text.is_empty()),
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

/// The end of an answer, by the server's reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerEnd {
    Whole,
    /// A limit of tokens cut it.
    Limit,
    /// The provider's policy cut it.
    Filter,
    /// The server gave it up.
    GivenUp,
    /// The reason is not known, so the answer may be cut.
    Unknown,
}

impl AnswerEnd {
    fn of(reason: &str) -> Self {
        match reason.to_ascii_lowercase().as_str() {
            "stop" | "stop_sequence" | "end" | "end_turn" | "eos" | "eos_token" | "complete"
            | "completed" | "tool_calls" | "tool_use" | "function_call" => Self::Whole,
            "length"
            | "max_tokens"
            | "max_output_tokens"
            | "model_length"
            | "token_limit"
            | "model_context_window_exceeded" => Self::Limit,
            "content_filter" | "refusal" | "safety" | "recitation" | "blocklist"
            | "prohibited_content" | "spii" => Self::Filter,
            "error"
            | "abort"
            | "aborted"
            | "cancelled"
            | "canceled"
            | "failed"
            | "timeout"
            | "network_error"
            | "insufficient_system_resource" => Self::GivenUp,
            _ => Self::Unknown,
        }
    }
}

fn finished_calls(
    calls: Vec<GrowingCall>,
    is_cut: bool,
    names: &ToolNames<'_>,
    quoter: &Quoter,
) -> Vec<ToolCall> {
    let mut finished: Vec<ToolCall> = Vec::with_capacity(calls.len());
    let calls: Vec<GrowingCall> = calls.into_iter().flat_map(|call| call.split(names)).collect();
    let last = calls.len().saturating_sub(1);
    for (number, call) in calls.into_iter().enumerate() {
        let is_cut = is_cut && number == last;
        let called = call.names.concat();
        let mut id = quoter.plain_name(&call.id);
        // Ids must be unique, which servers do not guarantee, not even within a message.
        let is_taken = |id: &str| names.has_call(id) || finished.iter().any(|other| other.id == id);
        if id.is_empty() || is_taken(&id) {
            let mut numbered = (number + 1..).map(|number| format!("call-{number}"));
            id = numbered.find(|id| !is_taken(id)).unwrap_or_default();
        }
        // A known name is the host's own, so it contains no secret.
        let name = names.known(&called).map_or_else(|| quoter.mask(&called), str::to_owned);
        finished.push(ToolCall {
            id,
            name,
            arguments: Arc::new(masked(arguments(call.arguments, is_cut), quoter)),
            untrusted: false,
            led_by: Vec::new(),
        });
    }
    finished
}

/// Parses the arguments. Invalid JSON stays text, which the host reports to the model, and so does
/// nothing at all in a call that was cut before its arguments came.
fn arguments(text: String, is_cut: bool) -> Value {
    match text.trim() {
        "" if is_cut => Value::String(text),
        "" => Value::Object(serde_json::Map::new()),
        json if values(json) > VALUES_MAX => Value::String(text),
        json => serde_json::from_str(json)
            .or_else(|error| serde_json::from_str(&repaired(json).ok_or(error)?))
            .unwrap_or(Value::String(text)),
    }
}

/// An upper bound for the number of values in a JSON text.
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

/// The value with secrets masked in texts and names.
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
