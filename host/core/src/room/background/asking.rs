//! Queries, messages and stops for background tasks: by tools of the task that started them (R-066,
//! R-089), or from outside.

use std::sync::Arc;

use serde_json::{Value, json};

use super::ending::EndRecipient;
use crate::protocol::effect::Effect;
use crate::room::state::closing::FrameEnd;
use crate::room::state::rounds::CallOutcome;
use crate::room::{Background, BackgroundWork, RoomContext};
use crate::types::delegation::{BackgroundRecord, BackgroundState};
use crate::types::delivery::DeliveryState;
use crate::types::host_tool::HostTool;
use crate::types::ids::{BackgroundId, ControlId, FrameId, TaskName};
use crate::types::message::{Label, ToolCall};
use crate::types::outcome::{EndCause, Status};
use crate::types::request::{Refusal, RefusalCode, RequestId, RequestReply};
use crate::types::text::cut_chars;

/// Tasks in one answer.
const LISTED: usize = 10;
/// Characters of a task's text in a list.
const LABEL_CHARS: usize = 200;
/// Characters of an output in an answer.
const OUTPUT_CHARS: usize = 4_000;
/// The reason of a cancelled task without another one.
pub(super) const CANCELLED: &str = "cancelled";

impl BackgroundWork<'_> {
    pub(in crate::room) fn cancel_on_request(
        &mut self,
        request: RequestId,
        task: &BackgroundId,
        reason: &str,
    ) {
        let cancelled = self.stop_task(task, &cancelled(reason), &EndRecipient::Notified);
        self.cx.reply(request, Ok(RequestReply::Cancelled { cancelled }));
    }

    /// Answers `task_status`, `cancel_task` and `tell_task` for tasks that the calling task
    /// started.
    pub(in crate::room) fn answer_task_tool(
        &mut self,
        id: FrameId,
        tool: HostTool,
        call: &ToolCall,
    ) -> CallOutcome {
        let Some(by) = self.frames.get(&id).map(|frame| frame.task.clone()) else {
            return CallOutcome::default();
        };
        let argument = |name: &str| {
            call.arguments.get(name).and_then(Value::as_str).unwrap_or_default().trim().to_owned()
        };
        let task_id = BackgroundId::from(argument("task_id"));
        let answer = match tool {
            HostTool::TaskStatus if task_id.as_str().is_empty() => {
                let own = self
                    .background
                    .records
                    .newest()
                    .filter(|record| record.by.as_ref() == Some(&by))
                    .take(LISTED);
                Ok(
                    json!({ "tasks": own.map(|record| status_json(record, false)).collect::<Vec<_>>() }),
                )
            }
            // A task sees only the background tasks that it started.
            _ => self.background.own_task(&by, &task_id).and_then(|record| match tool {
                HostTool::CancelTask => Ok(self.cancel_by(&by, &record)),
                HostTool::TellTask => self
                    .background
                    .tell_task(self.cx, &record.id, argument("text"))
                    .map(|()| json!({ "task_id": record.id, "status": "told" })),
                _ => Ok(status_json(&record, true)),
            }),
        };
        match answer {
            Ok(answer) => {
                let mut message = self.frames.host_message(self.cx, id, answer.to_string());
                // A worker's output derives from external text.
                let is_data = tool == HostTool::TaskStatus && answer.get("output").is_some();
                message.labels.extend(is_data.then_some(Label::Untrusted));
                CallOutcome { message: Some(Box::new(message)), is_error: false, is_result: true }
            }
            Err(refusal) => self.frames.error_outcome(self.cx, id, refusal.to_value().to_string()),
        }
    }

    fn cancel_by(&mut self, by: &TaskName, record: &BackgroundRecord) -> Value {
        if self.stop_task(&record.id, &cancelled(""), &EndRecipient::ExceptTo(by)) {
            return json!({ "task_id": record.id, "cancelled": true });
        }
        let status =
            self.background.records.get(&record.id).map_or(record.state, |record| record.state);
        json!({ "task_id": record.id, "cancelled": false, "status": status.as_str() })
    }
}

impl Background {
    pub(in crate::room) fn report_on_request(
        &mut self,
        cx: &mut RoomContext,
        request: RequestId,
        task: &BackgroundId,
        text: String,
    ) {
        let reply = self.tell_task(cx, task, text).map(|()| RequestReply::Done);
        cx.reply(request, reply);
    }

    fn tell_task(
        &mut self,
        cx: &mut RoomContext,
        id: &BackgroundId,
        text: String,
    ) -> Result<(), Refusal> {
        if text.trim().is_empty() {
            return Err(Refusal::new(
                RefusalCode::BadArguments,
                "`text` is empty: say what the task's agent is to read.",
            ));
        }
        let Some(record) = self.records.get(id) else { return Err(unknown(id)) };
        let state = record.state;
        match self.tasks.get_mut(id).filter(|task| !task.is_stopped) {
            Some(task) => {
                // Unique in the child room, which receives such messages from its parent only. Ids
                // from other processes have random bytes.
                let control = ControlId::from(format!("{id}-told-{}", task.messages_sent));
                task.messages_sent += 1;
                cx.effects.push_back(Effect::TellTask { call: task.call, id: control, text });
                Ok(())
            }
            None if state.is_end() => {
                let message =
                    format!("{id} has ended ({}), so nobody there would read it.", state.as_str());
                Err(Refusal::new(RefusalCode::TaskEnded, message))
            }
            None => Err(Refusal::new(
                RefusalCode::TaskEnded,
                format!("{id} goes on alone, and cannot be reached from here."),
            )),
        }
    }

    fn own_task(&self, by: &TaskName, id: &BackgroundId) -> Result<Arc<BackgroundRecord>, Refusal> {
        let is_mine = |record: &&Arc<BackgroundRecord>| record.by.as_ref() == Some(by);
        self.records.get(id).filter(is_mine).cloned().ok_or_else(|| {
            let own = self
                .records
                .newest()
                .filter(is_mine)
                .filter(|record| !record.state.is_end())
                .take(LISTED);
            Refusal { allowed: own.map(|record| record.id.to_string()).collect(), ..unknown(id) }
        })
    }
}

fn cancelled(reason: &str) -> FrameEnd {
    match reason.trim() {
        "" | CANCELLED => {
            FrameEnd { cause: Some(EndCause::Cancelled), ..FrameEnd::new(Status::Kill, CANCELLED) }
        }
        reason => FrameEnd::new(Status::Kill, format!("{CANCELLED}: {reason}")),
    }
}

fn unknown(id: &BackgroundId) -> Refusal {
    Refusal::new(
        RefusalCode::UnknownTask,
        format!("There is no background task {:?} that was started here.", id.as_str()),
    )
}

/// A record as a model reads it.
fn status_json(record: &BackgroundRecord, with_output: bool) -> Value {
    // The reason of a failure is left out, because it is for people.
    let mut status = json!({
        "task_id": record.id, "agent": record.worker, "task": cut_chars(&record.description, LABEL_CHARS), "status": record.state.as_str(),
    });
    // An output that a gate blocked must not reach an agent by another way.
    let is_open = record.state == BackgroundState::Completed
        && record.delivery.state != DeliveryState::Blocked;
    if let Some(output) = record.output.as_ref().filter(|_| with_output && is_open) {
        status["output"] = json!(cut_chars(output, OUTPUT_CHARS));
    }
    status
}
