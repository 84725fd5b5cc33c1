//! What is known of each background task: its own outcome, and beside it that of its delivery. One
//! end is reached, once; what has ended and was told is kept as long as there is
//! room. Also what answers a delegation that was made before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::Room;
use super::super::frame::CallOutcome;
use super::structured::Structured;
use super::{BackgroundTask, Waiter};
use crate::types::delegation::{BackgroundRecord, BackgroundState, Delegation};
use crate::types::delivery::{DeliveryRecord, DeliveryState, EndedTask};
use crate::types::ids::{BackgroundId, Millis, RoomId, TaskName};

/// Records that are kept of tasks that have ended and were told; the oldest go first.
const KEPT: usize = 1_000;
/// Results that can answer again.
const CACHED: usize = 100;
/// Texts of earlier tasks that a worker reads.
const PREVIOUS: usize = 3;

/// Records of background tasks, ended ones included, and what was delegated before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::room) struct TaskRecords {
    /// By their number, which grows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    records: BTreeMap<u32, Arc<BackgroundRecord>>,
    /// Those that may be forgotten.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    settled: BTreeSet<u32>,
    /// Delegations by their key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    keys: BTreeMap<String, u32>,
    /// Completed tasks by agent and text.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    cache: BTreeMap<String, u32>,
    /// Texts of the newest tasks.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    recent: VecDeque<String>,
    /// The run was stopped: ends are recorded, and nothing is said of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::room) stopped: Option<String>,
    /// How far the room's own entry task is with a result in the fixed form.
    #[serde(skip_serializing_if = "Structured::is_new")]
    pub(super) structured: Structured,
    /// Answers of slots whose round is under way; none between events.
    #[serde(skip)]
    pub(super) answers: Vec<(Waiter, CallOutcome, bool)>,
    /// Not part of what a fold must give back.
    #[serde(skip)]
    changed: Changed,
}

/// Records that somebody who keeps a list has not seen.
#[derive(Clone, Debug, Default)]
struct Changed(BTreeSet<u32>);

impl PartialEq for Changed {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl TaskRecords {
    /// Nothing to write down.
    pub(in crate::room) fn is_new(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn get(&self, id: &BackgroundId) -> Option<&Arc<BackgroundRecord>> {
        self.records.get(&number_of(id)?)
    }

    /// Newest first.
    pub(super) fn newest(&self) -> impl Iterator<Item = &Arc<BackgroundRecord>> {
        self.records.values().rev()
    }

    pub(super) fn begin(
        &mut self,
        number: u32,
        task: &BackgroundTask,
        room: RoomId,
        by: Option<TaskName>,
        key: Option<String>,
    ) {
        let delivery =
            DeliveryRecord { strategy: task.strategy.clone(), ..DeliveryRecord::default() };
        let record = BackgroundRecord {
            id: task.id.clone(),
            agent: task.task.clone(),
            task: task.prompt.clone(),
            room,
            by,
            notify: task.notify.clone(),
            state: BackgroundState::Running,
            started: task.started,
            ended: None,
            output: None,
            error: None,
            metadata: task.context.clone(),
            chain_depth: task.chain_depth,
            detached: false,
            delivery,
        };
        self.records.insert(number, Arc::new(record));
        self.changed.0.insert(number);
        if let Some(key) = key {
            self.keys.insert(key, number);
        }
        self.recent.push_front(task.prompt.clone());
        self.recent.truncate(PREVIOUS);
    }

    fn change(&mut self, id: &BackgroundId, change: impl FnOnce(&mut BackgroundRecord)) {
        let Some(number) = number_of(id) else { return };
        let Some(record) = self.records.get_mut(&number) else { return };
        change(Arc::make_mut(record));
        let is_settled = record.state.is_end()
            && !matches!(
                record.delivery.state,
                DeliveryState::Waiting | DeliveryState::Speaking | DeliveryState::Attached
            );
        if is_settled || record.detached {
            self.settled.insert(number);
        } else {
            self.settled.remove(&number);
        }
        self.changed.0.insert(number);
        if self.settled.len() > KEPT {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.settled.pop_first() else { return };
        self.records.remove(&oldest);
        self.changed.0.remove(&oldest);
        self.keys.retain(|_, number| *number != oldest);
        self.cache.retain(|_, number| *number != oldest);
    }

    /// The end of a task, if it has none: only the first counts. False: it has ended
    /// before.
    pub(super) fn end(&mut self, ended: &EndedTask, now: Millis) -> bool {
        if self.get(&ended.id).is_none_or(|record| record.state.is_end()) {
            return false;
        }
        self.change(&ended.id, |record| {
            record.state = ended.status.into();
            record.ended = Some(now);
            record.output.clone_from(&ended.output);
            record.error.clone_from(&ended.error);
            record.metadata.clone_from(&ended.metadata);
        });
        if ended.output.is_some() {
            self.keep_for_again(&ended.id);
        }
        true
    }

    pub(super) fn detach(&mut self, id: &BackgroundId, reason: &str) {
        self.change(id, |record| {
            record.detached = true;
            record.delivery.reason = Some(format!("detached: {reason}"));
        });
    }

    /// The delegation that had this key.
    pub(super) fn of_key(&self, key: &str) -> Option<Arc<BackgroundRecord>> {
        self.records.get(self.keys.get(key)?).cloned()
    }

    /// A completed result of the same agent for the same text, not older than this.
    pub(super) fn cached(
        &self,
        agent: &TaskName,
        delegation: &Delegation,
        now: Millis,
        ttl_ms: u64,
    ) -> Option<Arc<BackgroundRecord>> {
        // What the worker reads is more than the label, so the label does not tell two of them
        // apart.
        if delegation.brief.is_some() {
            return None;
        }
        let record = self.records.get(self.cache.get(&cache_key(agent, &delegation.task))?)?;
        record.ended.is_some_and(|ended| now.since(ended) <= ttl_ms).then(|| Arc::clone(record))
    }

    fn keep_for_again(&mut self, id: &BackgroundId) {
        let Some(number) = number_of(id) else { return };
        let Some(record) =
            self.records.get(&number).filter(|record| record.state == BackgroundState::Completed)
        else {
            return;
        };
        self.cache.insert(cache_key(&record.agent, &record.task), number);
        if self.cache.len() > CACHED {
            let oldest =
                self.cache.iter().min_by_key(|(_, number)| **number).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                self.cache.remove(&oldest);
            }
        }
    }

    /// Texts of the newest tasks, newest first.
    pub(super) fn recent(&self) -> &VecDeque<String> {
        &self.recent
    }

    /// A run begins in the room; records of earlier runs stay.
    pub(in crate::room) fn begin_run(&mut self) {
        self.stopped = None;
        self.structured = Structured::default();
        self.answers.clear();
    }
}

/// One agent's name holds no line break, so two keys never meet.
fn cache_key(agent: &TaskName, task: &str) -> String {
    format!("{agent}\n{}", task.trim().to_lowercase())
}

fn number_of(id: &BackgroundId) -> Option<u32> {
    id.as_str().strip_prefix("task-")?.parse().ok()
}

impl Room {
    /// Background tasks of this room, ended ones included, oldest first. Of those that have ended
    /// and were told the newest thousand.
    pub fn tasks(&self) -> impl Iterator<Item = &Arc<BackgroundRecord>> {
        self.tasks.records.values()
    }

    /// The background task of that id; none: there is none, or it was long ago.
    #[must_use]
    pub fn task(&self, id: &BackgroundId) -> Option<&Arc<BackgroundRecord>> {
        self.tasks.get(id)
    }

    /// The next record of a background task that has changed since it was asked, for whoever keeps
    /// a list.
    pub fn poll_task(&mut self) -> Option<Arc<BackgroundRecord>> {
        loop {
            let number = self.tasks.changed.0.pop_first()?;
            if let Some(record) = self.tasks.records.get(&number) {
                return Some(Arc::clone(record));
            }
        }
    }

    /// How the delivery of a task's result stands now.
    pub(in crate::room) fn set_delivery(&mut self, id: &BackgroundId, delivery: DeliveryRecord) {
        self.tasks.change(id, |record| record.delivery = delivery);
    }
}
