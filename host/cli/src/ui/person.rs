//! The person at the terminal. One thread reads what they type, one question at a time; a short
//! question (an approval) may interrupt a message that is being typed, which is still there
//! afterwards. It knows nothing of what is asked.

mod echo;
mod editor;
mod hang_up;
mod kept;
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

/// How long the line editor may take to give the terminal back.
const GRACE: Duration = Duration::from_millis(500);
/// Nobody reads a question faster: what is typed within this much of it was meant for something
/// else.
const SEEN: Duration = Duration::from_millis(300);

/// What the person is asked.
#[derive(Clone, Debug)]
pub(crate) struct UserQuestion {
    /// Printed once, above the prompt.
    pub(crate) text: String,
    /// Before the cursor.
    pub(crate) prompt: String,
    /// There already, to be edited.
    pub(crate) initial: String,
    pub(crate) kind: AnswerKind,
    /// It comes unasked, and much hangs on the answer: what is typed before anyone can have read it
    /// does not count.
    pub(crate) is_sudden: bool,
}

/// What kind of answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// One or several lines, kept in the history.
    Message,
    /// A letter or so, before anything else.
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

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UserReply {
    Line(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the end of the input: nothing more will come.
    End,
}

struct QueuedQuestion {
    question: UserQuestion,
    reply: oneshot::Sender<UserReply>,
    /// It was interrupted, so its text has been printed.
    resumed: bool,
}

/// Is called when a program at the other end of a pipe wants the agent to stop.
pub(crate) type Stops = Arc<dyn Fn() + Send + Sync>;

/// How lines are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// With the line editor: everything is a terminal.
    Editor,
    /// A line at a time, at a prompt on stderr.
    Prompted,
    /// A line at a time; whoever writes them is no person.
    Piped,
}

/// The person, or whatever stdin is.
pub(crate) struct Person {
    way: Way,
    screen: Arc<Screen>,
    history: Option<PathBuf>,
    stops: Option<Stops>,
    thread: Mutex<Option<(Sender<QueuedQuestion>, JoinHandle<()>)>>,
    leaving: Arc<AtomicBool>,
    /// Questions that wait for an answer.
    asked: Arc<AtomicUsize>,
}

impl Person {
    /// `history`: where messages are remembered; none: nowhere. `stops`: lines of a pipe are read
    /// as they come, and `/stop` is heard at any time; none: a line is read once it is asked for.
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
        let person = Self {
            way,
            screen,
            history,
            stops,
            thread: Mutex::default(),
            leaving: Arc::default(),
            asked: Arc::default(),
        };
        if person.stops.is_some() {
            // It is to be heard before anything is asked.
            drop(person.begin());
        }
        Arc::new(person)
    }

    /// Somebody sees a question and can answer it.
    pub(crate) fn is_there(&self) -> bool {
        self.way != Way::Piped
    }

    /// Asks, and waits for the answer. Dropping the future takes the question back.
    pub(crate) async fn ask(&self, question: UserQuestion) -> UserReply {
        let (reply, answer) = oneshot::channel();
        let _waiting = QuestionCount::begin(&self.asked);
        let interrupts = question.kind == AnswerKind::Short;
        if hang_up::has_gone() || !self.send(QueuedQuestion { question, reply, resumed: false }) {
            return UserReply::End;
        }
        let wake = Arc::clone(self.screen.wake());
        if interrupts {
            wake.store(true, Ordering::SeqCst);
        }
        // The thread finds out that nobody waits any more when it is woken after the receiver is
        // gone, so the order matters.
        let mut asked = QuestionGuard { answer: Some(answer), wake };
        match asked.answer.as_mut() {
            Some(answer) => tokio::select! {
                answer = answer => answer.unwrap_or(UserReply::End),
                () = hang_up::is_gone() => UserReply::End,
            },
            None => UserReply::End,
        }
    }

    /// From now on what is typed is shown at prompts alone, until [`Person::leave`], or the guard
    /// is dropped.
    pub(crate) fn hush(&self) -> Hushed {
        if self.way == Way::Editor {
            echo::turn_off();
        }
        Hushed
    }

    /// Until it is dropped they see questions alone.
    pub(crate) fn hold_the_rest(&self) -> ScreenHold {
        self.screen.hold()
    }

    /// Something waits for an answer of theirs.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst) > 0
    }

    /// What was typed until now is for nobody, and not for the shell either.
    pub(crate) fn forget_typed(&self) {
        if self.is_there() {
            drop_typed();
        }
    }

    fn send(&self, request: QueuedQuestion) -> bool {
        self.begin().as_ref().is_some_and(|(sender, _)| sender.send(request).is_ok())
    }

    /// The thread, which is not there before it is needed.
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
                .name("conclave-person".to_owned())
                .spawn(serving)
                .ok()
                .map(|handle| (sender, handle));
        }
        thread
    }

    /// Gives the terminal back, also in the middle of a line.
    pub(crate) fn leave(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((sender, handle)) = thread else { return };
        drop(sender);
        if self.way != Way::Editor {
            // It may wait for a line that never comes.
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

/// Shows again what is typed.
#[must_use]
pub(crate) struct Hushed;

impl Drop for Hushed {
    fn drop(&mut self) {
        echo::restore();
    }
}

/// The terminal as it was before a line was edited. Does nothing where none is.
pub(crate) fn restore_terminal() {
    if crossterm::terminal::is_raw_mode_enabled().unwrap_or(false) {
        let _ = crossterm::terminal::disable_raw_mode();
    }
    // Raw mode gives back what it found, which may be without an echo.
    echo::restore();
}

/// Reads what was typed, for nobody. Does nothing where there is no terminal.
fn drop_typed() {
    if hang_up::has_gone() {
        return;
    }
    // What still waits would be written to a terminal that is raw for a moment, and its rows would
    // not begin at the left.
    crate::ui::output::drain();
    let was_raw = crossterm::terminal::is_raw_mode_enabled().unwrap_or(false);
    // Otherwise a line without an end cannot be read.
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

/// Counts a question for as long as somebody waits for its answer.
struct QuestionCount(Arc<AtomicUsize>);

impl QuestionCount {
    fn begin(asked: &Arc<AtomicUsize>) -> Self {
        asked.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(asked))
    }
}

impl Drop for QuestionCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Takes a question back when nobody waits for its answer any more.
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

    /// The question must make way: it was taken back, or something is more urgent.
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
        // A message that came when nobody waited for one any more: the agent had something to say
        // of itself.
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
