//! Delegation to background tasks: an agent starts a task of the operator's config in a room of its
//! own and continues; the result comes back later. It needs the `delegate` grant.
//!
//! ```
//! use conclave_sdk::background::{self, Answer, ResultForm};
//! use conclave_sdk::{Agent, Result, Turn, View, delegate, finish};
//! use serde_json::json;
//!
//! struct Desk;
//!
//! impl Agent for Desk {
//!     fn step(view: &View) -> Result<Turn> {
//!         Ok(match view.background_answer() {
//!             None => delegate("writer")
//!                 .task("Write about Skerryvore.")
//!                 .context(json!({ "words": 200 }))
//!                 .result_form(ResultForm::AgentTurn)
//!                 .deadline_ms(60_000)
//!                 .start(),
//!             Some(Answer::Started { task_id, .. }) => finish(format!("{task_id} is under way.")),
//!             Some(Answer::Refused { message, .. }) => finish(message),
//!             Some(Answer::Ended { output, .. }) => finish(output.unwrap_or_default()),
//!             Some(_) => background::status(None),
//!         })
//!     }
//! }
//! # conclave_sdk::export!(agent: Desk, asks: [delegate]);
//! # assert!(true);
//! ```

use serde::Deserialize;
use serde_json::{Value, json};

use crate::bindings::agent::conclave::plugin::actions::{
    Action, BackgroundTask, DeliveryChoice, StructuredResult,
};
use crate::{Observation, Turn, View, call};

pub use crate::bindings::agent::conclave::plugin::actions::{OnClose, ResultForm};

/// The default number of reminders to a worker that ends without its structured result.
const RETRIES: u32 = 3;

/// Begins a delegation to a task of the operator's config. It starts with
/// [`start`](Delegation::start).
pub fn delegate(worker: impl Into<String>) -> Delegation {
    Delegation(BackgroundTask {
        worker: worker.into(),
        description: String::new(),
        context: "{}".into(),
        share_channels: Vec::new(),
        brief: None,
        conversation_messages: 0,
        wait: false,
        structured: None,
        deliver: DeliveryChoice::AsConfigured,
        result_form: None,
        notify: None,
        deadline_ms: None,
        turns: None,
        on_close: None,
        key: None,
    })
}

/// Asks for the state of a background task that this one started, with its output; `None` lists the
/// newest ten. The task needs the tool `task_status`.
pub fn status(task_id: Option<&str>) -> Turn {
    call("task_status", task_id.map_or(json!({}), |id| json!({ "task_id": id })))
}

/// Stops a background task that this one started. The task needs the tool `cancel_task`.
pub fn cancel(task_id: &str) -> Turn {
    call("cancel_task", json!({ "task_id": task_id }))
}

/// Sends a text to a background task that this one started; its agent reads it in its next step.
/// The task needs the tool `tell_task`.
pub fn tell(task_id: &str, text: impl Into<String>) -> Turn {
    call("tell_task", json!({ "task_id": task_id, "text": text.into() }))
}

/// A background task to start.
#[derive(Debug, Clone)]
#[must_use = "it starts with `start`"]
pub struct Delegation(BackgroundTask);

impl Delegation {
    /// Sets the description of the work: the label in lists, and the worker's message unless there
    /// is a [`brief`](Self::brief). The host refuses an empty one.
    pub fn task(mut self, description: impl Into<String>) -> Self {
        self.0.description = description.into();
        self
    }

    /// Sets the facts for the worker: a JSON object, which it gets as its inputs.
    pub fn context(mut self, facts: impl Into<Value>) -> Self {
        self.0.context = facts.into().to_string();
        self
    }

    /// Shares channels of this room with the worker.
    pub fn share<C: Into<String>>(mut self, channels: impl IntoIterator<Item = C>) -> Self {
        self.0.share_channels.extend(channels.into_iter().map(Into::into));
        self
    }

    /// Sets the worker's message, where it differs from the description.
    pub fn brief(mut self, message: impl Into<String>) -> Self {
        self.0.brief = Some(message.into());
        self
    }

    /// Gives the worker the newest messages of the conversation, as fenced data.
    pub fn conversation(mut self, messages: u32) -> Self {
        self.0.conversation_messages = messages;
        self
    }

    /// Waits for the result, which is then the answer.
    pub fn wait(mut self) -> Self {
        self.0.wait = true;
        self
    }

    /// Requires a result by `submit_result`, whose `data` fits this JSON Schema of an object.
    pub fn structured(mut self, schema: impl Into<Value>) -> Self {
        let schema = Some(schema.into().to_string());
        self.0.structured = Some(StructuredResult { schema, retries: RETRIES });
        self
    }

    /// Requires a result by `submit_result` with any `data`, and sets the number of reminders.
    pub fn submitted(mut self, retries: u32) -> Self {
        self.0.structured = Some(StructuredResult { schema: None, retries });
        self
    }

    /// Chooses the delivery strategy. One that the operator did not name for these tasks needs
    /// `grants.delegate.delivery_strategies`.
    pub fn deliver_with(mut self, strategy: impl Into<String>) -> Self {
        self.0.deliver = DeliveryChoice::Strategy(strategy.into());
        self
    }

    /// Leaves the result in the inbox, where only the notified task's agent reads it.
    pub fn deliver_to_inbox(mut self) -> Self {
        self.0.deliver = DeliveryChoice::Inbox;
        self
    }

    /// Chooses the form of delivery. Another one than the operator's needs
    /// `grants.delegate.result_delivery`.
    pub fn result_form(mut self, form: ResultForm) -> Self {
        self.0.result_form = Some(form);
        self
    }

    /// Notifies another task of the result. One that the operator did not name needs the `route`
    /// grant.
    pub fn notify(mut self, task: impl Into<String>) -> Self {
        self.0.notify = Some(task.into());
        self
    }

    /// Sets the time limit in milliseconds.
    pub fn deadline_ms(mut self, limit: u64) -> Self {
        self.0.deadline_ms = Some(limit);
        self
    }

    /// Sets the limit of steps of the worker; a higher one than the operator's has no effect.
    pub fn turns(mut self, limit: u32) -> Self {
        self.0.turns = Some(limit);
        self
    }

    /// Sets what happens to the task if this one is stopped. Another choice than
    /// [`OnClose::Cascade`] or the operator's own needs `grants.delegate.on_close`.
    pub fn on_close(mut self, fate: OnClose) -> Self {
        self.0.on_close = Some(fate);
        self
    }

    /// Sets the idempotency key: a second delegation with the same key starts nothing.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.0.key = Some(key.into());
        self
    }

    /// The turn that starts the task. [`View::background_answer`] has the answer in the next
    /// step.
    pub fn start(self) -> Turn {
        Action::DelegateTask(self.0).into()
    }
}

/// The host's answer to a delegation, or to a question about one.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Answer {
    /// The task has started, or continues.
    Started {
        /// The id for [`status`], [`cancel`] and [`tell`].
        task_id: String,
        /// The worker's task in the operator's config.
        worker: String,
    },
    /// The task has ended.
    Ended {
        /// The id of the task.
        task_id: String,
        /// `completed`, `failed`, `cancelled`, `timed out` or `interrupted`.
        status: String,
        /// The worker's result; `None` unless it completed.
        output: Option<String>,
        /// The host's reason for another end; the worker's own words are for people only.
        reason: Option<String>,
    },
    /// The answer to [`cancel`] or [`tell`]: whether it took effect.
    Done {
        /// The id of the task.
        task_id: String,
        /// False if the task had ended before.
        done: bool,
    },
    /// The newest tasks, newest first.
    Listed(Vec<Answer>),
    /// The host refused it.
    Refused {
        /// The code, such as `not_granted`.
        code: String,
        /// The reason, with what to do instead.
        message: String,
        /// The valid choices, where there are some.
        allowed: Vec<String>,
    },
}

/// The fields of every form of an answer.
#[derive(Deserialize)]
struct AnswerFields {
    #[serde(default)]
    task_id: String,
    #[serde(default)]
    agent: String,
    status: Option<String>,
    output: Option<String>,
    cancelled: Option<bool>,
    tasks: Option<Vec<AnswerFields>>,
    error: Option<String>,
    #[serde(default)]
    message: String,
    #[serde(default)]
    allowed: Vec<String>,
}

impl Answer {
    /// Parses the text of an answer; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::of(serde_json::from_str(text).ok()?)
    }

    fn of(fields: AnswerFields) -> Option<Self> {
        let AnswerFields { task_id, agent, status, output, error, .. } = fields;
        if let Some(code) = error.clone().filter(|_| status.is_none()) {
            return Some(Self::Refused { code, message: fields.message, allowed: fields.allowed });
        }
        if let Some(tasks) = fields.tasks {
            return Some(Self::Listed(tasks.into_iter().filter_map(Self::of).collect()));
        }
        if let Some(was_running) = fields.cancelled {
            return Some(Self::Done { task_id, done: was_running });
        }
        match status?.as_str() {
            "delegated" | "pending" | "running" => Some(Self::Started { task_id, worker: agent }),
            "told" => Some(Self::Done { task_id, done: true }),
            status => {
                let status = status.to_owned();
                Some(Self::Ended { task_id, status, output, reason: error })
            }
        }
    }
}

impl View<'_> {
    /// The host's latest answer to a delegation, or to a question about one, since this agent's
    /// previous step.
    #[must_use]
    pub fn background_answer(&self) -> Option<Answer> {
        let text = |observation| match observation {
            Observation::Success(text) | Observation::Error(text) => Some(text),
            Observation::Tool(output) => Some(output.content),
            _ => None,
        };
        let observed = self.observations().into_iter().rev().filter_map(text);
        // A round without observations has its answer in the pending message.
        let pending = self.pending().map(|message| message.content);
        observed.chain(pending).find_map(|text| Answer::parse(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delegation_has_every_field() {
        let schema = json!({ "type": "object" });
        let turn = delegate("writer")
            .task("Write.")
            .context(json!({ "words": 2 }))
            .share(["web"])
            .brief("Write two words.")
            .conversation(3)
            .wait()
            .structured(schema.clone())
            .deliver_with("digest")
            .result_form(ResultForm::Text)
            .notify("desk")
            .deadline_ms(5)
            .turns(3)
            .on_close(OnClose::Detach)
            .key("k")
            .start();
        let expected = BackgroundTask {
            worker: "writer".into(),
            description: "Write.".into(),
            context: r#"{"words":2}"#.into(),
            share_channels: vec!["web".into()],
            brief: Some("Write two words.".into()),
            conversation_messages: 3,
            wait: true,
            structured: Some(StructuredResult { schema: Some(schema.to_string()), retries: 3 }),
            deliver: DeliveryChoice::Strategy("digest".into()),
            result_form: Some(ResultForm::Text),
            notify: Some("desk".into()),
            deadline_ms: Some(5),
            turns: Some(3),
            on_close: Some(OnClose::Detach),
            key: Some("k".into()),
        };
        assert_eq!(*turn.action(), Action::DelegateTask(expected));
    }

    #[test]
    fn each_form_of_answer_is_told_apart() {
        let started = Answer::Started { task_id: "task-1".into(), worker: "writer".into() };
        let receipt =
            r#"{"status":"delegated","task_id":"task-1","room_id":"r/1","agent":"writer"}"#;
        assert_eq!(Answer::parse(receipt), Some(started.clone()));
        let listed = r#"{"tasks":[{"task_id":"task-1","agent":"writer","status":"running"}]}"#;
        assert_eq!(Answer::parse(listed), Some(Answer::Listed(vec![started])));
        let ended = r#"{"status":"timed out","task_id":"task-1","error":"out of time"}"#;
        let (status, reason) = ("timed out".to_owned(), Some("out of time".to_owned()));
        assert_eq!(
            Answer::parse(ended),
            Some(Answer::Ended { task_id: "task-1".into(), status, output: None, reason })
        );
        let refused = r#"{"error":"not_granted","message":"No.","allowed":["a"]}"#;
        let (code, message) = ("not_granted".to_owned(), "No.".to_owned());
        assert_eq!(
            Answer::parse(refused),
            Some(Answer::Refused { code, message, allowed: vec!["a".into()] })
        );
        let late = r#"{"task_id":"task-1","cancelled":false,"status":"completed"}"#;
        assert_eq!(
            Answer::parse(late),
            Some(Answer::Done { task_id: "task-1".into(), done: false })
        );
        assert_eq!(Answer::parse("Good morning."), None);
        assert_eq!(Answer::parse("{}"), None);
    }
}
