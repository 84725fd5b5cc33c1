//! Native agents: async closures from a view to a turn.

use std::sync::Arc;

use conclave_core::types::action::{Action, Reply, Turn};
use conclave_core::types::completion::{Completion, ModelRequest};
use conclave_core::types::message::{Message, ToolCall, ToolResult};
use conclave_core::types::view::AgentView;
use serde_json::Value;

use super::access::CallAccess;
use super::failure::{Failure, ModelCallFailure};
use crate::support::clock::BoxFuture;

pub(super) type AgentBody =
    Arc<dyn Fn(Step) -> BoxFuture<'static, Result<Turn, Failure>> + Send + Sync>;

pub(super) type ResponderBody =
    Arc<dyn Fn(Step) -> BoxFuture<'static, Result<Option<Turn>, Failure>> + Send + Sync>;

/// One step of an agent, or one question to its responder.
#[derive(Clone, Debug)]
pub struct Step {
    /// The agent's view of its task; a snapshot that is cheap to clone.
    pub view: AgentView,
    /// Log, settings and models.
    pub host: CallAccess,
}

impl Step {
    /// The text that is to be answered; empty if there is none.
    #[must_use]
    pub fn text(&self) -> &str {
        self.view.pending.as_deref().map(Message::text).unwrap_or_default()
    }

    /// The answers to the tool calls of the last turn, in their order; empty if it made none.
    #[must_use]
    pub fn results(&self) -> &[ToolResult] {
        self.view
            .pending
            .as_deref()
            .map(|message| message.tool_results.as_slice())
            .unwrap_or_default()
    }

    /// Sends a request to the agent's default model with the task's system message, the whole
    /// history and every tool that the agent may call.
    ///
    /// # Errors
    /// As [`CallAccess::ask`].
    pub async fn complete(&self) -> Result<Completion, ModelCallFailure> {
        self.host.ask(ModelRequest::default()).await
    }
}

/// A type that a closure can return as an agent's turn.
pub trait IntoTurn {
    /// The value as a turn.
    fn into_turn(self) -> Turn;
}

impl IntoTurn for Turn {
    fn into_turn(self) -> Turn {
        self
    }
}

impl IntoTurn for Action {
    fn into_turn(self) -> Turn {
        Turn { action: self, thought: String::new(), wait_for_response: false, extra: Vec::new() }
    }
}

/// Becomes a text reply.
impl IntoTurn for String {
    fn into_turn(self) -> Turn {
        say(self)
    }
}

/// Becomes a text reply.
impl IntoTurn for &'static str {
    fn into_turn(self) -> Turn {
        say(self)
    }
}

/// Becomes a reply with the model's text and tool calls.
impl IntoTurn for Completion {
    fn into_turn(self) -> Turn {
        let Self { id, content, tool_calls, .. } = self;
        Action::Reply(Reply { completion: Some(id), content, tool_calls, ..Reply::default() })
            .into_turn()
    }
}

/// A turn with a text reply, which leaves open whether the task is done.
pub fn say(text: impl Into<String>) -> Turn {
    Action::Reply(Reply { content: Some(text.into()), ..Reply::default() }).into_turn()
}

/// A turn that calls one tool, `plugin.tool`. The next step gets the answer in [`Step::results`].
#[must_use]
pub fn call(tool: &str, arguments: Value) -> Turn {
    let call = ToolCall::new(tool, arguments);
    Action::Reply(Reply { tool_calls: vec![call], ..Reply::default() }).into_turn()
}

/// A turn that ends the task with this result: text or any other JSON value.
pub fn finish(outputs: impl Into<Value>) -> Turn {
    Action::Finish { outputs: outputs.into() }.into_turn()
}
