//! The time for which questions about calls were open, from the events of a run. It is the user's
//! time, not the agent's.

use std::collections::HashSet;
use std::time::Duration;

use conclave_core::protocol::notice::Notice;
use conclave_core::types::ids::{CallId, Millis, RoomId};

/// Approvals and limit increases that wait for an answer.
#[derive(Debug, Default)]
pub(crate) struct OpenQuestions {
    open: HashSet<(RoomId, CallId)>,
    /// The time at which the first open question was asked.
    since: Option<Millis>,
    /// Milliseconds for which earlier questions were open.
    before_ms: u64,
}

impl OpenQuestions {
    /// Handles a notice of a room.
    pub(crate) fn take(&mut self, room: &RoomId, at: Millis, notice: &Notice) {
        match notice {
            Notice::ApprovalAsked { call, .. } | Notice::TopUpAsked { call, .. } => {
                self.open.insert((room.clone(), *call));
                self.since.get_or_insert(at);
            }
            Notice::ApprovalGiven { call, .. } | Notice::ToppedUp { call, .. } => {
                self.open.remove(&(room.clone(), *call));
                self.close(at);
            }
            // Their answers are not awaited any more.
            Notice::TurnStopped { .. } | Notice::ResultReady { .. } => {
                self.open.retain(|(asked_in, _)| asked_in != room);
                self.close(at);
            }
            _ => {}
        }
    }

    /// The total time for which a question was open, up to `now`.
    pub(crate) fn total(&self, now: Millis) -> Duration {
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
    use conclave_core::policy::budget::Budget;
    use conclave_core::types::approval::ApprovalAuthor;

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
        let mut questions = OpenQuestions::default();
        let mut take = |room: &RoomId, at: u64, notice: Notice| {
            questions.take(room, Millis(at), &notice);
            questions.total(Millis(at + 1)).as_millis()
        };
        assert_eq!(take(&room, 1_000, question(1)), 1);
        assert_eq!(take(&child, 3_000, question(1)), 2_001, "the same call of another room");
        assert_eq!(take(&room, 5_000, answered(1)), 4_001, "one is open still");
        assert_eq!(take(&child, 6_000, answered(1)), 5_000);
        assert_eq!(take(&room, 9_000, question(2)), 5_001);
        let stopped = Notice::TurnStopped { task: "desk".into(), reason: String::new() };
        assert_eq!(take(&room, 9_500, stopped), 5_500, "a turn that is stopped has no questions");
    }
}
