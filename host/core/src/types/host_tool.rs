//! The tools that the host itself carries out.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A tool of the host: it controls a task, or starts another one (L-140 and after).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostTool {
    Done,
    AgentDone,
    Result,
    FinalResult,
    Pass,
    DonePass,
    Forward,
    Send,
    AgentSend,
    RecipientMessage,
    AddRecipient,
    Rewind,
    DelegateTask,
    /// Returns the state of tasks that this one started.
    TaskStatus,
    CancelTask,
    /// Sends a text to a running task.
    TellTask,
    /// Submits the result in its required form.
    SubmitResult,
    /// Moves the conversation to another task.
    HandoffConversation,
    /// Reads on in a result that was cut (L-120). No task lists it: the room offers it once a
    /// result was cut.
    ReadResult,
}

impl HostTool {
    /// Every tool that a task may list, in the order of a manual.
    pub const ALL: [Self; 18] = [
        Self::Done,
        Self::AgentDone,
        Self::Result,
        Self::FinalResult,
        Self::Pass,
        Self::DonePass,
        Self::Forward,
        Self::Send,
        Self::AgentSend,
        Self::RecipientMessage,
        Self::AddRecipient,
        Self::Rewind,
        Self::DelegateTask,
        Self::TaskStatus,
        Self::CancelTask,
        Self::TellTask,
        Self::SubmitResult,
        Self::HandoffConversation,
    ];

    /// The tool of that name; `None` for a plugin's.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.as_str() == name)
    }

    /// Its name in the contract, the config and the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::AgentDone => "agent_done",
            Self::Result => "result",
            Self::FinalResult => "final_result",
            Self::Pass => "pass",
            Self::DonePass => "done_pass",
            Self::Forward => "forward",
            Self::Send => "send",
            Self::AgentSend => "agent_send",
            Self::RecipientMessage => "recipient_message",
            Self::AddRecipient => "add_recipient",
            Self::Rewind => "rewind",
            Self::DelegateTask => "delegate_task",
            Self::TaskStatus => "task_status",
            Self::CancelTask => "cancel_task",
            Self::TellTask => "tell_task",
            Self::SubmitResult => "submit_result",
            Self::HandoffConversation => "handoff_conversation",
            Self::ReadResult => "read_result",
        }
    }

    /// Its name in Langroid, for tasks with `compat = "langroid"`.
    #[must_use]
    pub fn langroid_name(self) -> &'static str {
        match self {
            Self::Done => "done_tool",
            Self::AgentDone => "agent_done_tool",
            Self::Result => "result_tool",
            Self::FinalResult => "final_result_tool",
            Self::Pass => "pass_tool",
            Self::DonePass => "done_pass_tool",
            Self::Forward => "forward_tool",
            Self::Send => "send_tool",
            Self::AgentSend => "agent_send_tool",
            Self::Rewind => "rewind_tool",
            Self::RecipientMessage | Self::AddRecipient | Self::DelegateTask => self.as_str(),
            Self::TaskStatus
            | Self::CancelTask
            | Self::TellTask
            | Self::SubmitResult
            | Self::HandoffConversation
            | Self::ReadResult => self.as_str(),
        }
    }

    /// Its description for a model.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Done => "Ends your task; `content` is its result.",
            Self::AgentDone => "Ends the task, with content and calls for its caller.",
            Self::Result => "Ends the task; the call itself is its result.",
            Self::FinalResult => {
                "Ends the task and all that called it; the call itself is the result."
            }
            Self::Pass => {
                "Passes the message that you were given on, unchanged, to another role that can answer it."
            }
            Self::DonePass => "Ends your task with the message that you were given as its result.",
            Self::Forward => "Passes the message that you were given on, unchanged, to `agent`.",
            Self::Send => "Sends `content` to `to`.",
            Self::AgentSend => "Sends content and calls to `to`.",
            Self::RecipientMessage => {
                "Sends `content` to `intended_recipient`. Use it for each message, so that it is clear whom it is for."
            }
            Self::AddRecipient => "Says whom your last message is for, when you forgot to.",
            Self::Rewind => {
                "Goes back to your `n`-th message, counted from 1, and says `content` instead; what came after it is forgotten."
            }
            Self::DelegateTask => {
                "Hands a task to an agent that works in the background, in a room of its own, while \
                 this conversation goes on; its result comes later. Use it when a specialist does \
                 the task better, when the task takes long and the user should not wait, or when \
                 several tasks can be done in parallel; what is short, or needs all of this \
                 conversation, do yourself."
            }
            Self::TaskStatus => {
                "Says how the background tasks stand that you started: one of them, or the newest ten."
            }
            Self::CancelTask => "Stops a background task that you started.",
            Self::TellTask => {
                "Says something to a background task that you started; its agent reads it in its next step."
            }
            Self::SubmitResult => {
                "Hands in the result of your task and ends it. `status`: `completed`, `failed` or `blocked`; `summary`: the result in words; `data`: facts that a program reads."
            }
            Self::ReadResult => {
                "Reads on in a result that was cut: the page of result number `result` that begins \
                 at byte `offset`. The notice at the cut has both numbers."
            }
            Self::HandoffConversation => {
                "Hands this conversation over to another agent, or to `user`, and ends your part in it; to have work done beside the conversation use `delegate_task`."
            }
        }
    }

    /// The JSON Schema of its arguments. Where text is required, numbers and other plain values are
    /// accepted as text.
    #[must_use]
    pub fn input_schema(self) -> Value {
        let text = json!({ "type": "string" });
        let object = |properties: Value, required: &[&str]| json!({ "type": "object", "properties": properties, "required": required });
        match self {
            Self::Done => object(json!({ "content": {} }), &[]),
            Self::AgentDone => object(json!({ "content": {}, "tools": { "type": "array" } }), &[]),
            Self::Result | Self::FinalResult | Self::Pass | Self::DonePass => {
                object(json!({}), &[])
            }
            Self::Forward => object(json!({ "agent": text }), &["agent"]),
            Self::Send => object(json!({ "to": text, "content": text }), &["to"]),
            Self::AgentSend => object(
                json!({ "to": text, "content": text, "tools": { "type": "array" } }),
                &["to"],
            ),
            Self::RecipientMessage => object(
                json!({ "intended_recipient": text, "content": text }),
                &["intended_recipient", "content"],
            ),
            Self::AddRecipient => {
                object(json!({ "intended_recipient": text }), &["intended_recipient"])
            }
            Self::Rewind => {
                object(json!({ "n": { "type": "integer" }, "content": text }), &["n", "content"])
            }
            Self::DelegateTask => object(
                json!({
                    "agent": { "type": "string", "description": "The agent that does it." },
                    "task": { "type": "string", "description": "The task, in full; the agent sees nothing else of this conversation." },
                    "context": { "type": "object", "description": "Facts for the agent, such as a name or an address; it reads them." },
                    "share_channels": {
                        "type": "array", "items": text, "description": "Channels of this room that also receive its answer.",
                    },
                }),
                &["agent", "task"],
            ),
            Self::TaskStatus => object(json!({ "task_id": text }), &[]),
            Self::CancelTask => object(json!({ "task_id": text }), &["task_id"]),
            Self::TellTask => {
                object(json!({ "task_id": text, "text": text }), &["task_id", "text"])
            }
            Self::SubmitResult => object(
                json!({ "status": { "type": "string", "enum": ["completed", "failed", "blocked"] }, "summary": text, "data": {} }),
                &["status", "summary"],
            ),
            Self::ReadResult => object(
                json!({
                    "result": { "type": "integer", "minimum": 1 },
                    "offset": { "type": "integer", "minimum": 0, "default": 0 },
                }),
                &["result"],
            ),
            Self::HandoffConversation => object(
                json!({
                    "target": { "type": "string", "description": "The agent that continues the conversation." },
                    "reason": { "type": "string", "description": "Why." },
                    "summary": { "type": "string", "description": "The facts of the conversation that the other agent needs; it sees nothing else of it." },
                    "next_phase": { "type": "string", "description": "The name of the next phase of the conversation." },
                    "channel_escalation": { "type": "string", "description": "The channel on which the user continues." },
                }),
                &["target", "reason", "summary"],
            ),
        }
    }

    /// Whether only the handler of a call may request it, never a model (L-141, L-143, L-147).
    #[must_use]
    pub fn is_for_handlers(self) -> bool {
        matches!(self, Self::AgentDone | Self::Result | Self::FinalResult | Self::AgentSend)
    }

    /// Whether it must be the only call in its message (L-119).
    #[must_use]
    pub fn stands_alone(self) -> bool {
        !matches!(
            self,
            Self::Result
                | Self::FinalResult
                | Self::AddRecipient
                | Self::Rewind
                | Self::DelegateTask
                | Self::TaskStatus
                | Self::CancelTask
                | Self::TellTask
                | Self::HandoffConversation
                | Self::ReadResult
        )
    }
}
