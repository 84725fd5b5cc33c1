//! The identity of an activation: its task, its caller and its inputs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Frame;
use crate::protocol::event::RoleCall;
use crate::setup::{Setup, TaskSetup};
use crate::types::ids::{FrameId, PluginName, TaskName};
use crate::types::message::lead;
use crate::types::view::Peer;

/// The setup of a frame's task. A step reads it many times, and a search by name costs more than
/// most of those reads.
#[derive(Clone, Debug, Default)]
pub(in crate::room) struct CachedTaskSetup(Option<(Arc<Setup>, Arc<TaskSetup>)>);

impl CachedTaskSetup {
    pub(in crate::room) fn new(setup: &Arc<Setup>, task: &TaskName) -> Self {
        Self(setup.tasks.get(task).map(|of_task| (Arc::clone(setup), Arc::clone(of_task))))
    }

    /// The setup of the task in `setup`, which may have replaced the cached one.
    pub(in crate::room) fn of<'r>(
        &'r self,
        setup: &'r Arc<Setup>,
        task: &TaskName,
    ) -> Option<&'r Arc<TaskSetup>> {
        match &self.0 {
            Some((of, of_task)) if Arc::ptr_eq(of, setup) => Some(of_task),
            _ => setup.tasks.get(task),
        }
    }
}

/// A cache makes no difference between two frames.
impl PartialEq for CachedTaskSetup {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The identity of an activation. Most of it is fixed when the frame begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct Activation {
    pub id: FrameId,
    pub task: TaskName,
    /// Not part of the folded state.
    #[serde(skip)]
    pub task_setup: CachedTaskSetup,
    pub caller: Option<FrameId>,
    /// The tools that led to the caller's delegation, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub led_by: Vec<PluginName>,
    pub inputs: Arc<Value>,
    /// The system text of this activation, if it differs from the task's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<Arc<str>>,
    pub peers: Arc<Vec<Peer>>,
    /// Number of messages in the agent's history when the activation began (L-050l).
    pub history_start: usize,
    /// The only role to ask, outside the step loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<RoleCall>,
}

impl Frame {
    /// Replaces the inputs, after gates changed its first message.
    pub(in crate::room) fn change_inputs(&mut self, inputs: Arc<Value>, system: Option<Arc<str>>) {
        (self.activation.inputs, self.activation.system) = (inputs, system);
    }

    /// Adds tools that led to a message of its user.
    pub(in crate::room) fn lead_by(&mut self, tools: &[PluginName]) {
        lead(&mut self.activation.led_by, tools);
    }

    /// Replaces the tasks that its agent may hand work to.
    pub(in crate::room) fn offer_peers(&mut self, peers: Vec<Peer>) {
        self.activation.peers = Arc::new(peers);
    }

    /// Asks one role only, if a role is called.
    pub(in crate::room) fn ask_only(&mut self, role_call: Option<RoleCall>) {
        self.activation.only = role_call;
    }

    /// Counts an answer of the only role to ask. Returns the remaining call.
    pub(in crate::room) fn count_role_answer(&mut self) -> Option<RoleCall> {
        let only = self.activation.only.as_mut()?;
        only.times = only.times.saturating_sub(1);
        Some(only.clone())
    }

    /// An entry was added to the history in front of its first.
    pub(in crate::room) fn shift_history_start(&mut self) {
        self.activation.history_start += 1;
    }

    /// `removed` entries in front of its first were removed from the history.
    pub(in crate::room) fn lower_history_start(&mut self, removed: usize) {
        self.activation.history_start -= removed;
    }

    /// Renames its task to one that no setup has.
    #[cfg(test)]
    pub(in crate::room) fn leave_setup(&mut self) {
        self.activation.task = TaskName::from("gone");
        self.activation.task_setup = CachedTaskSetup::default();
    }
}
