//! The user at the terminal. One thread reads the input, one question at a time. A short question,
//! such as an approval, may interrupt a message that is being typed; the message is still there
//! afterwards. This module knows nothing of the questions' contents.

mod echo;
mod editor;
mod hang_up;
mod history;
mod lines;

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::ui::screen::{Screen, ScreenHold};
use editor::Editor;
use lines::LineReader;

/// Time that the line editor gets to restore the terminal.
const GRACE: Duration = Duration::from_millis(500);
/// Input within this time after a question appeared was meant for something else, since no user
/// reads faster.
const SEEN: Duration = Duration::from_millis(300);

/// A question to the user.
#[derive(Clone, Debug)]
pub(crate) struct UserQuestion {
    /// Text that is printed once, above the prompt.
    pub(crate) text: String,
    /// The prompt before the cursor.
    pub(crate) prompt: String,
    /// The initial text of the line, to be edited.
    pub(crate) initial: String,
    pub(crate) kind: AnswerKind,
    /// Whether the question comes unasked and its answer is important. Input from before the user
    /// can have read it is dropped.
    pub(crate) is_sudden: bool,
}

/// The kind of answer that a question expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// One or several lines, kept in the history.
    Message,
    /// A letter or so. Short questions are asked before all others.
    Short,
}

impl UserQuestion {
    pub(crate) fn message(prompt: impl Into<String>) -> Self {
        Self {
            text: String::new(),
            prompt: prompt.into(),
            initial: String::new(),
            kind: AnswerKind::Message,
            is_sudden: false,
        }
    }

    pub(crate) fn short(text: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            prompt: prompt.into(),
            initial: String::new(),
            kind: AnswerKind::Short,
            is_sudden: false,
        }
    }
}

/// The reply to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UserReply {
    Line(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the end of the input: no more input will come.
    End,
}

struct QueuedQuestion {
    question: UserQuestion,
    reply: oneshot::Sender<UserReply>,
    /// Whether the question was interrupted before, so that its text has been printed already.
    resumed: bool,
}

/// A callback for `/stop`, which a program at the other end of a pipe sends to stop the agent.
pub(crate) type Stops = Arc<dyn Fn() + Send + Sync>;

/// How lines are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// With the line editor: stdin and both outputs are terminals.
    Editor,
    /// A line at a time, at a prompt on stderr.
    Prompted,
    /// A line at a time, from a program.
    Piped,
}

/// The user at the terminal, or the program behind stdin.
pub(crate) struct TerminalUser {
    way: Way,
    /// Whether a terminal, rather than a program, is behind stdin.
    reads_terminal: bool,
    screen: Arc<Screen>,
    history: Option<PathBuf>,
    stops: Option<Stops>,
    thread: Mutex<Option<(Sender<QueuedQuestion>, JoinHandle<()>)>>,
    leaving: Arc<AtomicBool>,
    /// The number of questions that wait for an answer.
    pending_questions: Arc<AtomicUsize>,
}

impl TerminalUser {
    /// `history` is the file that stores messages; `None` stores none. With `stops`, lines of a
    /// pipe are read as they arrive, and `/stop` is handled at any time. Without it, a line is read
    /// when a question asks for it.
    pub(crate) fn new(
        screen: Arc<Screen>,
        history: Option<PathBuf>,
        stops: Option<Stops>,
    ) -> Arc<Self> {
        let way = match (std::io::stdin().is_terminal(), std::io::stderr().is_terminal()) {
            _ if stops.is_some() => Way::Piped,
            (true, true) if screen.is_live() => Way::Editor,
            (true, true) => Way::Prompted,
            _ => Way::Piped,
        };
        let user = Self {
            way,
            reads_terminal: std::io::stdin().is_terminal(),
            screen,
            history,
            stops,
            thread: Mutex::default(),
            leaving: Arc::default(),
            pending_questions: Arc::default(),
        };
        if user.stops.is_some() {
            // Starts the thread now, so that `/stop` is received before the first question.
            drop(user.begin());
        }
        Arc::new(user)
    }

    /// Whether a user can see a question and answer it.
    pub(crate) fn is_there(&self) -> bool {
        self.way != Way::Piped
    }

    /// Asks the question, and waits for the answer. Dropping the future withdraws the question. A
    /// terminal that goes away answers nothing: the program ends, and leaves its run interrupted.
    pub(crate) async fn ask(&self, question: UserQuestion) -> UserReply {
        let reply = self.reply_to(question).await;
        if reply == UserReply::End && hang_up::is_hang_up(self.reads_terminal) {
            crate::ui::interrupt::hang_up();
        }
        reply
    }

    async fn reply_to(&self, question: UserQuestion) -> UserReply {
        let (reply, answer) = oneshot::channel();
        let _waiting = QuestionCount::begin(&self.pending_questions);
        let interrupts = question.kind == AnswerKind::Short;
        if hang_up::has_gone() || !self.send(QueuedQuestion { question, reply, resumed: false }) {
            return UserReply::End;
        }
        let wake = Arc::clone(self.screen.wake());
        if interrupts {
            wake.store(true, Ordering::SeqCst);
        }
        // The thread checks for a dropped receiver when it is woken, so the receiver must be
        // dropped before the wake-up.
        let mut guard = QuestionGuard { answer: Some(answer), wake };
        match guard.answer.as_mut() {
            Some(answer) => tokio::select! {
                answer = answer => answer.unwrap_or(UserReply::End),
                () = hang_up::is_gone() => UserReply::End,
            },
            None => UserReply::End,
        }
    }

    /// Turns the echo off, so that input shows only at prompts, until [`TerminalUser::leave`] is
    /// called or the guard is dropped.
    pub(crate) fn hush(&self) -> Hushed {
        if self.way == Way::Editor {
            echo::turn_off();
        }
        Hushed
    }

    /// Shows only questions until the guard is dropped.
    pub(crate) fn hold_the_rest(&self) -> ScreenHold {
        self.screen.hold()
    }

    /// Whether a question waits for the user's answer.
    pub(crate) fn is_asked(&self) -> bool {
        self.pending_questions.load(Ordering::SeqCst) > 0
    }

    /// Discards all input so far, which the shell must not receive either.
    pub(crate) fn forget_typed(&self) {
        if self.is_there() {
            drop_typed();
        }
    }

    fn send(&self, request: QueuedQuestion) -> bool {
        self.begin().as_ref().is_some_and(|(sender, _)| sender.send(request).is_ok())
    }

    /// Starts the thread on first use.
    fn begin(&self) -> MutexGuard<'_, Option<(Sender<QueuedQuestion>, JoinHandle<()>)>> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let (sender, requests) = channel();
            let (screen, leaving) = (Arc::clone(&self.screen), Arc::clone(&self.leaving));
            let (way, history, stops) = (self.way, self.history.clone(), self.stops.clone());
            let serving = move || {
                let mut reader = match way {
                    Way::Editor => AnswerReader::Editor(Box::new(Editor::new(screen, history))),
                    Way::Prompted => AnswerReader::Lines(LineReader::new(screen, true, None)),
                    Way::Piped => AnswerReader::Lines(LineReader::new(screen, false, stops)),
                };
                reader.serve(&requests, &leaving);
            };
            if way == Way::Editor {
                hang_up::watch();
            }
            *thread = std::thread::Builder::new()
                .name("conclave-user".to_owned())
                .spawn(serving)
                .ok()
                .map(|handle| (sender, handle));
        }
        thread
    }

    /// Restores the terminal, even while a line is being edited.
    pub(crate) fn leave(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((sender, handle)) = thread else { return };
        drop(sender);
        if self.way != Way::Editor {
            // The thread may wait for a line that never comes.
            return;
        }
        self.leaving.store(true, Ordering::SeqCst);
        let until = Instant::now() + GRACE;
        while !handle.is_finished() && Instant::now() < until && !hang_up::has_gone() {
            self.screen.wake().store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(10));
        }
        restore_terminal();
    }
}

/// Turns the echo on again when dropped.
#[must_use]
pub(crate) struct Hushed;

impl Drop for Hushed {
    fn drop(&mut self) {
        echo::restore();
    }
}

/// Restores the terminal to its state before a line was edited. Does nothing without a terminal.
pub(crate) fn restore_terminal() {
    if crossterm::terminal::is_raw_mode_enabled().unwrap_or(false) {
        let _ = crossterm::terminal::disable_raw_mode();
    }
    // Leaving raw mode restores the state that it found, which may be without an echo.
    echo::restore();
}

/// Discards pending input. Does nothing without a terminal.
fn drop_typed() {
    if hang_up::has_gone() {
        return;
    }
    // What still waits would be written to a terminal that is raw for a moment, and its rows would
    // not begin at the left.
    crate::ui::output::drain();
    let was_raw = crossterm::terminal::is_raw_mode_enabled().unwrap_or(false);
    // Without raw mode, a line without a line end cannot be read.
    if crossterm::terminal::enable_raw_mode().is_err() {
        return;
    }
    while crossterm::event::poll(Duration::ZERO).unwrap_or(false)
        && crossterm::event::read().is_ok()
    {}
    if !was_raw {
        let _ = crossterm::terminal::disable_raw_mode();
    }
}

/// Counts a question while its answer is awaited.
struct QuestionCount(Arc<AtomicUsize>);

impl QuestionCount {
    fn begin(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for QuestionCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Withdraws a question once its answer is not awaited any more.
struct QuestionGuard {
    answer: Option<oneshot::Receiver<UserReply>>,
    wake: Arc<AtomicBool>,
}

impl Drop for QuestionGuard {
    fn drop(&mut self) {
        drop(self.answer.take());
        self.wake.store(true, Ordering::SeqCst);
    }
}

/// Questions in the order in which they are asked, short ones first.
struct QuestionQueue<'a> {
    requests: &'a Receiver<QueuedQuestion>,
    waiting: VecDeque<QueuedQuestion>,
    leaving: &'a AtomicBool,
}

impl QuestionQueue<'_> {
    fn next(&mut self) -> Option<QueuedQuestion> {
        self.collect();
        loop {
            self.waiting.retain(|request| !request.reply.is_closed());
            if self.leaving.load(Ordering::SeqCst) {
                return None;
            }
            let short =
                self.waiting.iter().position(|request| request.question.kind == AnswerKind::Short);
            if let Some(request) = self.waiting.remove(short.unwrap_or(0)) {
                return Some(request);
            }
            self.waiting.push_back(self.requests.recv().ok()?);
        }
    }

    fn collect(&mut self) {
        loop {
            match self.requests.try_recv() {
                Ok(request) => self.waiting.push_back(request),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }

    /// Whether the current question must give way: it was withdrawn, or a more urgent one has come.
    fn interrupts(&mut self, current: &QueuedQuestion) -> bool {
        self.collect();
        let is_urgent = |request: &QueuedQuestion| {
            request.question.kind == AnswerKind::Short && !request.reply.is_closed()
        };
        current.reply.is_closed()
            || self.leaving.load(Ordering::SeqCst)
            || (current.question.kind == AnswerKind::Message && self.waiting.iter().any(is_urgent))
    }
}

/// Reads answers.
enum AnswerReader {
    Editor(Box<Editor>),
    Lines(LineReader),
}

impl AnswerReader {
    fn serve(&mut self, requests: &Receiver<QueuedQuestion>, leaving: &AtomicBool) {
        let mut queue = QuestionQueue { requests, waiting: VecDeque::new(), leaving };
        // A message whose question was withdrawn while it was typed, because the agent had
        // something to say.
        let mut early: VecDeque<UserReply> = VecDeque::new();
        while let Some(mut request) = queue.next() {
            let is_message = request.question.kind == AnswerKind::Message;
            if let Some(reply) = early.pop_front_if(|_| is_message) {
                if let Err(reply) = request.reply.send(reply) {
                    early.push_front(reply);
                }
                continue;
            }
            let reply = match self {
                Self::Editor(editor) => {
                    editor.read(&request.question, request.resumed, || queue.interrupts(&request))
                }
                Self::Lines(lines) => Some(lines.read(&request.question)),
            };
            match reply {
                Some(reply) => {
                    if let Err(reply) = request.reply.send(reply)
                        && is_message
                    {
                        early.push_back(reply);
                    }
                }
                None => {
                    request.resumed = true;
                    queue.waiting.push_front(request);
                }
            }
        }
    }
}
