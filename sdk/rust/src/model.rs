//! Completions from the models that the operator granted. A prompt names pieces of the history instead of copying them.

use crate::bindings::imports::conclave::plugin::model as import;

pub use import::{Audience, Completion, ModelError, Part, Pending, Range, Request, Stop, ToolChoice, ToolFormat, complete, start};

/// The task's system text and its whole history, to the default model, with every tool that the agent may call.
impl Default for Request {
    fn default() -> Self {
        Self {
            model: None,
            prompt: Vec::new(),
            tools: None,
            tool_format: None,
            tool_choice: ToolChoice::Auto,
            output_schema: None,
            stream_to: Audience::Room,
            options: Vec::new(),
        }
    }
}

/// Completes the default prompt: what most agents want.
///
/// ```no_run
/// use conclave_sdk::{Agent, Result, Turn, View, model};
///
/// struct Chat;
///
/// impl Agent for Chat {
///     fn step(_view: &View) -> Result<Turn> {
///         Ok(model::answer()?.into())
///     }
/// }
/// ```
pub fn answer() -> Result<Completion, ModelError> {
    complete(&Request::default())
}
