//! Conversions of messages and their parts.

use conclave_core::types::fault::Fault;
use conclave_core::types::message::{Blob, Label, Message, Role, ToolCall, ToolResult};

use super::json_in;
use crate::imports::bindings::plugin::types;

pub(crate) fn message_out(message: &Message) -> types::Message {
    types::Message {
        seq: message.seq,
        sender: role_out(message.sender),
        sender_name: message.sender_name.clone(),
        recipient: message.recipient.clone(),
        content: message.as_read().into_owned(),
        tool_calls: message.tool_calls.iter().map(tool_call_out).collect(),
        tool_results: message.tool_results.iter().map(result_out).collect(),
        attachments: message.attachments.iter().map(blob_out).collect(),
        labels: message.labels.iter().copied().map(Label::as_str).map(str::to_owned).collect(),
        extra: Vec::new(),
    }
}

fn role_out(role: Role) -> types::Role {
    match role {
        Role::Llm => types::Role::Llm,
        Role::Agent => types::Role::Agent,
        Role::User => types::Role::User,
        Role::System => types::Role::System,
    }
}

pub(super) fn role_in(role: types::Role) -> Role {
    match role {
        types::Role::Llm => Role::Llm,
        types::Role::Agent => Role::Agent,
        types::Role::User => Role::User,
        types::Role::System => Role::System,
    }
}

pub(super) fn tool_call_out(call: &ToolCall) -> types::ToolCall {
    types::ToolCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.to_string(),
    }
}

/// Parses the arguments, which must be JSON. The caller of the tool checks them against its schema.
pub(super) fn tool_call_in(call: types::ToolCall) -> Result<ToolCall, Fault> {
    let arguments =
        json_in(&call.arguments, || format!("`arguments` of a call of {:?}", call.name))?;
    Ok(ToolCall { id: call.id, ..ToolCall::new(call.name, arguments) })
}

fn result_out(result: &ToolResult) -> types::ToolResult {
    types::ToolResult {
        call_id: result.call_id.clone(),
        name: result.name.clone(),
        content: result.content.clone(),
        is_error: result.is_error,
    }
}

pub(super) fn result_in(result: types::ToolResult) -> ToolResult {
    ToolResult {
        call_id: result.call_id,
        name: result.name,
        content: result.content,
        value: None,
        is_error: result.is_error,
    }
}

pub(crate) fn blob_out(blob: &Blob) -> types::Blob {
    types::Blob {
        sha256: blob.sha256.clone(),
        media_type: blob.media_type.clone(),
        length: blob.length,
        name: blob.name.clone(),
    }
}

pub(super) fn blob_in(blob: types::Blob) -> Blob {
    Blob { sha256: blob.sha256, media_type: blob.media_type, length: blob.length, name: blob.name }
}
