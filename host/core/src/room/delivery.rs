//! Delivery: strategies decide, the room checks and performs, and keys each delivery by its task
//! id, so that a result is spoken once (R-100…R-120). No instance is held while something waits.
//! Here is what is kept of results and how each moves from one state to the next; how a strategy is
//! asked, how something is said and how an agent reads it are in the files below.

mod activity;
mod announcing;
mod inbox;
mod relay;
mod speaking;
mod strategies;
mod texts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Purpose, Room};
use crate::protocol::notice::Notice;
use crate::setup::PluginKind;
use crate::types::channel::Binding;
use crate::types::delegation::HandBack;
use crate::types::delivery::{DeliveryRecord, DeliveryState, DeliveryView, EndedTask, Speech};
use crate::types::ids::{BackgroundId, CallId, ChannelId, PluginName, TaskName};
use crate::types::request::{Refusal, RefusalCode, RequestId};

pub(super) use inbox::is_data;

use announcing::KeyedAnnouncement;
use strategies::Courier;

/// Results that wait for one task's agent; the oldest go first.
const INBOX_MAX: usize = 1_000;
/// Why nothing is said in a room that was closed.
const ROOM_CLOSED: &str = "room_closed";

/// A result that waits to be told, or is kept for its agent. What was told is not here any more;
/// the record of its task has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct QueuedResult {
    /// With the speeches about it that failed.
    ended: Arc<EndedTask>,
    /// The task that is told.
    notify: TaskName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    strategy: Option<PluginName>,
    /// As the delegation said; none: as its task does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hand_back: Option<HandBack>,
    /// Automatic answers that led to it.
    #[serde(default)]
    chain_depth: u32,
    state: DeliveryState,
}

/// A result on its way to whoever is to be told.
#[derive(Clone, Debug)]
pub(super) struct Undelivered {
    pub(super) ended: EndedTask,
    pub(super) notify: TaskName,
    /// None: it waits in the inbox.
    pub(super) strategy: Option<PluginName>,
    /// As the delegation said; none: as its task does.
    pub(super) hand_back: Option<HandBack>,
    /// Automatic answers that led to it: one more than those that led to the turn in which it was
    /// asked for.
    pub(super) chain_depth: u32,
}

/// A speech on its way through the gates, and on whose behalf.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct GatedSpeech {
    pub(super) speech: Speech,
    /// The strategy that wants it said; none: an announcement.
    pub(super) strategy: Option<PluginName>,
    /// Who asked for an announcement.
    pub(super) request: Option<RequestId>,
    /// The task whose agent takes a turn about it; none: it is said on the channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) relay: Option<TaskName>,
    /// Automatic answers that led to it.
    #[serde(default)]
    pub(super) chain_depth: u32,
    /// What is said to people instead when nobody is there to take a turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) otherwise: Option<String>,
}

/// Results that wait to be told or are kept, and who is about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Deliveries {
    /// The number of the next result; they are in the order in which they came.
    next: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    results: BTreeMap<u64, QueuedResult>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    by_id: BTreeMap<BackgroundId, u64>,
    /// By strategy, those that wait for it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    waiting: BTreeMap<PluginName, BTreeSet<u64>>,
    /// By the task that is told, those that wait for its agent's next turn.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    inbox: BTreeMap<TaskName, BTreeSet<u64>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    couriers: BTreeMap<PluginName, Courier>,
    /// By task, what its agent is to take a turn about, in the order in which it came.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    relays: BTreeMap<TaskName, Vec<GatedSpeech>>,
    /// Speeches that each channel has not answered.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    speaking: BTreeMap<ChannelId, u32>,
    /// Announcements by their key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    announced: BTreeMap<String, KeyedAnnouncement>,
    /// Requests that wait for what becomes of their announcement.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    asked: BTreeSet<RequestId>,
    /// Announcements so far.
    announcements: u64,
}

impl Deliveries {
    /// Nothing to write down.
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

    /// Takes a result to another state; what was told or held back is forgotten here.
    fn put(&mut self, id: &BackgroundId, state: DeliveryState) -> Option<QueuedResult> {
        let number = *self.by_id.get(id)?;
        let entry = self.results.get_mut(&number)?;
        remove(entry.strategy.as_ref().map(|strategy| (&mut self.waiting, strategy)), number);
        remove(Some((&mut self.inbox, &entry.notify)), number);
        entry.state = state;
        match state {
            DeliveryState::Waiting => {
                if let Some(strategy) = &entry.strategy {
                    self.waiting.entry(strategy.clone()).or_default().insert(number);
                }
            }
            DeliveryState::Attached | DeliveryState::DeadLetter => {
                self.inbox.entry(entry.notify.clone()).or_default().insert(number);
            }
            DeliveryState::Speaking => {}
            DeliveryState::None
            | DeliveryState::Delivered
            | DeliveryState::Told
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
    /// What the strategy may see in this call of its `decide`; none when the call is not one, or is
    /// abandoned.
    #[must_use]
    pub fn delivery_view(&self, call: CallId) -> Option<DeliveryView> {
        let Purpose::Strategy { strategy } = self.calls.get(&call)? else { return None };
        Some(self.view_for(strategy))
    }

    /// A background task has ended, and somebody may have to be told.
    pub(super) fn deliver_result(&mut self, result: Undelivered) {
        let Undelivered { ended, notify, strategy, hand_back, chain_depth } = result;
        let id = ended.id.clone();
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
            hand_back,
            chain_depth,
            state: DeliveryState::Waiting,
        };
        self.deliveries.results.insert(number, entry);
        if self.conversation.closed.is_some() {
            // R-063 done right: it is recorded, and nothing is said.
            self.bring(&id, DeliveryState::Blocked, None, Some(ROOM_CLOSED));
            return;
        }
        match strategy {
            Some(strategy) => {
                self.bring(&id, DeliveryState::Waiting, None, None);
                self.wake(&strategy, crate::types::delivery::Wake::Ended { task: id });
            }
            None => self.bring(
                &id,
                DeliveryState::Attached,
                None,
                Some("it has no delivery strategy (tasks.NAME.deliver)"),
            ),
        }
    }

    /// Takes a result to another state, keeps the record of its delivery, and tells people where it
    /// does not reach them.
    fn bring(
        &mut self,
        id: &BackgroundId,
        state: DeliveryState,
        channel: Option<&ChannelId>,
        reason: Option<&str>,
    ) {
        let Some(entry) = self.deliveries.put(id, state) else { return };
        let record = DeliveryRecord {
            state,
            strategy: entry.strategy.clone(),
            channel: channel.cloned(),
            attempts: entry.ended.attempts + u32::from(state == DeliveryState::Delivered),
            reason: reason.map(str::to_owned),
        };
        let (agent, attempts) = (entry.ended.agent.clone(), entry.ended.attempts);
        self.set_delivery(id, record);
        let reason = reason.unwrap_or_default().to_owned();
        match state {
            DeliveryState::Attached | DeliveryState::Blocked => {
                self.tell(Notice::NotDelivered { id: id.clone(), agent, reason })
            }
            DeliveryState::DeadLetter => {
                self.tell(Notice::DeadLetter { id: id.clone(), agent, attempts, reason })
            }
            _ => {}
        }
        self.shorten_inbox(&entry.notify);
    }

    /// A task whose agent takes no turn must not collect results for ever: the oldest go, and
    /// people are told.
    fn shorten_inbox(&mut self, notify: &TaskName) {
        let Some(inbox) = self.deliveries.inbox.get(notify).filter(|inbox| inbox.len() > INBOX_MAX)
        else {
            return;
        };
        let oldest = inbox
            .first()
            .and_then(|number| self.deliveries.results.get(number))
            .map(|entry| entry.ended.id.clone());
        if let Some(oldest) = oldest {
            let reason = format!(
                "inbox_full: the agent of {notify} has read none of its newest {INBOX_MAX} results"
            );
            self.bring(&oldest, DeliveryState::Blocked, None, Some(&reason));
        }
    }

    /// All that waits for a strategy goes to the inbox.
    fn keep_all(&mut self, strategy: &PluginName, reason: &str) {
        self.bring_all(strategy, DeliveryState::Attached, reason);
    }

    fn bring_all(&mut self, strategy: &PluginName, state: DeliveryState, reason: &str) {
        for id in self.ids_waiting(strategy) {
            self.bring(&id, state, None, Some(reason));
        }
    }

    /// Oldest first.
    fn ids_waiting(&self, strategy: &PluginName) -> Vec<BackgroundId> {
        let numbers = self.deliveries.waiting.get(strategy).into_iter().flatten();
        numbers
            .filter_map(|number| self.deliveries.results.get(number))
            .map(|entry| entry.ended.id.clone())
            .collect()
    }

    /// The channels of the room as they are bound now.
    fn bound(&self) -> &BTreeMap<ChannelId, Binding> {
        &self.conversation.bindings
    }

    /// A plugin may deliver results: it is installed, and it is a delivery strategy.
    pub(super) fn check_strategy(&self, name: &PluginName) -> Result<(), Refusal> {
        let strategies = || {
            self.setup
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

    /// After each event: what is to be read finds whoever reads it, strategies that wait for a
    /// channel are woken, and a room that was closed says nothing more.
    pub(super) fn handle_deliveries(&mut self) {
        if self.deliveries.is_new() {
            return;
        }
        if self.conversation.closed.is_some() && !self.deliveries.waiting.is_empty() {
            let strategies: Vec<PluginName> = self.deliveries.waiting.keys().cloned().collect();
            strategies
                .iter()
                .for_each(|strategy| self.bring_all(strategy, DeliveryState::Blocked, ROOM_CLOSED));
        }
        self.handle_relays();
        self.handle_channels();
    }

    /// At the end of a run nothing is left without a word: what was not told waits for the agent's
    /// next turn.
    pub(super) fn report_undelivered(&mut self) {
        self.deliveries.relays.clear();
        self.deliveries.couriers.clear();
        self.deliveries.speaking.clear();
        let closed = self.conversation.closed.is_some();
        let left = |entry: &QueuedResult| match entry.state {
            DeliveryState::Waiting => Some("its strategy decided nothing before the run was over"),
            DeliveryState::Speaking => {
                Some("the run was over before its channel said whether it was told")
            }
            _ => None,
        };
        let left: Vec<(BackgroundId, &str)> = self
            .deliveries
            .results
            .values()
            .filter_map(|entry| Some((entry.ended.id.clone(), left(entry)?)))
            .collect();
        for (id, reason) in left {
            match closed {
                true => self.bring(&id, DeliveryState::Blocked, None, Some(ROOM_CLOSED)),
                false => self.bring(&id, DeliveryState::Attached, None, Some(reason)),
            }
        }
        self.refuse_announcements();
    }
}
