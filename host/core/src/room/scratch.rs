//! Scratch data of plugins between calls: per task for agents and tools, per room for strategies.
//! Stored with the answer of a successful call, dropped with a failed one.

use crate::room::{Frames, RoomContext};
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Purpose, Room};
use crate::types::fault::CallReport;
use crate::types::ids::{CallId, PluginName, TaskName};

/// The owner of scratch data; `task` is `None` for a strategy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ScratchKey {
    plugin: PluginName,
    task: Option<TaskName>,
}

/// The scratch data of plugins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Scratch(#[serde(with = "as_pairs")] BTreeMap<ScratchKey, Arc<Vec<u8>>>);

impl Room {
    /// Returns the scratch data of this call's plugin; empty at first.
    #[must_use]
    pub fn scratch(&self, call: CallId) -> Arc<Vec<u8>> {
        self.scratch.scratch(&self.cx, &self.frames, call)
    }
}

impl Scratch {
    /// Returns the scratch data of this call's plugin; empty at first.
    pub(super) fn scratch(&self, cx: &RoomContext, frames: &Frames, call: CallId) -> Arc<Vec<u8>> {
        frames.scratch_key(cx, call).and_then(|key| self.0.get(&key).cloned()).unwrap_or_default()
    }

    pub(super) fn keep_scratch(
        &mut self,
        cx: &RoomContext,
        frames: &Frames,
        call: CallId,
        ok: bool,
        report: &CallReport,
    ) {
        let Some(value) = report.scratch.as_ref().filter(|_| ok) else { return };
        if let Some(key) = frames.scratch_key(cx, call) {
            self.0.insert(key, Arc::new(value.clone()));
        }
    }
}

impl Frames {
    fn scratch_key(&self, cx: &RoomContext, call: CallId) -> Option<ScratchKey> {
        let purpose = cx.calls.get(&call)?;
        let task = match purpose {
            Purpose::Job { task, .. } => Some(task.clone()),
            _ => purpose.frame().and_then(|frame| self.get(&frame)).map(|frame| frame.task.clone()),
        };
        let plugin = match purpose {
            Purpose::Tool { plugin, .. }
            | Purpose::Job { plugin, .. }
            | Purpose::Consult { plugin, .. } => plugin.clone(),
            Purpose::Gate { plugin, .. } => plugin.clone(),
            Purpose::Step { frame } | Purpose::Respond { frame } => {
                self.agent_of(cx, *frame)?.clone()
            }
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

/// Serializes a map as pairs, because JSON objects have only text keys.
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
