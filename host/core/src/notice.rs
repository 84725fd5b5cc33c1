//! What people who follow a run want to know, derived from its events: never read back, never journalled. The command line, the server,
//! logs and traces all show these.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::delivery::EndedTask;
use crate::fault::{CallReport, Fault};
use crate::grant::DenialRecord;
use crate::ids::{BackgroundId, CallId, ChannelId, ModelName, PluginName, RoomId, TaskName};
use crate::message::Message;
use crate::outcome::{Outcome, Status};

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "kebab-case")]
pub enum Notice {
    TaskStarted {
        task: TaskName,
        agent: PluginName,
        caller: Option<TaskName>,
    },
    /// A seat gave a valid answer, which is now the pending message.
    MessagePosted {
        task: TaskName,
        agent: PluginName,
        message: Arc<Message>,
    },
    /// Nobody had a valid answer.
    StepStalled {
        task: TaskName,
        stalled: u32,
        of: u32,
    },
    ToolCalled {
        call: CallId,
        task: TaskName,
        caller: PluginName,
        name: String,
        arguments: Value,
    },
    ToolAnswered {
        /// None: it was answered without starting a tool.
        call: Option<CallId>,
        task: TaskName,
        name: String,
        content: String,
        is_error: bool,
        fault: Option<Fault>,
        report: CallReport,
    },
    /// A plugin broke a limit or a promise outside a tool call.
    PluginFaulted {
        call: CallId,
        plugin: PluginName,
        fault: Fault,
    },
    /// Something was refused by the room: a tool, an address, a background task, a model.
    Denied {
        plugin: PluginName,
        record: DenialRecord,
    },
    ModelCalled {
        call: CallId,
        model: ModelName,
    },
    ModelAnswered {
        call: CallId,
        tokens: u64,
        cost_micro_usd: Option<u64>,
        error: Option<String>,
    },
    BackgroundStarted {
        id: BackgroundId,
        task: TaskName,
        room: RoomId,
    },
    BackgroundEnded {
        ended: EndedTask,
    },
    /// A strategy's speech reached a channel.
    Delivered {
        id: BackgroundId,
        agent: TaskName,
        strategy: PluginName,
        channel: ChannelId,
        text: String,
    },
    /// A result stays in the inbox, and why.
    NotDelivered {
        id: BackgroundId,
        agent: TaskName,
        reason: String,
    },
    TaskEnded {
        task: TaskName,
        status: Status,
        reason: String,
    },
    /// The entry task has its result; background work may still go on.
    ResultReady {
        outcome: Arc<Outcome>,
    },
}
