//! The `call` import: facts about a tool call, from the host.

use std::fmt::Write;

use conclave_core::types::ids::{CallId, RoomId};
use sha2::{Digest, Sha256};
use wasmtime::Result;

use crate::imports::bindings::plugin::call;

import_view! {
    /// The `call` import of a call.
    CallImport
}

impl call::Host for CallImport<'_> {
    fn call_id(&mut self) -> Result<String> {
        self.core.tool_input()?;
        // Call numbers are unique within a room only.
        Ok(format!("{}:{}", self.core.start.room, self.core.start.call))
    }

    /// Always 1: a replayed call must get the same value.
    fn attempt(&mut self) -> Result<u32> {
        self.core.tool_input()?;
        Ok(1)
    }

    fn task_name(&mut self) -> Result<String> {
        Ok(self.core.tool_input()?.task.to_string())
    }

    fn room_id(&mut self) -> Result<String> {
        self.core.tool_input()?;
        Ok(self.core.start.room.to_string())
    }

    fn caller(&mut self) -> Result<String> {
        Ok(self.core.tool_input()?.caller.to_string())
    }

    fn deadline_ms(&mut self) -> Result<u64> {
        self.core.tool_input()?;
        Ok(self.core.plugin.limits().wall_ms)
    }

    fn traceparent(&mut self) -> Result<String> {
        self.core.tool_input()?;
        Ok(traceparent(&self.core.start.room, self.core.start.call))
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
