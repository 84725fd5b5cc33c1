//! The arguments of one call while rules are tried on it. Many patterns look at the same text, so
//! its properties are computed once.

use std::cell::OnceCell;

use serde_json::Value;

use super::deceptive_path::{is_odd, led_to};

/// The number of texts whose properties are kept, without allocation. Rules about one tool rarely
/// look at more arguments; the properties of further texts are computed anew for each pattern.
const KEPT_TEXTS: usize = 4;

/// The arguments of a call.
#[derive(Debug)]
pub(crate) struct CallArguments<'a> {
    pub(super) value: &'a Value,
    texts: [OnceCell<ExaminedText<'a>>; KEPT_TEXTS],
}

impl<'a> CallArguments<'a> {
    pub(crate) fn new(value: &'a Value) -> Self {
        Self { value, texts: Default::default() }
    }

    /// The result of `then` for a text of the arguments.
    pub(super) fn examine<T>(&self, text: &'a str, then: impl FnOnce(&ExaminedText<'a>) -> T) -> T {
        for cell in &self.texts {
            let examined = cell.get_or_init(|| ExaminedText::new(text));
            // By address: the arguments do not move, and comparing long texts takes time.
            if std::ptr::eq(examined.text, text) {
                return then(examined);
            }
        }
        then(&ExaminedText::new(text))
    }
}

/// A text of a call's arguments, with the properties that patterns ask for.
#[derive(Debug)]
pub(super) struct ExaminedText<'a> {
    pub(super) text: &'a str,
    is_odd: OnceCell<bool>,
    target: OnceCell<Option<TextTarget>>,
}

impl<'a> ExaminedText<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, is_odd: OnceCell::new(), target: OnceCell::new() }
    }

    /// Whether the text may have another target than it seems.
    pub(super) fn is_odd(&self) -> bool {
        *self.is_odd.get_or_init(|| is_odd(self.text))
    }

    /// Whether a tool that takes the text for a path may begin at the root nevertheless.
    pub(super) fn is_relative(&self) -> bool {
        !self.text.starts_with('/')
    }

    /// The target of the text; `None` if it is the text itself.
    pub(super) fn target(&self) -> Option<&TextTarget> {
        let target =
            || (self.is_odd() || self.text.contains('%')).then(|| TextTarget::of(self.text));
        self.target.get_or_init(target).as_ref()
    }
}

/// The target of a text as a path, and as the folder of that path.
#[derive(Debug)]
pub(super) struct TextTarget {
    folder: String,
}

impl TextTarget {
    fn of(text: &str) -> Self {
        Self { folder: led_to(text) + "/" }
    }

    pub(super) fn path(&self) -> &str {
        self.folder.strip_suffix('/').unwrap_or(&self.folder)
    }

    /// The path with a slash behind it. Its prefixes include those of the path.
    pub(super) fn folder(&self) -> &str {
        &self.folder
    }
}
