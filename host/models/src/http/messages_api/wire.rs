//! Replies of the Messages API, whole or as events, as chunks of Chat Completions, so that one
//! accumulator serves all APIs. Memory is a small multiple of the received bytes.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::http::chat_completions::{
    CALLS_MAX, CallPiece, Chunk, Content, FromItems, FunctionPiece, Items, TokenDetails, Tokens,
    WireChoice, WireText, index, is_something, json_text, object, some_amount, some_text, text,
};
use crate::http::reply::Decoded;

/// Translates the events of one reply. The counts of tokens come in two events.
#[derive(Debug, Default)]
pub(crate) struct EventReader {
    usage: Usage,
    /// Whether the newest block with this number is a call. Blocks of the server's own tools have
    /// an input too.
    is_call: BTreeMap<Option<i64>, bool>,
}

impl EventReader {
    /// Returns the meaning of an event, or of a whole reply.
    ///
    /// # Errors
    /// If it is not JSON of the API.
    pub(crate) fn decode(&mut self, json: &[u8]) -> Result<Decoded, serde_json::Error> {
        let event: Event = serde_json::from_slice(json)?;
        let piece = |index, block| WireText::from_blocks([(index, block)]);
        Ok(match event.kind.as_str() {
            "message" => {
                let text = event.content.unwrap_or_default().0.0;
                self.chunk(event.id, event.model, Some(text), event.stop_reason, event.usage)
            }
            "message_start" => {
                let Message { id, model, content, usage } = event.message.unwrap_or_default();
                self.chunk(id, model, content.map(|blocks| blocks.0.0), None, usage)
            }
            "content_block_start" => {
                let kind = event.content_block.as_ref().map(|block| block.kind.as_str());
                self.is_call.insert(event.index, kind == Some("tool_use"));
                let text = event.content_block.map(|block| piece(event.index, block));
                self.chunk(String::new(), String::new(), text, None, None)
            }
            "content_block_delta" => {
                let block = event.delta.map(Delta::block);
                let is_foreign = self.is_call.get(&event.index) == Some(&false);
                let text = block
                    .filter(|block| !(is_foreign && block.kind == "tool_use"))
                    .map(|block| piece(event.index, block));
                self.chunk(String::new(), String::new(), text, None, None)
            }
            "message_delta" => {
                let stop = event.delta.and_then(|delta| delta.stop_reason);
                self.chunk(String::new(), String::new(), None, stop, event.usage)
            }
            "message_stop" => Decoded::End,
            "error" => Decoded::Error,
            _ if event.is_error => Decoded::Error,
            // Such as `ping`, `content_block_stop`, and events that newer versions add.
            _ => Decoded::Nothing,
        })
    }

    fn chunk(
        &mut self,
        id: String,
        model: String,
        text: Option<WireText>,
        stop_reason: Option<String>,
        usage: Option<Usage>,
    ) -> Decoded {
        let usage = usage.map(|new| {
            self.usage.update(new);
            self.usage.tokens()
        });
        let choice =
            WireChoice { index: None, delta: text, message: None, finish_reason: stop_reason };
        Decoded::Chunk(Box::new(Chunk { id, model, usage, ..Chunk::of_choice(Some(choice)) }))
    }
}

/// An event, or a whole reply, which has the fields of a message itself.
#[derive(Debug, Default, Deserialize)]
struct Event {
    #[serde(default, rename = "type", deserialize_with = "text")]
    kind: String,
    #[serde(default, deserialize_with = "object")]
    message: Option<Message>,
    #[serde(default, deserialize_with = "index")]
    index: Option<i64>,
    #[serde(default, deserialize_with = "object")]
    content_block: Option<Block>,
    #[serde(default, deserialize_with = "object")]
    delta: Option<Delta>,
    #[serde(default, deserialize_with = "is_something", rename = "error")]
    is_error: bool,
    #[serde(default, deserialize_with = "text")]
    id: String,
    #[serde(default, deserialize_with = "text")]
    model: String,
    #[serde(default)]
    content: Option<Items<Blocks>>,
    #[serde(default, deserialize_with = "some_text")]
    stop_reason: Option<String>,
    #[serde(default, deserialize_with = "object")]
    usage: Option<Usage>,
}

/// The message of `message_start`.
#[derive(Debug, Default, Deserialize)]
struct Message {
    #[serde(default, deserialize_with = "text")]
    id: String,
    #[serde(default, deserialize_with = "text")]
    model: String,
    #[serde(default)]
    content: Option<Items<Blocks>>,
    #[serde(default, deserialize_with = "object")]
    usage: Option<Usage>,
}

/// A block of the content. Blocks of another type, such as those of tools that the server runs
/// itself, have none of these fields in use.
#[derive(Debug, Default, Deserialize)]
struct Block {
    #[serde(default, rename = "type", deserialize_with = "text")]
    kind: String,
    #[serde(default, deserialize_with = "text")]
    text: String,
    #[serde(default, deserialize_with = "text")]
    thinking: String,
    #[serde(default, deserialize_with = "text")]
    id: String,
    #[serde(default, deserialize_with = "text")]
    name: String,
    #[serde(default, deserialize_with = "json_text")]
    input: String,
}

/// A piece of a block, or the end of the message.
#[derive(Debug, Default, Deserialize)]
struct Delta {
    #[serde(default, rename = "type", deserialize_with = "text")]
    kind: String,
    #[serde(default, deserialize_with = "text")]
    text: String,
    #[serde(default, deserialize_with = "text")]
    thinking: String,
    #[serde(default, deserialize_with = "text")]
    partial_json: String,
    #[serde(default, deserialize_with = "some_text")]
    stop_reason: Option<String>,
}

impl Delta {
    /// The piece as a block of its type.
    fn block(self) -> Block {
        let kind = match self.kind.as_str() {
            "text_delta" => "text",
            "thinking_delta" => "thinking",
            "input_json_delta" => "tool_use",
            _ => "",
        };
        Block {
            kind: kind.to_owned(),
            text: self.text,
            thinking: self.thinking,
            input: self.partial_json,
            ..Block::default()
        }
    }
}

impl WireText {
    fn from_blocks(blocks: impl IntoIterator<Item = (Option<i64>, Block)>) -> Self {
        let mut text = Self::default();
        blocks.into_iter().for_each(|(index, block)| text.add_block(index, block));
        text
    }

    fn add_block(&mut self, index: Option<i64>, block: Block) {
        let append = |content: &mut Option<Content>, new: &str| {
            content.get_or_insert_default().0.push_str(new);
        };
        match block.kind.as_str() {
            "text" => append(&mut self.content, &block.text),
            "thinking" => append(&mut self.reasoning_content, &block.thinking),
            "tool_use" => {
                // The start of a streamed call has an empty object in place of its input.
                let arguments = if block.input == "{}" { String::new() } else { block.input };
                let function = Some(FunctionPiece { name: block.name, arguments });
                let calls = self.tool_calls.get_or_insert_default();
                calls.0.push(CallPiece { index, id: block.id, function, is_whole: false });
            }
            _ => {}
        }
    }
}

/// The used parts of a list of blocks.
#[derive(Debug, Default)]
struct Blocks(WireText);

impl FromItems for Blocks {
    type Item = Block;

    fn add(&mut self, index: i64, block: Block) -> bool {
        self.0.add_block(Some(index), block);
        self.0.tool_calls.as_ref().is_none_or(|calls| calls.0.len() <= CALLS_MAX)
    }

    /// Reads a text alone, which is also a form of a request's content.
    fn of_text(text: &str) -> Self {
        Self(WireText { content: Some(Content(text.to_owned())), ..WireText::default() })
    }
}

/// Counts of tokens; a later event has only some of them.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Usage {
    /// The input besides the next two.
    #[serde(default, deserialize_with = "some_amount")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "some_amount")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "some_amount")]
    cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "some_amount")]
    output_tokens: Option<u64>,
}

impl Usage {
    fn update(&mut self, new: Self) {
        self.input_tokens = new.input_tokens.or(self.input_tokens);
        self.cache_creation_input_tokens =
            new.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.cache_read_input_tokens = new.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.output_tokens = new.output_tokens.or(self.output_tokens);
    }

    fn tokens(self) -> Tokens {
        let cached_tokens = self.cache_read_input_tokens.unwrap_or_default();
        Tokens {
            prompt_tokens: self
                .input_tokens
                .unwrap_or_default()
                .saturating_add(self.cache_creation_input_tokens.unwrap_or_default())
                .saturating_add(cached_tokens),
            completion_tokens: self.output_tokens.unwrap_or_default(),
            prompt_tokens_details: Some(TokenDetails { cached_tokens }),
            cost: None,
        }
    }
}

#[cfg(test)]
mod tests;
