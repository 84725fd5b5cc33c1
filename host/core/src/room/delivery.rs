//! Delivery of results. Strategies decide; the room checks and performs each delivery. The task id
//! is the key, so a result is spoken once (R-100…R-120). No plugin instance is held while a result
//! waits.
//!
//! This module holds the queued results and their state changes. Its submodules ask strategies,
//! send to channels, and put results to agents.

mod activity;
mod announcing;
mod inbox;
mod relay;
mod reporting;
mod sending;
mod strategies;
#[cfg(test)]
mod tests;
mod texts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::queue_limit::{QUEUE_BYTES, QUEUE_MAX, QueueLimit};
use super::state::gated::GatedMessage;
use super::{Background, Frames, Purpose, ResultDelivery, Room, RoomChannels, RoomContext};
use crate::protocol::notice::Notice;
use crate::types::channel::Binding;
use crate::types::delegation::ResultForm;
use crate::types::delivery::{DeliveryRecord, DeliveryState, DeliveryView, EndedTask};
use crate::types::ids::{BackgroundId, CallId, ChannelId, PluginName, TaskName};
use crate::types::plugin_kind::PluginKind;
use crate::types::request::{Refusal, RefusalCode, RequestId};
use announcing::KeyedAnnouncement;
use strategies::StrategyState;

pub(super) use inbox::is_data;

/// The reason why nothing is said in a closed room.
const ROOM_CLOSED: &str = "room_closed";

/// A queued or retained result. One that its agent has read leaves the queue; the record of its task
/// keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct QueuedResult {
    /// The ended task, with its count of failed messages.
    ended: Arc<EndedTask>,
    /// The task to notify.
    notify: TaskName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    strategy: Option<PluginName>,
    /// Whether the host reports it, and has not begun to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    host_reports: bool,
    /// The delegation's own setting; `None` to use that of its task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result_delivery: Option<ResultForm>,
    /// Number of automatic answers that led to it.
    #[serde(default)]
    chain_depth: u32,
    state: DeliveryState,
    /// The channel on which people read it; its agent reads it from the inbox too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    posted: Option<ChannelId>,
}

/// A result to be delivered.
#[derive(Clone, Debug)]
pub(super) struct Undelivered {
    pub(super) ended: EndedTask,
    pub(super) notify: TaskName,
    /// `None` if it waits in the inbox.
    pub(super) strategy: Option<PluginName>,
    /// Whether the host reports it without a strategy.
    pub(super) host_reports: bool,
    /// The delegation's own setting; `None` to use that of its task.
    pub(super) result_delivery: Option<ResultForm>,
    /// Number of automatic answers that led to it: one more than those that led to the delegating
    /// turn.
    pub(super) chain_depth: u32,
}

/// Queued and retained results, and the state of their strategies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Deliveries {
    /// The number of the next result. Numbers are in order of arrival.
    next: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    results: BTreeMap<u64, QueuedResult>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    by_id: BTreeMap<BackgroundId, u64>,
    /// Numbers of the results that wait for each strategy.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    waiting: BTreeMap<PluginName, BTreeSet<u64>>,
    /// Numbers of the results that wait for the next turn of each notified task's agent.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    inbox: BTreeMap<TaskName, BTreeSet<u64>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    strategies: BTreeMap<PluginName, StrategyState>,
    /// Messages that each task's agent is to take a turn about, in order of arrival.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    relays: BTreeMap<TaskName, Vec<GatedMessage>>,
    /// Number of unanswered messages on each channel.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    delivering: BTreeMap<ChannelId, u32>,
    /// Announcements by their key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    announced: BTreeMap<String, KeyedAnnouncement>,
    /// Requests that wait for the end of their announcement.
    #[serde(rename = "asked", skip_serializing_if = "BTreeSet::is_empty")]
    waiting_requests: BTreeSet<RequestId>,
    /// Number of announcements so far.
    announcements: u64,
}

impl Deliveries {
    /// Whether there is nothing to serialize.
    pub(super) fn is_new(&self) -> bool {
        *self == Self::default()
    }

    fn entry(&self, id: &BackgroundId) -> Option<(u64, &QueuedResult)> {
        let number = *self.by_id.get(id)?;
        Some((number, self.results.get(&number)?))
    }

    fn entry_mut(&mut self, id: &BackgroundId) -> Option<&mut QueuedResult> {
        self.results.get_mut(self.by_id.get(id)?)
    }

    fn has_waiting(&self, strategy: &PluginName) -> bool {
        self.waiting.get(strategy).is_some_and(|waiting| !waiting.is_empty())
    }

    /// Moves a result to another state, and returns it. A delivered or blocked result leaves the
    /// queue, except one that was posted to people, which its agent still reads.
    fn put(&mut self, id: &BackgroundId, state: DeliveryState) -> Option<QueuedResult> {
        let number = *self.by_id.get(id)?;
        let entry = self.results.get_mut(&number)?;
        // Both indexes are cleared first, so a result is never in two of them.
        remove(entry.strategy.as_ref().map(|strategy| (&mut self.waiting, strategy)), number);
        remove(Some((&mut self.inbox, &entry.notify)), number);
        entry.state = state;
        match state {
            DeliveryState::Waiting => {
                if let Some(strategy) = &entry.strategy {
                    self.waiting.entry(strategy.clone()).or_default().insert(number);
                }
            }
            DeliveryState::Delivered if entry.posted.is_some() => {
                self.inbox.entry(entry.notify.clone()).or_default().insert(number);
            }
            DeliveryState::Inbox | DeliveryState::DeadLetter => {
                self.inbox.entry(entry.notify.clone()).or_default().insert(number);
            }
            DeliveryState::Delivering => {}
            DeliveryState::None
            | DeliveryState::Delivered
            | DeliveryState::Read
            | DeliveryState::Blocked => {
                self.by_id.remove(id);
                return self.results.remove(&number);
            }
        }
        Some(entry.clone())
    }
}

fn remove<K: Ord>(index: Option<(&mut BTreeMap<K, BTreeSet<u64>>, &K)>, number: u64) {
    let Some((index, key)) = index else { return };
    if let Some(numbers) = index.get_mut(key) {
        numbers.remove(&number);
        if numbers.is_empty() {
            index.remove(key);
        }
    }
}

impl Room {
    /// Returns what a strategy may see in its `decide` call. `None` if the call is not one, or was
    /// abandoned.
    #[must_use]
    pub fn delivery_view(&self, call: CallId) -> Option<DeliveryView> {
        self.deliveries.delivery_view(&self.cx, &self.frames, &self.channels, call)
    }

    /// Runs after each event: passes relayed messages to their agents, wakes strategies that wait
    /// for a channel, and blocks results of a closed room.
    pub(super) fn handle_deliveries(&mut self) {
        if self.deliveries.is_new() {
            return;
        }
        if self.channels.is_closed() && !self.deliveries.waiting.is_empty() {
            let strategies = self.deliveries.waiting.keys();
            let ids: Vec<BackgroundId> =
                strategies.flat_map(|strategy| self.deliveries.ids_waiting(strategy)).collect();
            let (cx, background) = (&mut self.cx, &mut self.background);
            self.deliveries.set_delivery_states(
                cx,
                background,
                &ids,
                DeliveryState::Blocked,
                ROOM_CLOSED,
            );
        }
        self.report_results();
        self.handle_relays();
        self.result_delivery().handle_channels();
    }
}

impl Deliveries {
    /// Returns what a strategy may see in its `decide` call. `None` if the call is not one, or was
    /// abandoned.
    pub(super) fn delivery_view(
        &self,
        cx: &RoomContext,
        frames: &Frames,
        channels: &RoomChannels,
        call: CallId,
    ) -> Option<DeliveryView> {
        let Purpose::Strategy { strategy } = cx.calls.get(&call)? else { return None };
        Some(self.view_for(cx, frames, channels, strategy))
    }

    /// Moves a result to another state, updates its delivery record, and reports it if it does not
    /// reach people.
    fn set_delivery_state(
        &mut self,
        cx: &mut RoomContext,
        background: &mut Background,
        id: &BackgroundId,
        state: DeliveryState,
        channel: Option<&ChannelId>,
        reason: Option<&str>,
    ) {
        let Some(entry) = self.put(id, state) else { return };
        if entry.posted.is_some() && state != DeliveryState::Delivered {
            // People have it, so its delivery stays as recorded, whether or not the agent read it.
            return;
        }
        let record = DeliveryRecord {
            state,
            strategy: entry.strategy.clone(),
            channel: channel.cloned(),
            // `attempts` counts failed messages, so a success adds one.
            attempts: entry.ended.attempts + u32::from(state == DeliveryState::Delivered),
            reason: reason.map(str::to_owned),
        };
        let (agent, attempts) = (entry.ended.worker.clone(), entry.ended.attempts);
        background.set_delivery(id, record);
        let is_reported = entry.host_reports && reason.is_none();
        let reason = reason.unwrap_or_default().to_owned();
        match state {
            DeliveryState::Inbox if is_reported => {}
            DeliveryState::Inbox | DeliveryState::Blocked => {
                cx.notify(Notice::NotDelivered { id: id.clone(), worker: agent, reason })
            }
            DeliveryState::DeadLetter => {
                cx.notify(Notice::DeadLetter { id: id.clone(), worker: agent, attempts, reason })
            }
            _ => {}
        }
        self.shorten_inbox(cx, background, &entry.notify);
    }

    /// Drops and reports the oldest result of a full inbox.
    fn shorten_inbox(
        &mut self,
        cx: &mut RoomContext,
        background: &mut Background,
        notify: &TaskName,
    ) {
        let Some(inbox) = self.inbox.get(notify) else { return };
        let results = || inbox.iter().filter_map(|number| self.results.get(number));
        let unread = match QueueLimit::exceeded_by(results().map(|entry| entry.ended.weight())) {
            Some(QueueLimit::Number) => format!("newest {QUEUE_MAX} results"),
            Some(QueueLimit::Bytes) => {
                format!("newest results, which have {QUEUE_BYTES} bytes together")
            }
            None => return,
        };
        // A task whose agent takes no turn must not collect results without limit.
        let oldest = results().next().map(|entry| entry.ended.id.clone());
        if let Some(oldest) = oldest {
            let reason = format!("inbox_full: the agent of {notify} has read none of its {unread}");
            self.set_delivery_state(
                cx,
                background,
                &oldest,
                DeliveryState::Blocked,
                None,
                Some(&reason),
            );
        }
    }

    /// Blocks the results for tasks that the current setup does not have: no agent reads them.
    pub(super) fn block_for_removed_tasks(
        &mut self,
        cx: &mut RoomContext,
        background: &mut Background,
    ) {
        let is_removed = |task: &TaskName| !cx.setup.tasks.contains_key(task);
        let unread: Vec<(BackgroundId, TaskName)> = self
            .results
            .values()
            .filter(|entry| is_removed(&entry.notify))
            .map(|entry| (entry.ended.id.clone(), entry.notify.clone()))
            .collect();
        for (id, task) in unread {
            let reason = format!("unknown_agent: the config has no task {task} any more");
            self.set_delivery_state(
                cx,
                background,
                &id,
                DeliveryState::Blocked,
                None,
                Some(&reason),
            );
        }
    }

    /// Moves all results that wait for a strategy to the inbox.
    fn move_to_inbox(
        &mut self,
        cx: &mut RoomContext,
        background: &mut Background,
        strategy: &PluginName,
        reason: &str,
    ) {
        let ids = self.ids_waiting(strategy);
        self.set_delivery_states(cx, background, &ids, DeliveryState::Inbox, reason);
    }

    fn set_delivery_states(
        &mut self,
        cx: &mut RoomContext,
        background: &mut Background,
        ids: &[BackgroundId],
        state: DeliveryState,
        reason: &str,
    ) {
        for id in ids {
            self.set_delivery_state(cx, background, id, state, None, Some(reason));
        }
    }

    /// The ids of the results that wait for a strategy, oldest first.
    fn ids_waiting(&self, strategy: &PluginName) -> Vec<BackgroundId> {
        let numbers = self.waiting.get(strategy).into_iter().flatten();
        numbers
            .filter_map(|number| self.results.get(number))
            .map(|entry| entry.ended.id.clone())
            .collect()
    }
}

impl ResultDelivery<'_> {
    /// Queues the result of an ended background task.
    pub(super) fn deliver_result(&mut self, result: Undelivered) {
        let Undelivered { ended, notify, strategy, host_reports, result_delivery, chain_depth } =
            result;
        let id = ended.id.clone();
        // A task id keys one delivery, so a second end adds nothing.
        if self.deliveries.by_id.contains_key(&id) {
            return;
        }
        let number = self.deliveries.next;
        self.deliveries.next += 1;
        self.deliveries.by_id.insert(id.clone(), number);
        let entry = QueuedResult {
            ended: Arc::new(ended),
            notify,
            strategy: strategy.clone(),
            host_reports,
            result_delivery,
            chain_depth,
            state: DeliveryState::Waiting,
            posted: None,
        };
        self.deliveries.results.insert(number, entry);
        if self.channels.is_closed() {
            // R-063 done right: the result is recorded without a message.
            self.deliveries.set_delivery_state(
                self.cx,
                self.background,
                &id,
                DeliveryState::Blocked,
                None,
                Some(ROOM_CLOSED),
            );
            return;
        }
        match strategy {
            Some(strategy) => {
                // Set before the wake, which ignores strategies without waiting results.
                self.deliveries.set_delivery_state(
                    self.cx,
                    self.background,
                    &id,
                    DeliveryState::Waiting,
                    None,
                    None,
                );
                self.wake(&strategy, crate::types::delivery::Wake::Ended { task: id });
            }
            // Reported after this event, unless the notified agent is at work and reads it.
            None if host_reports => self.deliveries.set_delivery_state(
                self.cx,
                self.background,
                &id,
                DeliveryState::Inbox,
                None,
                None,
            ),
            None => self.deliveries.set_delivery_state(
                self.cx,
                self.background,
                &id,
                DeliveryState::Inbox,
                None,
                Some("it has no delivery strategy (tasks.NAME.delivery_strategy)"),
            ),
        }
    }

    /// Moves undelivered results to the inbox at the end of a run, so that none is lost silently.
    pub(super) fn report_undelivered(&mut self) {
        // Results of the relayed messages are in the state `Delivering`, so they are found below.
        self.deliveries.relays.clear();
        self.deliveries.strategies.clear();
        self.deliveries.delivering.clear();
        let closed = self.channels.is_closed();
        let reason_of = |entry: &QueuedResult| match entry.state {
            DeliveryState::Waiting => Some("its strategy had not decided when the run ended"),
            DeliveryState::Delivering => {
                Some("the run ended before its channel confirmed the message")
            }
            DeliveryState::Inbox if entry.host_reports => {
                Some("the run ended before its agent read it")
            }
            _ => None,
        };
        let undelivered: Vec<(BackgroundId, &str)> = self
            .deliveries
            .results
            .values()
            .filter_map(|entry| Some((entry.ended.id.clone(), reason_of(entry)?)))
            .collect();
        for (id, reason) in undelivered {
            match closed {
                true => self.deliveries.set_delivery_state(
                    self.cx,
                    self.background,
                    &id,
                    DeliveryState::Blocked,
                    None,
                    Some(ROOM_CLOSED),
                ),
                false => self.deliveries.set_delivery_state(
                    self.cx,
                    self.background,
                    &id,
                    DeliveryState::Inbox,
                    None,
                    Some(reason),
                ),
            }
        }
        self.deliveries.refuse_announcements(self.cx);
    }
}

impl RoomChannels {
    /// The current channel bindings of the room.
    fn bound(&self) -> &BTreeMap<ChannelId, Binding> {
        &self.bindings
    }
}

/// Checks that a plugin may deliver results: it is installed, and it is a delivery strategy
///
pub(super) fn check_strategy(cx: &RoomContext, name: &PluginName) -> Result<(), Refusal> {
    let strategies = || {
        cx.setup
            .plugins
            .iter()
            .filter(|(_, plugin)| plugin.facts.kinds.contains(&PluginKind::DeliveryStrategy))
    };
    if strategies().any(|(plugin, _)| plugin == name) {
        return Ok(());
    }
    let allowed = strategies().map(|(plugin, _)| plugin.to_string()).collect();
    let message = format!(
        "{name} is not a delivery strategy of this config; name one that is, or leave `deliver` out"
    );
    Err(Refusal { allowed, ..Refusal::new(RefusalCode::BadArguments, message) })
}
