//! The body of a request to the Messages API. Its rules differ from Chat Completions: the system
//! text stands beside the messages, the messages alternate between user and assistant and begin
//! and end with the user, and the results of a message's calls open the message after it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use conclave_core::tool_calls::truncate::MAX_OUTPUT;
use conclave_core::types::completion::{Prompt, ToolChoice};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::http::arrange::{BEGIN, NO_RESULT};
use crate::http::content::ContentPart;
use crate::http::names::ToolNames;
use crate::http::request::{
    Parameters, RequestMessage, RequestParts, arguments_object, call_id, result_text,
};

/// The user's message before a history that begins with the assistant.
const NO_BEGINNING: &str = "The beginning of this conversation is not shown.";

/// The user's message after a history that ends with the assistant: without it older models
/// continue the assistant's text, and newer ones refuse the request.
const CONTINUE: &str = "Continue.";

#[derive(Debug, Serialize)]
pub(crate) struct MessagesBody<'a> {
    model: &'a str,
    /// The API has no default. The core reserves the same number.
    max_tokens: Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<WireToolChoice<'a>>,
    #[serde(skip_serializing_if = "is_false")]
    stream: bool,
    #[serde(flatten)]
    options: Map<String, Value>,
}

#[derive(Debug, Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: Cow<'a, str>,
    },
    Image {
        source: ImageSource<'a>,
    },
    ToolUse {
        id: String,
        name: &'a str,
        input: Cow<'a, Value>,
    },
    ToolResult {
        tool_use_id: String,
        content: Cow<'a, str>,
        #[serde(skip_serializing_if = "is_false")]
        is_error: bool,
    },
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ImageSource<'a> {
    Base64 { media_type: &'a str, data: Base64Bytes },
}

/// Serialised directly into the request, without a second copy of the image.
#[derive(Debug)]
struct Base64Bytes(Arc<[u8]>);

impl Serialize for Base64Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(&self.0, &STANDARD))
    }
}

#[derive(Debug, Serialize)]
struct Tool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: Parameters<'a>,
}

#[derive(Debug, Serialize)]
struct WireToolChoice<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "is_false")]
    disable_parallel_tool_use: bool,
}

impl<'a> MessagesBody<'a> {
    pub(crate) fn new(parts: RequestParts<'a>) -> Self {
        let RequestParts { prompt, names, model, messages, tools, demand, mut options } = parts;
        let mut conversation = Conversation::new(names);
        messages.into_iter().for_each(|message| conversation.add(message));
        let Conversation { mut system, mut messages, called, .. } = conversation;
        system.extend(demand.map(|demand| text(demand.into())));
        system.extend(schema_text(prompt, !tools.is_empty()).map(|schema| text(schema.into())));
        close(&mut messages);
        let offered = tools.iter().map(|tool| Tool {
            name: names.wire(&tool.name),
            description: &tool.description,
            input_schema: Parameters(&tool.input_schema),
        });
        let is_parallel = options.remove("parallel_tool_calls") != Some(Value::Bool(false));
        let (tools, tool_choice) = if !tools.is_empty() {
            (offered.collect(), Some(tool_choice(prompt, names, is_parallel)))
        } else if !called.is_empty() {
            // The API refuses calls in the history if the request has no tools.
            let tools_of_calls = called.into_iter().map(|name| Tool {
                name,
                description: "",
                input_schema: Parameters(&Value::Null),
            });
            (tools_of_calls.collect(), Some(chosen("none", None, true)))
        } else {
            (Vec::new(), None)
        };
        Self {
            model,
            max_tokens: options.remove("max_tokens").unwrap_or_else(|| MAX_OUTPUT.into()),
            system,
            messages,
            tools,
            tool_choice,
            stream: prompt.stream,
            options,
        }
    }
}

/// The messages so far.
struct Conversation<'a> {
    names: &'a ToolNames<'a>,
    system: Vec<Block<'a>>,
    messages: Vec<WireMessage<'a>>,
    /// The tools that the messages call.
    called: BTreeSet<&'a str>,
}

impl<'a> Conversation<'a> {
    fn new(names: &'a ToolNames<'a>) -> Self {
        Self { names, system: Vec::new(), messages: Vec::new(), called: BTreeSet::new() }
    }

    fn add(&mut self, message: RequestMessage<'a>) {
        match message {
            // Only the field `system` has the operator's authority with every model.
            RequestMessage::Said { role: "system", parts } => {
                let blocks = parts.into_iter().map(block);
                self.system.extend(blocks.filter(|block| !is_blank_text(block)));
            }
            RequestMessage::Said { role, parts } => self.push(role, parts.into_iter().map(block)),
            RequestMessage::Called { parts, calls } => {
                let names = self.names;
                self.called.extend(calls.iter().map(|(_, call)| names.wire(&call.name)));
                let calls = calls.into_iter().map(|(number, call)| Block::ToolUse {
                    id: call_id(number),
                    name: names.wire(&call.name),
                    input: arguments_object(&call.arguments),
                });
                self.push("assistant", parts.into_iter().map(block).chain(calls));
            }
            RequestMessage::Answered { number, result } => {
                let answer = Block::ToolResult {
                    tool_use_id: call_id(number),
                    content: result.map_or(Cow::Borrowed(NO_RESULT), result_text),
                    is_error: result.is_some_and(|result| result.is_error),
                };
                self.push("user", [answer]);
            }
        }
    }

    /// Adds blocks to the last message if it has the same role, else as a message. The API refuses
    /// blank texts.
    fn push(&mut self, role: &'static str, blocks: impl IntoIterator<Item = Block<'a>>) {
        let mut blocks = blocks.into_iter().filter(|block| !is_blank_text(block)).peekable();
        match self.messages.last_mut().filter(|last| last.role == role) {
            Some(last) => last.content.extend(blocks),
            None if blocks.peek().is_none() => {}
            None => self.messages.push(WireMessage { role, content: blocks.collect() }),
        }
    }
}

/// Makes the messages begin and end with the user.
fn close(messages: &mut Vec<WireMessage<'_>>) {
    let user =
        |words: &'static str| WireMessage { role: "user", content: vec![text(words.into())] };
    if messages.first().is_some_and(|first| first.role == "assistant") {
        messages.insert(0, user(NO_BEGINNING));
    }
    match messages.last() {
        None => messages.push(user(BEGIN)),
        Some(last) if last.role == "assistant" => messages.push(user(CONTINUE)),
        Some(_) => {}
    }
}

/// The instruction for an answer with a schema. The API enforces only a subset of JSON Schema, on
/// its newer models, and refuses a request with anything else.
fn schema_text(prompt: &Prompt, may_call: bool) -> Option<String> {
    let schema = prompt.output_schema.as_ref()?;
    let when = if may_call { "An answer that calls no tool" } else { "Your answer" };
    Some(format!(
        "{when} must be JSON, with nothing around it, that fits this JSON Schema:\n{schema}"
    ))
}

fn tool_choice<'a>(
    prompt: &'a Prompt,
    names: &'a ToolNames<'a>,
    is_parallel: bool,
) -> WireToolChoice<'a> {
    match &prompt.tool_choice {
        ToolChoice::Auto => chosen("auto", None, is_parallel),
        // The field is refused beside `none`.
        ToolChoice::None => chosen("none", None, true),
        ToolChoice::Required => chosen("any", None, is_parallel),
        ToolChoice::Named { name } => chosen("tool", Some(names.wire(name)), is_parallel),
    }
}

fn chosen<'a>(kind: &'static str, name: Option<&'a str>, is_parallel: bool) -> WireToolChoice<'a> {
    WireToolChoice { kind, name, disable_parallel_tool_use: !is_parallel }
}

fn text(text: Cow<'_, str>) -> Block<'_> {
    Block::Text { text }
}

fn block(part: ContentPart<'_>) -> Block<'_> {
    match part {
        ContentPart::Text(content) => text(content),
        ContentPart::Attachment(content) => text(content.into()),
        ContentPart::Image { media_type, bytes } => {
            Block::Image { source: ImageSource::Base64 { media_type, data: Base64Bytes(bytes) } }
        }
    }
}

fn is_blank_text(block: &Block<'_>) -> bool {
    matches!(block, Block::Text { text } if text.trim().is_empty())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests;
