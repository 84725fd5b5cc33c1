//! The body of a request to the Responses API. A call and its result are items of their own beside
//! the messages. The server refuses references to items that it has not stored, so no item has an
//! id.

use std::borrow::Cow;
use std::sync::Arc;

use conclave_core::types::completion::{Prompt, ToolChoice};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::http::arrange::{BEGIN, NO_RESULT};
use crate::http::content::{ContentPart, DataUrl};
use crate::http::names::ToolNames;
use crate::http::request::{
    Parameters, RequestMessage, RequestParts, arguments_object, call_id, plain_text, result_text,
};

#[derive(Debug, Serialize)]
pub(crate) struct ResponsesBody<'a> {
    model: &'a str,
    /// The API keeps answers unless a request says otherwise.
    store: Value,
    #[serde(skip_serializing_if = "String::is_empty")]
    instructions: String,
    input: Vec<InputItem<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Value>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
    #[serde(flatten)]
    options: Map<String, Value>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum InputItem<'a> {
    Message { role: &'static str, content: InputContent<'a> },
    FunctionCall { call_id: String, name: &'a str, arguments: String },
    FunctionCallOutput { call_id: String, output: Cow<'a, str> },
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum InputContent<'a> {
    Text(String),
    Parts(Vec<InputPart<'a>>),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum InputPart<'a> {
    InputText { text: Cow<'a, str> },
    InputImage { image_url: Image<'a> },
}

#[derive(Debug)]
struct Image<'a> {
    media_type: &'a str,
    bytes: Arc<[u8]>,
}

impl Serialize for Image<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        DataUrl { media_type: self.media_type, bytes: &self.bytes }.serialize(serializer)
    }
}

#[derive(Debug, Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters: Parameters<'a>,
    /// Without it the API refuses schemas with optional properties.
    strict: bool,
}

impl<'a> ResponsesBody<'a> {
    pub(crate) fn new(parts: RequestParts<'a>) -> Self {
        let RequestParts { prompt, names, model, messages, tools, demand, mut options } = parts;
        let mut instructions = Vec::new();
        let mut input = Vec::new();
        for message in messages {
            match message {
                // Later system texts stay where they are.
                RequestMessage::Said { role: "system", parts } if input.is_empty() => {
                    instructions.extend(plain_text(&parts).map(Cow::into_owned));
                }
                message => add(&mut input, message, names),
            }
        }
        instructions.extend(demand);
        if input.is_empty() {
            input.push(InputItem::Message {
                role: "user",
                content: InputContent::Text(BEGIN.to_owned()),
            });
        }
        let tools: Vec<Tool<'a>> = tools
            .iter()
            .map(|tool| Tool {
                kind: "function",
                name: names.wire(&tool.name),
                description: &tool.description,
                parameters: Parameters(&tool.input_schema),
                strict: false,
            })
            .collect();
        if tools.is_empty() {
            options.remove("parallel_tool_calls");
        }
        if !prompt.stream {
            options.remove("stream_options");
        }
        Self {
            model,
            store: options.remove("store").unwrap_or(Value::Bool(false)),
            instructions: instructions.join("\n\n"),
            input,
            tool_choice: (!tools.is_empty()).then(|| tool_choice(prompt, names)),
            tools,
            text: text_options(prompt, options.remove("text")),
            stream: prompt.stream,
            options,
        }
    }
}

fn add<'a>(input: &mut Vec<InputItem<'a>>, message: RequestMessage<'a>, names: &'a ToolNames<'a>) {
    match message {
        RequestMessage::Said { role, parts } => {
            input.push(InputItem::Message { role, content: content(parts) });
        }
        RequestMessage::Called { parts, calls } => {
            if !parts.is_empty() {
                input.push(InputItem::Message { role: "assistant", content: content(parts) });
            }
            input.extend(calls.into_iter().map(|(number, call)| InputItem::FunctionCall {
                call_id: call_id(number),
                name: names.wire(&call.name),
                arguments: arguments_object(&call.arguments).to_string(),
            }));
        }
        RequestMessage::Answered { number, result } => {
            input.push(InputItem::FunctionCallOutput {
                call_id: call_id(number),
                output: result.map_or(Cow::Borrowed(NO_RESULT), result_text),
            });
        }
    }
}

/// Returns texts alone as one text: the parts of an assistant's message have other types than those
/// of a user's.
fn content(parts: Vec<ContentPart<'_>>) -> InputContent<'_> {
    if let Some(text) = plain_text(&parts) {
        return InputContent::Text(text.into_owned());
    }
    let part = |part| match part {
        ContentPart::Text(text) => InputPart::InputText { text },
        ContentPart::Attachment(text) => InputPart::InputText { text: text.into() },
        ContentPart::Image { media_type, bytes } => {
            InputPart::InputImage { image_url: Image { media_type, bytes } }
        }
    };
    InputContent::Parts(parts.into_iter().map(part).collect())
}

fn tool_choice(prompt: &Prompt, names: &ToolNames<'_>) -> Value {
    match &prompt.tool_choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Named { name } => json!({"type": "function", "name": names.wire(name)}),
    }
}

/// The field `text`: the operator's, with the schema of the answer as its format.
fn text_options(prompt: &Prompt, operator: Option<Value>) -> Option<Value> {
    let Some(schema) = &prompt.output_schema else { return operator };
    let Value::Object(mut text) = operator.unwrap_or_else(|| Map::new().into()) else {
        return None;
    };
    let format =
        json!({"type": "json_schema", "name": "answer", "strict": false, "schema": schema});
    text.insert("format".to_owned(), format);
    Some(text.into())
}

#[cfg(test)]
mod tests;
