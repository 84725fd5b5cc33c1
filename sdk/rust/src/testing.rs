//! Native tests of plugins: the task that an agent, a responder, an analyzer or a condenser reads.
//! The harness of strategies is [`delivery::harness`](crate::delivery::harness).

use serde_json::{Value, json};

use crate::bindings::agent::conclave::plugin::state::{
    PastAction, Peer, RemainingBudgets, RunMetrics, ToolSummary,
};
use crate::{Message, Role, View};

/// A task as a test describes it. [`view`](Self::view) returns an agent's view of it.
///
/// ```
/// use conclave_sdk::testing::TaskSnapshot;
/// use conclave_sdk::{Agent, Result, Turn, View, finish};
///
/// struct Parrot;
///
/// impl Agent for Parrot {
///     fn step(view: &View) -> Result<Turn> {
///         let heard = view.pending().map(|message| message.content);
///         Ok(finish(heard.unwrap_or_default()))
///     }
/// }
///
/// assert_eq!(Parrot::step(&TaskSnapshot::asked("hello").view()), Ok(finish("hello")));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSnapshot {
    /// The task's name in the operator's config.
    pub task_name: String,
    /// The caller's inputs, beside the message: an object.
    pub inputs: Value,
    /// The message that waits for an answer.
    pub pending: Option<Message>,
    /// The messages of the agent's history, oldest first, including the pending one.
    pub history: Vec<Message>,
    /// The actions and observations since the previous step.
    pub since_last_step: Vec<PastAction>,
    /// The user's latest message.
    pub latest_user_message: Option<String>,
    /// The plan.
    pub plan: Value,
    /// The id of the plan's node in progress.
    pub current_plan_node: Option<String>,
    /// The outputs of the latest `finish` or `reject`; null before the first.
    pub outputs: Value,
    /// The last error that was reported to the agent.
    pub last_error: Option<String>,
    /// The tools that the agent may call.
    pub tools: Vec<ToolSummary>,
    /// The tasks that it may delegate or send messages to.
    pub peers: Vec<Peer>,
    /// The rest of each budget.
    pub remaining: RemainingBudgets,
    /// The usage of the run.
    pub metrics: RunMetrics,
    /// The number of delegations above this task.
    pub delegate_level: u32,
    /// The number of earlier steps.
    pub iteration: u32,
}

impl Default for TaskSnapshot {
    /// Returns the first step of a task named `main`, without a message and without limits.
    fn default() -> Self {
        Self {
            task_name: "main".to_owned(),
            inputs: json!({}),
            pending: None,
            history: Vec::new(),
            since_last_step: Vec::new(),
            latest_user_message: None,
            plan: json!([]),
            current_plan_node: None,
            outputs: Value::Null,
            last_error: None,
            tools: Vec::new(),
            peers: Vec::new(),
            remaining: RemainingBudgets {
                turns: None,
                tokens: None,
                cost_micro_usd: None,
                wall_ms: None,
                model_calls: None,
                tool_calls: None,
            },
            metrics: RunMetrics {
                turns: 0,
                tokens: 0,
                cost_micro_usd: 0,
                model_calls: 0,
                tool_calls: 0,
            },
            delegate_level: 0,
            iteration: 0,
        }
    }
}

impl TaskSnapshot {
    /// Returns a task whose user has just said this.
    pub fn asked(text: &str) -> Self {
        Self::default().says(Role::User, text)
    }

    /// Adds a message to the history, which is pending then.
    #[must_use]
    pub fn says(mut self, sender: Role, text: &str) -> Self {
        if sender == Role::User {
            self.latest_user_message = Some(text.to_owned());
        }
        let seq = self.history.len() as u64;
        let message = message(seq, sender, text);
        self.history.push(message.clone());
        self.pending = Some(message);
        self
    }

    /// Returns an agent's view of this task.
    pub fn view(&self) -> View<'_> {
        View::of_snapshot(self)
    }
}

/// Returns a message without calls and attachments.
pub fn message(seq: u64, sender: Role, text: &str) -> Message {
    let sender_name = match sender {
        Role::Llm => "llm",
        Role::Agent => "agent",
        Role::User => "user",
        Role::System => "system",
    };
    Message {
        seq,
        sender,
        sender_name: sender_name.to_owned(),
        recipient: None,
        content: text.to_owned(),
        tool_calls: Vec::new(),
        tool_results: Vec::new(),
        attachments: Vec::new(),
        labels: Vec::new(),
        extra: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_read_like_a_task_of_the_host() {
        let mut task = TaskSnapshot::asked("one").says(Role::Llm, "two");
        task.inputs = json!({ "days": 3 });
        for number in 0..40 {
            task = task.says(Role::Agent, &number.to_string());
        }
        let view = task.view();
        assert_eq!(view.pending().map(|message| message.content).as_deref(), Some("39"));
        assert_eq!(view.latest_user_message().as_deref(), Some("one"));
        assert_eq!(view.history_length(), 42);
        let texts: Vec<String> = view.history().map(|message| message.content).collect();
        assert_eq!((texts.len(), texts[1].as_str(), texts[41].as_str()), (42, "two", "39"));
        let back = view.history().next_back().map(|message| message.seq);
        assert_eq!(back, Some(41));
        #[derive(serde::Deserialize, PartialEq, Debug)]
        struct Inputs {
            days: u32,
        }
        assert_eq!(view.inputs::<Inputs>(), Ok(Inputs { days: 3 }));
        assert!(view.inputs::<u32>().is_err());
        assert_eq!(view.outputs(), Ok(Value::Null));
        assert_eq!(view.remaining().turns, None);
    }
}
