//! The calls of a conversation that wait for a person: approvals and limit increases. The time for
//! which any was open is the person's, not the agent's.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::policy::budget::Budget;
use crate::protocol::notice::Notice;
use crate::types::ids::{CallId, Millis, RoomId};

/// Calls that wait for an answer.
#[derive(Debug, Default)]
pub struct PendingCalls {
    /// The tool of each call, or the limit to increase.
    open: BTreeMap<(RoomId, CallId), String>,
    /// The time at which the first open question was asked.
    since: Option<Millis>,
    /// Milliseconds for which earlier questions were open.
    before_ms: u64,
}

impl PendingCalls {
    /// The calls that were pending in a stored conversation.
    #[must_use]
    pub fn of_stored(open: impl IntoIterator<Item = ((RoomId, CallId), String)>) -> Self {
        Self { open: open.into_iter().collect(), ..Self::default() }
    }

    /// The pending calls, each with its tool or limit.
    pub fn open(&self) -> impl Iterator<Item = (&RoomId, CallId, &String)> {
        self.open.iter().map(|((room, call), tool)| (room, *call, tool))
    }

    /// Handles a notice of a room.
    pub fn take(&mut self, room: &RoomId, at: Millis, notice: &Notice) {
        let mut ask = |call: CallId, tool: String| {
            self.open.insert((room.clone(), call), tool);
            self.since.get_or_insert(at);
        };
        match notice {
            Notice::ApprovalAsked { call, request } => ask(*call, request.tool.clone()),
            Notice::TopUpAsked { call, top_up } => ask(*call, top_up.as_approval().tool),
            Notice::ApprovalGiven { call, .. } | Notice::ToppedUp { call, .. } => {
                self.open.remove(&(room.clone(), *call));
                self.close(at);
            }
            Notice::ResultReady { .. } => {
                self.open.retain(|(asked_in, _), _| asked_in != room);
                self.close(at);
            }
            // The calls of the turn are not awaited any more. A limit is one of the whole run.
            Notice::TurnStopped { .. } => {
                let is_limit = |tool: &str| Budget::ALL.iter().any(|limit| limit.key() == tool);
                self.open.retain(|(asked_in, _), tool| asked_in != room || is_limit(tool));
                self.close(at);
            }
            _ => {}
        }
    }

    /// The total time for which a question was open, up to `now`.
    #[must_use]
    pub fn total(&self, now: Millis) -> Duration {
        let open_ms = self.since.map_or(0, |since| now.since(since));
        Duration::from_millis(self.before_ms.saturating_add(open_ms))
    }

    fn close(&mut self, at: Millis) {
        if self.open.is_empty()
            && let Some(since) = self.since.take()
        {
            self.before_ms = self.before_ms.saturating_add(at.since(since));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::types::approval::ApprovalAuthor;
    use crate::types::outcome::{Outcome, Status};

    use super::*;

    fn question(call: u64) -> Notice {
        let top_up = serde_json::from_value(serde_json::json!({
            "budget": "tokens", "limit": 10, "used": 9, "set_aside": 0, "needed": 5, "proposed": 5,
            "task": "desk",
        }));
        Notice::TopUpAsked { call: CallId(call), top_up: top_up.unwrap() }
    }

    fn answered(call: u64) -> Notice {
        let (budget, author) = (Budget::Tokens, ApprovalAuthor::Program);
        Notice::ToppedUp { call: CallId(call), budget, more: Some(5), reason: None, author }
    }

    #[test]
    fn time_counts_once_while_any_question_is_open() {
        let (room, child) = (RoomId::from("3f2a"), RoomId::from("3f2a/1"));
        let mut questions = PendingCalls::default();
        let mut take = |room: &RoomId, at: u64, notice: Notice| {
            questions.take(room, Millis(at), &notice);
            questions.total(Millis(at + 1)).as_millis()
        };
        assert_eq!(take(&room, 1_000, question(1)), 1);
        assert_eq!(take(&child, 3_000, question(1)), 2_001, "the same call of another room");
        assert_eq!(take(&room, 5_000, answered(1)), 4_001, "one is open still");
        assert_eq!(take(&child, 6_000, answered(1)), 5_000);
        assert_eq!(take(&room, 9_000, question(2)), 5_001);
        let reason = "enough".to_owned();
        let outcome = Arc::new(Outcome::new(Status::Kill, reason));
        assert_eq!(take(&room, 9_500, Notice::ResultReady { outcome }), 5_500, "an end has none");
    }

    #[test]
    fn a_stopped_turn_asks_for_no_approval_and_its_run_still_for_more_of_a_limit() {
        let room = RoomId::from("3f2a");
        let tools = [(CallId(1), "notes.save"), (CallId(2), Budget::Tokens.key())];
        let open = tools.map(|(call, tool)| ((room.clone(), call), tool.to_owned()));
        let mut questions = PendingCalls::of_stored(open);
        let reason = "enough".to_owned();
        let stopped = Notice::TurnStopped { task: "desk".into(), reason };
        questions.take(&room, Millis(1), &stopped);
        let open: Vec<&String> = questions.open().map(|(.., tool)| tool).collect();
        assert_eq!(open, [Budget::Tokens.key()]);
    }
}
