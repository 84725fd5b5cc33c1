//! The `judge-feedback` import: the words of a judge about the answer that it rules on.

use crate::imports::bindings::plugin::judge_feedback as feedback;

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

impl JudgeFeedback {
    /// Returns the words so far, and takes no more.
    pub(crate) fn take(&mut self) -> Option<String> {
        match std::mem::take(self) {
            Self::Open(words) => words,
            Self::Closed => None,
        }
    }
}

import_view! {
    /// The `judge-feedback` import of a call.
    JudgeFeedbackImport { feedback: JudgeFeedback }
}

impl feedback::Host for JudgeFeedbackImport<'_> {
    fn explain(&mut self, mut text: String) -> wasmtime::Result<()> {
        self.core.enter()?;
        let JudgeFeedback::Open(words) = self.feedback else {
            return Err(wasmtime::Error::msg(
                "`judge-feedback` was used in a call that rules on no answer",
            ));
        };
        text.truncate(text.floor_char_boundary(FEEDBACK_MAX));
        *words = Some(text);
        Ok(())
    }
}
