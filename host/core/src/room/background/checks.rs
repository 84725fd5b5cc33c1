//! The checks of a delegation. Each refusal has a code for programs, a sentence that a model can
//! act on, and the valid choices. The operator reads which grant or limit applied.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::permissions::grants::DelegationChoice;
use crate::room::delivery::check_strategy;
use crate::room::state::delegation::{Delegating, TaskOrigin};
use crate::room::{Background, BackgroundWork, Frames, RoomChannels, RoomContext, RoomPhase};
use crate::types::capability::Capability;
use crate::types::channel::Binding;
use crate::types::delegation::{
    CHAIN_MAX, Delegation, Deliver, OnClose, RESULT_SCHEMA_BYTES, STRUCTURED_RETRIES_MAX,
};
use crate::types::denial::{DenialRecord, Layer};
use crate::types::ids::{ChannelId, FrameId, PluginName, TaskName};
use crate::types::request::{Refusal, RefusalCode, check_key};

/// A delegation that passed all checks.
pub(super) struct CheckedDelegation {
    pub(super) task: TaskName,
    /// The task on whose behalf it runs; `None` for the program's own request.
    pub(super) by: Option<TaskName>,
    /// The plugin whose grants apply; `None` for the program's own request.
    pub(super) agent: Option<PluginName>,
    pub(super) notify: TaskName,
    pub(super) strategy: Option<PluginName>,
    /// Whether the host reports the result, because no strategy is set.
    pub(super) host_reports: bool,
    pub(super) shared: BTreeMap<ChannelId, Binding>,
    pub(super) context: Value,
    /// Number of automatic answers that led to the child.
    pub(super) chain_depth: u32,
}

/// A limit that is reached.
struct ReachedLimit {
    /// The key of the limit, for the operator.
    key: String,
    /// The limit and the alternative, for the model.
    guidance: String,
}

/// Returns the task with this name, if the frame's agent may delegate to it.
pub(in crate::room) fn may_delegate(
    frames: &Frames,
    cx: &mut RoomContext,
    frame: FrameId,
    name: &str,
) -> Result<TaskName, String> {
    let Some((by, agent)) = delegator(frames, cx, frame) else {
        return Err("the task is over".to_owned());
    };
    let setup = Arc::clone(&cx.setup);
    let Some(rights) = setup.rights_in(&agent, &by) else {
        return Err("the task is over".to_owned());
    };
    let is_task = |name: &str| setup.tasks.contains_key(name);
    rights.may_delegate(name, is_task).cloned().map_err(|record| cx.denied(&agent, *record))
}

fn delegator(frames: &Frames, cx: &RoomContext, frame: FrameId) -> Option<(TaskName, PluginName)> {
    frames.task_of(cx, frame).map(|(frame, task)| (frame.task.clone(), task.agent.clone()))
}

/// Returns the task and the plugin that delegate, and the number of automatic answers that led
/// there.
fn delegating_task(
    frames: &Frames,
    cx: &RoomContext,
    origin: &TaskOrigin,
) -> Result<(Option<TaskName>, Option<PluginName>, u32), Refusal> {
    match origin {
        TaskOrigin::Slot { frame, .. } => {
            let over = || Refusal::new(RefusalCode::RoomClosed, "The task that wanted it is over.");
            let (by, agent) = delegator(frames, cx, *frame).ok_or_else(over)?;
            let depth = frames
                .get(frame)
                .map_or(cx.opening.chain_depth, |frame| frame.counters().chain_depth);
            Ok((Some(by), Some(agent), depth))
        }
        TaskOrigin::Request { by: None, .. } => Ok((None, None, cx.opening.chain_depth)),
        TaskOrigin::Request { by: Some(by), .. } => {
            let Some(task) = cx.setup.tasks.get(by) else {
                let message = format!("The config has no task {by} to delegate on behalf of.");
                return Err(Refusal {
                    allowed: all_tasks(cx),
                    ..Refusal::new(RefusalCode::BadArguments, message)
                });
            };
            // The deepest activation counts, if the task has several.
            let at_work = frames
                .values()
                .filter(|frame| frame.task == *by)
                .map(|frame| frame.counters().chain_depth)
                .max();
            Ok((
                Some(by.clone()),
                Some(task.agent.clone()),
                at_work.unwrap_or(cx.opening.chain_depth),
            ))
        }
    }
}

impl BackgroundWork<'_> {
    /// Checks all of a delegation except limits.
    pub(super) fn check_delegation(
        &mut self,
        delegating: &Delegating,
    ) -> Result<CheckedDelegation, Refusal> {
        let delegation = &delegating.delegation;
        let (by, agent, depth) = delegating_task(self.frames, self.cx, &delegating.origin)?;
        let context = checked_context(delegation)?;
        check_key(delegation.key.as_ref(), "a delegation")?;
        check_structured(delegation)?;
        let notify = task_to_notify(self.cx, delegation, by.as_ref())?;
        if let Deliver::By(strategy) = &delegation.deliver {
            check_strategy(self.cx, strategy)?;
        }
        if let Some(refusal) = self.background.refusal_of_work(self.cx, self.channels) {
            return Err(refusal);
        }
        let task = checked_agent(self.cx, delegation, by.as_ref().zip(agent.as_ref()))?;
        if delegation.description.trim().is_empty() {
            let text = "`task` is empty: say in words what the agent is to do.";
            return Err(Refusal::new(RefusalCode::EmptyTask, text));
        }
        if let Some((by, agent)) = by.as_ref().zip(agent.as_ref()) {
            check_choices(self.cx, delegation, by, agent, &task)?;
        }
        let shared =
            self.channels.checked_channels(self.cx, delegation, by.as_ref().zip(agent.as_ref()))?;
        let chain_depth = depth.saturating_add(1);
        if chain_depth > CHAIN_MAX {
            let text = format!(
                "Not started: {CHAIN_MAX} automatic answers have led to one another already. Answer yourself, or leave it to a person."
            );
            return Err(Refusal::new(RefusalCode::ChainDepth, text));
        }
        let strategy = match &delegation.deliver {
            Deliver::AsConfigured => configured_strategy(self.cx, by.as_ref(), &task).cloned(),
            Deliver::Never => None,
            Deliver::By(strategy) => Some(strategy.clone()),
        };
        let host_reports = strategy.is_none()
            && delegation.deliver == Deliver::AsConfigured
            && by
                .as_ref()
                .and_then(|by| self.cx.setup.tasks.get(by))
                .is_some_and(|task| task.background.host_reports);
        Ok(CheckedDelegation {
            task,
            by,
            agent,
            notify,
            strategy,
            host_reports,
            shared,
            context,
            chain_depth,
        })
    }

    /// Checks depth, width, total count and budgets (R-065 done right).
    pub(super) fn check_limits(&mut self, checked: &CheckedDelegation) -> Result<(), Refusal> {
        let Some(ReachedLimit { key, guidance }) =
            self.reached(checked.agent.as_ref(), &checked.task)
        else {
            return Ok(());
        };
        // A request of the program has no plugin to record a denial for, so the reply names the
        // limit.
        let Some(agent) = &checked.agent else {
            return Err(Refusal::new(
                RefusalCode::LimitReached,
                format!("Not started: {key}. {guidance}"),
            ));
        };
        let setup = Arc::clone(&self.cx.setup);
        if let Some(rights) = setup.rights(agent) {
            let record = rights.refuse(
                Capability::Delegate,
                checked.task.as_str(),
                Layer::Runtime,
                &key,
                None,
            );
            self.cx.denied(agent, *record);
        }
        Err(Refusal::new(RefusalCode::LimitReached, format!("Not started. {guidance}")))
    }

    fn reached(&mut self, agent: Option<&PluginName>, task: &TaskName) -> Option<ReachedLimit> {
        let setup = Arc::clone(&self.cx.setup);
        if let Some(agent) = agent {
            let grant = setup.rights(agent).and_then(|rights| rights.grants.delegate.as_ref());
            // Without a grant, nothing is allowed.
            let (most, of_all) = grant.map_or((0, 0), |grant| (grant.at_once, grant.total));
            let at_once = self
                .background
                .tasks
                .values()
                .filter(|running| running.started_by.as_ref() == Some(agent))
                .count();
            if at_once >= most as usize {
                return Some(ReachedLimit {
                    key: format!("plugins.{agent}.grants.delegate.at_once is {most}"),
                    guidance: format!(
                        "{} is the most background tasks at once, and so many are under way. {WAIT_OR_DO}",
                        at_once
                    ),
                });
            }
            if self.budgets.used_by(agent).background >= of_all {
                return Some(ReachedLimit {
                    key: format!("plugins.{agent}.grants.delegate.total is {of_all}"),
                    guidance: format!(
                        "You have started {of_all} background tasks in this run, and that is the most. {DO_IT}"
                    ),
                });
            }
        }
        if self.cx.opening.depth >= self.cx.opening.limits.depth {
            return Some(ReachedLimit {
                key: format!("limits.run.depth is {}", self.cx.opening.limits.depth),
                guidance: format!("Background tasks may not be nested deeper than this. {DO_IT}"),
            });
        }
        if let Some(key) = self.background.tasks_are_used_up(self.cx, self.budgets) {
            let guidance = if key.contains("at_once") { WAIT_OR_DO } else { DO_IT };
            return Some(ReachedLimit {
                key,
                guidance: format!("The run may have no more background tasks now. {guidance}"),
            });
        }
        // A child without turns, tokens or model calls could not make a step.
        let limits = self.share_of(task);
        let spent = [
            (limits.turns, "turns"),
            (limits.tokens, "tokens"),
            (limits.model_calls, "model_calls"),
        ];
        let (_, budget) = spent.into_iter().find(|(amount, _)| *amount == Some(0))?;
        Some(ReachedLimit {
            key: format!("what is left of limits.run.{budget} is too little"),
            guidance: "Too little of the run's budget is left for another task. Finish with what you have.".to_owned(),
        })
    }
}

fn all_tasks(cx: &RoomContext) -> Vec<String> {
    cx.setup.tasks.keys().map(ToString::to_string).collect()
}

/// The task that is notified unless the delegation names one.
fn configured_notify<'a>(cx: &'a RoomContext, by: Option<&'a TaskName>) -> Option<&'a TaskName> {
    let rules = by.and_then(|by| cx.setup.tasks.get(by)).map(|task| &task.background);
    rules.and_then(|rules| rules.notify.as_ref()).or(by)
}

/// The strategy that delivers the result unless the delegation names one.
fn configured_strategy<'r>(
    cx: &'r RoomContext,
    by: Option<&TaskName>,
    worker: &TaskName,
) -> Option<&'r PluginName> {
    let delegator = by.and_then(|by| cx.setup.tasks.get(by));
    let worker = cx.setup.tasks.get(worker);
    delegator
        .and_then(|task| task.background.delivery_strategy.as_ref())
        .or_else(|| worker?.delivery_strategy.as_ref())
}

/// Checks an agent's choices that go beyond what the operator's tasks say.
fn check_choices(
    cx: &mut RoomContext,
    delegation: &Delegation,
    by: &TaskName,
    agent: &PluginName,
    worker: &TaskName,
) -> Result<(), Refusal> {
    let setup = Arc::clone(&cx.setup);
    let Some(rights) = setup.rights_in(agent, by) else { return Ok(()) };
    if let Some(notify) = &delegation.notify
        && notify != by
        && Some(notify) != configured_notify(cx, Some(by))
    {
        let allowed = rights.may_route(notify.as_str());
        allow_choice(cx, agent, allowed, "leave `notify` out: you are notified yourself")?;
    }
    if let Deliver::By(strategy) = &delegation.deliver
        && Some(strategy) != configured_strategy(cx, Some(by), worker)
    {
        let allowed = rights.may_choose(&DelegationChoice::Strategy(strategy));
        allow_choice(cx, agent, allowed, "leave `deliver` out")?;
    }
    let task = setup.tasks.get(worker);
    if let Some(form) = delegation.result_delivery
        && Some(form) != task.and_then(|task| task.result_delivery)
    {
        let allowed = rights.may_choose(&DelegationChoice::Form(form));
        allow_choice(cx, agent, allowed, "leave `result_delivery` out")?;
    }
    if let Some(fate) = delegation.on_close
        && fate != OnClose::Cascade
        && Some(fate) != task.map(|task| task.on_close)
    {
        let allowed = rights.may_choose(&DelegationChoice::OnClose(fate));
        allow_choice(cx, agent, allowed, "leave `on_close` out")?;
    }
    Ok(())
}

fn allow_choice(
    cx: &mut RoomContext,
    agent: &PluginName,
    allowed: Result<(), Box<DenialRecord>>,
    instead: &str,
) -> Result<(), Refusal> {
    allowed.map_err(|record| {
        let refused = cx.denied(agent, *record);
        let message = format!("Not started. {refused} Start the task again, and {instead}.");
        Refusal::new(RefusalCode::NotGranted, message)
    })
}

/// The task that reads the result: the one that the delegation names, or the configured one.
fn task_to_notify(
    cx: &RoomContext,
    delegation: &Delegation,
    by: Option<&TaskName>,
) -> Result<TaskName, Refusal> {
    let Some(notify) = &delegation.notify else {
        return Ok(configured_notify(cx, by).unwrap_or(&cx.opening.entry).clone());
    };
    if cx.setup.tasks.contains_key(notify) {
        return Ok(notify.clone());
    }
    let message = format!("`notify` names {notify}, and the config has no such task.");
    Err(Refusal { allowed: all_tasks(cx), ..Refusal::new(RefusalCode::BadArguments, message) })
}

/// Returns the task, if the delegating agent may start it.
fn checked_agent(
    cx: &mut RoomContext,
    delegation: &Delegation,
    delegator: Option<(&TaskName, &PluginName)>,
) -> Result<TaskName, Refusal> {
    let (setup, name) = (Arc::clone(&cx.setup), delegation.worker.as_str());
    let is_task = |name: &str| setup.tasks.contains_key(name);
    let Some((by, agent)) = delegator else {
        let found = setup.tasks.get_key_value(name).map(|(task, _)| task.clone());
        return found.ok_or_else(|| {
            let message = format!("The config has no task {name:?} to delegate to.");
            Refusal { allowed: all_tasks(cx), ..Refusal::new(RefusalCode::UnknownAgent, message) }
        });
    };
    let Some(rights) = setup.rights_in(agent, by) else {
        return Err(Refusal::new(
            RefusalCode::NotGranted,
            format!("The config has no plugin {agent}."),
        ));
    };
    // The enum of the tool is checked here, because a model may ignore it.
    let record = match rights.may_delegate(name, is_task) {
        // A granted task may be missing from the config.
        Ok(task) if is_task(task.as_str()) => return Ok(task.clone()),
        Ok(_) => rights.refuse(
            Capability::Delegate,
            name,
            Layer::Runtime,
            "the config has no such task",
            None,
        ),
        Err(record) => record,
    };
    let granted = rights.grants.delegate.iter().flat_map(|grant| &grant.tasks);
    let allowed: Vec<String> = granted
        .filter(|task| rights.may_delegate(task.as_str(), is_task).is_ok())
        .map(ToString::to_string)
        .collect();
    // An unknown name is reported as such only if there are valid choices.
    let code = if is_task(name) || allowed.is_empty() {
        RefusalCode::NotGranted
    } else {
        RefusalCode::UnknownAgent
    };
    let refused = cx.denied(agent, *record);
    let instead = match allowed.as_slice() {
        [] => "You may start none: do the work yourself.".to_owned(),
        names => format!("You may start: {}.", names.join(", ")),
    };
    let what = if code == RefusalCode::UnknownAgent {
        format!("There is no agent {name:?}.")
    } else {
        refused
    };
    Err(Refusal { allowed, ..Refusal::new(code, format!("{what} {instead}")) })
}

impl Background {
    /// The refusal of a room that is closed or has its result.
    fn refusal_of_work(&self, cx: &RoomContext, channels: &RoomChannels) -> Option<Refusal> {
        let has_result =
            matches!(cx.phase, RoomPhase::Draining { .. }) && !channels.is_persistent(cx);
        let refused = |why: &str| {
            Some(Refusal::new(
                RefusalCode::RoomClosed,
                format!("Not started: {why}. Do the work yourself."),
            ))
        };
        if channels.is_closed() {
            return refused("the room is closed");
        }
        if self.is_stopped() || has_result {
            return refused("the run is over");
        }
        None
    }
}

impl RoomChannels {
    /// Returns the bindings for the child's room: the parent's own, never widened.
    fn checked_channels(
        &self,
        cx: &mut RoomContext,
        delegation: &Delegation,
        delegator: Option<(&TaskName, &PluginName)>,
    ) -> Result<BTreeMap<ChannelId, Binding>, Refusal> {
        let setup = Arc::clone(&cx.setup);
        let of_task = delegator
            .and_then(|(by, _)| setup.tasks.get(by))
            .map_or(&[][..], |task| task.background.share.as_slice());
        if delegation.share_channels.is_empty() {
            // the channels that the operator shares, if they are bound here.
            let bound = |name: &String| self.bindings.get_key_value(name.as_str());
            return Ok(of_task
                .iter()
                .filter_map(bound)
                .map(|(channel, binding)| (channel.clone(), binding.clone()))
                .collect());
        }
        let mut shared = BTreeMap::new();
        for name in &delegation.share_channels {
            let found = self
                .bindings
                .get_key_value(name.as_str())
                .map(|(channel, binding)| (channel.clone(), binding.clone()));
            let Some((channel, binding)) = found else {
                let allowed = self.may_be_shared(cx, delegator);
                let message = format!(
                    "The channel {name:?} is not bound in this room, so it cannot be shared."
                );
                return Err(Refusal {
                    allowed,
                    ..Refusal::new(RefusalCode::UnknownChannel, message)
                });
            };
            // Channels that the operator shares need no grant.
            if let Some((by, agent)) = delegator.filter(|_| !of_task.contains(name)) {
                let bindings = self.bindings.clone();
                let rights = setup.rights_in(agent, by);
                let refused = rights.and_then(|rights| {
                    rights.may_share(name, |name| bindings.contains_key(name)).err()
                });
                if let Some(record) = refused {
                    let text = cx.denied(agent, *record);
                    let allowed = self.may_be_shared(cx, delegator);
                    let message = format!(
                        "{text} You may not share the channel {name}; start the task without it."
                    );
                    return Err(Refusal {
                        allowed,
                        ..Refusal::new(RefusalCode::ChannelNotShared, message)
                    });
                }
            }
            shared.insert(channel, binding);
        }
        Ok(shared)
    }

    /// The channels of this room that the delegator may share.
    fn may_be_shared(
        &self,
        cx: &RoomContext,
        delegator: Option<(&TaskName, &PluginName)>,
    ) -> Vec<String> {
        let bound = self.bindings.keys();
        let Some((by, agent)) = delegator else { return bound.map(ToString::to_string).collect() };
        let of_task =
            cx.setup.tasks.get(by).map_or(&[][..], |task| task.background.share.as_slice());
        let rights = cx.setup.rights_in(agent, by);
        // The closure only chooses the grant that a refusal proposes, and no refusal is shown here.
        let granted = |name: &str| {
            rights.as_ref().is_some_and(|rights| rights.may_share(name, |_| false).is_ok())
        };
        bound
            .map(ToString::to_string)
            .filter(|name| of_task.contains(name) || granted(name))
            .collect()
    }
}

const WAIT_OR_DO: &str = "Wait until one has ended, or do the work yourself.";
const DO_IT: &str = "Do the work yourself.";

/// Checks the requirements on the form of the result.
fn check_structured(delegation: &Delegation) -> Result<(), Refusal> {
    let refused = |message: String| Err(Refusal::new(RefusalCode::BadArguments, message));
    if delegation.structured_retries.is_some_and(|retries| retries > STRUCTURED_RETRIES_MAX) {
        return refused(format!("`structured_retries` is at most {STRUCTURED_RETRIES_MAX}."));
    }
    let Some(schema) = &delegation.result_schema else { return Ok(()) };
    let describes_object = schema.get("type").is_some_and(|kind| *kind == json!("object"));
    if !describes_object {
        let text =
            "the schema of a result is a JSON Schema of an object, with `\"type\": \"object\"`.";
        return refused(text.to_owned());
    }
    if schema.to_string().len() > RESULT_SCHEMA_BYTES {
        return refused(format!("the schema of a result has at most {RESULT_SCHEMA_BYTES} bytes."));
    }
    Ok(())
}

fn checked_context(delegation: &Delegation) -> Result<Value, Refusal> {
    match &delegation.context {
        Value::Null => Ok(json!({})),
        Value::Object(_) => Ok(delegation.context.clone()),
        _ => Err(Refusal::new(
            RefusalCode::BadArguments,
            "`context` must be a JSON object of facts for the agent.",
        )),
    }
}
