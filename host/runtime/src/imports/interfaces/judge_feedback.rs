//! The `judge-feedback` import: the words of a judge about the answer that it rules on.

use crate::imports::bindings::conclave::plugin::judge_feedback as feedback;
use crate::imports::call::CallState;

/// Bytes of the words that are retained.
const FEEDBACK_MAX: usize = 4 << 10;

/// The words of a judge.
#[derive(Default)]
pub(crate) enum JudgeFeedback {
    /// The call is no ruling.
    #[default]
    Closed,
    Open(Option<String>),
}

impl CallState {
    /// Returns the words so far, and takes no more.
    pub(crate) fn take_feedback(&mut self) -> Option<String> {
        match std::mem::take(&mut self.feedback) {
            JudgeFeedback::Open(words) => words,
            JudgeFeedback::Closed => None,
        }
    }
}

impl feedback::Host for CallState {
    fn explain(&mut self, mut text: String) -> wasmtime::Result<()> {
        self.enter()?;
        let JudgeFeedback::Open(words) = &mut self.feedback else {
            return Err(wasmtime::Error::msg(
                "`judge-feedback` was used in a call that rules on no answer",
            ));
        };
        text.truncate(text.floor_char_boundary(FEEDBACK_MAX));
        *words = Some(text);
        Ok(())
    }
}
