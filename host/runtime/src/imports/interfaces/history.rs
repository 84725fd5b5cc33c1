//! The `history` import: the conversation of the task whose agent called the tool, by grant. The
//! host fixed it at the start of the call, so a replay reads the same.

use conclave_core::types::view::ConversationView;

use super::view::page;
use crate::imports::bindings::plugin::{history, types};
use crate::imports::call::CallInput;
use crate::imports::convert::message_out;

type Read<T> = Result<T, history::HistoryError>;

import_view! {
    /// The `history` import of a call.
    HistoryImport
}

impl HistoryImport<'_> {
    /// Returns the conversation, or the refusal for a plugin without the grant.
    fn conversation(&mut self) -> wasmtime::Result<Read<&ConversationView>> {
        self.core.tool_input()?;
        if let Err(record) = self.core.rights().may_read_history() {
            return Ok(Err(history::HistoryError::Denied(self.core.refuse(*record))));
        }
        let absent = || history::HistoryError::Other("this call has no conversation".to_owned());
        Ok(match &self.core.input {
            CallInput::Tool(input) => input.conversation.as_ref().ok_or_else(absent),
            _ => Err(absent()),
        })
    }
}

impl history::Host for HistoryImport<'_> {
    fn calling_message(&mut self) -> wasmtime::Result<Read<types::Message>> {
        Ok(self.conversation()?.map(|view| message_out(&view.calling)))
    }

    fn inputs(&mut self) -> wasmtime::Result<Read<String>> {
        let text = |view: &ConversationView| {
            if view.inputs.is_null() { "{}".to_owned() } else { view.inputs.to_string() }
        };
        Ok(self.conversation()?.map(text))
    }

    fn length(&mut self) -> wasmtime::Result<Read<u32>> {
        let length = |view: &ConversationView| u32::try_from(view.window().len());
        Ok(self.conversation()?.map(|view| length(view).unwrap_or(u32::MAX)))
    }

    fn messages(&mut self, start: u32, count: u32) -> wasmtime::Result<Read<Vec<types::Message>>> {
        Ok(self.conversation()?.map(|view| {
            let first = u64::try_from(view.window().start).unwrap_or(u64::MAX);
            page(&view.history, first.saturating_add(start.into()), count)
        }))
    }
}
