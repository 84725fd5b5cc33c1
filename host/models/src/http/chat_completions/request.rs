//! The body of a request as Chat Completions.

use std::borrow::Cow;

use conclave_core::types::completion::{Prompt, ToolChoice};
use conclave_core::types::message::ToolCall;
use conclave_core::types::tool::ToolSummary;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::http::arrange::NO_RESULT;
use crate::http::content::ContentPart;
use crate::http::names::ToolNames;
use crate::http::request::{
    Parameters, RequestMessage, RequestParts, arguments_object, call_id, plain_text, result_text,
};

pub(crate) struct CompletionsBody<'a> {
    prompt: &'a Prompt,
    names: &'a ToolNames<'a>,
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    tools: &'a [ToolSummary],
    options: Map<String, Value>,
}

impl<'a> CompletionsBody<'a> {
    pub(crate) fn new(parts: RequestParts<'a>) -> Self {
        let RequestParts { prompt, names, model, mut messages, tools, demand, options } = parts;
        // The sentence goes to the end of the first system message.
        if let Some(demand) = demand.map(|demand| ContentPart::Text(demand.into())) {
            let system = messages.iter_mut().find_map(|message| match message {
                RequestMessage::Said { role: "system", parts } => Some(parts),
                _ => None,
            });
            match system {
                Some(parts) => parts.push(demand),
                None => {
                    let parts = vec![demand];
                    messages.insert(0, RequestMessage::Said { role: "system", parts });
                }
            }
        }
        let messages = messages.into_iter().map(|message| WireMessage { message, names });
        // Of a named tool, several servers refuse the object that names it, or ignore it. All of
        // them understand that some tool must be called, so this one is sent alone.
        let tools = match &prompt.tool_choice {
            ToolChoice::Named { name } => {
                tools.iter().find(|tool| tool.name == *name).map_or(tools, std::slice::from_ref)
            }
            _ => tools,
        };
        Self { prompt, names, model, messages: messages.collect(), tools, options }
    }
}

impl Serialize for CompletionsBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("model", self.model)?;
        map.serialize_entry("messages", &self.messages)?;
        if !self.tools.is_empty() {
            map.serialize_entry("tools", &Tools { tools: self.tools, names: self.names })?;
            map.serialize_entry("tool_choice", self.tool_choice())?;
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

impl CompletionsBody<'_> {
    fn tool_choice(&self) -> &'static str {
        match &self.prompt.tool_choice {
            ToolChoice::Auto => "auto",
            ToolChoice::None => "none",
            ToolChoice::Required | ToolChoice::Named { .. } => "required",
        }
    }

    /// Whether an option is sent with this request: some are only accepted in combination.
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
    message: RequestMessage<'a>,
    names: &'a ToolNames<'a>,
}

impl Serialize for WireMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.message {
            RequestMessage::Said { role, parts } => {
                map.serialize_entry("role", role)?;
                match plain_text(parts) {
                    Some(text) => map.serialize_entry("content", &text)?,
                    None => map.serialize_entry("content", parts)?,
                }
            }
            RequestMessage::Called { parts, calls } => {
                map.serialize_entry("role", "assistant")?;
                let text = plain_text(parts).filter(|_| !parts.is_empty());
                map.serialize_entry("content", &text)?;
                map.serialize_entry("tool_calls", &RequestCalls { calls, names: self.names })?;
            }
            RequestMessage::Answered { number, result } => {
                map.serialize_entry("role", "tool")?;
                map.serialize_entry("tool_call_id", &call_id(*number))?;
                map.serialize_entry(
                    "content",
                    &result.map_or(Cow::Borrowed(NO_RESULT), result_text),
                )?;
            }
        }
        map.end()
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
            let function = json!({"name": self.names.wire(&call.name), "arguments": arguments_object(&call.arguments).to_string()});
            list.serialize_element(
                &json!({"id": call_id(*number), "type": "function", "function": function}),
            )?;
        }
        list.end()
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

#[cfg(test)]
mod tests;
