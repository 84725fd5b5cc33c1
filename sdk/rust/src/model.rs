//! Completions from the models that the operator granted. A prompt names pieces of the history
//! instead of copying them.

use crate::Result;
use crate::bindings::imports::conclave::plugin::model as import;
#[cfg(not(target_family = "wasm"))]
use crate::native::model as host;
#[cfg(target_family = "wasm")]
use import as host;

use crate::trajectory::{fence, truncate};
use crate::{Draft, Error, Role, Turn};

/// Characters of an invalid reply that are shown to its model again.
const SHOWN: usize = 500;

pub use host::{complete, start};
pub use import::{
    Completion, CompletionStream, ModelError, Part, Range, Request, StopReason, ToolChoice,
    ToolFormat,
};

/// The task's system text and its whole history, to the default model, with every tool that the
/// agent may call.
impl Default for Request {
    fn default() -> Self {
        Self {
            model: None,
            prompt: Vec::new(),
            tools: None,
            tool_format: None,
            tool_choice: ToolChoice::Auto,
            output_schema: None,
            stream: true,
            options: Vec::new(),
        }
    }
}

/// Completes the default prompt, which suits most agents.
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

/// Asks a model for the next action. Its tool calls are executed, and its text is parsed as an
/// action in the fixed JSON form. Any other text is an error, which becomes the contract's
/// `malformed`: the model gets the reason and tries again.
pub fn act(request: &Request) -> Result<Turn> {
    act_by(request, Turn::from_json)
}

/// Does the same with another parser for the text.
pub fn act_by(request: &Request, read: impl Fn(&str) -> Result<Turn>) -> Result<Turn> {
    let completion = complete(request)?;
    if !completion.tool_calls.is_empty() {
        return Ok(completion.into());
    }
    read_text(completion.content.as_deref().unwrap_or_default(), read)
}

/// The reply itself is in no history, so the error has to show it.
fn read_text(text: &str, read: impl Fn(&str) -> Result<Turn>) -> Result<Turn> {
    read(text).map_err(|error| match error {
        Error::InvalidArguments(problem) => {
            Error::InvalidArguments(format!("{problem}\nYou wrote: {}", truncate(text, SHOWN)))
        }
        other => other,
    })
}

/// A note of the plugin's own, in the user's role, for this prompt only. Put the words of others
/// inside [`quoted`].
pub fn note(text: impl Into<String>) -> Part {
    let (content, role) = (text.into(), Role::User);
    Part::Draft(Draft {
        role,
        content,
        tool_calls: Vec::new(),
        tool_results: Vec::new(),
        attachments: Vec::new(),
    })
}

/// Returns data in a fence, for a note: the output of tools, files and other agents must not read
/// as the agent's own words.
pub fn quoted(
    title: &str,
    origin: &str,
    data: impl IntoIterator<Item = serde_json::Value>,
) -> String {
    fence::fenced(title, origin, data.into_iter().map(|value| fence::line(&value, is_hidden)))
}

/// Whether a character is invisible or changes the reading direction.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}')
}

/// The whole history of this step.
pub fn history() -> Part {
    Part::History(Range { start: 0, end: u64::MAX })
}

#[cfg(test)]
mod tests {
    use super::read_text;
    use crate::{Error, Turn, act};

    #[test]
    fn a_model_sees_what_it_wrote_and_what_was_wrong() {
        assert_eq!(
            read_text(r#"{"action":"run","args":{"command":"ls"}}"#, Turn::from_json).unwrap(),
            act::run("ls")
        );
        let Err(Error::InvalidArguments(text)) = read_text("Well, let us see.", Turn::from_json)
        else {
            panic!("it was read")
        };
        assert!(
            text.contains("no JSON object") && text.ends_with("You wrote: Well, let us see."),
            "{text}"
        );
    }
}
