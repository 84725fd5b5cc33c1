//! Background tasks: may it be started, with how much of the run's budget, in which child room (R-020…R-065). What becomes of the result
//! is decided in `delivery`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::gates::Passing;
use super::{Purpose, Room};
use crate::delegation::{BackgroundRecord, Delegation};
use crate::delivery::{BackgroundStatus, EndedTask, Wake};
use crate::effect::Effect;
use crate::event::{Opening, Spent, UsedByPlugin};
use crate::grant::Layer;
use crate::ids::{BackgroundId, CallId, FrameId, Millis, PluginName, RoomId, TaskName};
use crate::limits::RunLimits;
use crate::manifest::Capability;
use crate::notice::Notice;
use crate::request::{Refusal, RefusalCode, Reply, RequestId};

/// A background task that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct BackgroundTask {
    id: BackgroundId,
    task: TaskName,
    prompt: String,
    context: Value,
    /// The plugin whose grant it counts against.
    started_by: PluginName,
    /// The task that is told of the result.
    notify: TaskName,
    strategy: Option<PluginName>,
    started: Millis,
    /// Set aside for it.
    reserved: Spent,
    /// Tasks that it may have under way at once.
    #[serde(default)]
    at_once: u32,
    /// What plugins had used when it was started.
    inherited: UsedByPlugin,
    /// It was told to stop, and has not yet said what it used.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_stopped: bool,
}

impl BackgroundTask {
    /// Tasks under way at once that it stands for.
    pub(super) fn at_once(&self) -> u64 {
        u64::from(self.at_once) + 1
    }
}

/// A delegation on its way: what is wanted, on whose behalf, and who waits for the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Delegating {
    pub(super) delegation: Delegation,
    pub(super) origin: Origin,
}

/// Who asked for a background task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Origin {
    /// A call or an action in a round of this frame.
    Slot { frame: FrameId, slot: usize },
    /// Somebody outside, on behalf of a task or for themselves.
    Request { request: RequestId, by: Option<TaskName> },
}

/// Records of background tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Tasks {
    records: BTreeMap<BackgroundId, Arc<BackgroundRecord>>,
}

impl Tasks {
    /// Nothing to write down.
    pub(super) fn is_new(&self) -> bool {
        *self == Self::default()
    }
}

impl Room {
    /// Background tasks of this room, ended ones included, oldest first.
    pub fn tasks(&self) -> impl Iterator<Item = &Arc<BackgroundRecord>> {
        self.tasks.records.values()
    }

    /// The next record of a background task that has changed since it was asked, for whoever keeps a list.
    pub fn poll_task(&mut self) -> Option<Arc<BackgroundRecord>> {
        None
    }

    pub(super) fn delegate_on_request(&mut self, request: RequestId, delegation: Delegation, by: Option<TaskName>) {
        self.pass(Passing::Delegation { delegating: Box::new(Delegating { delegation, origin: Origin::Request { request, by } }) });
    }

    pub(super) fn delegation_passed(&mut self, delegating: Delegating) {
        if let Origin::Request { request, .. } = delegating.origin {
            self.reply(request, Err(Refusal::new(RefusalCode::Busy, "not yet")));
        }
    }

    pub(super) fn delegation_blocked(&mut self, delegating: Delegating, reason: &str) {
        if let Origin::Request { request, .. } = delegating.origin {
            self.reply(request, Err(Refusal::new(RefusalCode::Blocked, reason)));
        }
    }

    pub(super) fn cancel_on_request(&mut self, request: RequestId, _task: &BackgroundId, _reason: &str) {
        self.reply(request, Ok(Reply::Cancelled { cancelled: false }));
    }

    pub(super) fn tell_on_request(&mut self, request: RequestId, _task: &BackgroundId, _text: String) {
        self.reply(request, Err(Refusal::new(RefusalCode::UnknownTask, "not yet")));
    }

    /// The task of that name, if the frame's agent was granted to delegate to it.
    pub(super) fn may_delegate(&mut self, frame: FrameId, name: &str) -> Result<TaskName, String> {
        let Some(agent) = self.agent_of(frame).cloned() else { return Err("the task is over".to_owned()) };
        let setup = Arc::clone(&self.setup);
        let rights = self.task_of(frame).and_then(|(frame, _)| setup.rights_in(&agent, &frame.task));
        let Some(rights) = rights else { return Err("the task is over".to_owned()) };
        let is_task = |name: &str| setup.tasks.contains_key(name);
        rights.may_delegate(name, is_task).cloned().map_err(|record| self.denied(&agent, *record))
    }

    /// Starts a background task; the receipt of R-083, or a text that says why not (R-084 done right).
    pub(super) fn delegate_in_background(&mut self, frame: FrameId, wanted: &Delegation) -> Result<Value, String> {
        let task = self.may_delegate(frame, &wanted.agent)?;
        if wanted.task.trim().is_empty() {
            return Err("delegate_task needs a `task`: what to do, in words".to_owned());
        }
        if !wanted.share_channels.is_empty() {
            // Told, not ignored: a worker that was promised a channel would wait for it.
            return Err("sharing channels with a background task is not available in this version of the host".to_owned());
        }
        let Some(agent) = self.agent_of(frame).cloned() else { return Err("the task is over".to_owned()) };
        self.check_delegation_limits(&agent, &task)?;
        let notify = self.frames.get(&frame).map_or_else(|| self.opening.entry.clone(), |frame| frame.task.clone());
        // Counted before the child opens, so that it counts there too.
        self.used_by(&agent).background += 1;
        let opening = self.child_opening(&task, wanted);
        self.spent = self.spent.plus(Spent { tasks: 1, ..Spent::default() });
        let reserved = self.reserve(&opening.limits);
        self.counters.background += 1;
        let id = BackgroundId::from(format!("task-{}", self.counters.background));
        let room = opening.room.clone();
        let strategy = self.setup.tasks.get(&task).and_then(|task| task.deliver.clone());
        let running = BackgroundTask {
            id: id.clone(),
            task: task.clone(),
            prompt: wanted.task.clone(),
            context: wanted.context.clone(),
            started_by: agent,
            notify,
            strategy,
            started: self.now,
            reserved,
            at_once: opening.limits.tasks_at_once.unwrap_or_default(),
            inherited: opening.used.clone(),
            is_stopped: false,
        };
        self.background.insert(id.clone(), running);
        let call = self.next_call(Purpose::Background { id: id.clone() });
        self.tell(Notice::BackgroundStarted { id: id.clone(), task: task.clone(), room: room.clone() });
        self.effects.push_back(Effect::StartBackground { call, id: id.clone(), opening: Box::new(opening) });
        Ok(json!({ "status": "delegated", "task_id": id, "room_id": room, "agent": task }))
    }

    fn check_delegation_limits(&mut self, agent: &PluginName, task: &TaskName) -> Result<(), String> {
        let setup = Arc::clone(&self.setup);
        let Some((rights, grant)) = setup.rights(agent).and_then(|rights| Some((rights, rights.grants.delegate.as_ref()?))) else {
            return Err("the task is over".to_owned());
        };
        let at_once = self.background.values().filter(|running| running.started_by == *agent).count();
        let total = self.used_by(agent).background;
        let reason = if at_once >= grant.at_once as usize {
            format!("plugins.{agent}.grants.delegate.at_once is {}", grant.at_once)
        } else if total >= grant.total {
            format!("plugins.{agent}.grants.delegate.total is {}", grant.total)
        } else if self.opening.depth >= self.opening.limits.depth {
            format!("limits.run.depth is {}", self.opening.limits.depth)
        } else if let Some(reason) = self.tasks_are_used_up() {
            reason
        } else {
            return Ok(());
        };
        let record = rights.refuse(Capability::Delegate, task.as_str(), Layer::Runtime, &reason, None);
        Err(self.denied(agent, *record))
    }

    fn child_opening(&self, task: &TaskName, wanted: &Delegation) -> Opening {
        Opening {
            room: RoomId::from(format!("{}/{}", self.opening.room, self.counters.background + 1)),
            entry: task.clone(),
            content: Some(wanted.task.clone()),
            inputs: wanted.context.clone(),
            limits: self.half_of_the_rest(),
            deadline: self.opening.deadline,
            depth: self.opening.depth.saturating_add(1),
            channel: self.opening.channel.clone(),
            used: self.used.clone(),
            ..Opening::default()
        }
    }

    fn reserve(&mut self, limits: &RunLimits) -> Spent {
        let reserved = limits.as_spent();
        self.reserved = self.reserved.plus(reserved);
        reserved
    }

    fn settle_reserve(&mut self, reserved: Spent, spent: Spent) {
        self.reserved = self.reserved.minus(reserved);
        self.spent = self.spent.plus(spent);
    }

    pub(super) fn background_ended(&mut self, call: CallId, mut ended: EndedTask, spent: Spent, used: &UsedByPlugin) {
        let Some(Purpose::Background { id }) = self.calls.get(&call).cloned() else { return };
        self.calls.remove(&call);
        let Some(task) = self.background.remove(&id) else { return };
        self.settle_reserve(task.reserved, spent);
        for (plugin, used) in used {
            let before = task.inherited.get(plugin).copied().unwrap_or_default();
            self.used_by(plugin).add(used.since(before));
        }
        if task.is_stopped {
            // Only what it used was still to come.
            self.stop_if_spent();
            return;
        }
        // What the child says of itself is not trusted to name another task.
        ended.id = id.clone();
        ended.agent.clone_from(&task.task);
        ended.task.clone_from(&task.prompt);
        ended.metadata.clone_from(&task.context);
        ended.duration_ms = self.now.since(task.started);
        self.tell(Notice::BackgroundEnded { ended: ended.clone() });
        self.put_in_inbox(ended, task.notify, task.strategy.clone());
        match task.strategy {
            Some(strategy) => self.wake(&strategy, Wake::Ended { task: id }),
            None => self.keep_in_inbox(&id, "the task has no delivery strategy (tasks.NAME.deliver)"),
        }
        self.stop_if_spent();
    }

    pub(super) fn background_is(&self, id: &BackgroundId, task: &TaskName) -> bool {
        self.background.get(id).is_some_and(|running| running.task == *task && !running.is_stopped)
    }

    /// A background task is told to stop while the run goes on. Nobody waits for its result; what is set aside for it comes back once its
    /// room has said what it used, or else what is killed and started in turn would spend more than there is.
    pub(super) fn kill_background(&mut self, call: CallId, id: &BackgroundId, reason: &str) {
        if self.effects.iter().any(|effect| effect.starts() == Some(call)) {
            // It has not begun.
            self.background_stopped(id, reason);
            self.abandon(call);
            return;
        }
        let Some(task) = self.background.get_mut(id) else { return };
        task.is_stopped = true;
        let task = task.clone();
        self.tell_stopped(task, reason);
        self.effects.push_back(Effect::AbandonCall { call });
    }

    /// The host stopped before tasks that were told to stop had said what they used. They are not gone on with, so all that was set aside
    /// for them counts.
    pub(super) fn settle_stopped_tasks(&mut self) {
        let is_stopped = |id: &BackgroundId| self.background.get(id).is_some_and(|task| task.is_stopped);
        let of_stopped = |(call, purpose): (&CallId, &Purpose)| match purpose {
            Purpose::Background { id } if is_stopped(id) => Some((*call, id.clone())),
            _ => None,
        };
        let stopped: Vec<(CallId, BackgroundId)> = self.calls.iter().filter_map(of_stopped).collect();
        for (call, id) in stopped {
            self.calls.remove(&call);
            if let Some(task) = self.background.remove(&id) {
                self.settle_reserve(task.reserved, task.reserved);
            }
        }
    }

    /// The run is over before the background task is; its room is stopped with it.
    pub(super) fn background_stopped(&mut self, id: &BackgroundId, reason: &str) {
        let Some(task) = self.background.remove(id) else { return };
        // Nobody will say what it used. A room above would hand out again what this one does not report, so there all of it counts.
        let unknown = if self.opening.depth > 0 { task.reserved } else { Spent::default() };
        self.settle_reserve(task.reserved, unknown);
        if !task.is_stopped {
            self.tell_stopped(task, reason);
        }
    }

    fn tell_stopped(&mut self, task: BackgroundTask, reason: &str) {
        let ended = EndedTask {
            id: task.id,
            agent: task.task,
            task: task.prompt,
            status: BackgroundStatus::Cancelled,
            output: None,
            error: Some(reason.to_owned()),
            duration_ms: self.now.since(task.started),
            metadata: task.context,
            attempts: 0,
        };
        self.tell(Notice::BackgroundEnded { ended });
    }
}
