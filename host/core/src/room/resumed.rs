//! Resumption of a room after its host had stopped. The downtime does not count, and model attempts
//! that were lost are charged. A pending message is repeated under the same key, so a channel that
//! received it does not show it twice. The config may have changed meanwhile: the room is narrowed
//! to the intersection of its setup at the start and today's.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::approvals::drop_approval_timer;
use super::state::consent::Consent;
use super::state::frames::Frames;
use super::steps::peers;
use super::{Histories, Purpose, Room, RoomContext, TimerPurpose};
use crate::permissions::overlap::smaller;
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::setup::Setup;
use crate::tool_calls::toolbox::{TaskTool, ToolTarget};
use crate::types::approval::{Approval, ApprovalAuthor};
use crate::types::ids::{CallId, FrameId, Millis, PluginName, TaskName};
use crate::types::limits::{RunLimits, WhenUsedUp};

impl Room {
    pub(super) fn resumed(&mut self, down_ms: u64, is_exact: bool, setup: Option<Arc<Setup>>) {
        self.cx.notify(Notice::Resumed { down_ms, is_exact });
        // A pause counts the downtime itself.
        if !self.pausing.count_downtime(down_ms) {
            self.cx.opening.deadline =
                self.cx.opening.deadline.map(|deadline| deadline.plus(down_ms));
            for purpose in self.cx.timers.values_mut() {
                if let TimerPurpose::Delivery { at, .. } = purpose {
                    *at = at.plus(down_ms);
                }
            }
        }
        self.result_delivery().forget_activities();
        self.budgets.charge_lost_attempts(&mut self.cx, &mut self.models);
        self.background.settle_stopped_tasks(&mut self.cx, &mut self.budgets);
        if let Some(setup) = setup {
            self.take_effective(setup);
        }
    }

    /// Takes the effective setup of this resumption.
    fn take_effective(&mut self, setup: Arc<Setup>) {
        let before = std::mem::replace(&mut self.cx.setup, setup);
        let changed = before.changed_components(&self.cx.setup);
        let changed: BTreeSet<PluginName> =
            changed.into_iter().map(|changed| changed.plugin).collect();
        let start_setup = self.cx.initial_setup.take().unwrap_or_else(|| Arc::clone(&before));
        narrow_limits(&mut self.cx, &start_setup.limits, &before.limits);
        // The setup of the start is in force again if today's config allows all of it.
        self.cx.initial_setup = (start_setup != self.cx.setup).then_some(start_setup);
        self.histories.narrow_toolboxes(&self.cx);
        narrow_frames(&mut self.frames, &self.cx, &before);
        self.ask_again_about(&changed);
        // An open request for more of a limit, where today's config ends a run at its limits.
        if self.cx.opening.limits.when_used_up == WhenUsedUp::End
            && let Some(call) = self.budgets.top_up
        {
            self.cx.effects.push_back(Effect::AbandonCall { call });
            let reason = "the config does not ask for more any more".to_owned();
            self.topped_up(call, Approval::Refused { reason }, ApprovalAuthor::Nobody);
        }
    }

    /// Drops each approval, open or given, of a call in which a changed component has a part, and
    /// asks again, because an approval covers only the code that was approved.
    fn ask_again_about(&mut self, changed: &BTreeSet<PluginName>) {
        if changed.is_empty() {
            return;
        }
        let consents: Vec<(CallId, FrameId, usize, bool)> = self
            .cx
            .calls
            .iter()
            .filter_map(|(call, purpose)| match purpose {
                Purpose::Approval { frame, slot } => Some((*call, *frame, *slot, true)),
                Purpose::HeldTool { frame, slot, .. } => Some((*call, *frame, *slot, false)),
                _ => None,
            })
            .filter(|(_, frame, slot, _)| {
                has_part(&self.frames, &self.cx.setup, (*frame, *slot), changed)
            })
            .collect();
        for (call, frame, slot, is_open) in consents {
            self.cx.calls.remove(&call);
            if !is_open {
                let purpose = Purpose::HeldTool { frame, slot, consent: Consent::NotYet };
                self.cx.calls.insert(call, purpose);
                continue;
            }
            // The new question has another id, so a late answer to the old one decides nothing.
            drop_approval_timer(&mut self.cx, call);
            self.cx.effects.push_back(Effect::AbandonCall { call });
            let reason =
                "a component was exchanged since it was asked, so it is asked again".to_owned();
            self.cx.notify(Notice::ApprovalGiven {
                call,
                approval: Approval::Refused { reason },
                author: ApprovalAuthor::Nobody,
            });
            self.tool_rounds().resume_slot(frame, slot, Consent::NotYet);
        }
    }
}

/// Narrows the run's limits to those of the effective setup. `start_limits` are those of the config
/// with which the run began, and `before` those of the last effective setup. The run itself
/// may have been opened with smaller ones, as the part of a background task is.
fn narrow_limits(cx: &mut RoomContext, start_limits: &RunLimits, before: &RunLimits) {
    let (now, depth) = (cx.setup.limits.clone(), cx.opening.depth);
    let limits = &mut cx.opening.limits;
    let own = cx.initial_limits.get_or_insert_with(|| Box::new(limits.clone()));
    let wall_before = limits.wall_ms;
    macro_rules! narrow {
        ($($field:ident)*) => {
            $(narrow_limit(&mut limits.$field, own.$field, (before.$field, now.$field));)*
        };
    }
    narrow!(turns tokens cost_micro_usd model_calls tool_calls history cpu_ms tasks wall_ms);
    narrow!(tasks_at_once task_turns);
    limits.depth = own.depth.min(now.depth);
    // Those of the run's own opening may end where the config's ask.
    if own.when_used_up == start_limits.when_used_up {
        limits.when_used_up = now.when_used_up;
    }
    // The deadline of a background task is its parent's.
    if limits.wall_ms != wall_before && depth == 0 {
        let wall = limits.wall_ms;
        move_deadline(cx, wall_before, wall);
    }
}

/// Moves the run's deadline by the difference of two wall-time limits.
fn move_deadline(cx: &mut RoomContext, before: Option<u64>, now: Option<u64>) {
    let deadline = match (cx.opening.deadline, before, now) {
        (Some(deadline), Some(before), Some(now)) => {
            Some(Millis(deadline.plus(now).since(Millis(before))))
        }
        (None, None, Some(now)) => Some(cx.now.plus(now)),
        (_, _, None) => None,
        (deadline, ..) => deadline,
    };
    cx.opening.deadline = deadline;
    cx.timers.retain(|_, purpose| !matches!(purpose, TimerPurpose::Wall));
    if let Some(at) = deadline {
        cx.set_timer(TimerPurpose::Wall, at);
    }
}

/// Narrows a limit that the config changed from one value to another, and with which the run was
/// opened as `own`. One that an approver raised becomes smaller at most.
fn narrow_limit<T: Ord + Copy>(
    limit: &mut Option<T>,
    own: Option<T>,
    (before, now): (Option<T>, Option<T>),
) {
    if *limit == smaller(own, before) {
        *limit = smaller(own, now);
    } else if smaller(before, now) != before {
        *limit = smaller(*limit, now);
    }
}

impl Histories {
    /// Narrows the toolboxes that changed during the run to the plugins' tools of the effective
    /// setup. Tools of the host stay as the run offered them.
    fn narrow_toolboxes(&mut self, cx: &RoomContext) {
        for (task, memory) in &mut self.memories {
            let Some(toolbox) = &memory.toolbox else { continue };
            let effective = cx.setup.tasks.get(task).map(|task| Arc::clone(&task.toolbox));
            let narrow_tool = |tool: &TaskTool| match &tool.target {
                ToolTarget::Host(_) => Some(tool.clone()),
                ToolTarget::Plugin { .. } => effective
                    .iter()
                    .flat_map(|it| it.iter())
                    .find(|it| it.target == tool.target)
                    .cloned(),
            };
            memory.toolbox =
                Some(Arc::new(toolbox.iter().filter_map(narrow_tool).collect::<Vec<_>>().into()));
        }
    }
}

/// Narrows the activations to the effective setup.
fn narrow_frames(frames: &mut Frames, cx: &RoomContext, before: &Setup) {
    let turns = |setup: &Setup, task: &TaskName| setup.tasks.get(task)?.turns;
    for frame in frames.values_mut() {
        frame.offer_peers(peers(cx, &frame.task));
        let (before, now) = (turns(before, &frame.task), turns(&cx.setup, &frame.task));
        if now.is_some_and(|now| before.is_none_or(|before| now < before)) {
            frame.limit_steps(now);
        }
    }
}

/// Whether one of the plugins has a part in the call of a slot: it carries the call out, or led to
/// it.
fn has_part(
    frames: &Frames,
    setup: &Setup,
    (id, slot): (FrameId, usize),
    plugins: &BTreeSet<PluginName>,
) -> bool {
    let Some((frame, slot)) = frames.get(&id).zip(frames.slot(id, slot)) else { return false };
    let Some(task) = setup.tasks.get(&frame.task) else { return false };
    let target = task.toolbox.get(&slot.now.name).map(|tool| &tool.target);
    let performers: Vec<&PluginName> = match (&slot.action, target) {
        (Some(_), _) => task.action_plugins.iter().collect(),
        (None, Some(ToolTarget::Plugin { plugin, .. })) => vec![plugin],
        (None, Some(ToolTarget::Host(_)) | None) => Vec::new(),
    };
    let led_by = slot.now.led_by.iter().chain([&task.agent]);
    performers.into_iter().chain(led_by).any(|plugin| plugins.contains(plugin))
}
