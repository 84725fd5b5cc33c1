//! The `state` import: the task as a step sees it, read lazily from a snapshot. A step pays
//! for what it reads, not for the length of the history.

use conclave_core::types::history::History;
use conclave_core::types::view::AgentView;
use wasmtime::Result;

use crate::imports::bindings::plugin::{actions, state, types};
use crate::imports::call::CallInput;
use crate::imports::convert::{message_out, metrics_out, past_out, remaining_out, summary_out};

/// Maximum messages of one `history` call.
const MESSAGES: usize = 512;
/// Bytes after which `history` adds no further message, since the guest's memory is bounded.
const BYTES: usize = 1 << 20;
/// Overhead of a message part in the guest, in bytes.
const PART: usize = 64;

import_view! {
    /// The `state` import of a call.
    TaskImport
}

impl TaskImport<'_> {
    fn agent_view(&mut self) -> Result<&AgentView> {
        self.core.enter()?;
        let CallInput::Agent(view) = &self.core.input else {
            let problem = "`state` was read in a call that belongs to no agent's task";
            return Err(wasmtime::Error::msg(problem));
        };
        Ok(view)
    }
}

impl actions::Host for TaskImport<'_> {}

impl state::Host for TaskImport<'_> {
    fn task_name(&mut self) -> Result<String> {
        Ok(self.agent_view()?.task.to_string())
    }

    fn inputs(&mut self) -> Result<String> {
        let inputs = &self.agent_view()?.inputs;
        Ok(if inputs.is_null() { "{}".to_owned() } else { inputs.to_string() })
    }

    fn pending(&mut self) -> Result<Option<types::Message>> {
        Ok(self.agent_view()?.pending.as_deref().map(message_out))
    }

    fn history_length(&mut self) -> Result<u64> {
        Ok(self.agent_view()?.history.len() as u64)
    }

    fn history(&mut self, start: u64, count: u32) -> Result<Vec<types::Message>> {
        Ok(page(&self.agent_view()?.history, start, count))
    }

    fn since_last_step(&mut self) -> Result<Vec<state::PastAction>> {
        Ok(self.agent_view()?.since.iter().map(past_out).collect())
    }

    fn latest_user_message(&mut self) -> Result<Option<String>> {
        Ok(self.agent_view()?.latest_user_message.as_ref().map(|message| message.text().to_owned()))
    }

    fn plan(&mut self) -> Result<String> {
        Ok(self.agent_view()?.plan.to_json().to_string())
    }

    fn current_plan_node(&mut self) -> Result<Option<String>> {
        Ok(self.agent_view()?.plan.current().map(|(id, _)| id))
    }

    fn outputs(&mut self) -> Result<String> {
        Ok(self.agent_view()?.outputs.to_string())
    }

    fn last_error(&mut self) -> Result<Option<String>> {
        Ok(self.agent_view()?.last_error.clone())
    }

    fn tools(&mut self) -> Result<Vec<state::ToolSummary>> {
        Ok(self.agent_view()?.tools.iter().map(summary_out).collect())
    }

    fn peers(&mut self) -> Result<Vec<state::Peer>> {
        let peers = &self.agent_view()?.peers;
        Ok(peers
            .iter()
            .map(|peer| state::Peer {
                name: peer.name.to_string(),
                description: peer.description.clone(),
            })
            .collect())
    }

    fn remaining(&mut self) -> Result<state::RemainingBudgets> {
        Ok(remaining_out(self.agent_view()?.remaining))
    }

    fn metrics(&mut self) -> Result<state::RunMetrics> {
        Ok(metrics_out(self.agent_view()?.spent))
    }

    fn delegate_level(&mut self) -> Result<u32> {
        Ok(self.agent_view()?.level)
    }

    fn iteration(&mut self) -> Result<u32> {
        Ok(self.agent_view()?.iteration)
    }
}

/// The messages from `start`, up to the limits of one call.
pub(super) fn page(history: &History, start: u64, count: u32) -> Vec<types::Message> {
    let start = usize::try_from(start).unwrap_or(usize::MAX);
    let count = usize::try_from(count)
        .unwrap_or(usize::MAX)
        .min(MESSAGES)
        .min(history.len().saturating_sub(start));
    let mut messages = Vec::with_capacity(count);
    let mut bytes = 0;
    for message in (start..).take(count).map_while(|index| history.get(index)) {
        let message = message_out(message);
        bytes += length(&message);
        messages.push(message);
        if bytes > BYTES {
            break;
        }
    }
    messages
}

/// The bytes of a whole message: a tool call can be as long as a text.
fn length(message: &types::Message) -> usize {
    let calls = message
        .tool_calls
        .iter()
        .map(|call| PART + call.id.len() + call.name.len() + call.arguments.len());
    let results = message
        .tool_results
        .iter()
        .map(|result| PART + result.call_id.len() + result.name.len() + result.content.len());
    let name = |blob: &types::Blob| blob.name.as_ref().map_or(0, String::len);
    let attachments = message
        .attachments
        .iter()
        .map(|blob| PART + blob.sha256.len() + blob.media_type.len() + name(blob));
    let names = message.sender_name.len() + message.recipient.as_ref().map_or(0, String::len);
    let labels = message.labels.iter().map(String::len);
    PART + names
        + message.content.len()
        + calls.chain(results).chain(attachments).chain(labels).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use conclave_core::types::message::{Blob, Message, Role, ToolCall, ToolResult};
    use serde_json::{Value, json};

    use super::*;

    fn message(content: &str) -> Message {
        Message { content: Some(content.to_owned()), ..Message::new(0, Role::User, "user") }
    }

    fn page_length(message: Message) -> usize {
        let mut history = History::default();
        (0..100).for_each(|seq| history.push(&Arc::new(Message { seq, ..message.clone() })));
        page(&history, 0, 100).len()
    }

    #[test]
    fn whole_messages_count_towards_the_bytes_of_a_page() {
        let long = "x".repeat(200 << 10);
        let id = || "1".to_owned();
        let call =
            |arguments: Value| ToolCall { id: id(), ..ToolCall::new("notes.add", arguments) };
        let result = ToolResult {
            call_id: id(),
            name: "notes.add".to_owned(),
            content: long.clone(),
            value: None,
            is_error: false,
        };
        let blob = Blob {
            sha256: String::new(),
            media_type: String::new(),
            length: 0,
            name: Some(long.clone()),
        };
        assert_eq!(page_length(message("short")), 100);
        assert_eq!(page_length(message(&long)), 6);
        assert_eq!(
            page_length(Message { tool_calls: vec![call(json!({ "text": long }))], ..message("") }),
            6
        );
        assert_eq!(page_length(Message { tool_results: vec![result], ..message("") }), 6);
        assert_eq!(page_length(Message { attachments: vec![blob], ..message("") }), 6);
        assert!(
            page_length(Message { tool_calls: vec![call(json!(1)); 2_000], ..message("") }) < 10,
            "many small parts count too"
        );
    }
}
