//! What a room that was cut off has under way, found by folding its journal: what is to be started again, and what must not be. Decides
//! nothing about the room, which goes on by events like any other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::delivery::DeliveryView;
use crate::effect::Effect;
use crate::event::{Event, Record};
use crate::fault::{CallReport, Fault, FaultKind};
use crate::ids::{CallId, Millis, PluginName, TimerId};
use crate::room::Room;
use crate::setup::Setup;
use crate::side_effect::{FailureCause, SideEffectAnswer};
use crate::tool::ToolError;
use crate::trace::Trace;
use crate::view::AgentView;

/// What an attempt is told whose end nobody knows.
pub const INTERRUPTED: &str =
    "interrupted: the host stopped while this was under way, and nobody can say whether it happened; it was not repeated";

/// What a call of a plugin begins with, as the room had it when the call was made. A call that is run again begins with the same.
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
    /// To be asked right after the event that gave rise to the effect; none when it calls no plugin.
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
        Some(Self { at: room.now(), scratch: room.scratch(*call), agent: room.agent_view(*call), delivery: room.delivery_view(*call) })
    }
}

/// Something to start again.
#[derive(Clone, Debug)]
pub struct Again {
    pub effect: Effect,
    pub start: Option<Start>,
    /// What the call was told before.
    pub trace: Arc<Trace>,
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
    traces: BTreeMap<CallId, Trace>,
    /// Of the last record.
    last: Millis,
}

/// How a room goes on.
#[derive(Debug)]
pub struct Resumption {
    /// To be taken first, in this order.
    pub events: Vec<Event>,
    /// To be performed then, where their calls still go on.
    pub again: Vec<Again>,
}

impl Unfinished {
    /// Folds a journal.
    #[must_use]
    pub fn fold(records: impl IntoIterator<Item = Record>) -> Self {
        let (effects, models, timers, traces) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut all = Self { room: Room::new(), next: 0, effects, models, timers, traces, last: Millis::default() };
        records.into_iter().for_each(|record| all.take(record));
        all
    }

    fn take(&mut self, record: Record) {
        self.next = record.seq + 1;
        self.last = self.last.max(record.at);
        self.note(&record.event);
        self.room.handle(record.event, record.at);
        while self.room.poll_notice().is_some() {}
        while let Some(effect) = self.room.poll_effect() {
            self.begun(effect);
        }
        let in_flight: BTreeSet<CallId> = self.room.calls_in_flight().collect();
        // Numbers do not tell: a paused room has calls that have not begun.
        self.effects.retain(|call, _| in_flight.contains(call));
        self.traces.retain(|call, _| in_flight.contains(call));
        if self.room.outcome().is_some() {
            self.models.clear();
            self.timers.clear();
        }
    }

    fn note(&mut self, event: &Event) {
        match event {
            Event::ModelAsked { call, .. }
            | Event::SideEffectAsked { call, .. }
            | Event::SideEffectEnded { call, .. }
            | Event::ReadsKept { call, .. } => self.traces.entry(*call).or_default().take(event),
            Event::ModelAnswered { call, ordinal, .. } => drop(self.models.remove(&(*call, *ordinal))),
            Event::TimerFired { timer } => drop(self.timers.remove(timer)),
            Event::Resumed { down_ms } => self.timers.values_mut().for_each(|at| *at = at.plus(*down_ms)),
            _ => {}
        }
    }

    fn begun(&mut self, effect: Effect) {
        match &effect {
            Effect::CallModel { call, ordinal, .. } => drop(self.models.insert((*call, *ordinal), effect)),
            Effect::AnswerModel { call, ordinal, answer } => {
                let asked = self.traces.get_mut(call).and_then(|trace| trace.models.get_mut(ordinal));
                if let Some(asked) = asked {
                    asked.answer = Some(answer.clone());
                }
            }
            Effect::AllowSideEffect { call, ordinal, leave } => {
                let asked = self.traces.get_mut(call).and_then(|trace| trace.side_effects.get_mut(ordinal));
                if let Some(asked) = asked {
                    asked.leave.clone_from(leave);
                }
            }
            Effect::SetTimer { timer, at } => drop(self.timers.insert(*timer, *at)),
            _ => {
                if let Some(call) = effect.starts() {
                    let start = Start::of(&effect, &self.room);
                    self.effects.insert(call, (effect, start));
                }
            }
        }
    }

    /// What is to be done so that the room goes on at `now`; what it holds is over when it has an outcome.
    #[must_use]
    pub fn resumption(&self, now: Millis) -> Resumption {
        let mut events = vec![Event::Resumed { down_ms: now.since(self.last) }];
        let mut again = Vec::new();
        for (call, (effect, start)) in &self.effects {
            let mut trace = self.traces.get(call).cloned().unwrap_or_default();
            trace.may_repeat = is_idempotent(effect, self.room.setup());
            match self.interrupted(*call, effect, &trace) {
                Some(told) => events.extend(told),
                None => again.push(Again { effect: effect.clone(), start: start.clone(), trace: Arc::new(trace) }),
            }
        }
        // What was read and answered of a step whose side effect was cut off is still the same; only that effect now has an end.
        for told in &events {
            if let Event::SideEffectEnded { call, .. } = told {
                self.put_back(*call, told, &mut again);
            }
        }
        let plain = |effect: Effect| Again { effect, start: None, trace: Arc::default() };
        again.extend(self.models.values().cloned().map(plain));
        let down = now.since(self.last);
        again.extend(self.timers.iter().map(|(timer, at)| plain(Effect::SetTimer { timer: *timer, at: at.plus(down) })));
        Resumption { events, again }
    }

    /// A step goes on, and its plugin is told what of it was cut off; a tool's call ends (C-318).
    fn put_back(&self, call: CallId, told: &Event, again: &mut Vec<Again>) {
        let Some((effect, start)) = self.effects.get(&call).filter(|(effect, _)| !matches!(effect, Effect::CallTool { .. })) else {
            return;
        };
        let mut trace = match again.iter().position(|other| other.effect.starts() == Some(call)) {
            Some(index) => Arc::unwrap_or_clone(again.swap_remove(index).trace),
            None => self.traces.get(&call).cloned().unwrap_or_default(),
        };
        trace.take(told);
        again.push(Again { effect: effect.clone(), start: start.clone(), trace: Arc::new(trace) });
    }

    /// What answers an attempt that must not be repeated; none when it can be run again.
    fn interrupted(&self, call: CallId, effect: &Effect, trace: &Trace) -> Option<Vec<Event>> {
        let setup = self.room.setup();
        let open = trace.side_effects.iter().filter(|(_, asked)| asked.leave.is_ok() && asked.answer.is_none());
        let ended = open.map(|(ordinal, _)| {
            let answer = SideEffectAnswer::Failed { cause: FailureCause::Interrupted, message: INTERRUPTED.to_owned() };
            Event::SideEffectEnded { call, ordinal: *ordinal, answer }
        });
        match effect {
            Effect::CallTool { plugin, .. } => {
                let is_lost = trace.cut_off().is_some() || !is_sandboxed(plugin, setup);
                (is_lost && !trace.may_repeat).then(|| {
                    let fault = Fault::new(FaultKind::Interrupted, INTERRUPTED);
                    let answered = Event::ToolAnswered { call, answer: Err(ToolError::Fault { fault }), report: CallReport::default() };
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
        Effect::StepAgent { agent: plugin, .. } | Effect::AskResponder { agent: plugin, .. } => Some(plugin),
        Effect::CallTool { plugin, .. } | Effect::Consult { plugin, .. } | Effect::WakeStrategy { strategy: plugin, .. } => Some(plugin),
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
    facts.is_some_and(|facts| facts.tools.iter().any(|known| known.name == *tool && known.idempotent))
}
