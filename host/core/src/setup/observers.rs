//! Observers: the events that each receives, the limits of its calls, and the setup of the room in
//! which it is called.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Setup, TaskSetup};
use crate::types::ids::{PluginName, TaskName};

/// The only task of an observer's room. No message reaches it, so its agent is never called.
const TASK: &str = "observe";

/// An observer: a plugin that receives the events of a run after their records are durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObserverRule {
    pub plugin: PluginName,
    /// The kinds of events that it receives; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<BTreeSet<String>>,
    /// The number of events that may wait for it before the run waits too.
    pub queue: u64,
    /// The time limit of one call in milliseconds.
    pub deadline_ms: u64,
    /// The number of failed calls for the same events after which it is stopped.
    pub attempts: u32,
}

impl ObserverRule {
    /// The default of `queue`.
    pub const QUEUE: u64 = 1_000;
    /// The default of `deadline`, in milliseconds.
    pub const DEADLINE_MS: u64 = 10_000;
    /// The default of `attempts`.
    pub const ATTEMPTS: u32 = 8;

    /// Whether the observer receives events of this kind.
    #[must_use]
    pub fn receives(&self, kind: &str) -> bool {
        self.events.as_ref().is_none_or(|events| events.contains(kind))
    }
}

impl Setup {
    /// The setup of the room in which an observer is called; `None` if the config has no such
    /// observer. It has the grants and limits of that plugin and no other, so nothing in the room
    /// can reach more.
    #[must_use]
    pub fn of_observer(&self, observer: &PluginName) -> Option<Self> {
        let rule = self.observers.iter().find(|rule| rule.plugin == *observer)?;
        let (name, plugin) = self.plugins.get_key_value(observer)?;
        let task = TaskSetup { agent: observer.clone(), ..TaskSetup::default() };
        Some(Self {
            entry: TaskName::from(TASK),
            tasks: BTreeMap::from([(TaskName::from(TASK), Arc::new(task))]),
            plugins: BTreeMap::from([(name.clone(), Arc::clone(plugin))]),
            models: self.models.clone(),
            channels: Arc::default(),
            gates: Vec::new(),
            observers: vec![rule.clone()],
            policy: self.policy.clone(),
            policy_now: self.policy_now.clone(),
            limits: self.limits.clone(),
        })
    }
}
