//! From a tool, an action or a request to a child room, on one path: what is wrong is refused in a fixed form (R-084 done right), gates are
//! asked, everything is looked at again, and the task begins.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::frame::{Said, ToolRound};
use super::super::gates::Passing;
use super::super::{Purpose, Room};
use super::checks::Checked;
use super::{BackgroundTask, Delegating, Origin, Waiter};
use crate::delegation::Delegation;
use crate::effect::Effect;
use crate::event::Spent;
use crate::ids::{BackgroundId, FrameId, PluginName, TaskName};
use crate::message::{Message, ToolCall};
use crate::notice::Notice;
use crate::request::{Refusal, RefusalCode, Reply, RequestId};
use crate::toolbox::HostTool;

impl Room {
    pub(in crate::room) fn delegate_on_request(&mut self, request: RequestId, delegation: Delegation, by: Option<TaskName>) {
        self.delegate(Delegating { delegation, origin: Origin::Request { request, by } });
    }

    /// A call of `delegate_task`; none: its slot waits.
    pub(in crate::room) fn delegate_by_call(
        &mut self,
        id: FrameId,
        slot: usize,
        call: &ToolCall,
        asked_by: Option<&PluginName>,
        message: &Arc<Message>,
    ) -> Option<Said> {
        if let Err(text) = self.check_steering(id, HostTool::DelegateTask, call, asked_by) {
            return Some(self.said_error(id, text));
        }
        let worker = self.frames.get(&id).and_then(|frame| self.toolbox(&frame.task).get(&call.name)?.worker.clone());
        let mut arguments = call.arguments.clone();
        if let (Some(agent), Some(arguments)) = (worker.as_ref().and_then(|worker| worker.agent.as_ref()), arguments.as_object_mut()) {
            arguments.insert("agent".to_owned(), json!(agent));
        }
        let mut delegation = match serde_json::from_value::<DelegateTaskArguments>(arguments) {
            Ok(arguments) => Delegation::from(arguments),
            Err(error) => {
                let refusal = Refusal::new(RefusalCode::BadArguments, format!("The arguments of delegate_task are not right: {error}."));
                return Some(self.said_error(id, refusal.to_value().to_string()));
            }
        };
        delegation.wait = worker.is_some_and(|worker| worker.wait);
        self.delegate_for_slot(Waiter { frame: id, slot, seq: message.seq }, delegation)
    }

    /// The action `delegate_task`; none: its slot waits.
    pub(in crate::room) fn delegate_by_action(
        &mut self,
        id: FrameId,
        round: &ToolRound,
        slot: usize,
        delegation: Delegation,
    ) -> Option<Said> {
        self.delegate_for_slot(Waiter { frame: id, slot, seq: round.message.seq }, delegation)
    }

    fn delegate_for_slot(&mut self, waiter: Waiter, mut delegation: Delegation) -> Option<Said> {
        if let Some((_, task)) = self.task_of(waiter.frame) {
            delegation.wait |= task.background.wait;
            delegation.conversation = delegation.conversation.max(task.background.conversation);
        }
        let Waiter { frame, slot, seq } = waiter;
        self.delegate(Delegating { delegation, origin: Origin::Slot { frame, slot, seq } });
        self.take_answer(&waiter)
    }

    /// Refuses at once what can be refused, so that no gate is asked about it.
    fn delegate(&mut self, delegating: Delegating) {
        match self.may_start(&delegating) {
            Ok(Some(checked)) => {
                drop(checked);
                self.pass(Passing::Delegation { delegating: Box::new(delegating) });
            }
            // It was answered with what was delegated before.
            Ok(None) => {}
            Err(refusal) => self.refuse_delegation(&delegating.origin, refusal),
        }
    }

    /// No gate stands in the way, and the text may be another than before.
    pub(in crate::room) fn delegation_passed(&mut self, delegating: Delegating) {
        if let Origin::Slot { frame, slot, seq } = delegating.origin
            && !self.waits(&Waiter { frame, slot, seq })
        {
            // Whoever wanted it is over.
            return;
        }
        match self.may_start(&delegating) {
            Ok(Some(checked)) => self.start_background(delegating, checked),
            Ok(None) => {}
            Err(refusal) => self.refuse_delegation(&delegating.origin, refusal),
        }
    }

    pub(in crate::room) fn delegation_blocked(&mut self, delegating: Delegating, reason: &str) {
        let refusal = Refusal::new(RefusalCode::Blocked, reason);
        self.refuse_delegation(&delegating.origin, refusal);
    }

    /// What it takes to start it; none: what was delegated before answers it.
    fn may_start(&mut self, delegating: &Delegating) -> Result<Option<Checked>, Refusal> {
        let checked = self.check_delegation(delegating)?;
        let by = checked.by.as_ref();
        let cache_ms = by.and_then(|by| self.setup.tasks.get(by)).and_then(|task| task.background.cache_ms);
        let earlier = match &delegating.delegation.key {
            Some(key) => self.tasks.of_key(key),
            None => cache_ms.and_then(|ttl| self.tasks.cached(&checked.task, &delegating.delegation, self.now, ttl)),
        };
        if let Some(record) = earlier {
            self.answer_from_before(delegating, &record);
            return Ok(None);
        }
        self.check_limits(&checked)?;
        Ok(Some(checked))
    }

    fn answer_from_before(&mut self, delegating: &Delegating, record: &crate::delegation::BackgroundRecord) {
        match &delegating.origin {
            Origin::Request { request, .. } => {
                let (task, room, agent) = (record.id.clone(), record.room.clone(), record.agent.clone());
                self.reply(*request, Ok(Reply::Delegated { task, room, agent, from_cache: record.state.is_end() }));
            }
            Origin::Slot { frame, slot, seq } => {
                let status = if delegating.delegation.wait { record.state.as_str() } else { "delegated" };
                let mut answer = json!({
                    "status": status, "task_id": record.id, "room_id": record.room, "agent": record.agent, "from_cache": true,
                });
                if let Some(output) = &record.output {
                    answer["output"] = json!(output);
                }
                self.answer_waiter(&Waiter { frame: *frame, slot: *slot, seq: *seq }, &answer, false, true);
            }
        }
    }

    fn refuse_delegation(&mut self, origin: &Origin, refusal: Refusal) {
        match origin {
            Origin::Request { request, .. } => self.reply(*request, Err(refusal)),
            Origin::Slot { frame, slot, seq } => {
                self.answer_waiter(&Waiter { frame: *frame, slot: *slot, seq: *seq }, &refusal.to_value(), true, false);
            }
        }
    }

    fn start_background(&mut self, delegating: Delegating, checked: Checked) {
        let Delegating { delegation, origin } = delegating;
        // Counted before the child opens, so that it counts there too.
        if let Some(agent) = &checked.agent {
            self.used_by(agent).background += 1;
        }
        self.counters.background += 1;
        let number = self.counters.background;
        let id = BackgroundId::from(format!("task-{number}"));
        let delegators = self.delegators_of_child(&origin, &delegation, &checked);
        let (mut opening, context) = self.child_opening(&id, &delegation, &checked);
        opening.delegators = delegators;
        self.spent = self.spent.plus(Spent { tasks: 1, ..Spent::default() });
        let reserved = self.reserve(&opening.limits);
        let (room, task) = (opening.room.clone(), checked.task.clone());
        let call = self.next_call(Purpose::Background { id: id.clone() });
        let waiter = match origin {
            Origin::Slot { frame, slot, seq } if delegation.wait => Some(Waiter { frame, slot, seq }),
            Origin::Slot { .. } | Origin::Request { .. } => None,
        };
        let on_close = delegation.on_close.or_else(|| self.setup.tasks.get(&task).map(|task| task.on_close)).unwrap_or_default();
        let running = BackgroundTask {
            id: id.clone(),
            call,
            task: task.clone(),
            prompt: delegation.task.clone(),
            context,
            started_by: checked.agent.clone(),
            notify: checked.notify.clone(),
            strategy: checked.strategy.clone(),
            hand_back: delegation.hand_back,
            on_close,
            started: self.now,
            reserved,
            at_once: opening.limits.tasks_at_once.unwrap_or_default(),
            inherited: opening.used.clone(),
            waiter,
            structured: opening.structured.is_some(),
            chain_depth: opening.chain_depth,
            told: 0,
            is_stopped: false,
        };
        let checked_by = checked.by.clone();
        self.tasks.begin(number, &running, room.clone(), checked.by, delegation.key);
        self.background.insert(id.clone(), running);
        self.tell(Notice::BackgroundStarted {
            id: id.clone(),
            task: task.clone(),
            room: room.clone(),
            by: checked_by,
            brief: delegation.task,
        });
        self.effects.push_back(Effect::StartBackground { call, id: id.clone(), opening: Box::new(opening) });
        match origin {
            Origin::Request { request, .. } => {
                self.reply(request, Ok(Reply::Delegated { task: id, room, agent: task, from_cache: false }));
            }
            Origin::Slot { frame, slot, seq } if waiter.is_none() => {
                // it never carries the result.
                let receipt = json!({ "status": "delegated", "task_id": id, "room_id": room, "agent": task });
                self.answer_waiter(&Waiter { frame, slot, seq }, &receipt, false, false);
            }
            Origin::Slot { .. } => {}
        }
    }
}

/// The arguments of the tool `delegate_task`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct DelegateTaskArguments {
    #[serde(default)]
    agent: String,
    #[serde(default)]
    task: String,
    #[serde(default)]
    context: Value,
    #[serde(default)]
    share_channels: Option<Vec<String>>,
}

impl From<DelegateTaskArguments> for Delegation {
    fn from(arguments: DelegateTaskArguments) -> Self {
        Self {
            agent: arguments.agent,
            task: arguments.task,
            context: arguments.context,
            share_channels: arguments.share_channels.unwrap_or_default(),
            ..Self::default()
        }
    }
}
