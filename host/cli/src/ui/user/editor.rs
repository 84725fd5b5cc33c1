//! Line editing at a terminal: history, messages of several lines, and output above the line that
//! is being typed.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reedline::{
    Color, EditCommand, EditMode, Emacs, ExternalPrinter, Highlighter, Prompt, PromptEditMode,
    PromptHistorySearch, Reedline, ReedlineEvent, ReedlineRawEvent, Signal, StyledText,
    ValidationResult, Validator,
};

use super::{AnswerKind, SEEN, UserQuestion, UserReply, drop_typed, hang_up, history};
use crate::ui::output;
use crate::ui::screen::Screen;

/// Lines that can wait to be printed above the prompt. Further ones wait in the screen.
const WAITING: usize = 256;
/// The interval between two checks for output to print above the line.
const POLL: Duration = Duration::from_millis(40);

/// The line editors: one for messages, whose unfinished line survives a short question, and one for
/// short questions.
pub(super) struct Editor {
    screen: Arc<Screen>,
    messages: Reedline,
    short: Reedline,
    above_messages: SyncSender<String>,
    above_short: SyncSender<String>,
    /// The time before which keys are dropped for the short question.
    grace: InputGrace,
    colors: bool,
    /// Whether a message was begun when its question was withdrawn.
    has_draft: bool,
}

impl Editor {
    pub(super) fn new(screen: Arc<Screen>, history: Option<PathBuf>) -> Self {
        let colors =
            anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
        let (messages, above_messages) = line_editor(&screen, colors);
        let (short, above_short) = line_editor(&screen, colors);
        let grace = InputGrace::default();
        let short = short
            .with_edit_mode(Box::new(GracedKeys { keys: Emacs::default(), grace: grace.clone() }));
        let messages = messages.with_validator(Box::new(Backslash)).use_bracketed_paste(true);
        // A line that begins with a blank is not stored in the history, as in shells.
        let messages = messages.with_history_exclusion_prefix(Some(" ".to_owned()));
        let messages = match history::history(history) {
            Some(history) => messages.with_history(Box::new(history)),
            None => messages,
        };
        Self {
            screen,
            messages,
            short,
            above_messages,
            above_short,
            grace,
            colors,
            has_draft: false,
        }
    }

    /// Reads an answer. Returns `None` if it was interrupted; `is_interrupted` is called whenever
    /// something happened elsewhere.
    pub(super) fn read(
        &mut self,
        question: &UserQuestion,
        resumed: bool,
        mut is_interrupted: impl FnMut() -> bool,
    ) -> Option<UserReply> {
        let (editor, above) = match question.kind {
            AnswerKind::Message => (&mut self.messages, &self.above_messages),
            AnswerKind::Short => (&mut self.short, &self.above_short),
        };
        if !resumed {
            if !question.text.is_empty() {
                self.screen.question(&question.text);
            }
            // Input for a withdrawn question does not answer this one. A message that was begun
            // when the agent had something to say is kept.
            if !(question.kind == AnswerKind::Message
                && std::mem::take(&mut self.has_draft)
                && question.initial.is_empty())
            {
                editor.run_edit_commands(&[
                    EditCommand::Clear,
                    EditCommand::InsertString(question.initial.clone()),
                ]);
            }
        }
        if question.is_sudden && !resumed {
            drop_typed();
            self.grace.begin(Instant::now());
        }
        let prompt = PromptLabel { text: plain(&question.prompt), colors: self.colors };
        self.screen.begin_edit();
        // Output that is written after the editor starts would begin at the end of the last row.
        output::drain();
        let reply = loop {
            for line in self.screen.take_lines() {
                let line = if self.colors {
                    line
                } else {
                    anstream::adapter::strip_str(&line).to_string()
                };
                // If the channel is full, the lines already exceed what a user can read while
                // typing.
                let _ = above.try_send(line);
            }
            match editor.read_line(&prompt) {
                Ok(Signal::Success(text)) => {
                    break Some(UserReply::Line(without_backslashes(&text)));
                }
                Ok(Signal::CtrlC) => break Some(UserReply::Interrupted),
                Ok(Signal::ExternalBreak(_)) if is_interrupted() => break None,
                Ok(Signal::CtrlD) => break Some(UserReply::End),
                Err(_) => {
                    hang_up::note_failed_read();
                    break Some(UserReply::End);
                }
                Ok(_) => {}
            }
        };
        if question.kind == AnswerKind::Message {
            // Saved at once, so that a kill of the program does not lose it.
            let _ = editor.sync_history();
        }
        if reply.is_none() {
            eprintln!();
            self.has_draft |= question.kind == AnswerKind::Message;
        }
        self.screen.end_edit();
        reply
    }
}

fn line_editor(screen: &Screen, colors: bool) -> (Reedline, SyncSender<String>) {
    let printer = ExternalPrinter::new(WAITING);
    let above = printer.sender();
    let editor = Reedline::create()
        .with_ansi_colors(colors)
        .with_highlighter(Box::new(Uncolored))
        .with_break_signal(Arc::clone(screen.wake()))
        .with_external_printer(printer)
        .with_poll_interval(POLL);
    (editor, above)
}

/// Drops keys for a short time, which each dropped key extends: a user who is still typing has not
/// read the question yet.
#[derive(Clone, Debug, Default)]
struct InputGrace(Arc<Mutex<Option<Instant>>>);

impl InputGrace {
    fn begin(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now + SEEN);
    }

    /// Handles a key. Returns true if it is dropped.
    fn drops(&self, now: Instant) -> bool {
        let mut until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_deaf = until.is_some_and(|until| now < until);
        *until = is_deaf.then(|| now + SEEN);
        is_deaf
    }
}

/// The usual key bindings, once the question has been visible for a moment. Ctrl-C works at once.
struct GracedKeys {
    keys: Emacs,
    grace: InputGrace,
}

impl EditMode for GracedKeys {
    fn parse_event(&mut self, event: ReedlineRawEvent) -> ReedlineEvent {
        match self.keys.parse_event(event) {
            event @ (ReedlineEvent::CtrlC | ReedlineEvent::Resize(..) | ReedlineEvent::None) => {
                event
            }
            _ if self.grace.drops(Instant::now()) => ReedlineEvent::None,
            event => event,
        }
    }

    fn edit_mode(&self) -> PromptEditMode {
        self.keys.edit_mode()
    }
}

/// The text without styles, since the editor styles prompts itself.
fn plain(prompt: &str) -> String {
    anstream::adapter::strip_str(prompt).to_string()
}

/// Continues a line that ends with a backslash.
struct Backslash;

impl Validator for Backslash {
    fn validate(&self, line: &str) -> ValidationResult {
        if line.ends_with('\\') { ValidationResult::Incomplete } else { ValidationResult::Complete }
    }
}

fn without_backslashes(text: &str) -> String {
    text.replace("\\\n", "\n")
}

/// Leaves typed text in the terminal's own color: the editor's white is unreadable on a light
/// background.
struct Uncolored;

impl Highlighter for Uncolored {
    fn highlight(&self, line: &str, _: usize) -> StyledText {
        let mut text = StyledText::new();
        text.push((Color::Default.normal(), line.to_owned()));
        text
    }
}

/// The prompt before the cursor.
struct PromptLabel {
    text: String,
    colors: bool,
}

impl Prompt for PromptLabel {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.text)
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("  ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("(earlier: {}) ", search.term))
    }

    fn get_prompt_color(&self) -> Color {
        if self.colors { Color::Cyan } else { Color::Default }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{InputGrace, SEEN, without_backslashes};

    #[test]
    fn keys_are_dropped_until_typing_pauses() {
        let (grace, start) = (InputGrace::default(), Instant::now());
        assert!(!grace.drops(start), "nothing was asked suddenly");
        grace.begin(start);
        let (word, pause) = (SEEN / 2, SEEN + Duration::from_millis(1));
        assert!(
            [word, word * 2, word * 3].iter().all(|at| grace.drops(start + *at)),
            "the user is still typing"
        );
        assert!(
            !grace.drops(start + word * 3 + pause) && !grace.drops(start + word * 3 + pause),
            "they have looked"
        );
    }

    #[test]
    fn a_continued_message_drops_its_backslashes() {
        assert_eq!(without_backslashes("one\\\ntwo\nC:\\"), "one\ntwo\nC:\\");
    }
}
