//! What plugins remember between calls: per task for agents and tools, per room for strategies.
//! Kept with the answer of a call that went well, dropped with one that did not.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Purpose, Room};
use crate::types::fault::CallReport;
use crate::types::ids::{CallId, PluginName, TaskName};

/// Whose scratch it is; the task is none for a strategy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ScratchKey {
    plugin: PluginName,
    task: Option<TaskName>,
}

impl Room {
    /// What the plugin of this call left in its scratch; empty at first.
    #[must_use]
    pub fn scratch(&self, call: CallId) -> Arc<Vec<u8>> {
        self.scratch_key(call).and_then(|key| self.scratch.get(&key).cloned()).unwrap_or_default()
    }

    pub(super) fn keep_scratch(&mut self, call: CallId, ok: bool, report: &CallReport) {
        let Some(value) = report.scratch.as_ref().filter(|_| ok) else { return };
        if let Some(key) = self.scratch_key(call) {
            self.scratch.insert(key, Arc::new(value.clone()));
        }
    }

    fn scratch_key(&self, call: CallId) -> Option<ScratchKey> {
        let purpose = self.calls.get(&call)?;
        let task = match purpose {
            Purpose::Job { task, .. } => Some(task.clone()),
            _ => purpose
                .frame()
                .and_then(|frame| self.frames.get(&frame))
                .map(|frame| frame.task.clone()),
        };
        let plugin = match purpose {
            Purpose::Tool { plugin, .. }
            | Purpose::Job { plugin, .. }
            | Purpose::Consult { plugin, .. } => plugin.clone(),
            Purpose::Gate { plugin, .. } => plugin.clone(),
            Purpose::Step { frame } | Purpose::Respond { frame } => self.agent_of(*frame)?.clone(),
            Purpose::Strategy { strategy } => strategy.clone(),
            Purpose::Approval { .. }
            | Purpose::HeldTool { .. }
            | Purpose::TopUp { .. }
            | Purpose::User { .. }
            | Purpose::Background { .. }
            | Purpose::Post { .. }
            | Purpose::Speech { .. } => return None,
        };
        Some(ScratchKey { plugin, task })
    }
}

/// JSON objects have text for keys, so a map with other keys travels as pairs.
pub(super) mod as_pairs {
    use std::collections::BTreeMap;

    use serde::de::DeserializeOwned;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::room) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(in crate::room) fn deserialize<'de, K, V, D>(
        deserializer: D,
    ) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: DeserializeOwned + Ord,
        V: DeserializeOwned,
        D: Deserializer<'de>,
    {
        Ok(Vec::<(K, V)>::deserialize(deserializer)?.into_iter().collect())
    }
}
