//! The running background tasks, and how many they count as.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use super::delegation::BackgroundTask;
use crate::types::ids::BackgroundId;

/// Background tasks by id.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "BTreeMap<BackgroundId, Box<BackgroundTask>>")]
pub(in crate::room) struct RunningTasks {
    /// Boxed, because a node of the map has room for eleven.
    tasks: BTreeMap<BackgroundId, Box<BackgroundTask>>,
    /// A running total: each delegation reads it.
    at_once: u64,
}

impl RunningTasks {
    /// The number of running tasks, including those that they may start themselves.
    pub(in crate::room) fn at_once(&self) -> u64 {
        self.at_once
    }

    pub(in crate::room) fn insert(&mut self, id: BackgroundId, task: BackgroundTask) {
        self.at_once += counts_as(&task);
        if let Some(before) = self.tasks.insert(id, Box::new(task)) {
            self.at_once -= counts_as(&before);
        }
    }

    pub(in crate::room) fn remove(&mut self, id: &BackgroundId) -> Option<BackgroundTask> {
        let task = self.tasks.remove(id)?;
        self.at_once -= counts_as(&task);
        Some(*task)
    }

    pub(in crate::room) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(in crate::room) fn get(&self, id: &BackgroundId) -> Option<&BackgroundTask> {
        self.tasks.get(id).map(|task| &**task)
    }

    /// Returns a task to change. What it counts as is fixed when it begins.
    pub(in crate::room) fn get_mut(&mut self, id: &BackgroundId) -> Option<&mut BackgroundTask> {
        self.tasks.get_mut(id).map(|task| &mut **task)
    }

    /// The tasks by id.
    pub(in crate::room) fn values(&self) -> impl Iterator<Item = &BackgroundTask> {
        self.tasks.values().map(|task| &**task)
    }
}

/// The number of running tasks that a task counts as.
fn counts_as(task: &BackgroundTask) -> u64 {
    u64::from(task.at_once) + 1
}

impl From<BTreeMap<BackgroundId, Box<BackgroundTask>>> for RunningTasks {
    fn from(tasks: BTreeMap<BackgroundId, Box<BackgroundTask>>) -> Self {
        Self { at_once: tasks.values().map(|task| counts_as(task)).sum(), tasks }
    }
}

impl Serialize for RunningTasks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.tasks.serialize(serializer)
    }
}
