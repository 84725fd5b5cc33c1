//! A judge: it overrules the rules of a task, which say what answer is valid, what answer ends the
//! task, and what the result says. The operator's config names it. It overrules no limit, and not
//! the user's goodbye.

use serde_json::Value;

use crate::bindings::judge::exports::conclave::plugin::judge as contract;
use crate::{Result, View};

pub use contract::{Answer, Ending, TaskResult};

/// The trait of a judge; `export!(judge: X)` exports it. Each function has a default that leaves the
/// decision to the host. An error ends the task with the status `ERROR`.
///
/// ```
/// use conclave_sdk::judge::{Answer, Judge};
/// use conclave_sdk::testing::{TaskSnapshot, answer};
/// use conclave_sdk::{Result, View};
///
/// /// Takes only numbers for an answer, and ends the task with 42.
/// struct Numbers;
///
/// impl Judge for Numbers {
///     fn valid(answer: &Answer, _view: &View) -> Result<Option<bool>> {
///         Ok(Some(answer.message.content.trim().parse::<f64>().is_ok()))
///     }
///
///     fn done(answer: &Answer, _view: &View) -> Result<Option<bool>> {
///         Ok((answer.message.content.trim() == "42").then_some(true))
///     }
///
///     fn feedback(answer: &Answer, _view: &View) -> Result<Option<String>> {
///         Ok(Some(format!("{:?} is not a number.", answer.message.content)))
///     }
/// }
/// # conclave_sdk::export!(judge: Numbers, asks: []);
///
/// let task = TaskSnapshot::asked("How many?");
/// assert_eq!(Numbers::valid(&answer("many"), &task.view()), Ok(Some(false)));
/// assert_eq!(Numbers::done(&answer("42"), &task.view()), Ok(Some(true)));
/// assert_eq!(Numbers::done(&answer("41"), &task.view()), Ok(None)); // as the host rules
/// ```
pub trait Judge {
    /// Whether the answer becomes the pending message. `true` takes even an empty answer, and
    /// `false` asks the next responder. Called for each answer that is not silence.
    fn valid(answer: &Answer, view: &View) -> Result<Option<bool>> {
        let _ = (answer, view);
        Ok(None)
    }

    /// Whether the task ends with the answer, which then is valid. `false` keeps it open,
    /// whatever the answer says. Called for each answer that [`valid`](Self::valid) does not refuse.
    fn done(answer: &Answer, view: &View) -> Result<Option<bool>> {
        let _ = (answer, view);
        Ok(None)
    }

    /// Returns the words for the task's agent about an answer that is refused, or that does not end
    /// the task because of [`done`](Self::done): it reads them before its next step, so it can
    /// correct what the answer lacks.
    fn feedback(answer: &Answer, view: &View) -> Result<Option<String>> {
        let _ = (answer, view);
        Ok(None)
    }

    /// Returns the task's result in place of the host's. Called once when the task ends with a
    /// result.
    fn result(ending: &Ending, view: &View) -> Result<Option<TaskResult>> {
        let _ = (ending, view);
        Ok(None)
    }
}

impl TaskResult {
    /// Returns a result without a structured value.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), value: None }
    }

    /// Sets the structured value, which a caller reads beside the text.
    #[must_use]
    pub fn with_value(mut self, value: &Value) -> Self {
        self.value = Some(value.to_string());
        self
    }
}
