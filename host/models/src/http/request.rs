//! The body of a request: what the APIs have in common. It borrows from the prompt, so that the
//! history is not copied; each API serialises it in its own form.

use std::borrow::Cow;
use std::sync::Arc;

use conclave_core::types::completion::{ModelApi, ModelError, Prompt, ToolChoice, ToolFormat};
use conclave_core::types::message::{ToolCall, ToolResult};
use conclave_core::types::tool::ToolSummary;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::arrange::{OutgoingMessage, arrange};
use super::chat_completions::CompletionsBody;
use super::content::{AttachmentReader, ContentPart};
use super::messages_api::MessagesBody;
use super::names::ToolNames;
use super::responses_api::ResponsesBody;
use super::{HttpModelSettings, options};
use crate::ModelFailure;

/// A request before it is serialised.
pub(crate) struct RequestParts<'a> {
    pub prompt: &'a Prompt,
    pub names: &'a ToolNames<'a>,
    pub model: &'a str,
    pub messages: Vec<RequestMessage<'a>>,
    /// The tools that are offered natively. Tools in text form are already described in the system
    /// text by the host.
    pub tools: &'a [ToolSummary],
    /// The sentence that replaces a tool choice, which only the native form has.
    pub demand: Option<String>,
    pub options: Map<String, Value>,
}

/// A message with its texts and attachments, in their order.
pub(crate) enum RequestMessage<'a> {
    Said {
        role: &'static str,
        parts: Vec<ContentPart<'a>>,
    },
    Called {
        parts: Vec<ContentPart<'a>>,
        /// The calls with their numbers in the request.
        calls: Vec<(usize, &'a ToolCall)>,
    },
    /// The result of the call with this number; `None` if it is missing.
    Answered {
        number: usize,
        result: Option<&'a ToolResult>,
    },
}

/// Returns the body as JSON. With attachments it is built on a blocking thread, because their bytes
/// may be on a disk.
///
/// # Errors
/// As [`body`].
pub(crate) async fn body_beside(
    prompt: &Arc<Prompt>,
    settings: &HttpModelSettings,
) -> Result<Vec<u8>, ModelFailure> {
    let has_attachments = |outgoing: &OutgoingMessage<'_>| matches!(outgoing, OutgoingMessage::Said { attachments, .. } if !attachments.is_empty());
    if !arrange(prompt).iter().any(has_attachments) {
        return body(prompt, &ToolNames::of(prompt), settings);
    }
    let (prompt, settings) = (Arc::clone(prompt), settings.clone());
    let made =
        tokio::task::spawn_blocking(move || body(&prompt, &ToolNames::of(&prompt), &settings));
    made.await.unwrap_or_else(|_| Err(other("the attachments could not be read")))
}

/// Returns the body as JSON.
///
/// # Errors
/// `other` if the prompt contains something that cannot be sent, in words for the plugin.
pub(crate) fn body(
    prompt: &Prompt,
    names: &ToolNames<'_>,
    settings: &HttpModelSettings,
) -> Result<Vec<u8>, ModelFailure> {
    let parts = parts(prompt, names, settings)?;
    let json = match settings.api {
        ModelApi::ChatCompletions => serde_json::to_vec(&CompletionsBody::new(parts)),
        ModelApi::Responses => serde_json::to_vec(&ResponsesBody::new(parts)),
        ModelApi::Messages => serde_json::to_vec(&MessagesBody::new(parts)),
    };
    json.map_err(|_| other("the prompt cannot be written as JSON"))
}

fn parts<'a>(
    prompt: &'a Prompt,
    names: &'a ToolNames<'a>,
    settings: &'a HttpModelSettings,
) -> Result<RequestParts<'a>, ModelFailure> {
    let offered: &[ToolSummary] =
        if prompt.tool_format == ToolFormat::Off { &[] } else { &prompt.tools };
    match &prompt.tool_choice {
        ToolChoice::Required if offered.is_empty() => {
            return Err(other("the model is to call a tool, but none is offered"));
        }
        ToolChoice::Named { name } if !offered.iter().any(|tool| tool.name == *name) => {
            return Err(other("the tool that the model is to call is not offered"));
        }
        _ => {}
    }
    let messages = messages(prompt, settings)?;
    if messages.is_empty() {
        return Err(other("the prompt says nothing"));
    }
    Ok(RequestParts {
        prompt,
        names,
        model: &settings.model,
        messages,
        tools: if prompt.tool_format == ToolFormat::Native { offered } else { &[] },
        demand: demand(prompt),
        options: options::merged(settings.api, &settings.options, &prompt.options)?,
    })
}

fn messages<'a>(
    prompt: &'a Prompt,
    settings: &HttpModelSettings,
) -> Result<Vec<RequestMessage<'a>>, ModelFailure> {
    let mut reader = AttachmentReader::new(settings.api, &*settings.images);
    let mut messages = Vec::new();
    for message in arrange(prompt) {
        let message = match message {
            OutgoingMessage::Said { role, text, attachments, is_data } => {
                let mut parts: Vec<ContentPart<'a>> =
                    text.map(ContentPart::Text).into_iter().collect();
                for blob in attachments {
                    parts.push(reader.part(blob, is_data)?);
                }
                RequestMessage::Said { role, parts }
            }
            OutgoingMessage::Called { text, calls } => RequestMessage::Called {
                parts: text.map(ContentPart::Text).into_iter().collect(),
                calls,
            },
            OutgoingMessage::Answered { number, result } => {
                RequestMessage::Answered { number, result }
            }
            OutgoingMessage::Orphaned { result } => RequestMessage::Said {
                role: "user",
                parts: vec![ContentPart::Text(orphaned_text(result).into())],
            },
        };
        join(&mut messages, message);
    }
    Ok(messages)
}

/// Adds a message, to the last one if both have the same role: the chat templates of many models
/// refuse two messages of one role in a row.
fn join<'a>(messages: &mut Vec<RequestMessage<'a>>, message: RequestMessage<'a>) {
    match (messages.last_mut(), message) {
        (
            Some(RequestMessage::Said { role: last, parts }),
            RequestMessage::Said { role, parts: more },
        ) if *last == role => {
            parts.extend(more);
        }
        (
            Some(last @ RequestMessage::Said { role: "assistant", .. }),
            RequestMessage::Called { parts: more, calls },
        ) => {
            if let RequestMessage::Said { parts, .. } = last {
                let mut parts = std::mem::take(parts);
                parts.extend(more);
                *last = RequestMessage::Called { parts, calls };
            }
        }
        (_, message) => messages.push(message),
    }
}

fn demand(prompt: &Prompt) -> Option<String> {
    if !matches!(prompt.tool_format, ToolFormat::Json | ToolFormat::Xml) {
        return None;
    }
    match &prompt.tool_choice {
        ToolChoice::Auto | ToolChoice::None => None,
        ToolChoice::Required => Some("Your next answer must call a tool.".to_owned()),
        ToolChoice::Named { name } => {
            Some(format!("Your next answer must call the tool `{name}`."))
        }
    }
}

fn other(message: &str) -> ModelFailure {
    ModelError::Other { message: message.to_owned() }.into()
}

/// The texts with a blank line between them; `None` if there are attachments.
pub(crate) fn plain_text<'a>(parts: &'a [ContentPart<'_>]) -> Option<Cow<'a, str>> {
    let text = |part: &'a ContentPart<'_>| match part {
        ContentPart::Text(text) => Some(&**text),
        ContentPart::Attachment(_) | ContentPart::Image { .. } => None,
    };
    let texts = parts.iter().map(text).collect::<Option<Vec<&str>>>()?;
    Some(match &texts[..] {
        [text] => Cow::Borrowed(*text),
        texts => Cow::Owned(texts.join("\n\n")),
    })
}

/// Returns nine letters and digits: at least one provider accepts nothing else.
pub(crate) fn call_id(number: usize) -> String {
    format!("call{number:05}")
}

pub(crate) fn result_text(result: &ToolResult) -> Cow<'_, str> {
    match &result.value {
        Some(value) if result.content.is_empty() => value.to_string().into(),
        _ => result.content.as_str().into(),
    }
}

/// The text of a result whose call is not in the prompt.
fn orphaned_text(result: &ToolResult) -> String {
    format!(
        "Result of an earlier call of {}, which is not shown here:\n{}",
        result.name,
        result_text(result)
    )
}

/// The arguments as a JSON object. Servers fail on other values, which models sometimes write.
pub(crate) fn arguments_object(arguments: &Value) -> Cow<'_, Value> {
    match arguments {
        Value::Object(_) => Cow::Borrowed(arguments),
        Value::Null => Cow::Owned(Value::Object(Map::new())),
        other => Cow::Owned(serde_json::json!({ "not_an_object": other })),
    }
}

/// A tool's schema, with `type` and `properties` of an object added if they are missing, since
/// providers require them.
#[derive(Debug)]
pub(crate) struct Parameters<'a>(pub &'a Value);

impl Serialize for Parameters<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let schema = self.0.as_object();
        if schema.is_some_and(|schema| {
            schema.get("type").is_some_and(|kind| kind == "object")
                && schema.contains_key("properties")
        }) {
            return self.0.serialize(serializer);
        }
        let has_properties = schema.is_some_and(|schema| schema.contains_key("properties"));
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "object")?;
        if !has_properties {
            map.serialize_entry("properties", &Map::new())?;
        }
        for (name, value) in schema.into_iter().flatten().filter(|(name, _)| *name != "type") {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
