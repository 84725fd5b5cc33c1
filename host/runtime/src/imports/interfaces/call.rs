//! The `call` import: facts about a tool call, from the host.

use std::fmt::Write;

use conclave_core::types::ids::{CallId, RoomId};
use sha2::{Digest, Sha256};

use crate::calls::ToolInput;
use crate::imports::bindings::conclave::plugin::call;
use crate::imports::call::{CallInput, CallState};

impl CallState {
    pub(super) fn tool_input(&mut self) -> wasmtime::Result<&ToolInput> {
        self.enter()?;
        match &self.lent {
            CallInput::Tool(input) => Ok(input),
            CallInput::Nothing | CallInput::Agent(_) | CallInput::Delivery(_) => {
                Err(wasmtime::Error::msg("`call` was read outside a tool call"))
            }
        }
    }
}

impl call::Host for CallState {
    fn call_id(&mut self) -> wasmtime::Result<String> {
        self.tool_input()?;
        // Call numbers are unique within a room only.
        Ok(format!("{}:{}", self.start.room, self.start.call))
    }

    /// Always 1: a replayed call must get the same value.
    fn attempt(&mut self) -> wasmtime::Result<u32> {
        self.tool_input()?;
        Ok(1)
    }

    fn task_name(&mut self) -> wasmtime::Result<String> {
        Ok(self.tool_input()?.task.to_string())
    }

    fn room_id(&mut self) -> wasmtime::Result<String> {
        self.tool_input()?;
        Ok(self.start.room.to_string())
    }

    fn caller(&mut self) -> wasmtime::Result<String> {
        Ok(self.tool_input()?.caller.to_string())
    }

    fn deadline_ms(&mut self) -> wasmtime::Result<u64> {
        self.tool_input()?;
        Ok(self.plugin.limits().wall_ms)
    }

    fn traceparent(&mut self) -> wasmtime::Result<String> {
        self.tool_input()?;
        Ok(traceparent(&self.start.room, self.start.call))
    }
}

/// A trace per room and a span per call, so that a replay has the same ids.
fn traceparent(room: &RoomId, call: CallId) -> String {
    let trace = Sha256::digest(room.as_str().as_bytes());
    let mut text = String::with_capacity(55);
    text.push_str("00-");
    for byte in &trace[..16] {
        // Writing to a `String` does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    // A span id of zero is invalid, and calls are counted from zero.
    let _ = write!(text, "-{:016x}-01", call.0.wrapping_add(1).max(1));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_has_the_form_of_the_standard() {
        let text = traceparent(&RoomId::from("r"), CallId(0));
        let parts: Vec<usize> = text.split('-').map(str::len).collect();
        assert_eq!(parts, [2, 32, 16, 2]);
        assert!(text.ends_with("-0000000000000001-01"), "{text}");
    }
}
