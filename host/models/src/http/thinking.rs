//! Separates a model's thinking from its text. A server without a parser for it leaves the thinking
//! in the text, between marks such as `<think>` and `</think>`. Works on any pieces of a text, and
//! returns what can be shown while the rest may still turn out to be thinking.

mod surroundings;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conclave_core::config::ThinkingMarks;

use self::surroundings::Surroundings;

/// The marks of a model. Clones share what was learned about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThinkingFormat {
    marks: Option<ThinkingMarks>,
    /// Whether the model begins with its thinking and without a mark, because its chat template
    /// has written the mark already.
    is_unopened: Arc<AtomicBool>,
}

impl ThinkingFormat {
    pub(crate) fn new(marks: Option<ThinkingMarks>) -> Self {
        let is_unopened = marks.as_ref().is_some_and(|marks| marks.open.is_empty());
        Self { marks, is_unopened: Arc::new(AtomicBool::new(is_unopened)) }
    }
}

/// A text without the thinking in it.
#[derive(Debug)]
pub(crate) struct ThinkingFilter {
    format: ThinkingFormat,
    /// The number of open blocks; 0 in the text.
    depth: usize,
    /// Whether the outermost block began without a mark.
    is_unopened: bool,
    /// Whether the outermost block began a line, or followed another one.
    begins_line: bool,
    has_blocks: bool,
    /// The pieces of the open blocks.
    inner: Vec<InnerPiece>,
    /// The end of the text so far, which may be the beginning of a mark.
    partial_mark: String,
    text: String,
    /// Bytes of the text that were returned.
    returned: usize,
    /// Text that a closing mark without its block ended, after other blocks.
    doubtful: String,
    thinking: String,
    surroundings: Surroundings,
}

/// A piece of the open blocks.
#[derive(Debug, Default)]
struct InnerPiece {
    /// Whether it follows an inner block. It is text if the outer block does not end: models also
    /// mention the mark while they think.
    is_doubtful: bool,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Open,
    Close,
}

impl ThinkingFilter {
    pub(crate) fn new(format: ThinkingFormat) -> Self {
        let is_unopened = format.marks.is_some() && format.is_unopened.load(Ordering::Relaxed);
        Self {
            format,
            depth: usize::from(is_unopened),
            is_unopened,
            begins_line: is_unopened,
            has_blocks: false,
            inner: Vec::new(),
            partial_mark: String::new(),
            text: String::new(),
            returned: 0,
            doubtful: String::new(),
            thinking: String::new(),
            surroundings: Surroundings::default(),
        }
    }

    /// Adds a piece, and returns the text that can be shown now.
    pub(crate) fn handle_text(&mut self, piece: &str) -> String {
        let Some(marks) = self.format.marks.clone() else {
            self.text.push_str(piece);
            self.returned = self.text.len();
            return piece.to_owned();
        };
        let text = std::mem::take(&mut self.partial_mark) + piece;
        let mut rest = text.as_str();
        while let Some(character) = rest.chars().next() {
            let opening = [(&marks.open, Mark::Open), (&marks.close, Mark::Close)]
                .into_iter()
                .filter(|(words, mark)| !words.is_empty() && self.is_mark(*mark));
            let mut is_partial = false;
            let mut found = None;
            for (words, mark) in opening {
                if rest.starts_with(words.as_str()) {
                    found = Some((words.len(), mark));
                }
                is_partial |= words.starts_with(rest);
            }
            match found {
                Some((length, mark)) => {
                    self.handle_mark(mark);
                    rest = &rest[length..];
                }
                None if is_partial => {
                    rest.clone_into(&mut self.partial_mark);
                    break;
                }
                None => {
                    self.push(character);
                    rest = &rest[character.len_utf8()..];
                }
            }
        }
        self.take_shown()
    }

    /// Ends the text, and returns what was not shown yet. A text that was `cut` may end in its
    /// thinking.
    pub(crate) fn finish(&mut self, is_cut: bool) -> String {
        let partial = std::mem::take(&mut self.partial_mark);
        partial.chars().for_each(|character| self.push(character));
        let inner = std::mem::take(&mut self.inner);
        let is_closed_within = inner.iter().any(|piece| piece.is_doubtful);
        let is_thinking = match self.is_unopened {
            true => is_cut,
            false => is_cut || self.begins_line,
        };
        match (self.depth, &self.format.marks) {
            (0, _) => {}
            (_, Some(marks)) if !is_closed_within && !is_thinking => {
                // A sentence about the mark.
                self.text.push_str(if self.is_unopened { "" } else { &marks.open });
                inner.iter().for_each(|piece| self.text.push_str(&piece.text));
            }
            _ => {
                for InnerPiece { is_doubtful, text } in inner {
                    match is_doubtful {
                        true => self.push_text(&text),
                        false => self.add_thinking(&text),
                    }
                }
            }
        }
        let doubtful = std::mem::take(&mut self.doubtful);
        if self.text.trim().is_empty() {
            // A closing mark too many after the answer.
            self.text += &doubtful;
        } else {
            self.add_thinking(&doubtful);
        }
        let rest = self.text.get(self.returned..).unwrap_or_default().to_owned();
        self.returned = self.text.len();
        rest
    }

    /// The text and the thinking.
    pub(crate) fn into_parts(self) -> (String, String) {
        (self.text, self.thinking)
    }

    /// Whether a mark counts here. In code, in a string of JSON and in quotes it is a part of the
    /// text; within the thinking only the marks count.
    fn is_mark(&self, mark: Mark) -> bool {
        self.depth > 0
            || !match mark {
                Mark::Open => self.surroundings.is_verbatim() || self.surroundings.is_quoted(),
                Mark::Close => self.surroundings.is_verbatim(),
            }
    }

    fn handle_mark(&mut self, mark: Mark) {
        match (mark, self.depth) {
            (Mark::Open, 0) => {
                self.begins_line = self.surroundings.begins_line();
                self.depth = 1;
                self.has_blocks = true;
            }
            // Here the template has not written it.
            (Mark::Open, 1) if self.is_unopened && self.is_inner_blank() => {
                self.is_unopened = false;
                self.has_blocks = true;
            }
            (Mark::Open, _) => {
                self.depth += 1;
                self.inner.push(InnerPiece::default());
            }
            (Mark::Close, 0) => self.handle_unopened_end(),
            (Mark::Close, 1) => {
                self.depth = 0;
                self.has_blocks = true;
                for piece in std::mem::take(&mut self.inner) {
                    self.add_thinking(&piece.text);
                }
                self.surroundings.end_block();
            }
            (Mark::Close, _) => {
                self.depth -= 1;
                self.inner.push(InnerPiece { is_doubtful: true, text: String::new() });
            }
        }
    }

    /// Ends a block that has no beginning: the text before it was thinking.
    fn handle_unopened_end(&mut self) {
        let text = std::mem::take(&mut self.text);
        self.returned = 0;
        if self.has_blocks {
            let earlier = std::mem::replace(&mut self.doubtful, text);
            self.add_thinking(&earlier);
        } else {
            // From the next answer on nothing is shown before this mark.
            self.format.is_unopened.store(true, Ordering::Relaxed);
            self.add_thinking(&text);
        }
        self.has_blocks = true;
        self.surroundings = Surroundings::default();
    }

    fn is_inner_blank(&self) -> bool {
        self.inner.iter().all(|piece| piece.text.trim().is_empty())
    }

    fn push(&mut self, character: char) {
        if self.depth == 0 {
            self.surroundings.handle(character);
            self.push_text(character.encode_utf8(&mut [0; 4]));
        } else {
            if self.inner.is_empty() {
                self.inner.push(InnerPiece::default());
            }
            if let Some(last) = self.inner.last_mut() {
                last.text.push(character);
            }
        }
    }

    /// Adds to the text. The line ends between the thinking and the answer belong to neither.
    fn push_text(&mut self, piece: &str) {
        if self.has_blocks && self.text.trim().is_empty() {
            self.text.clear();
            self.text.push_str(piece.trim_start());
        } else {
            self.text.push_str(piece);
        }
    }

    fn add_thinking(&mut self, piece: &str) {
        let piece = piece.trim();
        if !piece.is_empty() {
            let gap = if self.thinking.is_empty() { "" } else { "\n" };
            self.thinking.push_str(gap);
            self.thinking.push_str(piece);
        }
    }

    /// Returns the text that was not shown. White space before the first word waits for it, because
    /// a block may follow.
    fn take_shown(&mut self) -> String {
        let rest = self.text.get(self.returned..).unwrap_or_default();
        if self.returned == 0 && rest.trim().is_empty() {
            return String::new();
        }
        let rest = rest.to_owned();
        self.returned = self.text.len();
        rest
    }
}

#[cfg(test)]
mod tests;
