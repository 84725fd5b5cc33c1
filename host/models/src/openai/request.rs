//! The body of a request, serialised in one pass from the borrowed prompt, so that the history is
//! not copied.

use std::borrow::Cow;
use std::sync::Arc;

use conclave_core::types::completion::{ModelError, Prompt, ToolChoice, ToolFormat};
use conclave_core::types::message::{ToolCall, ToolResult};
use conclave_core::types::tool::ToolSummary;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::OpenAiSettings;
use super::content::{ContentPart, ImageCount};
use super::messages::{NO_RESULT, OutgoingMessage, arrange};
use super::names::ToolNames;
use super::options;

/// Returns the body as JSON. With attachments it is built on a blocking thread, because their bytes
/// may be on a disk.
///
/// # Errors
/// As [`body`].
pub(crate) async fn body_beside(
    prompt: &Arc<Prompt>,
    settings: &OpenAiSettings,
) -> Result<Vec<u8>, ModelError> {
    let has_attachments = |outgoing: &OutgoingMessage<'_>| matches!(outgoing, OutgoingMessage::Said { attachments, .. } if !attachments.is_empty());
    if !arrange(prompt).iter().any(has_attachments) {
        return body(prompt, &ToolNames::of(prompt), settings);
    }
    let (prompt, settings) = (Arc::clone(prompt), settings.clone());
    let made =
        tokio::task::spawn_blocking(move || body(&prompt, &ToolNames::of(&prompt), &settings));
    made.await.unwrap_or_else(|_| {
        Err(ModelError::Other { message: "the attachments could not be read".to_owned() })
    })
}

/// Returns the body as JSON.
///
/// # Errors
/// `other` if the prompt contains something that cannot be sent, in words for the plugin.
pub(crate) fn body(
    prompt: &Prompt,
    names: &ToolNames<'_>,
    settings: &OpenAiSettings,
) -> Result<Vec<u8>, ModelError> {
    let other = |message: &str| ModelError::Other { message: message.to_owned() };
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
    // Tools in text form are already described in the system text by the host.
    let tools = if prompt.tool_format == ToolFormat::Native { offered } else { &[] };
    let messages = messages(prompt, names, settings)?;
    if messages.is_empty() {
        return Err(other("the prompt says nothing"));
    }
    let options = options::merged(&settings.options, &prompt.options)?;
    let body = RequestBody { prompt, names, model: &settings.model, messages, tools, options };
    serde_json::to_vec(&body).map_err(|_| other("the prompt cannot be written as JSON"))
}

fn messages<'a>(
    prompt: &'a Prompt,
    names: &'a ToolNames<'a>,
    settings: &OpenAiSettings,
) -> Result<Vec<WireMessage<'a>>, ModelError> {
    let mut images = ImageCount::default();
    let mut arranged = arrange(prompt);
    let mut demand = demand(prompt);
    let is_system = |message: &OutgoingMessage<'_>| {
        matches!(message, OutgoingMessage::Said { role: "system", .. })
    };
    if demand.is_some() && !arranged.iter().any(is_system) && !arranged.is_empty() {
        arranged.insert(
            0,
            OutgoingMessage::Said { role: "system", text: None, attachments: &[], is_data: false },
        );
    }
    let with_parts = |message: OutgoingMessage<'a>| {
        let (attachments, is_data) =
            if let OutgoingMessage::Said { attachments, is_data, .. } = &message {
                (*attachments, *is_data)
            } else {
                (&[][..], false)
            };
        let parts = attachments
            .iter()
            .map(|blob| images.part(blob, is_data, &*settings.images))
            .collect::<Result<Vec<_>, _>>()?;
        let demand = if is_system(&message) { demand.take() } else { None };
        Ok(WireMessage { message, parts, names, demand })
    };
    arranged.into_iter().map(with_parts).collect()
}

/// Returns the end of the first system message that replaces a tool choice, which only the native
/// form has.
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

struct RequestBody<'a> {
    prompt: &'a Prompt,
    names: &'a ToolNames<'a>,
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    tools: &'a [ToolSummary],
    options: Map<String, Value>,
}

impl Serialize for RequestBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("model", self.model)?;
        map.serialize_entry("messages", &self.messages)?;
        if !self.tools.is_empty() {
            map.serialize_entry("tools", &Tools { tools: self.tools, names: self.names })?;
            map.serialize_entry("tool_choice", &self.tool_choice())?;
        }
        if let Some(schema) = &self.prompt.output_schema {
            let format = json!({"type": "json_schema", "json_schema": {"name": "answer", "strict": false, "schema": schema}});
            map.serialize_entry("response_format", &format)?;
        }
        if self.prompt.stream {
            map.serialize_entry("stream", &true)?;
            if !self.options.contains_key("stream_options") {
                map.serialize_entry("stream_options", &json!({"include_usage": true}))?;
            }
        }
        for (name, value) in self.options.iter().filter(|(name, value)| self.goes_out(name, value))
        {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl RequestBody<'_> {
    fn tool_choice(&self) -> Value {
        match &self.prompt.tool_choice {
            ToolChoice::Auto => json!("auto"),
            ToolChoice::None => json!("none"),
            ToolChoice::Required => json!("required"),
            ToolChoice::Named { name } => {
                json!({"type": "function", "function": {"name": self.names.wire(name)}})
            }
        }
    }

    /// Returns whether an option is sent with this request: some are only accepted in combination.
    fn goes_out(&self, name: &str, value: &Value) -> bool {
        match name {
            "stream_options" => self.prompt.stream && !value.is_null(),
            "response_format" => self.prompt.output_schema.is_none(),
            "parallel_tool_calls" => !self.tools.is_empty(),
            _ => true,
        }
    }
}

struct WireMessage<'a> {
    message: OutgoingMessage<'a>,
    parts: Vec<ContentPart<'a>>,
    names: &'a ToolNames<'a>,
    /// Text that is appended to the message.
    demand: Option<String>,
}

impl Serialize for WireMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.message {
            OutgoingMessage::Said { role, text, .. } => {
                map.serialize_entry("role", role)?;
                if let Some(demand) = &self.demand {
                    let before =
                        text.as_ref().map(|text| format!("{text}\n\n")).unwrap_or_default();
                    map.serialize_entry("content", &format!("{before}{demand}"))?;
                } else if self.parts.is_empty() {
                    map.serialize_entry("content", text.as_deref().unwrap_or_default())?;
                } else {
                    let text = text.as_deref().map(ContentPart::Text);
                    map.serialize_entry(
                        "content",
                        &text.iter().chain(&self.parts).collect::<Vec<_>>(),
                    )?;
                }
            }
            OutgoingMessage::Called { text, calls } => {
                map.serialize_entry("role", "assistant")?;
                map.serialize_entry("content", text)?;
                map.serialize_entry("tool_calls", &RequestCalls { calls, names: self.names })?;
            }
            OutgoingMessage::Answered { number, result } => {
                map.serialize_entry("role", "tool")?;
                map.serialize_entry("tool_call_id", &call_id(*number))?;
                map.serialize_entry(
                    "content",
                    &result.map_or(Cow::Borrowed(NO_RESULT), result_text),
                )?;
            }
            OutgoingMessage::Orphaned { result } => {
                map.serialize_entry("role", "user")?;
                let text = format!(
                    "Result of an earlier call of {}, which is not shown here:\n{}",
                    result.name,
                    result_text(result)
                );
                map.serialize_entry("content", &text)?;
            }
        }
        map.end()
    }
}

/// Returns nine letters and digits: at least one provider accepts nothing else.
fn call_id(number: usize) -> String {
    format!("call{number:05}")
}

fn result_text(result: &ToolResult) -> Cow<'_, str> {
    match &result.value {
        Some(value) if result.content.is_empty() => value.to_string().into(),
        _ => result.content.as_str().into(),
    }
}

struct RequestCalls<'a> {
    calls: &'a [(usize, &'a ToolCall)],
    names: &'a ToolNames<'a>,
}

impl Serialize for RequestCalls<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.calls.len()))?;
        for (number, call) in self.calls {
            let function = json!({"name": self.names.wire(&call.name), "arguments": arguments(&call.arguments)});
            list.serialize_element(
                &json!({"id": call_id(*number), "type": "function", "function": function}),
            )?;
        }
        list.end()
    }
}

/// Returns a JSON object as text. Templates of some servers fail on other values, which models
/// sometimes write.
fn arguments(arguments: &Value) -> String {
    match arguments {
        Value::Object(_) => arguments.to_string(),
        Value::Null => "{}".to_owned(),
        other => json!({"not_an_object": other}).to_string(),
    }
}

struct Tools<'a> {
    tools: &'a [ToolSummary],
    names: &'a ToolNames<'a>,
}

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.tools.len()))?;
        for tool in self.tools {
            let function = Function {
                name: self.names.wire(&tool.name),
                description: &tool.description,
                parameters: Parameters(&tool.input_schema),
            };
            list.serialize_element(&RequestTool { kind: "function", function })?;
        }
        list.end()
    }
}

#[derive(Serialize)]
struct RequestTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: Parameters<'a>,
}

/// A tool's schema, with `type` and `properties` of an object added if they are missing, since
/// providers require them.
struct Parameters<'a>(&'a Value);

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

#[cfg(test)]
mod tests;
