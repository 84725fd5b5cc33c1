//! The turn that a step returns, and the verbs of an agent that talks. [`crate::act`] has the verbs
//! of one that acts. Anything else is built from [`crate::actions`] and converted to a [`Turn`].

use serde::Serialize;
use serde_json::Value;

use crate::bindings::agent::conclave::plugin::actions::{self, Action, Reply};
use crate::bindings::imports::conclave::plugin::model::Completion;
use crate::bindings::imports::conclave::plugin::types::{Extra, ToolCall};

/// One answer of an agent: an action, with its thought and extras.
///
/// ```
/// use conclave_sdk::{call, finish, say};
/// use serde_json::json;
///
/// let look = call("search.find", json!({ "query": "lighthouses" }))
///     .and_call("search.list", json!({}))
///     .because("two places to look at once");
/// let ask = say("When was it lit?").to("answer");
/// let done = finish("In 1844.");
/// # let _ = (look, ask, done);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Turn(actions::Turn);

/// Says something to the next responder.
pub fn say(text: impl Into<String>) -> Turn {
    Turn::from(Reply { content: Some(text.into()), ..silent() })
}

/// Calls a tool; its result arrives with the next step. `arguments` is a JSON object.
pub fn call(tool: impl Into<String>, arguments: impl Into<Value>) -> Turn {
    Turn::from(silent()).and_call(tool, arguments)
}

/// Ends the task with its answer: a text, or anything that serde can write. What it cannot write,
/// such as a map whose keys are not text, ends the task without an answer, with the reason.
pub fn finish(answer: impl Serialize) -> Turn {
    match serde_json::to_string(&answer) {
        Ok(answer) => Turn::from(Action::Finish(answer)),
        Err(error) => reject(format!("the answer cannot be written as JSON: {error}")),
    }
}

/// Ends the task without an answer, with a reason.
pub fn reject(reason: impl Into<Value>) -> Turn {
    Turn::from(Action::Reject(reason.into().to_string()))
}

impl Turn {
    /// Adds a tool call to those of this turn; independent calls run at the same time.
    ///
    /// # Panics
    /// If the turn is not a reply: other actions have no place for tool calls.
    pub fn and_call(mut self, tool: impl Into<String>, arguments: impl Into<Value>) -> Self {
        let call = ToolCall {
            id: String::new(),
            name: tool.into(),
            arguments: arguments.into().to_string(),
        };
        self.reply("and_call").tool_calls.push(call);
        self
    }

    /// Addresses the speech to a task, an agent or a role. A task needs the `route` grant.
    ///
    /// # Panics
    /// If the turn is not a reply: only speech and calls have a recipient.
    pub fn to(mut self, recipient: impl Into<String>) -> Self {
        self.reply("to").recipient = Some(recipient.into());
        self
    }

    /// Adds the reason, for users and logs.
    pub fn because(mut self, thought: impl Into<String>) -> Self {
        self.0.thought = thought.into();
        self
    }

    /// Asks the user before the task continues.
    pub fn and_wait_for_user(mut self) -> Self {
        self.0.wait_for_response = true;
        self
    }

    /// Sets the text that the agent's history holds in place of the action's JSON, such as what its
    /// model wrote.
    pub fn with_text(self, text: impl Into<String>) -> Self {
        self.with_extra("text", text.into())
    }

    /// Limits the steps of those that work on the turn: its delegates, or the sub-task that answers
    /// it. A task's own lower limit holds.
    pub fn with_turns(self, turns: u32) -> Self {
        self.with_extra("turns", turns)
    }

    /// Adds a value for which the contract has no field yet.
    pub fn with_extra(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.extra.push(Extra { key: key.into(), value: value.into().to_string() });
        self
    }

    /// The turn's action.
    pub fn action(&self) -> &Action {
        &self.0.action
    }

    /// The reason; empty if there is none.
    pub fn thought(&self) -> &str {
        &self.0.thought
    }

    /// Whether the user is asked before the task continues.
    pub fn waits(&self) -> bool {
        self.0.wait_for_response
    }

    fn reply(&mut self, verb: &str) -> &mut Reply {
        match &mut self.0.action {
            Action::Reply(reply) => reply,
            other => panic!("`{verb}` goes with `say` and `call`, not with {other:?}"),
        }
    }
}

/// A turn with any action that the verbs do not cover.
impl From<Action> for Turn {
    fn from(action: Action) -> Self {
        Self(actions::Turn {
            action,
            thought: String::new(),
            wait_for_response: false,
            extra: Vec::new(),
        })
    }
}

impl From<Reply> for Turn {
    fn from(reply: Reply) -> Self {
        Self::from(Action::Reply(reply))
    }
}

/// A turn with a model's text, its tool calls, and the completion's id, with which the host finds
/// the rest.
impl From<Completion> for Turn {
    fn from(completion: Completion) -> Self {
        let Completion { id, content, tool_calls, .. } = completion;
        Self::from(Reply { completion: Some(id), content, tool_calls, ..silent() })
    }
}

impl From<Turn> for actions::Turn {
    fn from(turn: Turn) -> Self {
        turn.0
    }
}

fn silent() -> Reply {
    Reply {
        completion: None,
        content: None,
        tool_calls: Vec::new(),
        recipient: None,
        attachments: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Action, Turn, actions, call, finish, reject, say};

    fn reply(turn: &Turn) -> &actions::Reply {
        match turn.action() {
            Action::Reply(reply) => reply,
            other => panic!("no reply: {other:?}"),
        }
    }

    #[test]
    fn saying_has_content_and_a_recipient_only_when_addressed() {
        assert_eq!(reply(&say("hello")).content.as_deref(), Some("hello"));
        assert_eq!(reply(&say("hello")).recipient, None);
        assert_eq!(reply(&say("hello").to("answer")).recipient.as_deref(), Some("answer"));
    }

    #[test]
    fn calls_keep_their_order_and_say_nothing() {
        let turn = call("search.find", json!({ "query": "x" })).and_call("search.list", json!({}));
        let calls: Vec<_> = reply(&turn)
            .tool_calls
            .iter()
            .map(|call| (call.name.as_str(), call.arguments.as_str()))
            .collect();
        assert_eq!(calls, [("search.find", r#"{"query":"x"}"#), ("search.list", "{}")]);
        assert_eq!(reply(&turn).content, None);
    }

    #[test]
    fn an_answer_and_a_reason_are_json() {
        assert_eq!(finish("a \"b\"").action(), &Action::Finish(r#""a \"b\"""#.into()));
        assert_eq!(finish(json!({ "n": 1 })).action(), &Action::Finish(r#"{"n":1}"#.into()));
        assert_eq!(reject("no").action(), &Action::Reject("\"no\"".into()));
    }

    #[test]
    #[should_panic(expected = "`to` goes with `say` and `call`")]
    fn an_answer_has_no_recipient() {
        let _ = finish("done").to("answer");
    }
}
