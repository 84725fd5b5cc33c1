//! The prompts of a room's model calls: what each model read, rebuilt from the room's records by the
//! same fold as every view. A model client adds nothing to it but the form of its API. Texts come
//! from people, plugins and models; they are not sanitised.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::inspect::timeline::{RowSubject, TimelineRow};
use crate::protocol::effect::Effect;
use crate::protocol::event::{Event, Record};
use crate::protocol::notice::Notice;
use crate::room::Room;
use crate::types::completion::{Prompt, PromptPiece, ToolChoice, ToolFormat};
use crate::types::ids::{CallId, ModelName, PluginName, RoomId, TaskName};
use crate::types::message::{Blob, Role, ToolCall, ToolResult};
use crate::types::tool::ToolSummary;

/// A request to a model, as the room sent it. The histories of a room's requests share their
/// messages.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelPrompt {
    pub room: RoomId,
    /// The sequence number of the record that led to the request: `room:seq` is its address.
    pub seq: u64,
    /// The sequence number of the record that began the call in which the plugin asked.
    pub call_seq: u64,
    pub task: Option<TaskName>,
    pub plugin: PluginName,
    pub model: ModelName,
    pub prompt: Prompt,
}

/// A message as a model reads it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromptMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_results: Vec<ToolResult>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Blob>,
}

/// A request to a model with all its texts, for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WrittenPrompt {
    pub messages: Vec<PromptMessage>,
    pub tools: Vec<ToolSummary>,
    pub tool_format: ToolFormat,
    pub tool_choice: ToolChoice,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
}

/// The prompts of a room's model calls, in their order. Empty if the records do not begin with an
/// opening.
#[must_use]
pub fn prompts(records: Vec<Record>) -> Vec<ModelPrompt> {
    let Some(Event::RoomOpened { opening, .. }) = records.first().map(|record| &record.event)
    else {
        return Vec::new();
    };
    let (id, mut room) = (opening.room.clone(), Room::new());
    let mut starts: BTreeMap<CallId, u64> = BTreeMap::new();
    let mut prompts = Vec::new();
    for record in records {
        let seq = record.seq;
        room.handle(record.event, record.at);
        let mut callers = BTreeMap::new();
        while let Some(notice) = room.poll_notice() {
            if let Notice::ModelCalled { call, ordinal, task, plugin, .. } = notice {
                callers.insert((call, ordinal), (task, plugin));
            }
        }
        while let Some(effect) = room.poll_effect() {
            starts.extend(effect.starts().map(|call| (call, seq)));
            let Effect::CallModel { call, ordinal, model, prompt } = effect else { continue };
            let Some((task, plugin)) = callers.remove(&(call, ordinal)) else { continue };
            let call_seq = starts.get(&call).copied().unwrap_or(seq);
            prompts.push(ModelPrompt {
                room: id.clone(),
                seq,
                call_seq,
                task,
                plugin,
                model,
                prompt,
            });
        }
    }
    prompts
}

/// The prompts of a timeline's rows.
#[derive(Debug)]
pub struct RowPrompts<'a>(BTreeMap<(RoomId, u64), Vec<&'a ModelPrompt>>);

impl<'a> RowPrompts<'a> {
    /// The prompts in the order of rooms and records.
    #[must_use]
    pub fn of(prompts: &'a [ModelPrompt]) -> Self {
        let mut of_record: BTreeMap<(RoomId, u64), Vec<&ModelPrompt>> = BTreeMap::new();
        for prompt in prompts.iter().rev() {
            of_record.entry((prompt.room.clone(), prompt.seq)).or_default().push(prompt);
        }
        Self(of_record)
    }

    /// The prompt of a row; `None` for other rows than those of model calls. The rows are taken in
    /// their order, because one record may lead to several requests.
    pub fn take(&mut self, row: &TimelineRow) -> Option<&'a ModelPrompt> {
        if !matches!(row.what, RowSubject::Model { .. }) {
            return None;
        }
        self.of_record(&row.room, row.seq)
    }

    /// The next prompt of a record.
    pub fn of_record(&mut self, room: &RoomId, seq: u64) -> Option<&'a ModelPrompt> {
        self.0.get_mut(&(room.clone(), seq))?.pop()
    }
}

impl PromptMessage {
    /// The bytes of all its parts: text, calls, results and attachments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let calls = self.tool_calls.iter();
        let calls = calls.map(|call| call.name.len() + call.arguments.to_string().len());
        let results = self.tool_results.iter();
        let results = results.map(|result| result.name.len() + result.content.len());
        let written = self.text.len() + calls.sum::<usize>() + results.sum::<usize>();
        let attached: u64 = self.attachments.iter().map(|blob| blob.length).sum();
        attached.saturating_add(written as u64)
    }
}

impl ModelPrompt {
    /// The messages in their order, as the model reads them: text of plugins and other tasks stands
    /// between the host's marks.
    #[must_use]
    pub fn messages(&self) -> Vec<PromptMessage> {
        self.prompt.pieces.iter().flat_map(messages_of).collect()
    }

    /// The request with all its texts.
    #[must_use]
    pub fn written(&self) -> WrittenPrompt {
        let Prompt {
            pieces: _,
            tools,
            tool_format,
            tool_choice,
            output_schema,
            stream: _,
            options,
        } = &self.prompt;
        WrittenPrompt {
            messages: self.messages(),
            tools: tools.clone(),
            tool_format: *tool_format,
            tool_choice: tool_choice.clone(),
            output_schema: output_schema.clone(),
            options: options.iter().cloned().collect(),
        }
    }

    /// Whether a record's sequence number names this request: that of the request, or that of the
    /// call in which it was made.
    #[must_use]
    pub fn is_at(&self, seq: u64) -> bool {
        self.seq == seq || self.call_seq == seq
    }
}

fn messages_of(piece: &PromptPiece) -> Vec<PromptMessage> {
    match piece {
        PromptPiece::System { text } => vec![PromptMessage {
            role: "system",
            text: text.to_string(),
            tool_calls: Vec::new(),
            tool_results: Vec::new(),
            attachments: Vec::new(),
        }],
        PromptPiece::History { messages, start, end } => (*start..(*end).min(messages.len()))
            .filter_map(|index| messages.get(index))
            .map(|message| PromptMessage {
                role: role(message.sender, &message.tool_results),
                // The host's message about results repeats them in its text.
                text: match message.tool_results.is_empty() {
                    true => message.in_prompt().into_owned(),
                    false => String::new(),
                },
                tool_calls: message.tool_calls.clone(),
                tool_results: message.tool_results.clone(),
                attachments: message.attachments.clone(),
            })
            .collect(),
        PromptPiece::Draft { draft } => vec![PromptMessage {
            role: role(draft.role, &draft.tool_results),
            text: draft.content.clone(),
            tool_calls: draft.tool_calls.clone(),
            tool_results: draft.tool_results.clone(),
            attachments: Vec::new(),
        }],
    }
}

fn role(sender: Role, results: &[ToolResult]) -> &'static str {
    match sender {
        _ if !results.is_empty() => "tool",
        Role::Llm => "assistant",
        Role::System => "system",
        Role::User | Role::Agent => "user",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_parts_of_a_message_count() {
        let call: ToolCall = serde_json::from_value(
            json!({ "id": "a", "name": "search.find", "arguments": { "query": "x" } }),
        )
        .unwrap();
        let result: ToolResult = serde_json::from_value(
            json!({ "call_id": "a", "name": "search.find", "content": "It was 1844." }),
        )
        .unwrap();
        let blob: Blob = serde_json::from_value(
            json!({ "sha256": "0", "media_type": "image/png", "length": 1_000 }),
        )
        .unwrap();
        let message = PromptMessage {
            role: "user",
            text: "When?".to_owned(),
            tool_calls: vec![call],
            tool_results: vec![result],
            attachments: vec![blob],
        };
        let parts = ["When?", "search.find", r#"{"query":"x"}"#, "search.find", "It was 1844."];
        assert_eq!(message.bytes(), 1_000 + parts.concat().len() as u64);
    }
}
