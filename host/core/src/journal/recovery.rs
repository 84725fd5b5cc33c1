//! What a room that was cut off has under way, found by folding its journal: what is to be started
//! again, and what must not be. Decides nothing about the room, which goes on by events like any
//! other.

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

/// What an attempt is told whose end nobody knows.
pub const INTERRUPTED: &str = "interrupted: the host stopped while this was under way, and nobody can say whether it happened; it was not repeated";

/// Messages to one background task that are said again. Only the newest can be missing in its
/// journal, and a room remembers more ids.
const TELLS: usize = 256;

/// What a call of a plugin begins with, as the room had it when the call was made. A call that is
/// run again begins with the same.
#[derive(Clone, Debug)]
pub struct Start {
    /// The time that the guest sees.
    pub at: Millis,
    pub scratch: Arc<Vec<u8>>,
    /// For `step` and `respond`.
    pub agent: Option<AgentView>,
    /// For `decide`.
    pub delivery: Option<DeliveryView>,
}

impl Start {
    /// To be asked right after the event that gave rise to the effect; none when it calls no
    /// plugin.
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

/// Something to start again.
#[derive(Clone, Debug)]
pub struct Restart {
    pub effect: Effect,
    pub start: Option<Start>,
    /// What the call was told before.
    pub trace: Arc<CallLog>,
}

/// A room as its journal leaves it.
#[derive(Debug)]
pub struct Unfinished {
    pub room: Room,
    /// The number of its next record.
    pub next: u64,
    effects: BTreeMap<CallId, (Effect, Option<Start>)>,
    models: BTreeMap<(CallId, u32), Effect>,
    timers: BTreeMap<TimerId, Millis>,
    traces: BTreeMap<CallId, CallLog>,
    /// What background tasks under way were told, oldest first.
    tells: BTreeMap<CallId, VecDeque<Effect>>,
    /// Of the last record.
    last: Millis,
    /// Calls that were looked at.
    #[cfg(test)]
    visited: u64,
}

/// How a room goes on.
#[derive(Debug)]
pub struct Resumption {
    /// To be taken first, in this order.
    pub events: Vec<Event>,
    /// To be performed then, where their calls still go on.
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
        while self.room.poll_notice().is_some() {}
        while let Some(effect) = self.room.poll_effect() {
            self.begun(effect);
        }
        // A journal may tell something of a call that is over, or never was.
        if let Some(call) = traced {
            self.drop_if_over(call);
        }
        // Only these: to look at all that is under way after each record would take records times
        // calls.
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

    /// Forgets a call that nobody waits for.
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

    /// Takes what the event says of a call's past; gives that call.
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
                // One that was held back while the room was paused may be for a call that is over
                // by now.
                if let Some(call) = effect.starts().filter(|call| self.room.is_in_flight(*call)) {
                    let start = Start::of(&effect, &self.room);
                    self.effects.insert(call, (effect, start));
                }
            }
        }
    }

    /// What is to be done so that the room goes on at `now`; what it holds is over when it has an
    /// outcome.
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
        // What was read and answered of a step whose side effect was cut off is still the same;
        // only that effect now has an end.
        for told in &events {
            if let Event::SideEffectEnded { call, .. } = told {
                self.put_back(*call, told, &mut again);
            }
        }
        let plain = |effect: Effect| Restart { effect, start: None, trace: Arc::default() };
        // Whether a child room has kept them is known to that room alone, which ignores what it
        // has. After it is there again.
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

    /// A step goes on, and its plugin is told what of it was cut off; a tool's call ends (C-318).
    fn put_back(&self, call: CallId, told: &Event, again: &mut Vec<Restart>) {
        let Some((effect, start)) = self
            .effects
            .get(&call)
            .filter(|(effect, _)| !matches!(effect, Effect::CallTool { .. }))
        else {
            return;
        };
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

    /// What answers an attempt that must not be repeated; none when it can be run again.
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
    /// The plugins with a call that is run again from its trace: those must be what they were.
    #[must_use]
    pub fn plugins(&self) -> BTreeSet<&PluginName> {
        let told_before = self.again.iter().filter(|again| !again.trace.is_empty());
        told_before.filter_map(|again| plugin_of(&again.effect)).collect()
    }
}

/// The plugin that an effect calls.
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

/// What runs in a sandbox can do nothing that its trace does not say.
fn is_sandboxed(plugin: &PluginName, setup: &Setup) -> bool {
    setup.plugins.get(plugin).is_some_and(|plugin| !plugin.facts.mcp && !plugin.facts.is_native())
}

/// The tool says that a call does the same when it is repeated.
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

    /// A room with so many calls in flight, each of which has begun and was told something.
    fn busy(calls: u64) -> Unfinished {
        let mut state = serde_json::to_value(Room::new()).expect("a room is serialisable");
        state["phase"] = json!({ "Running": { "root": 0 } });
        state["calls"] =
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
        // Of a call that is over, and of one that never was.
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
