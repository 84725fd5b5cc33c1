//! Micro-agents (O-093): their prompt with what they were given in it, and the outputs that they
//! must give.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Room;
use super::frame::Responder;
use super::messages::text_form;
use crate::config::micro::{missing_inputs, missing_outputs, outputs_text, render};
use crate::setup::TaskSetup;
use crate::types::action::{Action, Reply, Turn};
use crate::types::ids::{FrameId, TaskName};
use crate::types::message::Message;

impl Room {
    /// What of its inputs a micro-agent would lack; none when it lacks nothing, or the task is
    /// none.
    pub(super) fn lacks_inputs(&self, task: &TaskName, inputs: &Value) -> Option<String> {
        let micro = self.setup.tasks.get(task)?.micro.as_ref()?;
        missing_inputs(&micro.inputs, inputs)
    }

    /// A finish that lacks an output is no finish: the agent reads which, and its own words stay in
    /// its history. None: it may finish.
    pub(super) fn refuse_finish(
        &mut self,
        id: FrameId,
        turn: &Turn,
    ) -> Option<(Responder, Arc<Message>)> {
        let Action::Finish { outputs } = &turn.action else { return None };
        let text = self
            .task_of(id)?
            .1
            .micro
            .as_ref()
            .and_then(|micro| missing_outputs(&micro.outputs, outputs))?;
        let reply = Reply { content: Some(text_form(outputs)), ..Reply::default() };
        let said = Turn { action: Action::Reply(reply), ..turn.clone() };
        if let Some(message) = self.turn_message(id, said) {
            self.write_history(id, &message);
        }
        Some((Responder::Agent, self.error_message(id, text)))
    }

    /// The task's system text for one activation; none: as the config has it.
    pub(super) fn own_system(&self, task: &TaskName, inputs: &Value) -> Option<Arc<str>> {
        self.setup.tasks.get(task).and_then(|task| system_of(task, inputs))
    }
}

/// The only input that is wanted is the message itself, where nobody gave it by name.
pub(super) fn with_message(
    task: &TaskSetup,
    inputs: Arc<Value>,
    message: Option<&str>,
) -> Arc<Value> {
    let Some((micro, text)) = task.micro.as_ref().zip(message) else { return inputs };
    let mut wanted = micro.inputs.keys().filter(|name| inputs.get(name.as_str()).is_none());
    match (wanted.next(), wanted.next()) {
        (Some(name), None) => {
            let mut given = inputs.as_object().cloned().unwrap_or_else(Map::new);
            given.insert(name.clone(), Value::String(text.to_owned()));
            Arc::new(Value::Object(given))
        }
        _ => inputs,
    }
}

fn system_of(task: &TaskSetup, inputs: &Value) -> Option<Arc<str>> {
    let micro = task.micro.as_ref()?;
    let outputs = outputs_text(&micro.outputs);
    let between = if outputs.is_empty() { "" } else { "\n\n" };
    Some(format!("{}{between}{outputs}", render(&task.system, inputs)).into())
}
