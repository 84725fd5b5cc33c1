//! Results in a fixed form. The entry task of such a room submits its result with `submit_result`.
//! It is asked again if it ends without one, and fails after the last attempt (R-021, D17, D18).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::room::state::closing::FrameEnd;
use crate::room::state::frame::Frame;
use crate::room::state::responder::Responder;
use crate::room::state::rounds::CallOutcome;
use crate::room::{Background, BackgroundWork, Frames, Histories, RoomContext};
use crate::tool_calls::arguments::{check, explain};
use crate::types::host_tool::HostTool;
use crate::types::ids::{FrameId, TaskName};
use crate::types::message::{Signal, ToolCall};
use crate::types::outcome::{EndCause, Status};

const NUDGE: &str = "Your task is not over: hand its result in by calling `submit_result` with `status` (completed, failed or blocked), \
                     `summary` and, where there are facts for a program, `data`.";

/// The error code of a result that was never submitted.
pub(super) fn never_handed_in(attempts: u64) -> String {
    format!("no_structured_result_after_{attempts}_attempts")
}

/// The state of a room's structured result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Structured {
    /// Times that the task was asked again.
    asked_again: u32,
    /// The submitted result, or the record that there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
}

impl Structured {
    /// Whether there is nothing to serialize.
    pub(super) fn is_new(&self) -> bool {
        *self == Self::default()
    }
}

impl Histories {
    /// Offers the submission tool to the entry task at the start of a run.
    pub(in crate::room) fn offer_submission(&mut self, cx: &RoomContext, entry: &TaskName) {
        if cx.opening.structured_retries.is_some() {
            let schema = cx.opening.result_schema.as_ref();
            self.offer(cx, entry, HostTool::SubmitResult, |input| {
                // The agent reads the schema by which its data is checked.
                if let Some((schema, data)) = schema.zip(input.pointer_mut("/properties/data")) {
                    data.clone_from(schema);
                }
            });
        }
    }
}

impl Background {
    /// Takes a submitted result.
    pub(in crate::room) fn submitted(
        &mut self,
        cx: &mut RoomContext,
        frames: &Frames,
        id: FrameId,
        call: &ToolCall,
    ) -> CallOutcome {
        // The result is that of the room, so a sub-task cannot submit it.
        let is_root = frames.get(&id).is_some_and(|frame| frame.caller.is_none());
        if cx.opening.structured_retries.is_none() || !is_root {
            return frames.error_outcome(
                cx,
                id,
                "No result in a fixed form is asked of this task: end it as usual.".to_owned(),
            );
        }
        let text =
            |name: &str| call.arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        let (status, summary) = (text("status"), text("summary").trim().to_owned());
        if !matches!(status, "completed" | "failed" | "blocked") {
            return frames.error_outcome(
                cx,
                id,
                format!("`status` must be completed, failed or blocked, not {status:?}."),
            );
        }
        if summary.is_empty() {
            return frames.error_outcome(
                cx,
                id,
                "`summary` is empty: say in words what came of the task.".to_owned(),
            );
        }
        let data = match checked_data(cx, status, call) {
            Ok(data) => data,
            Err(text) => return frames.error_outcome(cx, id, text),
        };
        let mut result = json!({ "status": status, "summary": summary });
        if let Some(data) = data {
            result["data"] = data;
        }
        // Stored apart from the message, so that `asks_again` finds it.
        self.records.structured.result = Some(result.clone());
        let mut message = frames.host_message(cx, id, summary);
        message.signal = Some(if status == "completed" {
            Signal::Done { value: Some(result) }
        } else {
            Signal::Rejected
        });
        CallOutcome { message: Some(Box::new(message)), is_error: false, is_result: false }
    }

    /// The submitted result, for the room's outcome.
    pub(in crate::room) fn structured_result(&self) -> Option<Value> {
        self.records.structured.result.clone()
    }
}

impl BackgroundWork<'_> {
    /// Asks the entry task again if it ends without a submitted result and has attempts left.
    /// Returns the end of the frame; `None` if it continues.
    pub(in crate::room) fn asks_again(
        &mut self,
        id: FrameId,
        ending: FrameEnd,
    ) -> Option<FrameEnd> {
        let Some(retries) = self.cx.opening.structured_retries else { return Some(ending) };
        let Some(frame) = self.frames.get(&id).filter(|frame| frame.caller.is_none()) else {
            return Some(ending);
        };
        if self.background.records.structured.result.is_some()
            || !ending.status.is_success()
            || self.channels.is_closed()
        {
            return Some(ending);
        }
        if self.background.records.structured.asked_again >= retries {
            let attempts = u64::from(retries) + 1;
            let reason = never_handed_in(attempts);
            let failed = failed_result(self.cx, frame, &reason);
            self.background.records.structured.result = Some(failed);
            let cause = Some(EndCause::NoStructuredResult { attempts });
            return Some(FrameEnd { cause, ..FrameEnd::new(Status::Error, reason) });
        }
        self.background.records.structured.asked_again += 1;
        let message = Arc::new(self.frames.host_message(self.cx, id, NUDGE.to_owned()));
        self.dialogue().write_history(id, &message);
        self.dialogue().put_pending(id, Responder::Agent, message);
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.abandon_step();
            frame.end_stall();
            // Each attempt has the full number of steps of the task.
            let of_task = self.cx.setup.tasks.get(&frame.task).and_then(|task| task.turns);
            let turns = self.cx.opening.turns.or(of_task);
            let steps = frame.counters().steps;
            frame.grant_steps(turns.map(|turns| steps.saturating_add(turns)));
        }
        self.frames.runnable.push_back(id);
        None
    }
}

/// Returns the `data` of a submitted result. The schema of the delegation binds completed
/// results only: a failed one may have nothing to show.
fn checked_data(cx: &RoomContext, status: &str, call: &ToolCall) -> Result<Option<Value>, String> {
    let data = call.arguments.get("data").filter(|data| !data.is_null());
    let Some(schema) = cx.opening.result_schema.as_ref().filter(|_| status == "completed") else {
        return Ok(data.cloned());
    };
    let Some(data) = data else {
        return Err(format!("`data` is missing; its JSON Schema is {schema}"));
    };
    check(schema, data).map(Some).map_err(|mut wrong| {
        for field in &mut wrong {
            let within = std::mem::take(&mut field.path);
            // An error of the whole value has an empty path.
            let names = ["data", within.as_str()];
            let path = names.into_iter().filter(|name| !name.is_empty());
            field.path = path.collect::<Vec<_>>().join(".");
        }
        explain(HostTool::SubmitResult.as_str(), &wrong)
    })
}

fn failed_result(cx: &RoomContext, frame: &Frame, reason: &str) -> Value {
    let last = frame.turn().pending.as_ref().map(|message| message.text().to_owned());
    let described = cx
        .setup
        .tasks
        .get(&frame.task)
        .map(|task| task.description.trim())
        .filter(|text| !text.is_empty());
    let role = described.unwrap_or(frame.task.as_str());
    json!({ "status": "failed", "by": "orchestration", "reason": reason, "last_output": last, "role": role })
}
