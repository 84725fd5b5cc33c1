//! The roles and sub-tasks that may answer a message.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::setup::ResponderName;
use crate::types::ids::TaskName;
use crate::types::message::Role;

/// A responder: a role or a sub-task that may answer the pending message (L-020).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::room) enum Responder {
    Agent,
    Llm,
    User,
    Subtask(TaskName),
    /// The host itself, which is no role.
    System,
}

impl Responder {
    /// Its name in a config; `None` for the host.
    pub(in crate::room) fn name(&self) -> Option<ResponderName> {
        match self {
            Self::Subtask(task) => Some(ResponderName::Subtask(task.clone())),
            other => other.role().map(ResponderName::Role),
        }
    }

    /// Its role; `None` for a sub-task, which counts by name only (L-081), and for the host.
    pub(in crate::room) fn role(&self) -> Option<Role> {
        match self {
            Self::Agent => Some(Role::Agent),
            Self::Llm => Some(Role::Llm),
            Self::User => Some(Role::User),
            Self::Subtask(_) | Self::System => None,
        }
    }

    /// The responder that a message's sender is.
    pub(in crate::room) fn of(role: Role) -> Self {
        match role {
            Role::Llm => Self::Llm,
            Role::Agent => Self::Agent,
            Role::User => Self::User,
            Role::System => Self::System,
        }
    }

    /// The label for people and traces.
    pub(in crate::room) fn label(&self) -> Cow<'static, str> {
        match self {
            Self::Subtask(task) => Cow::Owned(task.to_string()),
            Self::System => Cow::Borrowed(Role::System.as_str()),
            Self::Agent | Self::Llm | Self::User => {
                Cow::Borrowed(self.role().map_or("", Role::as_str))
            }
        }
    }

    /// Whether it answers to this name, in any case of letters (L-006, and the reference's defect
    /// in L-064 done right).
    pub(in crate::room) fn is_named(&self, name: &str) -> bool {
        match self {
            Self::Subtask(task) => task.as_str().eq_ignore_ascii_case(name),
            Self::Agent | Self::Llm | Self::User => {
                self.role() == Role::from_name(name) && self.role().is_some()
            }
            Self::System => false,
        }
    }
}
