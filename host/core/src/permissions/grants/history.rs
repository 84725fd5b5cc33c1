//! `history`: the conversation around a tool call.

use serde::{Deserialize, Serialize};

use super::{AccessRequest, Capability, Destination, Grant, GrantTexts, Refused, Rights};
use crate::types::wording::count;

/// The grant of the conversation around a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryGrant {
    /// The newest messages of the calling agent's history that a call may read.
    pub messages: u32,
}

impl HistoryGrant {
    /// The number of messages of a grant that sets none.
    pub const DEFAULT: Self = Self { messages: 50 };
}

impl Default for HistoryGrant {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Rights<'_> {
    /// Returns the grant of the conversation around the plugin's tool calls.
    ///
    /// # Errors
    /// The record, if the capability is not requested or not granted.
    pub fn may_read_history(&self) -> Result<HistoryGrant, Refused> {
        self.require(Capability::History, "", || Some(self.line(Capability::History, true)))?;
        Ok(self.grants.history.unwrap_or_default())
    }
}

impl Grant for HistoryGrant {
    fn decide(request: &AccessRequest<'_>) -> Result<(), Refused> {
        request.rights.may_read_history().map(drop)
    }

    fn question() -> Option<(&'static str, &'static str)> {
        Some(("May its tools read the conversation of the tasks that call them?", "true"))
    }

    fn narrowed_by(&self, today: &Self) -> Option<Self> {
        Some(Self { messages: self.messages.min(today.messages) })
    }

    fn needs_approval(&self) -> bool {
        // It only reads.
        false
    }

    fn acts(&self) -> bool {
        false
    }

    fn destinations(&self) -> Vec<Destination<'_>> {
        Vec::new()
    }

    fn texts(&self, _request: &AccessRequest<'_>) -> GrantTexts {
        let messages = count(self.messages.into(), "message");
        GrantTexts {
            summary: vec![format!("read the conversation of the tasks that call it ({messages})")],
            granted: format!("the newest {} messages", self.messages),
            ..GrantTexts::default()
        }
    }
}
