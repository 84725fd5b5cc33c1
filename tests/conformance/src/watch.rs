//! A run as seen from outside: finished steps, asked users, and the condition that stops it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_runtime::RoomHandle;
use conclave_runtime::event::Event;
use conclave_runtime::ids::{CallId, PluginName, TaskName};
use conclave_runtime::message::Message;
use conclave_runtime::notice::Notice;
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber};

/// A finished step.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub task: TaskName,
    /// A responder or a sub-task.
    pub by: String,
    /// The pending message.
    pub message: Option<Arc<Message>>,
}

/// The observations since the last call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub steps: Vec<Step>,
    /// Replies of each agent's model, by its plugin.
    pub replies: BTreeMap<PluginName, u64>,
    calls: BTreeMap<CallId, PluginName>,
}

/// Stops a run after a number of steps of a task.
#[derive(Clone)]
pub(crate) struct Kill {
    pub task: TaskName,
    pub after: u64,
    pub handle: RoomHandle,
}

/// A follower of one session.
#[derive(Default)]
pub(crate) struct Watcher {
    seen: Mutex<Seen>,
    kill: Mutex<Option<Kill>>,
}

impl Watcher {
    /// Returns the observations and clears them.
    pub(crate) fn take(&self) -> Seen {
        std::mem::take(&mut *lock(&self.seen))
    }

    /// Replaces the condition that stops the run. `None` for no condition.
    pub(crate) fn set_kill(&self, kill: Option<Kill>) {
        *lock(&self.kill) = kill;
    }

    fn step_ended(&self, step: Step) {
        let mut kill = lock(&self.kill);
        if let Some(Kill { task, after, handle }) = kill.as_mut()
            && *task == step.task
        {
            *after = after.saturating_sub(1);
            if *after == 0 {
                handle.stop("the scenario kills the session here");
                *kill = None;
            }
        }
        lock(&self.seen).steps.push(step);
    }
}

impl Subscriber for Watcher {
    fn on(&self, happening: &Published) {
        match &happening.what {
            RunEvent::Notice { notice: Notice::StepEnded { task, by, message, .. } } => {
                self.step_ended(Step {
                    task: task.clone(),
                    by: by.to_string(),
                    message: message.clone(),
                });
            }
            RunEvent::Notice { notice: Notice::StepStarted { call, agent, .. } } => {
                lock(&self.seen).calls.insert(*call, agent.clone());
            }
            RunEvent::Recorded { record } => {
                if let Event::AgentStepped { call, .. } = &record.event {
                    let mut seen = lock(&self.seen);
                    if let Some(agent) = seen.calls.remove(call) {
                        *seen.replies.entry(agent).or_default() += 1;
                    }
                }
            }
            _ => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
