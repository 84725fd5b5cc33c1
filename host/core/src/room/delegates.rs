//! Delegates: children in the run that work while their caller waits (O-088…O-092). Several run at
//! once if the caller asks for it and they share no task.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::background::checks::may_delegate;
use super::messages::text_form;
use super::prompt_agent::lacks_inputs;
use super::state::closing::FrameEnd;
use super::state::frame::Frame;
use super::state::frame_state::FrameWait;
use super::state::responder::Responder;
use super::state::rounds::{CallOutcome, Slot, SlotAnswer, SlotState};
use super::{Dialogue, Frames, Invariant, RoomContext};
use crate::types::action::{Action, Observation, Turn};
use crate::types::ids::{FrameId, TaskName};
use crate::types::message::{Label, Message, Role, Signal};
use crate::types::outcome::Status;

/// The action that starts several delegates at once.
const DELEGATE_ALL: &str = "delegate_all";
/// Delegates of one action; more is taken for a flood.
const MAX_DELEGATES: usize = 128;
/// The message of a delegate that was given no input.
const BEGIN: &str = "Do what you are there for.";
/// The key of a turn's `extra` that limits the steps of those that work on it.
const TURNS: &str = "turns";
/// The key in the outputs of a delegate that rejected its task.
const REJECTED: &str = "rejected";

impl Dialogue<'_> {
    /// Starts the child that a slot's action asks for, or queues it.
    pub(super) fn start_delegate(&mut self, id: FrameId, index: usize, agent: &str, inputs: Value) {
        let checked = may_delegate(self.frames, self.cx, id, agent).and_then(|task| {
            let waits =
                || format!("{task} waits for this task already, so it cannot be delegated to");
            match lacks_inputs(self.cx, &task, &inputs) {
                _ if self.frames.is_above(id, &task) => Err(waits()),
                Some(lack) => Err(format!("{task} was not started. {lack}")),
                None => Ok(task),
            }
        });
        if let Err(text) = checked {
            self.frames.observe(self.cx, id, index, Err(text));
            return;
        }
        // Queued even if it could start at once: `start_queued` considers all slots together.
        if let Some(slot) = self.frames.slot_mut(self.cx, id, index) {
            slot.state = SlotState::Queued;
        }
        self.start_queued(id);
    }

    /// Starts queued delegates in order, as many as may run at once. Delegates that could reach the
    /// same task, and so share its history, run one after the other.
    fn start_queued(&mut self, id: FrameId) {
        let is_queued = |slot: &Slot| slot.state == SlotState::Queued;
        let at_once = delegates_at_once(self.frames, self.cx, id);
        let Some(round) = self.frames.round_mut(self.cx, id) else { return };
        let mut running = round.slots.iter().filter(|slot| slot.child().is_some()).count();
        if !round.slots.iter().any(is_queued) || running >= at_once {
            return;
        }
        let delegates: Vec<(usize, bool, TaskName)> = round
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| is_queued(slot) || slot.child().is_some())
            .filter_map(|(index, slot)| match &slot.action {
                Some(Action::Delegate { agent, .. }) => {
                    Some((index, is_queued(slot), TaskName::from(agent.as_str())))
                }
                _ => None,
            })
            .collect();
        let above = tasks_above(self.frames, id);
        let mut reached: BTreeMap<TaskName, BTreeSet<TaskName>> = BTreeMap::new();
        let mut claimed_tasks: BTreeSet<TaskName> = BTreeSet::new();
        // Running delegates claim their tasks before any queued one is considered.
        for queued in [false, true] {
            for (index, _, task) in
                delegates.iter().filter(|(_, is_queued, _)| *is_queued == queued)
            {
                let tasks = reached
                    .entry(task.clone())
                    .or_insert_with(|| reached_from(self.cx, task, &above));
                if queued && running < at_once && claimed_tasks.is_disjoint(tasks) {
                    self.begin_delegate(id, *index, task);
                    running += 1;
                }
                claimed_tasks.extend(tasks.iter().cloned());
            }
        }
    }

    /// Starts a child in the run (O-088). It begins with an empty history, unlike a sub-task, which
    /// keeps its history (L-050b).
    fn begin_delegate(&mut self, id: FrameId, index: usize, task: &TaskName) {
        let action = self.frames.slot(id, index).and_then(|slot| slot.action.as_ref());
        let Some(Action::Delegate { inputs, .. }) = action else {
            return self.cx.violated(Invariant::SlotExists, id);
        };
        let inputs = inputs.clone();
        self.histories.clear_history(task, 0);
        let caller = self.frames.get(&id).map_or_else(String::new, |frame| frame.task.to_string());
        let text = first_message(&inputs);
        let child = self.new_frame(task, Some(id), Arc::new(inputs));
        limit_child(self.frames, id, child);
        let mut message = self.cx.stamp(Role::User, &caller);
        message.content = Some(text);
        self.put_pending(child, Responder::User, message);
        self.frames.runnable.push_back(child);
        if let Some(slot) = self.frames.slot_mut(self.cx, id, index) {
            slot.state = SlotState::Delegated { child };
        }
    }
}

impl Dialogue<'_> {
    /// Takes the limit that a turn sets for the steps of those that work on it. Returns the refusal
    /// of a limit that is none.
    pub(super) fn take_delegated_turns(
        &mut self,
        id: FrameId,
        turn: &Turn,
    ) -> Option<(Responder, Arc<Message>)> {
        let limit = turn.extra(TURNS).filter(|limit| !limit.is_null());
        let turns = limit.and_then(Value::as_u64).and_then(|turns| u32::try_from(turns).ok());
        let turns = turns.filter(|turns| *turns > 0);
        self.frames.get_mut(&id)?.limit_delegated_turns(turns);
        let limit = limit.filter(|_| turns.is_none())?;
        let text = format!(
            "The turn was not carried out: its `{TURNS}`, the limit of steps of a sub-task or a \
             delegate, must be a whole number of at least 1, not {limit}."
        );
        let message = Arc::new(self.turn_message(id, turn.clone(), None)?);
        self.write_history(id, &message);
        Some((Responder::Agent, self.frames.refusal_message(self.cx, id, &message, text)))
    }
}

/// Limits the steps of a child to those that its caller's turn allows; its own limit holds if it is
/// lower (L-043).
pub(super) fn limit_child(frames: &mut Frames, caller: FrameId, child: FrameId) {
    let limit = frames.get(&caller).and_then(|frame| frame.turn().delegated_turns);
    if let Some(frame) = frames.get_mut(&child) {
        frame.limit_steps(limit);
    }
}

/// The number of delegates of a frame that may run at once: as granted, and at least one,
/// because the caller waits.
fn delegates_at_once(frames: &Frames, cx: &RoomContext, id: FrameId) -> usize {
    let granted = frames.task_of(cx, id).and_then(|(frame, task)| {
        let rights = cx.setup.rights_in(&task.agent, &frame.task)?;
        Some(rights.grants.delegate.as_ref()?.at_once)
    });
    usize::try_from(granted.unwrap_or(1)).unwrap_or(usize::MAX).max(1)
}

/// The frame's own task and those of its callers.
fn tasks_above(frames: &Frames, id: FrameId) -> BTreeSet<TaskName> {
    let frames = std::iter::successors(frames.get(&id), |frame| frames.get(&frame.caller?));
    frames.map(|frame| frame.task.clone()).collect()
}

/// Whether the caller waits for this child as its delegate.
pub(super) fn waits_for_delegate(frames: &Frames, caller: FrameId, child: FrameId) -> bool {
    delegation(frames, caller, child).is_some()
}

/// The slot of the caller that waits for this child.
fn delegation(frames: &Frames, caller: FrameId, child: FrameId) -> Option<usize> {
    let mut slots = frames.round(caller)?.slots.iter();
    slots.position(|slot| slot.child() == Some(child))
}

/// All tasks that could work for a task: itself, its sub-tasks, its agent's delegates, and so
/// on. Tasks in `above` already wait, and cannot be called again.
fn reached_from(
    cx: &RoomContext,
    task: &TaskName,
    above: &BTreeSet<TaskName>,
) -> BTreeSet<TaskName> {
    let (mut reached, mut to_do) = (BTreeSet::new(), vec![task.clone()]);
    while let Some(task) = to_do.pop() {
        if above.contains(&task) || reached.contains(&task) {
            continue;
        }
        if let Some(setup) = cx.setup.tasks.get(&task) {
            to_do.extend(setup.subtasks.iter().cloned());
            let granted =
                cx.setup.rights(&setup.agent).and_then(|rights| rights.grants.delegate.as_ref());
            to_do.extend(granted.iter().flat_map(|grant| grant.tasks.iter().cloned()));
        }
        reached.insert(task);
    }
    reached
}

impl Dialogue<'_> {
    /// Answers the slot that waits for an ended child, and starts queued delegates. Returns false
    /// if no slot waits.
    pub(super) fn delegate_ended(
        &mut self,
        caller: FrameId,
        child: &Frame,
        ending: &FrameEnd,
        message: Option<&Message>,
    ) -> bool {
        let Some(index) = delegation(self.frames, caller, child.id) else { return false };
        let is_one_of_several =
            self.frames.round(caller).is_some_and(|round| round.slots.len() > 1);
        let (content, observation) = what_came_of(child, ending, message, is_one_of_several);
        let mut answer = self.frames.host_message(self.cx, caller, content);
        if let Some(message) = message {
            answer.labels.clone_from(&message.labels);
            answer.attachments.clone_from(&message.attachments);
        }
        if let Some(slot) = self.frames.slot_mut(self.cx, caller, index) {
            // L-172: several answers in one message are as untrusted as the worst of them.
            Arc::make_mut(&mut slot.now).untrusted |= answer.labels.contains(&Label::Untrusted);
        }
        let is_error = matches!(observation, Observation::Error { .. });
        // A delegate's answer is data to its caller.
        let outcome = CallOutcome { message: Some(Box::new(answer)), is_error, is_result: true };
        let answer = SlotAnswer { outcome, observation: Some(observation) };
        self.frames.answer_slot(self.cx, caller, index, answer);
        // The free place goes to the next delegate.
        self.start_queued(caller);
        self.resume_round(caller);
        true
    }
}

/// The result of a child as a text and as an observation (O-090).
fn what_came_of(
    child: &Frame,
    ending: &FrameEnd,
    message: Option<&Message>,
    is_one_of_several: bool,
) -> (String, Observation) {
    let (name, text) = (&child.task, message.map_or("", Message::text));
    let rejected = ending.status == Status::Rejected;
    if !(ending.status.is_success() || rejected) {
        let mut content = format!(
            "The delegate {name} did not finish its task ({}): {}",
            ending.status.as_str(),
            ending.reason
        );
        // A partial answer may help. The pending message is only an answer if some responder has
        // spoken.
        let partial = text.trim();
        if !partial.is_empty()
            && child.turn().last_responder.is_some()
            && ending.status != Status::Error
        {
            content = format!("{content}\nThe last thing that was said: {partial}");
        }
        return (content.clone(), Observation::Error { content });
    }
    let own = outputs_of(child, message, rejected);
    let content = match &own {
        Some(outputs) => format!("{name} {} with {}", ends(rejected), listed(outputs)),
        None if rejected || is_one_of_several => format!("{name} {}: {text}", ends(rejected)),
        None => text.to_owned(),
    };
    let mut outputs = own.unwrap_or_else(|| Map::from_iter([("content".to_owned(), json!(text))]));
    if rejected {
        outputs.insert(REJECTED.to_owned(), json!(true));
    }
    (content, Observation::Delegated { agent: name.to_string(), outputs: Value::Object(outputs) })
}

fn ends(rejected: bool) -> &'static str {
    if rejected { "rejects its task" } else { "finishes its task" }
}

/// The child's outputs if they are an object; `None` if it gave a text.
fn outputs_of(
    child: &Frame,
    message: Option<&Message>,
    rejected: bool,
) -> Option<Map<String, Value>> {
    let signal = child.turn().pending.as_ref().and_then(|pending| pending.signal.as_ref());
    let outputs = match signal {
        // A judge or a gate may have replaced the outputs that the child gave.
        _ if child.closing().is_some() => message.and_then(|message| message.value.as_ref()),
        Some(Signal::Done { value }) => value.as_ref(),
        Some(Signal::Rejected) if rejected => Some(&child.acting.outputs),
        _ => message.and_then(|message| message.value.as_ref()),
    };
    outputs.and_then(Value::as_object).cloned()
}

/// Formats outputs as `k: v, k2: v2`, without the metrics (O-090).
fn listed(outputs: &Map<String, Value>) -> String {
    let pairs = outputs
        .iter()
        .filter(|(key, _)| *key != "metrics")
        .map(|(key, value)| format!("{key}: {}", text_form(value)));
    let pairs: Vec<String> = pairs.collect();
    if pairs.is_empty() { "no outputs".to_owned() } else { pairs.join(", ") }
}

/// The first message of a child: its task in words (O-089), or else its inputs.
fn first_message(inputs: &Value) -> String {
    let task = inputs.get("task").map(text_form).filter(|text| !text.trim().is_empty());
    let is_empty = inputs.is_null()
        || inputs
            .as_object()
            .is_some_and(|inputs| inputs.values().all(|value| *value == json!("")));
    task.unwrap_or_else(|| if is_empty { BEGIN.to_owned() } else { inputs.to_string() })
}

/// Returns a slot for each delegation of a `delegate_all`; `None` for any other action.
pub(super) fn delegate_slots(action: &Action) -> Option<Result<Vec<Slot>, String>> {
    match action {
        Action::Custom { name, arguments } if name == DELEGATE_ALL => Some(delegations(arguments)),
        _ => None,
    }
}

fn delegations(arguments: &Value) -> Result<Vec<Slot>, String> {
    let delegates =
        arguments.get("delegates").or_else(|| arguments.get("tasks")).and_then(Value::as_array);
    let delegates = delegates.filter(|delegates| !delegates.is_empty());
    let delegates = delegates
        .ok_or("delegate_all needs `delegates`, a list of {agent, inputs}; nobody was started")?;
    if delegates.len() > MAX_DELEGATES {
        let count = delegates.len();
        return Err(format!(
            "delegate_all: {count} delegates, and {MAX_DELEGATES} may be asked for at once; nobody was started"
        ));
    }
    let slot = |(at, one): (usize, &Value)| {
        let agent = one.get("agent").and_then(Value::as_str).filter(|agent| !agent.is_empty());
        let agent = agent.ok_or_else(|| {
            format!(
                "delegate_all: delegate {at} needs an agent, the name of a task; nobody was started"
            )
        })?;
        let inputs = one.get("inputs").cloned().unwrap_or_else(|| json!({}));
        if !inputs.is_object() {
            return Err(format!(
                "delegate_all: the inputs of delegate {at} must be an object; nobody was started"
            ));
        }
        let arguments = json!({ "agent": agent, "inputs": inputs });
        Ok(Slot::of_action(Action::Delegate { agent: agent.to_owned(), inputs }, arguments))
    };
    // One invalid delegation stops all of them before any has started.
    delegates.iter().enumerate().map(slot).collect()
}

/// The children that a frame waits for.
pub(super) fn children_of(frame: &Frame) -> Vec<FrameId> {
    match frame.wait() {
        Some(FrameWait::Subtask(child)) => vec![*child],
        Some(FrameWait::Tools(round)) => round.slots.iter().filter_map(Slot::child).collect(),
        _ => Vec::new(),
    }
}
