//! What is seen of a run from outside: the steps that ended, who was asked, and whether it is to be
//! stopped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_runtime::Stopper;
use conclave_runtime::event::Event;
use conclave_runtime::ids::{CallId, PluginName, TaskName};
use conclave_runtime::message::Message;
use conclave_runtime::notice::Notice;
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber};

/// A step that ended.
#[derive(Clone, Debug)]
pub struct Step {
    pub task: TaskName,
    /// A seat or a sub-task.
    pub by: String,
    /// What is pending now.
    pub message: Option<Arc<Message>>,
}

/// What happened since the last call.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub steps: Vec<Step>,
    /// Replies of each agent's model, by its plugin.
    pub replies: BTreeMap<PluginName, u64>,
    calls: BTreeMap<CallId, PluginName>,
}

/// Stops a run when a task has ended so many steps.
#[derive(Clone)]
pub struct Kill {
    pub task: TaskName,
    pub after: u64,
    pub stopper: Stopper,
}

/// Follows one session.
#[derive(Default)]
pub struct Watcher {
    seen: Mutex<Seen>,
    kill: Mutex<Option<Kill>>,
}

impl Watcher {
    /// Takes what was seen, and begins anew.
    pub fn take(&self) -> Seen {
        std::mem::take(&mut *lock(&self.seen))
    }

    /// From now on this, or nothing, stops the run.
    pub fn set_kill(&self, kill: Option<Kill>) {
        *lock(&self.kill) = kill;
    }

    fn step_ended(&self, step: Step) {
        let mut kill = lock(&self.kill);
        if let Some(Kill { task, after, stopper }) = kill.as_mut()
            && *task == step.task
        {
            *after = after.saturating_sub(1);
            if *after == 0 {
                stopper.stop("the scenario kills the session here");
                *kill = None;
            }
        }
        lock(&self.seen).steps.push(step);
    }
}

impl Subscriber for Watcher {
    fn on(&self, happening: &Published) {
        match &happening.what {
            RunEvent::Told { told: Notice::StepEnded { task, by, message } } => {
                self.step_ended(Step {
                    task: task.clone(),
                    by: by.clone(),
                    message: message.clone(),
                });
            }
            RunEvent::Told { told: Notice::StepStarted { call, agent, .. } } => {
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
