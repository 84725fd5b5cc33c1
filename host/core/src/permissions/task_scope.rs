//! The restriction of an agent's grants by its task. It can only remove: names missing from a list
//! are refused while the agent works on this task, and names without a grant stay refused. A
//! capability without a list keeps its grant.

use serde::{Deserialize, Serialize};

use crate::permissions::fetch::UrlPattern;
use crate::permissions::overlap::{common, overlap};
use crate::types::ids::{ModelName, SecretName, TaskName};

/// `tasks.NAME.scope`; the task's list of tools narrows tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskScope {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Vec<ModelName>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegate: Option<Vec<TaskName>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Vec<String>>,
    /// The names of folders: `/notes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<String>>,
    /// Whether folders are read-only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch: Option<Vec<UrlPattern>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Vec<SecretName>>,
    /// `Some(false)` makes the store unavailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv: Option<bool>,
}

/// A task with its restriction.
#[derive(Clone, Copy, Debug)]
pub struct ScopedTask<'a> {
    pub task: &'a TaskName,
    pub scope: &'a TaskScope,
}

impl TaskScope {
    /// The restriction by both: this, with which the run began, and today's.
    #[must_use]
    pub fn narrowed_by(&self, today: &Self) -> Self {
        Self {
            model: lists(&self.model, &today.model, common),
            delegate: lists(&self.delegate, &today.delegate, common),
            route: lists(&self.route, &today.route, common),
            files: lists(&self.files, &today.files, common),
            read_only: self.read_only || today.read_only,
            fetch: lists(&self.fetch, &today.fetch, |initial, today| {
                overlap(initial, today, UrlPattern::overlap)
            }),
            secrets: lists(&self.secrets, &today.secrets, common),
            kv: match (self.kv, today.kv) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (initial, today) => initial.or(today),
            },
        }
    }
}

/// The narrowed list; a missing list restricts nothing.
fn lists<T: Clone>(
    initial: &Option<Vec<T>>,
    today: &Option<Vec<T>>,
    narrowed: impl Fn(&[T], &[T]) -> Vec<T>,
) -> Option<Vec<T>> {
    match (initial, today) {
        (Some(initial), Some(today)) => Some(narrowed(initial, today)),
        (one, other) => one.clone().or_else(|| other.clone()),
    }
}
