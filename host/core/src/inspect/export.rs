//! The export of a room's records as an OpenHands log: actions and observations with numbers,
//! causes, sources and times (O-001, O-002, O-114). Derived by the same fold as every view. Secret
//! values are not in the records, so they are not in the log.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::protocol::effect::Effect;
use crate::protocol::event::{Event, Record};
use crate::protocol::notice::Notice;
use crate::room::{ReplayedTurn, Room};
use crate::trajectory::{Era, Source};
use crate::types::action::{Observation, PastAction, Turn};
use crate::types::ids::{CallId, FrameId, Millis};

/// The events of a room's log, in order.
#[must_use]
pub fn log(records: impl IntoIterator<Item = Record>, era: Era) -> Vec<Value> {
    let mut log = ExportLog {
        era,
        events: Vec::new(),
        steps: BTreeMap::new(),
        turns: BTreeMap::new(),
        exported: BTreeSet::new(),
    };
    let mut room = Room::new();
    for Record { at, event, .. } in records {
        if let Some(event) = room.effect_of(&event) {
            log.take(at, event);
        }
        room.handle(event, at);
        let notices: Vec<Notice> = std::iter::from_fn(|| room.poll_notice()).collect();
        // Read first: a user message that arrived before a replayed turn is in its `since` as well.
        log.exported.extend(notices.iter().filter_map(|notice| match notice {
            Notice::UserMessageRead { message, .. } => Some(message.seq),
            _ => None,
        }));
        for ReplayedTurn { frame, since, turn } in room.replayed_turns() {
            log.since(at, *frame, since);
            log.turn(at, *frame, turn);
        }
        notices.iter().for_each(|notice| log.take_notice(at, notice));
        while let Some(effect) = room.poll_effect() {
            if let Effect::StepAgent { call, frame, .. } = effect {
                let since = room.agent_view(call).map(|view| view.since).unwrap_or_default();
                log.since(at, frame, &since);
                log.steps.insert(call, frame);
            }
        }
    }
    log.events
}

struct ExportLog {
    era: Era,
    events: Vec<Value>,
    steps: BTreeMap<CallId, FrameId>,
    /// The events of each agent's latest turn that have no observation so far.
    turns: BTreeMap<FrameId, Vec<i64>>,
    /// Sequence numbers of user messages that arrived while an agent was busy.
    exported: BTreeSet<u64>,
}

impl ExportLog {
    fn take(&mut self, at: Millis, event: &Event) {
        match event {
            Event::RoomOpened { opening, .. } | Event::RunStarted { opening, .. } => {
                self.turns.clear();
                self.user(at, opening.content.as_deref());
            }
            Event::UserAnswered { text, .. } => self.user(at, text.as_deref()),
            Event::UserMessageSent { text, .. } => self.user(at, Some(text)),
            Event::AgentStepped { call, answer: Ok(turn), .. } => {
                if let Some(frame) = self.steps.remove(call) {
                    self.turn(at, frame, turn);
                }
            }
            Event::AgentStepped { call, answer: Err(fault), .. }
                if self.steps.remove(call).is_some() =>
            {
                let observation =
                    Observation::Error { content: fault.message.clone() }.to_json(self.era);
                self.put(at, &Source::Environment, None, observation);
            }
            _ => {}
        }
    }

    fn take_notice(&mut self, at: Millis, notice: &Notice) {
        if let Notice::AgentStateChanged { state, reason, .. } = notice {
            let mut extras = Map::from_iter([("agent_state".to_owned(), json!(state.as_str()))]);
            if self.era == Era::V2025 {
                extras.insert("reason".to_owned(), json!(reason.as_deref().unwrap_or_default()));
            }
            let observation =
                json!({ "observation": "agent_state_changed", "content": "", "extras": extras });
            self.put(at, &Source::Environment, None, observation);
        }
    }

    fn user(&mut self, at: Millis, text: Option<&str>) {
        let Some(text) = text else { return };
        let message =
            json!({ "action": "message", "args": { "content": text, "wait_for_response": false } });
        self.put(at, &Source::User, None, message);
    }

    fn turn(&mut self, at: Millis, frame: FrameId, turn: &Turn) {
        let events = turn.to_events(self.era);
        let open =
            events.into_iter().map(|event| self.put(at, &Source::Agent, None, event)).collect();
        self.turns.insert(frame, open);
    }

    /// Adds the observations that the agent gets before its next step.
    fn since(&mut self, at: Millis, frame: FrameId, since: &[PastAction]) {
        // A user message that arrived in between was exported on arrival.
        let since = since.iter().filter(|action| !self.exported.contains(&action.seq));
        let observations = since.filter_map(|action| action.observation.as_ref());
        for observation in observations.collect::<Vec<_>>() {
            let cause = self
                .turns
                .get_mut(&frame)
                .and_then(|open| (!open.is_empty()).then(|| open.remove(0)));
            let source = if cause.is_some() { Source::Agent } else { Source::Environment };
            self.put(at, &source, cause, observation.to_json(self.era));
        }
    }

    /// Appends an event with its envelope, and returns its number.
    fn put(&mut self, at: Millis, source: &Source, cause: Option<i64>, event: Value) -> i64 {
        let id = i64::try_from(self.events.len()).unwrap_or(i64::MAX);
        let Value::Object(fields) = event else { return id };
        let mut event_fields = Map::from_iter([
            ("id".to_owned(), json!(id)),
            ("timestamp".to_owned(), json!(moment(at))),
            ("source".to_owned(), json!(source.name())),
        ]);
        event_fields.extend(cause.map(|cause| ("cause".to_owned(), json!(cause))));
        event_fields.extend(fields);
        // Adds the line for people; a kind outside both eras has none.
        let event_fields = Value::Object(event_fields);
        let event = crate::trajectory::TrajectoryEvent::from_json(&event_fields)
            .map_or(event_fields, |event| event.to_json(self.era));
        self.events.push(event);
        id
    }
}

/// The time as logs write it: `2026-01-31T14:05:09.250000`, in UTC.
fn moment(at: Millis) -> String {
    const DAY: u64 = 86_400_000;
    let (days, within) = (at.0 / DAY + 719_468, at.0 % DAY);
    // Years that begin in March have their leap day last.
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second, milli) =
        (within / 3_600_000, within / 60_000 % 60, within / 1_000 % 60, within % 1_000);
    let fraction = if milli == 0 { String::new() } else { format!(".{milli:03}000") };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::action::{Action, Reply};
    use crate::types::message::{ToolCall, ToolResult};

    const AT: Millis = Millis(1_769_868_309_250);

    fn empty(era: Era) -> ExportLog {
        ExportLog {
            era,
            events: Vec::new(),
            steps: BTreeMap::new(),
            turns: BTreeMap::new(),
            exported: BTreeSet::new(),
        }
    }

    fn turn(action: Action) -> Turn {
        Turn { action, thought: "look".to_owned(), wait_for_response: false, extra: Vec::new() }
    }

    fn brief(log: &ExportLog) -> Vec<String> {
        let word = |event: &Value, key: &str| {
            event.get(key).map(|value| value.to_string().replace('"', "")).unwrap_or_default()
        };
        let line = |event: &Value| {
            let kind = word(event, "action") + &word(event, "observation");
            format!(
                "{} {} {kind} {}",
                word(event, "id"),
                word(event, "source"),
                word(event, "cause")
            )
        };
        log.events.iter().map(|event| line(event).trim_end().to_owned()).collect()
    }

    #[test]
    fn times_are_written_as_logs_have_them() {
        assert_eq!(moment(AT), "2026-01-31T14:05:09.250000");
        assert_eq!(moment(Millis(0)), "1970-01-01T00:00:00");
        assert_eq!(moment(Millis(1_709_164_800_000)), "2024-02-29T00:00:00");
    }

    #[test]
    fn an_observation_names_the_action_that_it_answers() {
        let mut log = empty(Era::V2024);
        log.user(AT, Some("List."));
        let run = Action::Run { command: "ls".to_owned(), background: false };
        log.turn(AT, FrameId(1), &turn(run.clone()));
        let observation = Observation::Command {
            command_id: -1,
            command: "ls".to_owned(),
            exit_code: 0,
            content: "a".to_owned(),
        };
        let unsolicited = PastAction {
            action: None,
            observation: Some(Observation::Error { content: "late".to_owned() }),
            seq: 2,
        };
        log.since(
            AT,
            FrameId(1),
            &[
                PastAction { action: Some(run), observation: Some(observation), seq: 1 },
                unsolicited,
            ],
        );
        assert_eq!(
            brief(&log),
            ["0 user message", "1 agent run", "2 agent run 1", "3 environment error"]
        );
        assert_eq!(log.events[1]["args"]["thought"], "look");
        assert_eq!(log.events[1]["message"], "Running command: ls");
        assert_eq!(log.events[1]["timestamp"], "2026-01-31T14:05:09.250000");
    }

    #[test]
    fn each_call_of_a_reply_is_an_event_with_its_own_answer() {
        let call = |name: &str| ToolCall { id: name.to_owned(), ..ToolCall::new(name, json!({})) };
        let reply =
            Action::Reply(Reply { tool_calls: vec![call("a.x"), call("b.y")], ..Reply::default() });
        let result = |name: &str| {
            let call_id = name.to_owned();
            Some(Observation::Tool(ToolResult {
                call_id,
                name: name.to_owned(),
                content: "ok".to_owned(),
                value: None,
                is_error: false,
            }))
        };
        let mut log = empty(Era::V2025);
        log.turn(AT, FrameId(1), &turn(reply.clone()));
        let since = [
            PastAction { action: Some(reply), observation: result("a.x"), seq: 1 },
            PastAction { action: None, observation: result("b.y"), seq: 1 },
        ];
        log.since(AT, FrameId(1), &since);
        assert_eq!(
            brief(&log),
            ["0 agent call_tool_mcp", "1 agent call_tool_mcp", "2 agent mcp 0", "3 agent mcp 1"]
        );
    }

    #[test]
    fn a_kind_that_no_era_knows_is_kept() {
        let mut log = empty(Era::V2025);
        log.turn(
            AT,
            FrameId(1),
            &turn(Action::Custom { name: "juggle".to_owned(), arguments: json!({ "balls": 3 }) }),
        );
        assert_eq!(log.events[0]["action"], "juggle");
        assert_eq!(log.events[0]["args"]["balls"], 3);
        assert_eq!(log.events[0]["id"], 0);
    }
}
