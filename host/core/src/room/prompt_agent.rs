//! Micro-agents (O-093): the prompt filled with their inputs, and their required outputs.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::messages::text_form;
use super::state::responder::Responder;
use super::{Dialogue, RoomContext};
use crate::config::micro::{missing_inputs, missing_outputs, outputs_text, render};
use crate::setup::TaskSetup;
use crate::types::action::{Action, Reply, Turn};
use crate::types::ids::{FrameId, TaskName};
use crate::types::message::Message;

/// The inputs that a micro-agent would lack; `None` if there are none, or the task is not a
/// micro-agent.
pub(super) fn lacks_inputs(cx: &RoomContext, task: &TaskName, inputs: &Value) -> Option<String> {
    let micro = cx.setup.tasks.get(task)?.prompt_agent.as_ref()?;
    missing_inputs(&micro.inputs, inputs)
}

/// The task's system text for one activation; `None` if it is the config's.
pub(super) fn own_system(cx: &RoomContext, task: &TaskName, inputs: &Value) -> Option<Arc<str>> {
    cx.setup.tasks.get(task).and_then(|task| system_of(task, inputs))
}

impl Dialogue<'_> {
    /// Refuses a finish that lacks an output. The agent reads which one, and its text stays in the
    /// history. `None` if it may finish.
    pub(super) fn refuse_finish(
        &mut self,
        id: FrameId,
        turn: &Turn,
    ) -> Option<(Responder, Arc<Message>)> {
        let Action::Finish { outputs } = &turn.action else { return None };
        let text = self
            .frames
            .task_of(self.cx, id)?
            .1
            .prompt_agent
            .as_ref()
            .and_then(|micro| missing_outputs(&micro.outputs, outputs))?;
        let reply = Reply { content: Some(text_form(outputs)), ..Reply::default() };
        let reply_turn = Turn { action: Action::Reply(reply), ..turn.clone() };
        // Written here, because a refused turn does not reach the point where others are written.
        if let Some(message) = self.turn_message(id, reply_turn, None) {
            self.write_history(id, &Arc::new(message));
        }
        Some((Responder::Agent, self.frames.error_message(self.cx, id, text)))
    }
}

/// The inputs with the message as the only missing one. If several are missing, or none, they stay
/// as they are.
pub(super) fn with_message(
    task: &TaskSetup,
    inputs: Arc<Value>,
    message: Option<&str>,
) -> Arc<Value> {
    let Some((micro, text)) = task.prompt_agent.as_ref().zip(message) else { return inputs };
    let mut missing = micro.inputs.keys().filter(|name| inputs.get(name.as_str()).is_none());
    match (missing.next(), missing.next()) {
        (Some(name), None) => {
            let mut all_inputs = inputs.as_object().cloned().unwrap_or_else(Map::new);
            all_inputs.insert(name.clone(), Value::String(text.to_owned()));
            Arc::new(Value::Object(all_inputs))
        }
        _ => inputs,
    }
}

fn system_of(task: &TaskSetup, inputs: &Value) -> Option<Arc<str>> {
    let micro = task.prompt_agent.as_ref()?;
    let outputs = outputs_text(&micro.outputs);
    let between = if outputs.is_empty() { "" } else { "\n\n" };
    Some(format!("{}{between}{outputs}", render(&task.system, inputs)).into())
}
