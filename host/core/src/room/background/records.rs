//! Records of background tasks: the outcome of each, and that of its delivery. A task ends once
//! . Ended and delivered tasks are retained up to a limit. Cached results that answer
//! repeated delegations are here too.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::structured::Structured;
use crate::room::state::delegation::BackgroundTask;
use crate::room::{Background, Room};
use crate::types::delegation::{BackgroundRecord, BackgroundState, Delegation};
use crate::types::delivery::{DeliveryRecord, DeliveryState, EndedTask};
use crate::types::ids::{BackgroundId, Millis, RoomId, TaskName};

/// Settled records that are retained; the oldest are dropped first.
const KEPT: usize = 1_000;
/// Bytes of the settled records together, as many as a run's histories have by default.
const KEPT_BYTES: usize = 64 << 20;
/// Results that can answer a repeated delegation.
const CACHED: usize = 100;
/// Texts of earlier tasks that a worker reads.
const PREVIOUS: usize = 3;

/// Records of background tasks, ended ones included, and the earlier delegations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::room) struct TaskRecords {
    /// Records by number; numbers only grow.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    records: BTreeMap<u32, Arc<BackgroundRecord>>,
    /// Numbers of the records that may be dropped, with their bytes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    settled: BTreeMap<u32, usize>,
    /// A running total, so that the end of a task does not cost more with every record.
    #[serde(skip_serializing_if = "is_zero")]
    settled_bytes: usize,
    /// Delegations by their task and key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    keys: BTreeMap<String, u32>,
    /// Completed tasks by agent and text.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    cache: BTreeMap<String, u32>,
    /// Texts of the newest tasks.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    recent: VecDeque<String>,
    /// Reason of a stop of the run: ends are recorded, but not delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stopped: Option<String>,
    /// Progress of the room's own entry task towards a result in the fixed form.
    #[serde(skip_serializing_if = "Structured::is_new")]
    pub(super) structured: Structured,
    /// Not part of the folded state.
    #[serde(skip)]
    changed: ChangedRecords,
}

/// Numbers of the records that changed since they were polled.
#[derive(Clone, Debug, Default)]
struct ChangedRecords(BTreeSet<u32>);

impl PartialEq for ChangedRecords {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl TaskRecords {
    /// Whether there is nothing to serialize.
    pub(in crate::room) fn is_new(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn get(&self, id: &BackgroundId) -> Option<&Arc<BackgroundRecord>> {
        self.records.get(&number_of(id)?)
    }

    /// The records, newest first.
    pub(in crate::room) fn newest(&self) -> impl Iterator<Item = &Arc<BackgroundRecord>> {
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
        let key = key.map(|key| scoped_key(by.as_ref(), &key));
        let record = BackgroundRecord {
            id: task.id.clone(),
            worker: task.task.clone(),
            description: task.prompt.clone(),
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
        // A result in the inbox may still be read, so its record stays.
        let is_settled = record.state.is_end()
            && !matches!(
                record.delivery.state,
                DeliveryState::Waiting | DeliveryState::Delivering | DeliveryState::Inbox
            );
        let bytes = (is_settled || record.detached).then(|| record.weight());
        let before = match bytes {
            Some(bytes) => self.settled.insert(number, bytes),
            None => self.settled.remove(&number),
        };
        self.settled_bytes -= before.unwrap_or_default();
        self.settled_bytes += bytes.unwrap_or_default();
        self.changed.0.insert(number);
        while self.settled.len() > KEPT || self.settled_bytes > KEPT_BYTES {
            // Clients have not seen the changed record yet, and its delivery may be still to come.
            let Some(oldest) = self.settled.keys().find(|of| **of != number).copied() else {
                return;
            };
            self.forget(oldest);
        }
    }

    fn forget(&mut self, number: u32) {
        self.settled_bytes -= self.settled.remove(&number).unwrap_or_default();
        self.records.remove(&number);
        self.changed.0.remove(&number);
        self.keys.retain(|_, of| *of != number);
        self.cache.retain(|_, of| *of != number);
    }

    /// Records the end of a task. Returns false if it has ended before: only the first end counts
    ///
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

    /// The record of the delegation with this key by this task. A key says nothing about the
    /// delegations of other tasks.
    pub(super) fn of_key(&self, by: Option<&TaskName>, key: &str) -> Option<Arc<BackgroundRecord>> {
        self.records.get(self.keys.get(&scoped_key(by, key))?).cloned()
    }

    /// A completed result of the same agent for the same text, at most `ttl_ms` old.
    pub(super) fn cached(
        &self,
        agent: &TaskName,
        delegation: &Delegation,
        now: Millis,
        ttl_ms: u64,
    ) -> Option<Arc<BackgroundRecord>> {
        // A brief is longer than its label, so equal labels do not mean equal tasks.
        if delegation.brief.is_some() {
            return None;
        }
        let record =
            self.records.get(self.cache.get(&cache_key(agent, &delegation.description))?)?;
        record.ended.is_some_and(|ended| now.since(ended) <= ttl_ms).then(|| Arc::clone(record))
    }

    fn keep_for_again(&mut self, id: &BackgroundId) {
        let Some(number) = number_of(id) else { return };
        let Some(record) =
            self.records.get(&number).filter(|record| record.state == BackgroundState::Completed)
        else {
            return;
        };
        self.cache.insert(cache_key(&record.worker, &record.description), number);
        if self.cache.len() > CACHED {
            let oldest =
                self.cache.iter().min_by_key(|(_, number)| **number).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                self.cache.remove(&oldest);
            }
        }
    }

    /// The texts of the newest tasks, newest first.
    pub(super) fn recent(&self) -> &VecDeque<String> {
        &self.recent
    }

    /// Resets the state of the run at the start of another; records of earlier runs stay.
    pub(in crate::room) fn begin_run(&mut self) {
        self.stopped = None;
        self.structured = Structured::default();
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The key of a delegation by this task. A task's name holds no line break.
fn scoped_key(by: Option<&TaskName>, key: &str) -> String {
    format!("{}\n{key}", by.map_or("", TaskName::as_str))
}

/// The cache key of a delegation. An agent's name holds no line break, so two keys never collide.
fn cache_key(agent: &TaskName, task: &str) -> String {
    format!("{agent}\n{}", task.trim().to_lowercase())
}

fn number_of(id: &BackgroundId) -> Option<u32> {
    id.as_str().strip_prefix("task-")?.parse().ok()
}

impl Room {
    /// The background tasks of this room, oldest first. Of the settled ones, only the newest
    /// thousand are included, and at most 64 MiB of them.
    pub fn tasks(&self) -> impl Iterator<Item = &Arc<BackgroundRecord>> {
        self.background.tasks()
    }

    /// The background task with this id; `None` if it is unknown or was dropped.
    #[must_use]
    pub fn task(&self, id: &BackgroundId) -> Option<&Arc<BackgroundRecord>> {
        self.background.task(id)
    }

    /// Returns the next record that changed since it was last polled, for clients that keep a list.
    pub fn poll_task(&mut self) -> Option<Arc<BackgroundRecord>> {
        self.background.poll_task()
    }
}

impl Background {
    /// The background tasks of this room, oldest first. Of the settled ones, only the newest
    /// thousand are included, and at most 64 MiB of them.
    pub(super) fn tasks(&self) -> impl Iterator<Item = &Arc<BackgroundRecord>> {
        self.records.records.values()
    }

    /// The background task with this id; `None` if it is unknown or was dropped.
    pub(in crate::room) fn task(&self, id: &BackgroundId) -> Option<&Arc<BackgroundRecord>> {
        self.records.get(id)
    }

    /// Returns the next record that changed since it was last polled, for clients that keep a list.
    pub(in crate::room) fn poll_task(&mut self) -> Option<Arc<BackgroundRecord>> {
        loop {
            let number = self.records.changed.0.pop_first()?;
            if let Some(record) = self.records.records.get(&number) {
                return Some(Arc::clone(record));
            }
        }
    }

    /// Sets the delivery record of a task's result.
    pub(in crate::room) fn set_delivery(&mut self, id: &BackgroundId, delivery: DeliveryRecord) {
        self.records.change(id, |record| record.delivery = delivery);
    }
}
