//! A condenser: it selects the parts of an agent's history to leave out of the next prompts.
//! Nothing is forgotten: the log keeps everything, and the host never leaves out a call without its
//! result.

use std::ops::Range;

use crate::bindings::condenser::exports::conclave::plugin::condenser as contract;
use crate::{Result, View};

pub use contract::{Condensation, Masked, Reason, Span};

/// The replacement for a text that is left out.
pub const LEFT_OUT: &str = "[left out]";

/// The trait of a condenser; `export!(condenser: X)` exports it.
///
/// ```
/// use conclave_sdk::condenser::{Condensation, Condenser, Reason};
/// use conclave_sdk::{Result, View};
///
/// /// Keeps the first message and the last twenty.
/// struct Recent;
///
/// impl Condenser for Recent {
///     fn condense(_why: Reason, view: &View) -> Result<Option<Condensation>> {
///         let length = view.history_length();
///         Ok((length > 21).then(|| Condensation::nothing().forget(1..length - 20)))
///     }
/// }
/// # conclave_sdk::export!(condenser: Recent, asks: []);
/// # assert!(true);
/// ```
pub trait Condenser {
    /// Returns what may be left out, by the indices of [`View::history`]. `None` leaves out
    /// nothing, and so does an error.
    fn condense(why: Reason, view: &View) -> Result<Option<Condensation>>;
}

impl Condensation {
    /// Returns a condensation that leaves everything unchanged.
    #[must_use]
    pub fn nothing() -> Self {
        Self { forget: Vec::new(), mask: Vec::new(), summary: None }
    }

    /// Leaves out the entries of this range, which may be empty.
    #[must_use]
    pub fn forget(mut self, entries: Range<u64>) -> Self {
        if !entries.is_empty() {
            self.forget.push(Span { start: entries.start, end: entries.end });
        }
        self
    }

    /// Replaces an entry's text with [`LEFT_OUT`]; its calls stay.
    #[must_use]
    pub fn leave_out(mut self, index: u64) -> Self {
        self.mask.push(Masked { index, text: LEFT_OUT.to_owned() });
        self
    }

    /// Shortens an entry's text to its own beginning and end, either of which may be empty, with an
    /// `…` between them. The host refuses a condensation with other words.
    #[must_use]
    pub fn cut(mut self, index: u64, beginning: &str, end: &str) -> Self {
        self.mask.push(Masked { index, text: format!("{beginning}…{end}") });
        self
    }

    /// Adds a summary of the omitted entries. A model reads it as data, under the condenser's name.
    #[must_use]
    pub fn with_summary(mut self, summary: impl Into<String>) -> Self {
        self.summary = Some(summary.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::{Condensation, Span};

    #[test]
    fn an_empty_range_forgets_nothing() {
        let condensation = Condensation::nothing()
            .forget(3..3)
            .forget(1..4)
            .leave_out(9)
            .cut(8, "Dear", "")
            .with_summary("three greetings");
        assert_eq!(condensation.forget, [Span { start: 1, end: 4 }]);
        let mask: Vec<_> =
            condensation.mask.iter().map(|mask| (mask.index, mask.text.as_str())).collect();
        assert_eq!(mask, [(9, "[left out]"), (8, "Dear…")]);
        assert_eq!(condensation.summary.as_deref(), Some("three greetings"));
    }
}
