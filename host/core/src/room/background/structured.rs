//! A result in a fixed form: the entry task of such a room hands it in with `submit_result`, is
//! asked again when it ends without, and fails in the end (R-021, D17, D18).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::Room;
use super::super::frame::{CallOutcome, Frame, Responder};
use super::super::termination::FrameEnd;
use crate::types::host_tool::HostTool;
use crate::types::ids::{FrameId, TaskName};
use crate::types::message::{Signal, ToolCall};
use crate::types::outcome::{EndCause, Status};

const NUDGE: &str = "Your task is not over: hand its result in by calling `submit_result` with `status` (completed, failed or blocked), \
                     `summary` and, where there are facts for a program, `data`.";

/// What a program reads of a result that was never handed in.
pub(super) fn never_handed_in(attempts: u64) -> String {
    format!("no_structured_result_after_{attempts}_attempts")
}

/// How far a room is with its result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Structured {
    /// How often the task was asked again.
    asked_again: u32,
    /// What was handed in, or what says that nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
}

impl Structured {
    /// Nothing to write down.
    pub(super) fn is_new(&self) -> bool {
        *self == Self::default()
    }
}

impl Room {
    /// A run begins: its entry task is shown the tool that it must end with.
    pub(in crate::room) fn offer_submission(&mut self, entry: &TaskName) {
        if self.opening.structured.is_some() {
            self.offer(entry, HostTool::SubmitResult);
        }
    }

    /// The task hands its result in.
    pub(in crate::room) fn submitted(&mut self, id: FrameId, call: &ToolCall) -> CallOutcome {
        let is_root = self.frames.get(&id).is_some_and(|frame| frame.caller.is_none());
        if self.opening.structured.is_none() || !is_root {
            return self.said_error(
                id,
                "No result in a fixed form is asked of this task: end it as usual.".to_owned(),
            );
        }
        let text =
            |name: &str| call.arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        let (status, summary) = (text("status"), text("summary").trim().to_owned());
        if !matches!(status, "completed" | "failed" | "blocked") {
            return self.said_error(
                id,
                format!("`status` must be completed, failed or blocked, not {status:?}."),
            );
        }
        if summary.is_empty() {
            return self.said_error(
                id,
                "`summary` is empty: say in words what came of the task.".to_owned(),
            );
        }
        let mut result = json!({ "status": status, "summary": summary });
        if let Some(data) = call.arguments.get("data").filter(|data| !data.is_null()) {
            result["data"] = data.clone();
        }
        self.tasks.structured.result = Some(result.clone());
        let mut message = Arc::unwrap_or_clone(self.host_message(id, summary));
        message.signal = Some(if status == "completed" {
            Signal::Done { value: Some(result) }
        } else {
            Signal::Rejected
        });
        CallOutcome { message: Some(Box::new(message)), is_error: false, is_result: false }
    }

    /// The entry task ends without having handed its result in: it is asked again, as often as it
    /// may be. None: it ends, so or otherwise.
    pub(in crate::room) fn asks_again(
        &mut self,
        id: FrameId,
        ending: FrameEnd,
    ) -> Option<FrameEnd> {
        let Some(retries) = self.opening.structured else { return Some(ending) };
        let Some(frame) = self.frames.get(&id).filter(|frame| frame.caller.is_none()) else {
            return Some(ending);
        };
        if self.tasks.structured.result.is_some()
            || !ending.status.is_success()
            || self.closed().is_some()
        {
            return Some(ending);
        }
        if self.tasks.structured.asked_again >= retries {
            let attempts = u64::from(retries) + 1;
            let reason = never_handed_in(attempts);
            let failed = self.failed_result(frame, &reason);
            self.tasks.structured.result = Some(failed);
            let cause = Some(EndCause::NoStructuredResult { attempts });
            return Some(FrameEnd { cause, ..FrameEnd::new(Status::Error, reason) });
        }
        self.tasks.structured.asked_again += 1;
        let message = self.host_message(id, NUDGE.to_owned());
        self.write_history(id, &message);
        self.put_pending(id, Responder::Agent, Arc::unwrap_or_clone(message));
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.attempt = None;
            frame.stalled = 0;
            // Each attempt has as many steps as the task is given.
            let given = self.setup.tasks.get(&frame.task).and_then(|task| task.turns);
            frame.turn_limit =
                given.map(|turns| frame.steps.saturating_add(turns)).or(frame.turn_limit);
        }
        self.runnable.push_back(id);
        None
    }

    fn failed_result(&self, frame: &Frame, reason: &str) -> Value {
        let last = frame.pending.as_ref().map(|message| message.text().to_owned());
        let described = self
            .setup
            .tasks
            .get(&frame.task)
            .map(|task| task.description.trim())
            .filter(|text| !text.is_empty());
        let role = described.unwrap_or(frame.task.as_str());
        json!({ "status": "failed", "by": "orchestration", "reason": reason, "last_output": last, "role": role })
    }

    /// What was handed in, for the room's outcome.
    pub(in crate::room) fn structured_result(&self) -> Option<Value> {
        self.tasks.structured.result.clone()
    }
}
