//! Scratch data of plugins between calls: per task for agents and tools, per room for strategies.
//! Stored with the answer of a successful call, dropped with a failed one. Calls of a tool plugin
//! that asks for scratch take turns, or the last one to end would undo what the others stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::state::acting::JobCall;
use super::state::as_pairs;
use super::{Frames, Purpose, Room, RoomContext};
use crate::protocol::effect::Effect;
use crate::types::base64_bytes;
use crate::types::capability::Capability;
use crate::types::fault::CallReport;
use crate::types::ids::{CallId, FrameId, PluginName, TaskName};

/// The owner of scratch data; `task` is `None` for a strategy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ScratchKey {
    plugin: PluginName,
    task: Option<TaskName>,
}

/// The scratch data of plugins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Scratch(#[serde(with = "as_pairs")] BTreeMap<ScratchKey, ScratchBytes>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ScratchBytes(#[serde(with = "base64_bytes")] Arc<Vec<u8>>);

impl Room {
    /// The scratch data of this call's plugin; empty at first.
    #[must_use]
    pub fn scratch(&self, call: CallId) -> Arc<Vec<u8>> {
        self.scratch.scratch(&self.cx, &self.frames, call)
    }

    /// Starts the calls of tools whose turn it is to use the scratch of their plugin.
    pub(super) fn start_waiting_calls(&mut self) {
        if self.cx.awaiting_scratch.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut self.cx.awaiting_scratch);
        let is_waiting = |call: CallId| waiting.iter().any(|it| it.starts() == Some(call));
        let key = |call: CallId| scratch_key(&self.frames, &self.cx, call);
        // A waiting call is pending too, but does not use its scratch yet.
        let running = tool_calls(&self.cx).filter(|call| !is_waiting(*call));
        let mut in_use: BTreeSet<ScratchKey> = running.filter_map(key).collect();
        for effect in waiting {
            let Some(call) = effect.starts() else { continue };
            let Some(key) = scratch_key(&self.frames, &self.cx, call) else { continue };
            if !in_use.insert(key) {
                // Effects are visited in their order, so no later call overtakes it.
                self.cx.awaiting_scratch.push_back(effect);
                continue;
            }
            // The time of a call begins with its turn.
            if let Some(frame) = self.cx.calls.get(&call).and_then(Purpose::limited_in) {
                self.frames.set_action_timeout(&mut self.cx, frame, call);
            }
            self.cx.effects.push_back(effect);
        }
    }
}

/// Whether calls of a tool plugin take turns, because they share its scratch.
pub(super) fn takes_turns(cx: &RoomContext, plugin: &PluginName) -> bool {
    let plugin = cx.setup.plugins.get(plugin);
    plugin.is_some_and(|it| it.facts.manifest.ask(Capability::Scratch).is_some())
}

/// Starts a call of a tool, or lets it wait for its turn.
pub(super) fn call_tool(cx: &mut RoomContext, plugin: &PluginName, effect: Effect) {
    let queue = match takes_turns(cx, plugin) {
        true => &mut cx.awaiting_scratch,
        false => &mut cx.effects,
    };
    queue.push_back(effect);
}

/// The pending calls of tools.
fn tool_calls(cx: &RoomContext) -> impl Iterator<Item = CallId> {
    let is_tool = |purpose: &Purpose| matches!(purpose, Purpose::Tool { .. } | Purpose::Job { .. });
    cx.calls.iter().filter(move |(_, purpose)| is_tool(purpose)).map(|(call, _)| *call)
}

fn awaits_scratch(cx: &RoomContext, call: CallId) -> bool {
    cx.awaiting_scratch.iter().any(|effect| effect.starts() == Some(call))
}

impl Purpose {
    /// The activation whose timeout limits a call of a tool.
    fn limited_in(&self) -> Option<FrameId> {
        match self {
            Self::Tool { frame, .. } | Self::Job { about: JobCall::Poll { frame, .. }, .. } => {
                Some(*frame)
            }
            _ => None,
        }
    }
}

/// The turns of calls that share scratch.
#[derive(Clone, Copy)]
pub(super) struct ScratchTurns<'a> {
    pub(super) frames: &'a Frames,
    pub(super) cx: &'a RoomContext,
}

impl ScratchTurns<'_> {
    /// Whether a nested call of the call `within` would wait for a call that waits for `within`.
    /// Both would wait for ever.
    pub(super) fn waits_in_circle(
        self,
        within: CallId,
        (plugin, task): (&PluginName, &TaskName),
    ) -> bool {
        if !takes_turns(self.cx, plugin) {
            return false;
        }
        let mut above = BTreeSet::new();
        let mut caller = Some(within);
        while let Some(call) = caller.filter(|call| above.insert(*call)) {
            caller = self.nesting_call(call);
        }
        let key = ScratchKey { plugin: plugin.clone(), task: Some(task.clone()) };
        let mut next: Vec<CallId> = self.user_of(&key).into_iter().collect();
        let mut seen = BTreeSet::new();
        while let Some(call) = next.pop() {
            if above.contains(&call) {
                return true;
            }
            if !seen.insert(call) {
                continue;
            }
            if awaits_scratch(self.cx, call) {
                next.extend(
                    scratch_key(self.frames, self.cx, call).and_then(|key| self.user_of(&key)),
                );
            }
            // A call waits for those nested in it.
            next.extend(
                tool_calls(self.cx).filter(|nested| self.nesting_call(*nested) == Some(call)),
            );
        }
        false
    }

    /// The call that uses this scratch, or will be the next one to use it.
    fn user_of(self, key: &ScratchKey) -> Option<CallId> {
        let of_key = |call: &CallId| scratch_key(self.frames, self.cx, *call).as_ref() == Some(key);
        let running =
            tool_calls(self.cx).filter(|call| !awaits_scratch(self.cx, *call)).find(of_key);
        running.or_else(|| self.cx.awaiting_scratch.iter().filter_map(Effect::starts).find(of_key))
    }

    /// The call that made this one, if it is nested.
    fn nesting_call(self, call: CallId) -> Option<CallId> {
        let Some(Purpose::Tool { frame, slot, .. }) = self.cx.calls.get(&call) else { return None };
        Some(self.frames.slot(*frame, *slot)?.nested.as_ref()?.call)
    }
}

impl Scratch {
    /// The scratch data of this call's plugin; empty at first.
    pub(super) fn scratch(&self, cx: &RoomContext, frames: &Frames, call: CallId) -> Arc<Vec<u8>> {
        let found = scratch_key(frames, cx, call).and_then(|key| self.0.get(&key));
        found.map(|bytes| Arc::clone(&bytes.0)).unwrap_or_default()
    }

    /// Drops the data of plugins and tasks that the current setup does not have.
    pub(super) fn forget_removed_owners(&mut self, cx: &RoomContext) {
        let setup = &cx.setup;
        self.0.retain(|ScratchKey { plugin, task }, _| {
            setup.plugins.contains_key(plugin)
                && task.as_ref().is_none_or(|task| setup.tasks.contains_key(task))
        });
    }

    pub(super) fn keep_scratch(
        &mut self,
        cx: &RoomContext,
        frames: &Frames,
        call: CallId,
        ok: bool,
        report: &CallReport,
    ) {
        let Some(value) = report.scratch.as_ref().filter(|_| ok) else { return };
        if let Some(key) = scratch_key(frames, cx, call) {
            self.0.insert(key, ScratchBytes(Arc::new(value.clone())));
        }
    }
}

fn scratch_key(frames: &Frames, cx: &RoomContext, call: CallId) -> Option<ScratchKey> {
    let purpose = cx.calls.get(&call)?;
    let task = match purpose {
        // Outside a round there is no activation that names the task.
        Purpose::Job { task, .. } => Some(task.clone()),
        _ => purpose.frame().and_then(|frame| frames.get(&frame)).map(|frame| frame.task.clone()),
    };
    let plugin = match purpose {
        Purpose::Tool { plugin, .. }
        | Purpose::Job { plugin, .. }
        | Purpose::QueryPlugin { plugin, .. } => plugin.clone(),
        Purpose::Gate { plugin, .. } | Purpose::Observer { plugin } => plugin.clone(),
        Purpose::Step { frame } | Purpose::Respond { frame } => {
            frames.agent_of(cx, *frame)?.clone()
        }
        Purpose::Strategy { strategy } => strategy.clone(),
        Purpose::Approval { .. }
        | Purpose::HeldTool { .. }
        | Purpose::TopUp { .. }
        | Purpose::User { .. }
        | Purpose::Background { .. }
        | Purpose::Post { .. }
        | Purpose::Send { .. } => return None,
    };
    Some(ScratchKey { plugin, task })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Parts;
    use super::*;
    use crate::types::ids::FrameId;

    struct Call<'a> {
        parts: &'a mut Parts,
        scratch: &'a mut Scratch,
    }

    impl Call<'_> {
        /// Returns the scratch data that a new call reads, and ends the call with `value`.
        fn make(&mut self, purpose: Purpose, ok: bool, value: Option<&str>) -> String {
            let call = self.parts.cx.next_call(purpose);
            let found = self.scratch.scratch(&self.parts.cx, &self.parts.frames, call);
            let scratch = value.map(|value| value.as_bytes().to_vec());
            let report = CallReport { scratch, ..CallReport::default() };
            self.scratch.keep_scratch(&self.parts.cx, &self.parts.frames, call, ok, &report);
            String::from_utf8(found.to_vec()).unwrap()
        }
    }

    #[test]
    fn a_successful_call_leaves_data_and_others_change_nothing() {
        let mut parts = Parts::new("");
        let step = Purpose::Step { frame: parts.begin("desk", None) };
        let mut call = Call { parts: &mut parts, scratch: &mut Scratch::default() };
        assert_eq!(call.make(step.clone(), true, Some("one")), "");
        assert_eq!(call.make(step.clone(), false, Some("two")), "one");
        assert_eq!(call.make(step.clone(), true, None), "one");
        assert_eq!(call.make(step.clone(), true, Some("")), "one");
        assert_eq!(call.make(step, true, None), "");
    }

    #[test]
    fn data_belong_to_a_plugin_in_a_task_and_those_of_a_strategy_to_the_room() {
        let mut parts = Parts::new("");
        let (desk, digest) = (parts.begin("desk", None), parts.begin("digest", None));
        let tool = |frame, plugin: &str| Purpose::Tool { frame, slot: 0, plugin: plugin.into() };
        let strategy = Purpose::Strategy { strategy: "worker".into() };
        let mut call = Call { parts: &mut parts, scratch: &mut Scratch::default() };
        let owners = [
            (tool(desk, "worker"), "tool at the desk"),
            (tool(digest, "worker"), "tool in the digest"),
            (tool(desk, "chat"), "another plugin"),
            (strategy, "strategy"),
        ];
        for (purpose, value) in &owners {
            assert_eq!(call.make(purpose.clone(), true, Some(value)), "");
        }
        for (purpose, value) in owners {
            assert_eq!(call.make(purpose, true, None), value);
        }
        // A step of the same plugin in the same task.
        let step = Purpose::Step { frame: digest };
        assert_eq!(call.make(step, true, None), "tool in the digest");
    }

    #[test]
    fn data_of_a_removed_task_or_plugin_are_dropped() {
        let mut parts = Parts::new("");
        let (desk, digest) = (parts.begin("desk", None), parts.begin("digest", None));
        let mut scratch = Scratch::default();
        let owners = [
            (Purpose::Step { frame: desk }, "desk"),
            (Purpose::Step { frame: digest }, "digest"),
            (Purpose::Strategy { strategy: "worker".into() }, "strategy"),
        ];
        let mut call = Call { parts: &mut parts, scratch: &mut scratch };
        for (purpose, value) in owners {
            call.make(purpose, true, Some(value));
        }
        let values = |scratch: &Scratch| -> Vec<String> {
            scratch.0.values().map(|it| String::from_utf8(it.0.to_vec()).unwrap()).collect()
        };
        scratch.forget_removed_owners(&parts.cx);
        assert_eq!(values(&scratch), ["desk", "strategy", "digest"], "all are in the setup");
        parts.cx.setup_mut().tasks.remove("digest");
        scratch.forget_removed_owners(&parts.cx);
        assert_eq!(values(&scratch), ["desk", "strategy"]);
        parts.cx.setup_mut().plugins.remove("worker");
        scratch.forget_removed_owners(&parts.cx);
        assert_eq!(values(&scratch), ["desk"]);
    }

    #[test]
    fn calls_that_no_plugin_answers_have_no_data() {
        let mut parts = Parts::new("");
        let frame = parts.begin("desk", None);
        let mut scratch = Scratch::default();
        let mut call = Call { parts: &mut parts, scratch: &mut scratch };
        call.make(Purpose::User { frame }, true, Some("a"));
        call.make(Purpose::Step { frame: FrameId(9) }, true, Some("a"));
        assert_eq!(scratch, Scratch::default());
    }
}
