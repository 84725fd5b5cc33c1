//! The actions that an agent may request, in the core's types. Mirrors `wit/actions.wit`. The fixed
//! JSON forms of rules O-001 and after belong to `conclave_trajectory`. The serialised form of an
//! action, in journals, has the kinds and arguments of the fixed form, except `reply` and `custom`;
//! `action/wire.rs` corrects where they differ, and reads the other forms. So a field's name is that
//! of journals and logs.

mod wire;

pub(crate) use wire::exit_code;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::delegation::Delegation;
use crate::types::message::{Blob, ToolCall, ToolResult};

/// The ordinary answer of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The id of the completion that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<String>,
    /// The text; `None` if the agent said nothing at all.
    pub content: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The responder or task that should answer next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipient: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Blob>,
}

/// The state of a node of the plan (O-058).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanState {
    Open,
    InProgress,
    Completed,
    Verified,
    Abandoned,
}

/// An action that an agent may request in one turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", content = "args", rename_all = "snake_case")]
pub enum Action {
    Null,
    Reply(Reply),
    Run { command: String, background: bool },
    Kill { command_id: i64 },
    RunIpython { code: String, kernel_init_code: String },
    Browse { url: String },
    Read { path: String, start: i64, end: i64 },
    Write { path: String, content: String, start: i64, end: i64 },
    Recall { query: String },
    AddTask { parent: String, goal: String, subtasks: Value },
    ModifyTask { task_id: String, state: PlanState },
    Delegate { agent: String, inputs: Value },
    DelegateTask(Box<Delegation>),
    Think { thought: String },
    Talk { content: String },
    Finish { outputs: Value },
    Reject { outputs: Value },
    Custom { name: String, arguments: Value },
}

impl Action {
    /// The discriminator of the fixed JSON form, also used in error texts.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Null => "null",
            Self::Reply(_) => "message",
            Self::Run { .. } => "run",
            Self::Kill { .. } => "kill",
            Self::RunIpython { .. } => "run_ipython",
            Self::Browse { .. } => "browse",
            Self::Read { .. } => "read",
            Self::Write { .. } => "write",
            Self::Recall { .. } => "recall",
            Self::AddTask { .. } => "add_task",
            Self::ModifyTask { .. } => "modify_task",
            Self::Delegate { .. } => "delegate",
            Self::DelegateTask(_) => "delegate_task",
            Self::Think { .. } => "think",
            Self::Talk { .. } => "talk",
            Self::Finish { .. } => "finish",
            Self::Reject { .. } => "reject",
            Self::Custom { name, .. } => name,
        }
    }
}

/// The result of `step`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    pub action: Action,
    /// The reason, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thought: String,
    #[serde(default)]
    pub wait_for_response: bool,
    /// Unknown fields, unchanged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra: Vec<(String, Value)>,
}

impl Turn {
    /// The extra field with this key.
    pub(crate) fn extra(&self, key: &str) -> Option<&Value> {
        self.extra.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }
}

/// The host's answer to an action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "observation", rename_all = "snake_case")]
pub enum Observation {
    Null,
    /// The output of a command; `command_id` is -1 for one in the foreground (O-028).
    Command {
        command_id: i64,
        command: String,
        exit_code: i32,
        content: String,
    },
    Cell {
        code: String,
        content: String,
    },
    /// A page, or the error that prevented it (O-139).
    Browsed {
        url: String,
        status: u16,
        content: String,
        error: bool,
    },
    File {
        path: String,
        content: String,
    },
    Written {
        path: String,
    },
    /// Memories, best first.
    Recalled {
        memories: Vec<String>,
    },
    Tool(ToolResult),
    Delegated {
        agent: String,
        outputs: Value,
    },
    Success {
        content: String,
    },
    Error {
        content: String,
    },
    /// Any other kind, in its fixed JSON form.
    Custom {
        name: String,
        content: String,
        extras: Value,
    },
}

/// An action with its observations, as `since-last-step` returns it (O-053).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PastAction {
    pub action: Option<Action>,
    pub observation: Option<Observation>,
    pub seq: u64,
}
