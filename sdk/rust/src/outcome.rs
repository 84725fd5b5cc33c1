//! The outcome of a tool, and conversions from ordinary Rust values.

use serde_json::{Value, json};

use crate::bindings::imports::conclave::plugin::types::ToolCall;
use crate::bindings::tool::exports::conclave::plugin::tools::Outcome;
use crate::{Error, Result};

/// A value that a `#[tool]` function may return, alone or in a `Result`.
///
/// Text becomes the content; a number or a boolean also becomes the structured value. [`Json`] becomes
/// content and structured value.
/// `()` and `None` become no result at all. An [`Outcome`] is used unchanged.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of a tool",
    label = "text, numbers, `bool`, `()`, `Outcome` and `Json(…)` can, and an `Option` or a `Result` of them",
    note = "return it as `Json(value)`, with `#[derive(serde::Serialize, schemars::JsonSchema)]` on its type",
    note = "for a type of another crate: `Outcome::nothing().with_value(&value)`"
)]
pub trait IntoOutcome {
    /// Converts the value. Fails if it cannot be written as JSON, or is an error already.
    fn into_outcome(self) -> Result<Outcome>;

    /// The JSON Schema of the structured result, which every outcome then has; `None` if there is
    /// none, or not always.
    fn output_schema() -> Option<String>
    where
        Self: Sized,
    {
        None
    }
}

/// A structured result: the model reads it as JSON text, and callers get it as a value.
///
/// ```
/// use conclave_sdk::{IntoOutcome, Json};
///
/// let outcome = Json([1, 2]).into_outcome().unwrap();
/// assert_eq!(outcome.content.as_deref(), Some("[1,2]"));
/// assert_eq!(outcome.value.as_deref(), Some("[1,2]"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl Outcome {
    /// Returns an outcome with content alone.
    pub fn text(content: impl Into<String>) -> Self {
        Self { content: Some(content.into()), ..Self::nothing() }
    }

    /// No result at all, which differs from an empty text.
    pub fn nothing() -> Self {
        Self { content: None, value: None, attachments: Vec::new(), follow_up_calls: Vec::new() }
    }

    /// Adds the structured result. Fails if it cannot be written as JSON, such as a map whose keys
    /// are not text.
    pub fn with_value(mut self, value: &impl serde::Serialize) -> Result<Self> {
        self.value = Some(serde_json::to_string(value)?);
        Ok(self)
    }

    /// Adds an attachment that this call stored or received; the host drops any other.
    #[must_use]
    pub fn with_attachment(mut self, blob: crate::Blob) -> Self {
        self.attachments.push(blob);
        self
    }

    /// Adds a call that is executed next, as a call of the calling agent. Orchestration tools, such
    /// as `done`, need the `route` grant.
    #[must_use]
    pub fn then(mut self, tool: impl Into<String>, arguments: impl Into<Value>) -> Self {
        let arguments = arguments.into().to_string();
        self.follow_up_calls.push(ToolCall { id: String::new(), name: tool.into(), arguments });
        self
    }
}

/// Outcomes that control the task of the calling agent. Each is one follow-up call of a tool of the
/// host, in place of an answer; the plugin needs the `route` grant with its name.
///
/// ```
/// use conclave_sdk::Outcome;
/// use serde_json::json;
///
/// let called = |outcome: Outcome| {
///     let call = &outcome.follow_up_calls[0];
///     format!("{} {}", call.name, call.arguments)
/// };
/// assert_eq!(called(Outcome::done("sent")), r#"done {"content":"sent"}"#);
/// let report = ("desk.report", json!({ "year": 1844 }));
/// assert_eq!(
///     called(Outcome::agent_done("filed", [report])),
///     r#"agent_done {"content":"filed","tools":[{"arguments":{"year":1844},"name":"desk.report"}]}"#
/// );
/// assert_eq!(called(Outcome::result(json!({ "year": 1844 }))), r#"result {"year":1844}"#);
/// assert_eq!(called(Outcome::final_result(json!({ "year": 1844 }))), r#"final_result {"year":1844}"#);
/// assert_eq!(called(Outcome::pass()), "pass {}");
/// assert_eq!(called(Outcome::done_pass()), "done_pass {}");
/// assert_eq!(called(Outcome::forward("expert")), r#"forward {"agent":"expert"}"#);
/// assert_eq!(called(Outcome::send("expert", "lit?")), r#"send {"content":"lit?","to":"expert"}"#);
/// assert_eq!(
///     called(Outcome::agent_send("expert", "lit?", [("a.b", json!({}))])),
///     r#"agent_send {"content":"lit?","to":"expert","tools":[{"arguments":{},"name":"a.b"}]}"#
/// );
/// assert_eq!(
///     called(Outcome::recipient_message("expert", "lit?")),
///     r#"recipient_message {"content":"lit?","intended_recipient":"expert"}"#
/// );
/// assert_eq!(called(Outcome::rewind(1, "again")), r#"rewind {"content":"again","n":1}"#);
/// ```
impl Outcome {
    /// Ends the task with this content.
    pub fn done(content: impl Into<Value>) -> Self {
        Self::nothing().then("done", json!({ "content": content.into() }))
    }

    /// Ends the task with this content, and with calls for its caller: pairs of a tool and its
    /// arguments.
    pub fn agent_done<T: Into<String>>(
        content: impl Into<Value>,
        calls: impl IntoIterator<Item = (T, Value)>,
    ) -> Self {
        let tools = listed(calls);
        Self::nothing().then("agent_done", json!({ "content": content.into(), "tools": tools }))
    }

    /// Ends the task; the call with these arguments, a JSON object, is its result.
    pub fn result(arguments: impl Into<Value>) -> Self {
        Self::nothing().then("result", arguments)
    }

    /// Ends the task and all its callers; the call with these arguments, a JSON object, is the
    /// result.
    pub fn final_result(arguments: impl Into<Value>) -> Self {
        Self::nothing().then("final_result", arguments)
    }

    /// Passes on the message that the agent was given.
    pub fn pass() -> Self {
        Self::nothing().then("pass", json!({}))
    }

    /// Ends the task with the message that the agent was given.
    pub fn done_pass() -> Self {
        Self::nothing().then("done_pass", json!({}))
    }

    /// Passes the message that the agent was given on to another task. The agent needs `route` with
    /// its name.
    pub fn forward(task: impl Into<String>) -> Self {
        Self::nothing().then("forward", json!({ "agent": task.into() }))
    }

    /// Sends a text to another task, or to `user`. The agent needs `route` with a task's name.
    pub fn send(to: impl Into<String>, content: impl Into<String>) -> Self {
        Self::nothing().then("send", json!({ "to": to.into(), "content": content.into() }))
    }

    /// Sends a text and calls to another task: pairs of a tool and its arguments. The agent needs
    /// `route` with a task's name.
    pub fn agent_send<T: Into<String>>(
        to: impl Into<String>,
        content: impl Into<String>,
        calls: impl IntoIterator<Item = (T, Value)>,
    ) -> Self {
        let (to, content, tools) = (to.into(), content.into(), listed(calls));
        let arguments = json!({ "to": to, "content": content, "tools": tools });
        Self::nothing().then("agent_send", arguments)
    }

    /// Sends a text to a task that the agent names as its recipient. The agent needs `route` with
    /// the task's name.
    pub fn recipient_message(recipient: impl Into<String>, content: impl Into<String>) -> Self {
        let (recipient, content) = (recipient.into(), content.into());
        let arguments = json!({ "intended_recipient": recipient, "content": content });
        Self::nothing().then("recipient_message", arguments)
    }

    /// Removes the agent's `n`-th message, counted from 1, and all that followed, and puts `content`
    /// in its place.
    pub fn rewind(n: u32, content: impl Into<String>) -> Self {
        Self::nothing().then("rewind", json!({ "n": n, "content": content.into() }))
    }
}

/// Returns calls as the host's tools take them.
pub(crate) fn listed<T: Into<String>>(calls: impl IntoIterator<Item = (T, Value)>) -> Vec<Value> {
    let call = |(tool, arguments): (T, Value)| {
        let tool: String = tool.into();
        json!({ "name": tool, "arguments": arguments })
    };
    calls.into_iter().map(call).collect()
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Result<Outcome> {
        Ok(self)
    }
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Result<Outcome> {
        Ok(Outcome::nothing())
    }
}

/// A type that [`Json`] can return: it can be written as JSON, and has a schema. Every type with
/// both derives is one.
#[diagnostic::on_unimplemented(
    message = "`Json(…)` cannot return a `{Self}`",
    label = "it lacks `serde::Serialize` or `schemars::JsonSchema`",
    note = "write `#[derive(serde::Serialize, schemars::JsonSchema)]` on the type, with `serde` and `schemars` in its Cargo.toml",
    note = "for a type of another crate: `Outcome::nothing().with_value(&value)` needs `Serialize` alone"
)]
pub trait JsonResult: serde::Serialize + schemars::JsonSchema {}

// Otherwise the compiler reports the derive that is missing, without the remedy.
#[diagnostic::do_not_recommend]
impl<T: serde::Serialize + schemars::JsonSchema> JsonResult for T {}

impl<T: JsonResult> IntoOutcome for Json<T> {
    fn into_outcome(self) -> Result<Outcome> {
        let text = serde_json::to_string(&self.0)?;
        Ok(Outcome { value: Some(text.clone()), ..Outcome::text(text) })
    }

    fn output_schema() -> Option<String> {
        Some(crate::tool::output_schema::<T>())
    }
}

impl<T: IntoOutcome> IntoOutcome for Option<T> {
    fn into_outcome(self) -> Result<Outcome> {
        self.map_or_else(|| Ok(Outcome::nothing()), T::into_outcome)
    }
}

impl<T: IntoOutcome, E: Into<Error>> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Result<Outcome> {
        self.map_err(Into::into)?.into_outcome()
    }

    fn output_schema() -> Option<String> {
        T::output_schema()
    }
}

macro_rules! text_outcome {
    ($($kind:ty),+) => {$(
        impl IntoOutcome for $kind {
            fn into_outcome(self) -> Result<Outcome> {
                Ok(Outcome::text(self.to_string()))
            }
        }
    )+};
}
// JSON readers have no numbers of 128 bits.
text_outcome!(String, &str, char, i128, u128);

macro_rules! number_outcome {
    ($($kind:ty),+) => {$(
        impl IntoOutcome for $kind {
            fn into_outcome(self) -> Result<Outcome> {
                let value = json!(self);
                let value = (!value.is_null()).then(|| value.to_string());
                Ok(Outcome { value, ..Outcome::text(self.to_string()) })
            }
        }
    )+};
}
// NaN is no number in JSON: it has a text and no value, so there is no schema.
number_outcome!(bool, i8, i16, i32, i64, isize, u8, u16, u32, u64, usize, f32, f64);
