//! The calls of an observer in its own room: one batch of events at a time, again after a pause if
//! the call failed, and not at all for events that it took before. The room remembers how far the
//! observer came, so its journal is the observer's cursor.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::acting::drop_timers;
use super::{Purpose, Room, RoomContext, TimerPurpose};
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::setup::ObserverRule;
use crate::setup::plugin_query::{ObserverReply, PluginQuery, PluginReply};
use crate::types::fault::{CallReport, Fault, FaultKind};
use crate::types::ids::{CallId, PluginName, RoomId};
use crate::types::observed::{ObservedEvent, ObservedPosition};
use crate::types::request::{Refusal, RefusalCode, RequestId, RequestReply};

/// The pause after the first failed call, in milliseconds. Each further failure doubles it.
const FIRST_PAUSE_MS: u64 = 500;
/// The longest pause that the host chooses.
const PAUSE_MAX_MS: u64 = 60_000;
/// The longest pause that an observer can ask for. A wrong number must not stop it for days.
const RETRY_AFTER_MAX_MS: u64 = 600_000;

/// The batches on their way to an observer, and the events that it took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Observing {
    /// The last event of each room that the observer took.
    #[serde(rename = "taken", skip_serializing_if = "BTreeMap::is_empty")]
    positions: BTreeMap<RoomId, ObservedPosition>,
    /// Batches in order of arrival. Only the first one is under way, so events stay in order.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    batches: VecDeque<Batch>,
}

/// Events of one room on their way to an observer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Batch {
    request: RequestId,
    observer: PluginName,
    events: Arc<Vec<ObservedEvent>>,
    /// The number of failed calls for these events.
    failed: u32,
    state: BatchState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum BatchState {
    /// Behind another batch.
    Queued,
    /// The observer is called.
    Asked { call: CallId },
    /// The pause after a failed call.
    Pausing,
}

impl Observing {
    /// Whether the room never called an observer.
    pub(super) fn is_unused(&self) -> bool {
        *self == Self::default()
    }

    /// Adds events for an observer. Those that it took are answered at once.
    pub(super) fn enqueue(
        &mut self,
        cx: &mut RoomContext,
        request: RequestId,
        observer: PluginName,
        events: Arc<Vec<ObservedEvent>>,
    ) {
        if rule_of(cx, &observer).is_none() {
            let message = format!("the room has no observer `{observer}`");
            return cx.reply(request, Err(Refusal::new(RefusalCode::BadArguments, message)));
        }
        let state = BatchState::Queued;
        self.batches.push_back(Batch { request, observer, events, failed: 0, state });
        self.ask_next(cx);
    }

    /// Calls the observer for the first batch, unless it is called already.
    fn ask_next(&mut self, cx: &mut RoomContext) {
        while let Some(batch) = self.batches.front_mut() {
            if batch.state != BatchState::Queued {
                return;
            }
            // After a crash the host cannot know what the observer took, so it repeats events.
            let positions = &self.positions;
            let is_new = |event: &ObservedEvent| {
                positions.get(&event.room).is_none_or(|last| event.position > *last)
            };
            if !batch.events.iter().all(is_new) {
                let new = batch.events.iter().filter(|event| is_new(event)).cloned().collect();
                batch.events = Arc::new(new);
            }
            if !batch.events.is_empty() {
                return Self::ask(batch, cx);
            }
            cx.reply(batch.request, Ok(RequestReply::Done));
            self.batches.pop_front();
        }
    }

    fn ask(batch: &mut Batch, cx: &mut RoomContext) {
        let plugin = batch.observer.clone();
        let deadline_ms =
            rule_of(cx, &plugin).map_or(ObserverRule::DEADLINE_MS, |rule| rule.deadline_ms);
        let call = cx.next_call(Purpose::Observer { plugin: plugin.clone() });
        batch.state = BatchState::Asked { call };
        let question = PluginQuery::Observe { events: Arc::clone(&batch.events) };
        let task = cx.opening.entry.clone();
        cx.effects.push_back(Effect::QueryPlugin { call, task, plugin, question });
        cx.set_timer(TimerPurpose::Observer { call }, cx.now.plus(deadline_ms));
    }

    /// Calls the observer again after a pause.
    pub(super) fn ask_again(&mut self, cx: &mut RoomContext) {
        if let Some(batch) =
            self.batches.front_mut().filter(|batch| batch.state == BatchState::Pausing)
        {
            Self::ask(batch, cx);
        }
    }

    /// Takes the end of a call. After a failure the observer is called again or stopped.
    fn end(&mut self, cx: &mut RoomContext, call: CallId, answer: Result<ObserverReply, Fault>) {
        let state = BatchState::Asked { call };
        let Some(batch) = self.batches.front_mut().filter(|batch| batch.state == state) else {
            return;
        };
        let observer = batch.observer.clone();
        let of = rule_of(cx, &observer).map_or(ObserverRule::ATTEMPTS, |rule| rule.attempts);
        let (reason, retry_after_ms, is_last) = match answer {
            Ok(ObserverReply::Taken) => {
                for event in &*batch.events {
                    self.positions.insert(event.room.clone(), event.position);
                }
                cx.reply(batch.request, Ok(RequestReply::Done));
                self.batches.pop_front();
                return self.ask_next(cx);
            }
            Ok(ObserverReply::Unavailable { retry_after_ms }) => {
                ("it cannot take events now".to_owned(), retry_after_ms, false)
            }
            // Grants are fixed when a run begins, so another call would be refused as well.
            Ok(ObserverReply::Denied) => {
                ("it was refused a capability that it needs".to_owned(), None, true)
            }
            Err(fault) => {
                let reason = format!("{}: {}", fault.kind.as_str(), fault.message);
                cx.notify(Notice::PluginFaulted { call, plugin: observer.clone(), fault });
                (reason, None, false)
            }
        };
        batch.failed += 1;
        let attempts = batch.failed;
        if is_last || attempts >= of {
            let message =
                format!("observer {observer} is stopped after call {attempts} of {of}: {reason}");
            cx.notify(Notice::ObserverStopped { observer, attempts, reason });
            return self.refuse_all(cx, RefusalCode::ObserverStopped, &message);
        }
        batch.state = BatchState::Pausing;
        let pause_ms = pause_ms(attempts, retry_after_ms);
        cx.notify(Notice::ObserverRetried { observer, attempts, of, pause_ms, reason });
        cx.set_timer(TimerPurpose::ObserverPause, cx.now.plus(pause_ms));
    }

    /// Refuses every batch.
    fn refuse_all(&mut self, cx: &mut RoomContext, error: RefusalCode, message: &str) {
        // A later batch must not overtake one that was not taken.
        for batch in std::mem::take(&mut self.batches) {
            cx.reply(batch.request, Err(Refusal::new(error, message)));
        }
    }
}

impl Room {
    /// Takes an observer's answer.
    pub(super) fn observer_answered(
        &mut self,
        call: CallId,
        answer: Result<PluginReply, Fault>,
        report: &CallReport,
    ) {
        let answer = answer.and_then(|reply| match reply {
            PluginReply::Observe { reply } => Ok(reply),
            _ => {
                let message = "it answered another question than the one that it was asked";
                Err(Fault::new(FaultKind::BadAnswer, message))
            }
        });
        // Events that were not taken come again, so scratch from this call must not remain.
        self.end_call(call, answer == Ok(ObserverReply::Taken), report);
        drop_timers(&mut self.cx, |purpose| *purpose == TimerPurpose::Observer { call });
        self.observing.end(&mut self.cx, call, answer);
    }

    /// Ends an observer's call after its deadline as a failure. A late answer has no effect.
    pub(super) fn observer_overdue(&mut self, call: CallId) {
        let Some(Purpose::Observer { plugin }) = self.cx.calls.get(&call).cloned() else { return };
        self.plugin_calls().abandon(call);
        let deadline_ms = rule_of(&self.cx, &plugin).map_or(0, |rule| rule.deadline_ms);
        let message =
            format!("it gave no answer within {deadline_ms} ms ([[observers]]: `deadline`)");
        self.observing.end(&mut self.cx, call, Err(Fault::new(FaultKind::Wall, message)));
    }

    /// Refuses the batches of a room that stopped: their call was abandoned, or its pause was
    /// dropped. A closed room ends the call under way and begins no other.
    pub(super) fn settle_observing(&mut self) {
        let Some(batch) = self.observing.batches.front() else { return };
        let is_alive = match batch.state {
            BatchState::Queued => true,
            BatchState::Asked { call } => self.cx.calls.contains_key(&call),
            BatchState::Pausing => {
                let mut timers = self.cx.timers.values();
                !self.channels.is_closed()
                    && timers.any(|purpose| *purpose == TimerPurpose::ObserverPause)
            }
        };
        if !is_alive {
            drop_timers(&mut self.cx, |purpose| *purpose == TimerPurpose::ObserverPause);
            self.observing.refuse_all(&mut self.cx, RefusalCode::RoomClosed, "the room is over");
        }
    }

    /// The last event of each room that the observer took in this one.
    #[must_use]
    pub fn observed(&self) -> &BTreeMap<RoomId, ObservedPosition> {
        &self.observing.positions
    }
}

fn rule_of<'r>(cx: &'r RoomContext, observer: &PluginName) -> Option<&'r ObserverRule> {
    cx.setup.observers.iter().find(|rule| rule.plugin == *observer)
}

/// The pause after this number of failed calls, at least as long as the observer asked for.
fn pause_ms(failed: u32, retry_after_ms: Option<u64>) -> u64 {
    // Bounded, because a larger shift could overflow. The pause is the longest one long before.
    let doublings = failed.saturating_sub(1).min(16);
    let pause = (FIRST_PAUSE_MS << doublings).min(PAUSE_MAX_MS);
    pause.max(retry_after_ms.unwrap_or_default().min(RETRY_AFTER_MAX_MS))
}
