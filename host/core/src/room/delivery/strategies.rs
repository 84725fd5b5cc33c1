//! Calls to delivery strategies, one at a time each, and their decisions. Wakes that arrive
//! meanwhile are merged into the next one, so that ten thousand results do not cost ten thousand
//! calls. If a strategy fails or never decides, its results wait for the agent's next turn.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Purpose, Room};
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::room::{
    Background, Deliveries, Frames, Invariant, ResultDelivery, RoomChannels, RoomContext,
    TimerPurpose,
};
use crate::types::channel::{Activity, Channel, ChannelAccess};
use crate::types::delivery::{Decision, DeliveryState, DeliveryView, Wake};
use crate::types::fault::{CallReport, Fault};
use crate::types::ids::{BackgroundId, CallId, ChannelId, Millis, PluginName};

/// Consecutive wakes without a change. A strategy that waits without end would hold the room open.
const MAX_WAKES: u32 = 1_000;
/// Milliseconds that a strategy can wait at most.
const MAX_WAIT_MS: u64 = 60 * 60 * 1000;
/// Results that a strategy is shown at a time; the memory of a call and the size of a message are
/// limited.
const MAX_SHOWN: usize = 1_000;
/// Bytes of them, if there is more than one.
const MAX_SHOWN_BYTES: usize = 1 << 20;
/// Times that the host reminds a strategy to decide about a failed message.
const MAX_REMINDERS: u32 = 4;
/// Milliseconds before the first reminder; doubled for each further one.
const FIRST_REMINDER_MS: u64 = 1_000;
/// Milliseconds between two reminders at most.
const LAST_REMINDER_MS: u64 = 60_000;

/// The state of a strategy with waiting results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StrategyState {
    /// Its unanswered call.
    #[serde(skip_serializing_if = "Option::is_none")]
    deciding: Option<CallId>,
    /// The wake to send next.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Wake>,
    /// Consecutive wakes without a change.
    idle: u32,
    /// True if a message failed and the strategy has not decided about its results.
    failed: bool,
    /// Number of reminders so far.
    reminders: u32,
    /// Number of the newest result that it was shown.
    #[serde(rename = "shown")]
    last_shown: u64,
    /// Channels that were busy when it was called.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    busy: BTreeSet<ChannelId>,
    /// The channel that it waits for, and whether that was idle when last checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waits_for: Option<(ChannelId, bool)>,
}

/// The priority of a wake; of several wakes the highest is sent.
fn weight(wake: &Wake) -> u8 {
    match wake {
        Wake::Ended { .. } => 0,
        Wake::Timer => 1,
        Wake::ChannelIdle { .. } => 2,
        Wake::SendFailed { .. } => 3,
    }
}

impl Deliveries {
    pub(super) fn view_for(
        &self,
        cx: &RoomContext,
        frames: &Frames,
        channels: &RoomChannels,
        strategy: &PluginName,
    ) -> DeliveryView {
        let numbers = self.results_for(strategy);
        let results = || numbers.iter().filter_map(|number| self.results.get(number));
        DeliveryView {
            room: cx.opening.room.clone(),
            now: cx.now,
            pending_results: results().map(|entry| Arc::clone(&entry.ended)).collect(),
            channels: self.channels_of(cx, frames, channels, strategy),
            notified_task: results().next().map(|entry| entry.notify.clone()),
        }
    }

    /// The numbers of the oldest results that wait for it, as many as fit in one call.
    fn results_for(&self, strategy: &PluginName) -> Vec<u64> {
        let mut bytes = 0_usize;
        let waiting = self.waiting.get(strategy).into_iter().flatten().copied();
        let fits = |(place, number): &(usize, u64)| {
            let ended = self.results.get(number).map(|entry| &entry.ended);
            let texts = ended.map_or(0, |ended| {
                ended.description.len() + ended.output.as_ref().map_or(0, String::len)
            });
            bytes = bytes.saturating_add(texts);
            // At least one result is always shown, or a large one could never be delivered.
            *place == 0 || bytes <= MAX_SHOWN_BYTES
        };
        waiting.take(MAX_SHOWN).enumerate().take_while(fits).map(|(_, number)| number).collect()
    }

    /// The channels that a strategy may send to, except those without read access.
    pub(super) fn channels_of(
        &self,
        cx: &RoomContext,
        frames: &Frames,
        channels: &RoomChannels,
        strategy: &PluginName,
    ) -> Vec<Channel> {
        let granted =
            cx.setup.plugins.get(strategy).and_then(|plugin| plugin.grants.channels.as_ref());
        let may_use =
            |channel: &ChannelId| granted.is_some_and(|grant| grant.channels.contains(channel));
        let bound = channels
            .bound()
            .iter()
            .filter(|(id, binding)| may_use(id) && ChannelAccess::may_read(binding.access));
        bound
            .map(|(id, binding)| Channel {
                id: id.clone(),
                kind: binding.kind,
                activity: self.activity_of(cx, frames, channels, id),
                muted: binding.muted,
            })
            .collect()
    }

    /// Moves a strategy's results to the inbox, and resets its state.
    fn give_up_on(
        &mut self,
        cx: &mut RoomContext,
        background: &mut Background,
        strategy: &PluginName,
        reason: &str,
    ) {
        self.move_to_inbox(cx, background, strategy, reason);
        self.retire(cx, strategy);
    }

    fn retire(&mut self, cx: &mut RoomContext, strategy: &PluginName) {
        drop_timers_of(cx, strategy);
        let deciding =
            self.strategies.get(strategy).is_some_and(|courier| courier.deciding.is_some());
        // A pending call needs the state, and retires it with its answer if nothing waits then.
        if !deciding {
            self.strategies.remove(strategy);
        }
    }

    /// Whether a strategy still has results for which this timer is set.
    pub(in crate::room) fn is_waited_for(&self, purpose: &TimerPurpose) -> bool {
        matches!(purpose, TimerPurpose::Delivery { strategy, .. } if self.has_waiting(strategy))
    }

    /// The named results that wait for this strategy, oldest first. A strategy cannot deliver
    /// another's results.
    pub(super) fn waiting_ids(&self, strategy: &PluginName, tasks: &[String]) -> Vec<BackgroundId> {
        let waits = |entry: &&super::QueuedResult| {
            entry.state == DeliveryState::Waiting && entry.strategy.as_ref() == Some(strategy)
        };
        // Sorted by arrival, and each one once, however the strategy names them.
        let numbers: BTreeSet<u64> = tasks
            .iter()
            .filter_map(|task| self.entry(&BackgroundId::from(task.as_str())))
            .filter(|(_, entry)| waits(entry))
            .map(|(number, _)| number)
            .collect();
        numbers
            .iter()
            .filter_map(|number| self.results.get(number))
            .map(|entry| entry.ended.id.clone())
            .collect()
    }
}

impl ResultDelivery<'_> {
    pub(in crate::room) fn wake(&mut self, strategy: &PluginName, wake: Wake) {
        if !self.deliveries.has_waiting(strategy) {
            return;
        }
        let courier = self.deliveries.strategies.entry(strategy.clone()).or_default();
        if courier.deciding.is_some() {
            // Of two wakes of the same kind the newer one is sent.
            if courier.next.as_ref().is_none_or(|next| weight(&wake) >= weight(next)) {
                courier.next = Some(wake);
            }
            return;
        }
        // Results and failures are limited by themselves; waits are not.
        courier.idle += u32::from(matches!(wake, Wake::Timer | Wake::ChannelIdle { .. }));
        if courier.idle >= MAX_WAKES {
            self.deliveries.give_up_on(
                self.cx,
                self.background,
                strategy,
                &format!("{strategy} was woken {MAX_WAKES} times in a row and nothing came of it"),
            );
            return;
        }
        match &wake {
            Wake::Timer => courier.waits_for = None,
            Wake::ChannelIdle { channel } => {
                drop(courier.waits_for.take_if(|(waited, _)| waited == channel))
            }
            Wake::Ended { .. } | Wake::SendFailed { .. } => {}
        }
        self.budgets.used_by(strategy).wakes += 1;
        let call = self.cx.next_call(Purpose::Strategy { strategy: strategy.clone() });
        // Results that arrive later are unseen, and lead to another wake.
        let last_shown = self.deliveries.results_for(strategy).last().copied().unwrap_or_default();
        // A channel that is busy now can be idle before the strategy decides to wait for it.
        let busy = self
            .deliveries
            .channels_of(self.cx, self.frames, self.channels, strategy)
            .into_iter()
            .filter(|channel| channel.activity != Activity::Idle)
            .map(|channel| channel.id);
        let busy = busy.collect();
        if let Some(courier) = self.deliveries.strategies.get_mut(strategy) {
            (courier.deciding, courier.last_shown, courier.busy) = (Some(call), last_shown, busy);
            courier.failed |= matches!(wake, Wake::SendFailed { .. });
        }
        self.cx.effects.push_back(Effect::WakeStrategy { call, strategy: strategy.clone(), wake });
    }

    /// Wakes a strategy that still has waiting results. The cause is a merged wake, new results, or
    /// a reminder of a failed message.
    fn resume_waiting(&mut self, strategy: &PluginName, has_changed: bool) {
        let Some(courier) = self.deliveries.strategies.get_mut(strategy) else {
            return self.cx.violated(Invariant::StrategyKnown, None::<crate::types::ids::FrameId>);
        };
        let (next, last_shown) = (courier.next.take(), courier.last_shown);
        if let Some(wake) = next {
            self.wake(strategy, wake);
            return;
        }
        let unseen = self
            .deliveries
            .waiting
            .get(strategy)
            .and_then(|waiting| waiting.range(last_shown + 1..).next());
        let unseen = unseen
            .and_then(|number| self.deliveries.results.get(number))
            .map(|entry| entry.ended.id.clone());
        // Only after progress: a strategy that decides nothing must not be woken in a loop.
        if let Some(task) = unseen.filter(|_| has_changed) {
            self.wake(strategy, Wake::Ended { task });
            return;
        }
        // A strategy that set its own timer has decided to wait.
        let waits =
            self.cx.timers.values().any(|purpose| matches!(purpose, TimerPurpose::Delivery { strategy: whose, .. } if whose == strategy));
        let Some(courier) =
            self.deliveries.strategies.get_mut(strategy).filter(|courier| courier.failed && !waits)
        else {
            return;
        };
        let reminders = courier.reminders;
        courier.reminders += 1;
        if reminders >= MAX_REMINDERS {
            self.deliveries.give_up_on(
                self.cx,
                self.background,
                strategy,
                &format!("{strategy} decided nothing about it after a message had failed"),
            );
            return;
        }
        let pause = FIRST_REMINDER_MS.saturating_mul(1 << reminders).min(LAST_REMINDER_MS);
        wait_until(self.cx, strategy, self.cx.now.plus(pause));
    }

    fn perform_all(&mut self, strategy: &PluginName, decisions: Vec<Decision>) {
        // Of several waits, the earliest counts.
        let mut waits: Option<u64> = None;
        for decision in decisions {
            match decision {
                Decision::Deliver { tasks, channel, prompt, interrupt } => {
                    self.deliver(strategy, &tasks, channel, prompt.as_deref(), interrupt)
                }
                Decision::MoveToInbox { tasks } => {
                    for id in self.deliveries.waiting_ids(strategy, &tasks) {
                        self.deliveries.set_delivery_state(
                            self.cx,
                            self.background,
                            &id,
                            DeliveryState::Inbox,
                            None,
                            Some("it waits in the inbox for the agent's next turn"),
                        );
                    }
                }
                Decision::Wait { channel, timeout_ms } => {
                    let at_most = timeout_ms.min(MAX_WAIT_MS);
                    // A wait for a channel replaces an earlier one without a channel.
                    if waits.is_none() || channel.is_some() {
                        self.wait_for(strategy, channel);
                    }
                    waits = Some(waits.map_or(at_most, |earliest| earliest.min(at_most)));
                }
                Decision::GiveUp { reason } => self.deliveries.move_to_inbox(
                    self.cx,
                    self.background,
                    strategy,
                    &format!("{strategy} gave up: {reason}"),
                ),
            }
        }
        if let Some(at_most) = waits.filter(|_| self.deliveries.has_waiting(strategy)) {
            wait_until(self.cx, strategy, self.cx.now.plus(at_most));
            self.wake_for_idle_channel(strategy);
        }
    }

    /// Sets the channel that a strategy waits for. It is not notified about channels that it may
    /// not send to.
    fn wait_for(&mut self, strategy: &PluginName, channel: Option<String>) {
        let known = channel.and_then(|channel| {
            self.deliveries
                .channels_of(self.cx, self.frames, self.channels, strategy)
                .into_iter()
                .find(|known| known.id.as_str() == channel)
        });
        let Some(courier) = self.deliveries.strategies.get_mut(strategy) else {
            return self.cx.violated(Invariant::StrategyKnown, None::<crate::types::ids::FrameId>);
        };
        // If the channel was idle at the call, the strategy waits for the next time that it becomes
        // idle.
        courier.waits_for = known.map(|channel| {
            let was_idle =
                !courier.busy.contains(&channel.id) && channel.activity == Activity::Idle;
            (channel.id, was_idle)
        });
    }

    /// Wakes a strategy whose channel became idle while it decided.
    fn wake_for_idle_channel(&mut self, strategy: &PluginName) {
        let waited =
            self.deliveries.strategies.get(strategy).and_then(|courier| courier.waits_for.clone());
        if let Some((channel, false)) = waited
            && self.deliveries.activity_of(self.cx, self.frames, self.channels, &channel)
                == Activity::Idle
        {
            self.wake(strategy, Wake::ChannelIdle { channel });
        }
    }
}

fn drop_timers_of(cx: &mut RoomContext, strategy: &PluginName) {
    cx.timers.retain(|_, purpose| !matches!(purpose, TimerPurpose::Delivery { strategy: whose, .. } if whose == strategy));
}

/// Sets a strategy's timer, in place of an earlier one.
fn wait_until(cx: &mut RoomContext, strategy: &PluginName, at: Millis) {
    let purpose = TimerPurpose::Delivery { strategy: strategy.clone(), at };
    if !cx.timers.values().any(|other| *other == purpose) {
        drop_timers_of(cx, strategy);
        cx.set_timer(purpose, at);
    }
}

impl Room {
    pub(in crate::room) fn strategy_decided(
        &mut self,
        call: CallId,
        answer: Result<Vec<Decision>, Fault>,
        report: &CallReport,
    ) {
        let Some(Purpose::Strategy { strategy }) = self.cx.calls.get(&call).cloned() else {
            return;
        };
        self.end_call(call, answer.is_ok(), report);
        let before = self.deliveries.waiting.get(&strategy).map_or(0, BTreeSet::len);
        match answer {
            Ok(decisions) => self.result_delivery().perform_all(&strategy, decisions),
            Err(fault) => {
                self.cx.notify(Notice::PluginFaulted {
                    call,
                    plugin: strategy.clone(),
                    fault: fault.clone(),
                });
                self.deliveries.move_to_inbox(
                    &mut self.cx,
                    &mut self.background,
                    &strategy,
                    &format!("{strategy} failed: {}", fault.message),
                );
            }
        }
        let remaining = self.deliveries.waiting.get(&strategy).map_or(0, BTreeSet::len);
        if let Some(courier) = self.deliveries.strategies.get_mut(&strategy) {
            courier.deciding = None;
            // Progress resets the limits on idle wakes and reminders.
            if remaining < before {
                (courier.idle, courier.failed, courier.reminders) = (0, false, 0);
            }
        }
        match remaining {
            0 => self.deliveries.retire(&mut self.cx, &strategy),
            remaining => self.result_delivery().resume_waiting(&strategy, remaining < before),
        }
    }
}
