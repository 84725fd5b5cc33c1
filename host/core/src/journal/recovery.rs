//! Recovery of an interrupted room from its journal: which calls are started again, and which must
//! not be repeated. Does not change the room, which resumes by ordinary events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::protocol::call_log::CallLog;
use crate::protocol::effect::Effect;
use crate::protocol::event::{Event, Record};
use crate::room::Room;
use crate::setup::Setup;
use crate::types::delivery::DeliveryView;
use crate::types::fault::{CallReport, Fault, FaultKind};
use crate::types::ids::{CallId, Millis, PluginName, TimerId};
use crate::types::side_effect::{FailureCause, SideEffectAnswer};
use crate::types::tool::ToolError;
use crate::types::view::AgentView;

/// The error for an attempt whose result is unknown.
pub const INTERRUPTED: &str = "interrupted: the host stopped while this was under way, and nobody can say whether it happened; it was not repeated";

/// Messages to one background task that are sent again after an interruption. Only the newest can
/// be missing in the task's journal, and a room remembers more ids than this.
const TELLS: usize = 256;

/// The inputs of a plugin call, as the room had them when the call was made. A repeated call gets
/// the same inputs.
#[derive(Clone, Debug)]
pub struct Start {
    /// The time that the guest reads.
    pub at: Millis,
    pub scratch: Arc<Vec<u8>>,
    /// The agent's view, for `step` and `respond`.
    pub agent: Option<AgentView>,
    /// The strategy's view, for `decide`.
    pub delivery: Option<DeliveryView>,
}

impl Start {
    /// Returns the inputs of the call that `effect` starts; `None` if it calls no plugin. Must be
    /// called directly after the event that caused the effect, before the room changes again.
    #[must_use]
    pub fn of(effect: &Effect, room: &Room) -> Option<Self> {
        let (Effect::StepAgent { call, .. }
        | Effect::AskResponder { call, .. }
        | Effect::CallTool { call, .. }
        | Effect::Consult { call, .. }
        | Effect::WakeStrategy { call, .. }) = effect
        else {
            return None;
        };
        Some(Self {
            at: room.now(),
            scratch: room.scratch(*call),
            agent: room.agent_view(*call),
            delivery: room.delivery_view(*call),
        })
    }
}

/// A call to start again.
#[derive(Clone, Debug)]
pub struct Restart {
    pub effect: Effect,
    pub start: Option<Start>,
    /// The requests and answers of the call before the interruption.
    pub trace: Arc<CallLog>,
}

/// A room as its journal leaves it.
#[derive(Debug)]
pub struct Unfinished {
    pub room: Room,
    /// The sequence number of its next record.
    pub next: u64,
    effects: BTreeMap<CallId, (Effect, Option<Start>)>,
    models: BTreeMap<(CallId, u32), Effect>,
    timers: BTreeMap<TimerId, Millis>,
    traces: BTreeMap<CallId, CallLog>,
    /// Messages sent to background tasks under way, oldest first.
    tells: BTreeMap<CallId, VecDeque<Effect>>,
    /// The time of the last record.
    last: Millis,
    /// The number of calls that were examined.
    #[cfg(test)]
    visited: u64,
}

/// The events and effects that resume a room.
#[derive(Debug)]
pub struct Resumption {
    /// Events to apply first, in this order.
    pub events: Vec<Event>,
    /// Effects to perform afterwards, if their calls are still in flight.
    pub again: Vec<Restart>,
}

impl Unfinished {
    /// Folds a journal.
    #[must_use]
    pub fn fold(records: impl IntoIterator<Item = Record>) -> Self {
        let (effects, models, timers, traces) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut all = Self {
            room: Room::new(),
            next: 0,
            effects,
            models,
            timers,
            traces,
            tells: BTreeMap::new(),
            last: Millis::default(),
            #[cfg(test)]
            visited: 0,
        };
        records.into_iter().for_each(|record| all.take(record));
        all
    }

    fn take(&mut self, record: Record) {
        self.next = record.seq + 1;
        self.last = self.last.max(record.at);
        let traced = self.note(&record.event);
        self.room.handle(record.event, record.at);
        // Notices were published before the interruption; only effects can still be pending.
        while self.room.poll_notice().is_some() {}
        while let Some(effect) = self.room.poll_effect() {
            self.begun(effect);
        }
        // A journal may mention a call that has ended or never began; its log must not stay in
        // memory.
        if let Some(call) = traced {
            self.drop_if_over(call);
        }
        // Examine only the calls that this record ended: a scan of all calls after each record
        // would cost records × calls.
        for index in 0..self.room.ended_calls().len() {
            if let Some(call) = self.room.ended_calls().get(index).copied() {
                self.drop_if_over(call);
            }
        }
        if self.room.outcome().is_some() {
            self.models.clear();
            self.timers.clear();
        }
    }

    /// Forgets a call that is no longer in flight.
    fn drop_if_over(&mut self, call: CallId) {
        #[cfg(test)]
        {
            self.visited += 1;
        }
        if !self.room.is_in_flight(call) {
            self.effects.remove(&call);
            self.traces.remove(&call);
            self.tells.remove(&call);
        }
    }

    /// Adds the event to the log of its call, and returns that call.
    fn note(&mut self, event: &Event) -> Option<CallId> {
        match event {
            Event::ModelAsked { call, .. }
            | Event::SideEffectAsked { call, .. }
            | Event::SideEffectEnded { call, .. }
            | Event::ReadsKept { call, .. } => {
                self.traces.entry(*call).or_default().take(event);
                return Some(*call);
            }
            Event::ModelAnswered { call, ordinal, .. } => {
                drop(self.models.remove(&(*call, *ordinal)))
            }
            Event::TimerFired { timer } => drop(self.timers.remove(timer)),
            Event::Resumed { down_ms } => {
                // Downtime counts against no time limit, so timers move by its length.
                self.timers.values_mut().for_each(|at| *at = at.plus(*down_ms))
            }
            _ => {}
        }
        None
    }

    fn begun(&mut self, effect: Effect) {
        match &effect {
            Effect::CallModel { call, ordinal, .. } => {
                drop(self.models.insert((*call, *ordinal), effect))
            }
            Effect::AnswerModel { call, ordinal, answer } => {
                let asked =
                    self.traces.get_mut(call).and_then(|trace| trace.models.get_mut(ordinal));
                if let Some(asked) = asked {
                    asked.answer = Some(answer.clone());
                }
            }
            Effect::AllowSideEffect { call, ordinal, leave } => {
                let asked =
                    self.traces.get_mut(call).and_then(|trace| trace.side_effects.get_mut(ordinal));
                if let Some(asked) = asked {
                    asked.leave.clone_from(leave);
                }
            }
            Effect::SetTimer { timer, at } => drop(self.timers.insert(*timer, *at)),
            Effect::TellTask { call, .. } if self.room.is_in_flight(*call) => {
                let tells = self.tells.entry(*call).or_default();
                if tells.len() == TELLS {
                    tells.pop_front();
                }
                tells.push_back(effect);
            }
            _ => {
                // An effect that was deferred while the room was paused may belong to a call that
                // has ended since.
                if let Some(call) = effect.starts().filter(|call| self.room.is_in_flight(*call)) {
                    let start = Start::of(&effect, &self.room);
                    self.effects.insert(call, (effect, start));
                }
            }
        }
    }

    /// Returns the events and effects that resume the room at `now`. A room that has an outcome has
    /// ended.
    #[must_use]
    pub fn resumption(&self, now: Millis) -> Resumption {
        let mut events = vec![Event::Resumed { down_ms: now.since(self.last) }];
        let mut again = Vec::new();
        for (call, (effect, start)) in &self.effects {
            let mut trace = self.traces.get(call).cloned().unwrap_or_default();
            trace.may_repeat = is_idempotent(effect, self.room.setup());
            match self.interrupted(*call, effect, &trace) {
                Some(told) => events.extend(told),
                None => again.push(Restart {
                    effect: effect.clone(),
                    start: start.clone(),
                    trace: Arc::new(trace),
                }),
            }
        }
        // Reads and answers of an interrupted step stay valid; only the side effect under way gets
        // an end.
        for told in &events {
            if let Event::SideEffectEnded { call, .. } = told {
                self.put_back(*call, told, &mut again);
            }
        }
        let plain = |effect: Effect| Restart { effect, start: None, trace: Arc::default() };
        // Only the child room knows whether it has these messages, and it ignores those that it
        // has. They follow the restart, because the room must exist first.
        again.extend(self.tells.values().flatten().cloned().map(plain));
        again.extend(self.models.values().cloned().map(plain));
        let down = now.since(self.last);
        again.extend(
            self.timers
                .iter()
                .map(|(timer, at)| plain(Effect::SetTimer { timer: *timer, at: at.plus(down) })),
        );
        Resumption { events, again }
    }

    /// Resumes an interrupted call. A step continues and its plugin learns which side effect was
    /// interrupted; a tool call ends (C-318).
    fn put_back(&self, call: CallId, told: &Event, again: &mut Vec<Restart>) {
        let Some((effect, start)) = self
            .effects
            .get(&call)
            .filter(|(effect, _)| !matches!(effect, Effect::CallTool { .. }))
        else {
            return;
        };
        // A call with several interrupted side effects comes here once for each. They share one
        // restart, so that the call starts once.
        let mut trace = match again.iter().position(|other| other.effect.starts() == Some(call)) {
            Some(index) => Arc::unwrap_or_clone(again.swap_remove(index).trace),
            None => self.traces.get(&call).cloned().unwrap_or_default(),
        };
        trace.take(told);
        again.push(Restart {
            effect: effect.clone(),
            start: start.clone(),
            trace: Arc::new(trace),
        });
    }

    /// Returns the events that answer an attempt that must not be repeated; `None` if it can run
    /// again.
    fn interrupted(&self, call: CallId, effect: &Effect, trace: &CallLog) -> Option<Vec<Event>> {
        let setup = self.room.setup();
        let open = trace
            .side_effects
            .iter()
            .filter(|(_, asked)| asked.leave.is_ok() && asked.answer.is_none());
        let ended = open.map(|(ordinal, _)| {
            let answer = SideEffectAnswer::Failed {
                cause: FailureCause::Interrupted,
                message: INTERRUPTED.to_owned(),
            };
            Event::SideEffectEnded { call, ordinal: *ordinal, answer }
        });
        match effect {
            Effect::CallTool { plugin, .. } => {
                let is_lost = trace.cut_off().is_some() || !is_sandboxed(plugin, setup);
                (is_lost && !trace.may_repeat).then(|| {
                    let fault = Fault::new(FaultKind::Interrupted, INTERRUPTED);
                    let answered = Event::ToolAnswered {
                        call,
                        answer: Err(ToolError::Fault { fault }),
                        report: CallReport::default(),
                    };
                    ended.chain([answered]).collect()
                })
            }
            _ => trace.cut_off().map(|_| ended.collect()),
        }
    }
}

impl Resumption {
    /// Returns the plugins of calls that run again from their logs. Their components must be the
    /// same as before.
    #[must_use]
    pub fn plugins(&self) -> BTreeSet<&PluginName> {
        let told_before = self.again.iter().filter(|again| !again.trace.is_empty());
        told_before.filter_map(|again| plugin_of(&again.effect)).collect()
    }
}

/// Returns the plugin that an effect calls.
fn plugin_of(effect: &Effect) -> Option<&PluginName> {
    match effect {
        Effect::StepAgent { agent: plugin, .. } | Effect::AskResponder { agent: plugin, .. } => {
            Some(plugin)
        }
        Effect::CallTool { plugin, .. }
        | Effect::Consult { plugin, .. }
        | Effect::WakeStrategy { strategy: plugin, .. } => Some(plugin),
        _ => None,
    }
}

/// Returns whether the plugin runs in a sandbox: all that such a plugin does is in its call log.
fn is_sandboxed(plugin: &PluginName, setup: &Setup) -> bool {
    setup.plugins.get(plugin).is_some_and(|plugin| !plugin.facts.mcp && !plugin.facts.is_native())
}

/// Returns whether the tool declares that a repeated call has the same effect.
fn is_idempotent(effect: &Effect, setup: &Setup) -> bool {
    let Effect::CallTool { plugin, tool, .. } = effect else { return false };
    let facts = setup.plugins.get(plugin).map(|plugin| &plugin.facts);
    facts.is_some_and(|facts| {
        facts.tools.iter().any(|known| known.name == *tool && known.idempotent)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protocol::event::{Principal, RULES};

    /// Returns a room with `calls` calls in flight, each of which has begun and has a log.
    fn busy(calls: u64) -> Unfinished {
        let mut state = serde_json::to_value(Room::new()).expect("a room is serialisable");
        state["cx"]["phase"] = json!({ "Running": { "root": 0 } });
        state["cx"]["calls"] =
            (0..calls).map(|call| (call.to_string(), json!({ "Step": { "frame": 0 } }))).collect();
        let mut unfinished = Unfinished::fold([]);
        unfinished.room = serde_json::from_value(state).expect("it is a room");
        for call in (0..calls).map(CallId) {
            let effect = Effect::StepAgent {
                call,
                frame: crate::types::ids::FrameId(0),
                task: "desk".into(),
                agent: "desk".into(),
            };
            unfinished.effects.insert(call, (effect, None));
            unfinished.traces.insert(call, CallLog::default());
        }
        unfinished
    }

    fn record(seq: u64, event: Event) -> Record {
        Record { seq, at: Millis(seq), principal: Principal("tester".into()), rules: RULES, event }
    }

    #[test]
    fn a_record_costs_the_same_however_many_calls_are_under_way() {
        let told = |calls: u64| {
            let mut unfinished = busy(calls);
            for seq in 0..1_000 {
                unfinished.take(record(
                    seq,
                    Event::ReadsKept { call: CallId(seq % calls), reads: Vec::new() },
                ));
            }
            assert_eq!(
                (unfinished.effects.len() as u64, unfinished.traces.len() as u64),
                (calls, calls)
            );
            unfinished.visited
        };
        assert_eq!(told(10), told(1_000));
        assert!(told(1_000) <= 2_000, "{}", told(1_000));
    }

    #[test]
    fn what_has_ended_is_forgotten_however_it_ended() {
        let mut unfinished = busy(100);
        let failed = || Err(Fault::new(FaultKind::Interrupted, "gone"));
        unfinished.take(record(
            0,
            Event::AgentStepped {
                call: CallId(7),
                answer: failed(),
                report: CallReport::default(),
            },
        ));
        // One event for a call that has ended, and one for a call that never began.
        for (seq, call) in [(1, 7), (2, 100_000)] {
            unfinished
                .take(record(seq, Event::ReadsKept { call: CallId(call), reads: Vec::new() }));
        }
        let in_flight: BTreeSet<CallId> = unfinished.room.calls_in_flight().collect();
        assert!(
            unfinished.effects.keys().all(|call| in_flight.contains(call))
                && unfinished.traces.keys().all(|call| in_flight.contains(call))
        );
        unfinished.take(record(3, Event::Cancelled { reason: "enough".to_owned() }));
        assert!(unfinished.effects.is_empty() && unfinished.traces.is_empty());
    }
}
