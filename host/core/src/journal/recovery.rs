//! Recovery of an interrupted room from its journal: which calls are started again, and which must
//! not be repeated. Does not change the room, which resumes by ordinary events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::journal::ownership::OneHistory;
use crate::protocol::call_log::CallLog;
use crate::protocol::effect::Effect;
use crate::protocol::event::{Event, Record};
use crate::room::Room;
use crate::setup::{ChangedComponent, Setup};
use crate::types::delivery::DeliveryView;
use crate::types::fault::{CallReport, Fault, FaultKind};
use crate::types::ids::{CallId, Millis, PluginName, TimerId};
use crate::types::request::RequestId;
use crate::types::side_effect::{FailureCause, SideEffectAnswer};
use crate::types::tool::{CallableTool, ToolError};
use crate::types::view::{AgentView, ConversationView};

/// The error for an attempt whose result is unknown.
pub const INTERRUPTED: &str = "interrupted: the host stopped while this was under way, and nobody can say whether it happened; it was not repeated";

/// The failure of a message to a channel that would not recognize a repeated one.
pub const UNKNOWN_SEND: &str = "unknown: the host stopped before the answer came, and nobody can say whether it arrived; it was not repeated";

/// Messages to one background task that are sent again after an interruption. Only the newest can
/// be missing in the task's journal, and a room remembers more ids than this.
const TELLS: usize = 256;

/// The number of timers below which dropped ones are never searched for.
const CLEAN_AT: usize = 32;

/// The inputs of a plugin call, as the room had them when the call was made. A repeated call gets
/// the same inputs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The time that the guest reads.
    pub at: Millis,
    pub scratch: Arc<Vec<u8>>,
    /// The agent's view, for `step` and `respond`.
    pub agent: Option<AgentView>,
    /// The strategy's view, for `decide`.
    pub delivery: Option<DeliveryView>,
    /// The conversation, for a tool that may read it.
    pub conversation: Option<ConversationView>,
    /// The tools that it may call, for a tool that was granted some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callable: Option<Arc<Vec<CallableTool>>>,
}

impl Start {
    /// The inputs of the call that `effect` starts; `None` if it calls no plugin. Must be called
    /// directly after the event that caused the effect, before the room changes again.
    #[must_use]
    pub fn of(effect: &Effect, room: &Room) -> Option<Self> {
        let (Effect::StepAgent { call, .. }
        | Effect::AskResponder { call, .. }
        | Effect::CallTool { call, .. }
        | Effect::QueryPlugin { call, .. }
        | Effect::WakeStrategy { call, .. }) = effect
        else {
            return None;
        };
        Some(Self {
            at: room.now(),
            scratch: room.scratch(*call),
            agent: room.agent_view(*call),
            delivery: room.delivery_view(*call),
            conversation: room.conversation_view(*call),
            callable: room.callable_tools(*call),
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

/// The work in flight of a room: what a resumption starts again, ends or leaves alone. It follows
/// from the room's records, one event at a time, and its size from the work, not from the records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InFlight {
    calls: BTreeMap<CallId, (Effect, Option<Start>)>,
    /// Model requests without an answer, by call and ordinal.
    models: BTreeMap<CallId, BTreeMap<u32, Effect>>,
    /// Timers and their times. Some that the room has dropped are here too.
    timers: BTreeMap<TimerId, Millis>,
    /// The length of `timers` at which dropped ones are removed.
    clean_at: usize,
    logs: BTreeMap<CallId, CallLog>,
    /// The numbers of the records with the reads of each call, in order.
    reads: BTreeMap<CallId, Vec<u64>>,
    /// Whether `logs` hold the reads themselves. A running host only names their records, because a
    /// call may read more than fits in memory.
    #[serde(skip, default = "yes")]
    holds_reads: bool,
    /// Messages sent to background tasks under way, oldest first.
    tells: BTreeMap<CallId, VecDeque<Effect>>,
    /// The first request number that no host used.
    next_request: u64,
    /// The call whose log the current event extends; `None` between events.
    #[serde(skip)]
    logged: Option<CallId>,
    /// The number of calls that were examined.
    #[cfg(test)]
    #[serde(skip)]
    visited: u64,
}

fn yes() -> bool {
    true
}

impl Default for InFlight {
    fn default() -> Self {
        Self {
            calls: BTreeMap::new(),
            models: BTreeMap::new(),
            timers: BTreeMap::new(),
            clean_at: CLEAN_AT,
            logs: BTreeMap::new(),
            reads: BTreeMap::new(),
            holds_reads: true,
            tells: BTreeMap::new(),
            next_request: 0,
            logged: None,
            #[cfg(test)]
            visited: 0,
        }
    }
}

impl InFlight {
    /// Returns the work for the snapshots of a running host, without what the calls have read.
    #[must_use]
    pub fn without_reads(mut self) -> Self {
        self.holds_reads = false;
        self.logs.values_mut().for_each(|log| log.reads = Vec::new());
        self
    }

    /// Takes the event of record `seq`, before the room handles it.
    pub fn begin_event(&mut self, seq: u64, event: &Event) {
        match event {
            Event::ModelAsked { call, .. }
            | Event::ToolsAsked { call, .. }
            | Event::SideEffectAsked { call, .. }
            | Event::SideEffectEnded { call, .. } => {
                self.logs.entry(*call).or_default().take(event);
                self.logged = Some(*call);
            }
            Event::ReadsRecorded { call, .. } => {
                let log = self.logs.entry(*call).or_default();
                if self.holds_reads {
                    log.take(event);
                }
                self.reads.entry(*call).or_default().push(seq);
                self.logged = Some(*call);
            }
            Event::ModelAnswered { call, ordinal, .. } => {
                if let Some(requests) = self.models.get_mut(call) {
                    requests.remove(ordinal);
                    if requests.is_empty() {
                        self.models.remove(call);
                    }
                }
            }
            Event::TimerFired { timer } => drop(self.timers.remove(timer)),
            Event::Resumed { down_ms, .. } => {
                // Downtime counts against no time limit, so timers move by its length.
                self.timers.values_mut().for_each(|at| *at = at.plus(*down_ms))
            }
            // `NO_REPLY` is the greatest number and marks requests without a reply.
            Event::Requested { request, .. } if *request != RequestId::NO_REPLY => {
                self.next_request = self.next_request.max(request.0 + 1);
            }
            _ => {}
        }
    }

    /// Takes an effect of the event with the inputs of the call that it starts, before the room
    /// changes again.
    pub fn begin(&mut self, effect: &Effect, start: Option<&Start>, room: &Room) {
        match effect {
            Effect::CallModel { call, ordinal, .. } => {
                self.models.entry(*call).or_default().insert(*ordinal, effect.clone());
            }
            Effect::AnswerModel { call, ordinal, answer } => {
                let request = self.logs.get_mut(call).and_then(|log| log.models.get_mut(ordinal));
                if let Some(request) = request {
                    request.answer = Some(answer.clone());
                }
            }
            Effect::AnswerTools { call, ordinal, answers } => {
                let request = self.logs.get_mut(call).and_then(|log| log.tools.get_mut(ordinal));
                if let Some(request) = request {
                    request.answer = Some(answers.clone());
                }
            }
            Effect::AllowSideEffect { call, ordinal, leave } => {
                let request =
                    self.logs.get_mut(call).and_then(|log| log.side_effects.get_mut(ordinal));
                if let Some(request) = request {
                    request.leave.clone_from(leave);
                }
            }
            Effect::SetTimer { timer, at } => drop(self.timers.insert(*timer, *at)),
            Effect::TellTask { call, .. } if room.is_in_flight(*call) => {
                let tells = self.tells.entry(*call).or_default();
                if tells.len() == TELLS {
                    tells.pop_front();
                }
                tells.push_back(effect.clone());
            }
            _ => {
                // An effect that was deferred while the room was paused may belong to a call that
                // has ended since.
                if let Some(call) = effect.starts().filter(|call| room.is_in_flight(*call)) {
                    self.calls.insert(call, (effect.clone(), start.cloned()));
                }
            }
        }
    }

    /// Forgets what the event ended. Called after its effects.
    pub fn end_event(&mut self, room: &Room) {
        // A journal may mention a call that has ended or never began; its log must not stay in
        // memory.
        if let Some(call) = self.logged.take() {
            self.drop_if_over(call, room);
        }
        // Examine only the calls that this event ended: a scan of all calls after each event would
        // cost events × calls.
        for call in room.ended_calls() {
            self.drop_if_over(*call, room);
        }
        if room.outcome().is_some() {
            self.models.clear();
            self.timers.clear();
        }
        // The room drops timers without an effect. A search at each doubling has a constant
        // amortised cost.
        if self.timers.len() > self.clean_at {
            self.timers.retain(|timer, _| room.waits_for(*timer));
            self.clean_at = CLEAN_AT.max(2 * self.timers.len());
        }
    }

    /// Forgets a call that is no longer in flight.
    fn drop_if_over(&mut self, call: CallId, room: &Room) {
        #[cfg(test)]
        {
            self.visited += 1;
        }
        if !room.is_in_flight(call) {
            self.calls.remove(&call);
            self.logs.remove(&call);
            self.reads.remove(&call);
            self.tells.remove(&call);
        }
    }

    /// The numbers of the records with the reads of calls in flight, ascending. A snapshot does not
    /// hold those reads.
    #[must_use]
    pub fn read_records(&self) -> Vec<u64> {
        let mut records: Vec<u64> = self.reads.values().flatten().copied().collect();
        records.sort_unstable();
        records
    }

    /// The timers that may still fire.
    pub fn timers(&self) -> impl Iterator<Item = TimerId> {
        self.timers.keys().copied()
    }

    /// The first request number that no host used. Requests of an earlier host no longer wait, and
    /// their numbers must not match new ones.
    #[must_use]
    pub fn next_request(&self) -> u64 {
        self.next_request
    }
}

/// A room as its journal leaves it, with its work in flight.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Unfinished {
    pub room: Room,
    /// The sequence number of its next record.
    pub next: u64,
    pub in_flight: InFlight,
    /// The epochs of its records, which decide whether a further one counts.
    #[serde(default, skip_serializing_if = "OneHistory::has_no_epochs")]
    pub history: OneHistory,
    /// The time at which the process that ran the room noted that it stops; `None` if it was killed.
    /// The storage has it beside the records, so it is in no snapshot.
    #[serde(skip)]
    pub stopped: Option<Millis>,
}

/// The time in which no host ran a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Downtime {
    pub ms: u64,
    /// Whether it counts from the stop that the process noted. Otherwise it counts from the last
    /// record, and is an upper bound: the room may have waited with its host.
    pub is_exact: bool,
}

/// The events and effects that resume a room.
#[derive(Debug)]
pub struct Resumption {
    /// Events to apply first, in this order.
    pub events: Vec<Event>,
    /// Effects to perform afterwards, if their calls are still in flight.
    pub restarts: Vec<Restart>,
    /// The effective setup from the resumption on.
    pub setup: Arc<Setup>,
    /// The plugins whose components are not those of the last time.
    pub changed: Vec<ChangedComponent>,
}

impl Extend<Record> for Unfinished {
    /// Folds the records that follow.
    fn extend<I: IntoIterator<Item = Record>>(&mut self, records: I) {
        records.into_iter().for_each(|record| self.take(record));
    }
}

impl Unfinished {
    /// Folds a journal.
    #[must_use]
    pub fn fold(records: impl IntoIterator<Item = Record>) -> Self {
        let mut unfinished = Self::default();
        unfinished.extend(records);
        unfinished
    }

    /// Adds the reads of calls in flight to a snapshot, from the records that
    /// [`read_records`](InFlight::read_records) names, in their order.
    pub fn restore_reads(&mut self, records: impl IntoIterator<Item = Record>) {
        for record in records {
            if let Event::ReadsRecorded { call, .. } = &record.event
                && let Some(log) = self.in_flight.logs.get_mut(call)
            {
                log.take(&record.event);
            }
        }
    }

    /// Returns a snapshot of a room after the record before `next`. It shares the structure of the
    /// histories, so it costs as much as the room's maps and not as its texts.
    #[must_use]
    pub fn of(room: &Room, in_flight: &InFlight, history: OneHistory, next: u64) -> Self {
        let mut in_flight = in_flight.clone();
        in_flight.timers.retain(|timer, _| room.waits_for(*timer));
        Self { room: room.clone(), next, in_flight, history, stopped: None }
    }

    fn take(&mut self, record: Record) {
        // A void record has its number too.
        self.next = record.seq + 1;
        if !self.history.counts(record.epoch) {
            return;
        }
        self.in_flight.begin_event(record.seq, &record.event);
        self.room.handle(record.event, record.at);
        // Notices were published before the interruption; only effects can still be pending.
        while self.room.poll_notice().is_some() {}
        while let Some(effect) = self.room.poll_effect() {
            let start = Start::of(&effect, &self.room);
            self.in_flight.begin(&effect, start.as_ref(), &self.room);
        }
        self.in_flight.end_event(&self.room);
    }

    /// The time up to `now` in which no host ran the room.
    #[must_use]
    pub fn downtime(&self, now: Millis) -> Downtime {
        let last = self.room.now();
        // A record behind the note was written while the process ended.
        let stopped = self.stopped.filter(|stopped| *stopped >= last);
        Downtime { ms: now.since(stopped.unwrap_or(last)), is_exact: stopped.is_some() }
    }

    /// The events and effects that resume the room at `now`. A room that has an outcome has ended.
    #[must_use]
    pub fn resumption(&self, now: Millis, today: &Setup) -> Resumption {
        let (initial, in_force) = (self.room.begun_setup(), self.room.setup());
        let setup = Arc::new(initial.narrowed_by(today));
        let changed = in_force.changed_components(today);
        let narrowed = (setup != *in_force).then(|| Arc::clone(&setup));
        let Downtime { ms: down, is_exact } = self.downtime(now);
        let mut events = vec![Event::Resumed { down_ms: down, is_exact, setup: narrowed }];
        let exchanged: BTreeMap<&PluginName, &String> = changed
            .iter()
            .filter_map(|changed| Some((&changed.plugin, changed.now.as_ref()?)))
            .collect();
        events.extend(exchanged.iter().map(|(plugin, now)| Event::PluginReplaced {
            plugin: (*plugin).clone(),
            sha256: (*now).clone(),
        }));
        let mut restarts = Vec::new();
        for (call, (effect, start)) in &self.in_flight.calls {
            let mut trace = self.in_flight.logs.get(call).cloned().unwrap_or_default();
            trace.may_repeat = is_idempotent(effect, self.room.setup());
            let is_exchanged =
                plugin_of(effect).is_some_and(|plugin| exchanged.contains_key(plugin));
            match self.interrupted(*call, effect, &trace, is_exchanged) {
                Some(ends) => events.extend(ends),
                None => restarts.push(Restart {
                    effect: effect.clone(),
                    start: start.clone(),
                    trace: Arc::new(trace),
                }),
            }
        }
        // Reads and answers of an interrupted step stay valid; only the side effect under way gets
        // an end.
        for event in &events {
            if let Event::SideEffectEnded { call, .. } = event {
                self.put_back(*call, event, &mut restarts);
            }
        }
        let plain = |effect: Effect| Restart { effect, start: None, trace: Arc::default() };
        // Only the child room knows whether it has these messages, and it ignores those that it
        // has. They follow the restart, because the room must exist first.
        let InFlight { tells, models, timers, .. } = &self.in_flight;
        restarts.extend(tells.values().flatten().cloned().map(plain));
        restarts.extend(models.values().flat_map(BTreeMap::values).cloned().map(plain));
        restarts.extend(
            timers
                .iter()
                .map(|(timer, at)| plain(Effect::SetTimer { timer: *timer, at: at.plus(down) })),
        );
        Resumption { events, restarts, setup, changed }
    }

    /// Resumes an interrupted call. A step continues and its plugin learns which side effect was
    /// interrupted; a tool call ends (C-318).
    fn put_back(&self, call: CallId, event: &Event, restarts: &mut Vec<Restart>) {
        let Some((effect, start)) = self
            .in_flight
            .calls
            .get(&call)
            .filter(|(effect, _)| !matches!(effect, Effect::CallTool { .. }))
        else {
            return;
        };
        // A call with several interrupted side effects comes here once for each. They share one
        // restart, so that the call starts once.
        let mut trace = match restarts.iter().position(|other| other.effect.starts() == Some(call))
        {
            Some(index) => Arc::unwrap_or_clone(restarts.swap_remove(index).trace),
            None => self.in_flight.logs.get(&call).cloned().unwrap_or_default(),
        };
        trace.take(event);
        restarts.push(Restart {
            effect: effect.clone(),
            start: start.clone(),
            trace: Arc::new(trace),
        });
    }

    /// The events that answer an attempt that must not be repeated; `None` if it can run
    /// again. A tool's call is not repeated by other code than that which a person may have approved.
    fn interrupted(
        &self,
        call: CallId,
        effect: &Effect,
        trace: &CallLog,
        is_exchanged: bool,
    ) -> Option<Vec<Event>> {
        let setup = self.room.setup();
        let open = trace
            .side_effects
            .iter()
            .filter(|(_, request)| request.leave.is_ok() && request.answer.is_none());
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
                (is_exchanged || is_lost && !trace.may_repeat).then(|| {
                    let fault = Fault::new(FaultKind::Interrupted, INTERRUPTED);
                    let answered = Event::ToolAnswered {
                        call,
                        answer: Err(ToolError::Fault { fault }),
                        report: CallReport::default(),
                    };
                    ended.chain([answered]).collect()
                })
            }
            Effect::Send { message, .. } => {
                let binding = self.room.bindings().get(&message.channel);
                let failure = Some(UNKNOWN_SEND.to_owned());
                let sent = Event::Sent { call, failure, unknown: true };
                match binding.is_some_and(|binding| binding.sends_once) {
                    true => Some(ended.chain([sent]).collect()),
                    // The next attempt is a new one.
                    false => trace.cut_off().map(|_| ended.collect()),
                }
            }
            _ => trace.cut_off().map(|_| ended.collect()),
        }
    }
}

impl Resumption {
    /// The plugins of calls that run again from their logs. Their components must be the same as
    /// before.
    #[must_use]
    pub fn plugins(&self) -> BTreeSet<&PluginName> {
        let with_log = self.restarts.iter().filter(|restart| !restart.trace.is_empty());
        with_log.filter_map(|restart| plugin_of(&restart.effect)).collect()
    }
}

/// The plugin that an effect calls.
fn plugin_of(effect: &Effect) -> Option<&PluginName> {
    match effect {
        Effect::StepAgent { agent: plugin, .. } | Effect::AskResponder { agent: plugin, .. } => {
            Some(plugin)
        }
        Effect::CallTool { plugin, .. }
        | Effect::QueryPlugin { plugin, .. }
        | Effect::WakeStrategy { strategy: plugin, .. } => Some(plugin),
        _ => None,
    }
}

/// Whether the plugin runs in a sandbox: all that such a plugin does is in its call log.
fn is_sandboxed(plugin: &PluginName, setup: &Setup) -> bool {
    setup.plugins.get(plugin).is_some_and(|plugin| !plugin.facts.mcp && !plugin.facts.is_native())
}

/// Whether the tool declares that a repeated call has the same effect.
fn is_idempotent(effect: &Effect, setup: &Setup) -> bool {
    let Effect::CallTool { plugin, tool, .. } = effect else { return false };
    let facts = setup.plugins.get(plugin).map(|plugin| &plugin.facts);
    facts.is_some_and(|facts| {
        facts.tools.iter().any(|known| known.name == *tool && known.idempotent)
    })
}

#[cfg(test)]
mod tests;
