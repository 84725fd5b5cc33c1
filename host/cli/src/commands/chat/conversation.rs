//! Follows a conversation: shows the agent's text as it streams, knows who speaks next, and keeps
//! the transcript.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anstyle::Style;
use conclave_core::inspect::pending_calls::PendingCalls;
use conclave_core::protocol::event::Event;
use conclave_core::protocol::notice::Notice;
use conclave_core::setup::{GatePoint, Setup};
use conclave_core::types::delivery::EndedTask;
use conclave_core::types::ids::{BackgroundId, CallId, RoomId, TaskName};
use conclave_core::types::message::{Message, Role};
use conclave_core::types::outcome::Status;
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber};
use tokio::sync::watch;
use tokio::time::timeout;

use super::stream::PieceStream;
use super::transcript::{Speaker, Transcript};
use crate::program::exit;
use crate::ui::screen::{Screen, columns, total_columns};
use crate::ui::show::amounts::now;
use crate::ui::show::entry::EntryText;
use crate::ui::show::tally::{Counts, RunTally};
use crate::ui::show::usage;
use crate::ui::show::{BAD, FAINT, one_line, paint};

/// Time in which the requests of a stopped turn are counted, at most.
const COUNTED: Duration = Duration::from_secs(1);
/// Milliseconds of silence before a status line is shown.
const PATIENCE_MS: u128 = 400;
/// Characters shown of a result that no strategy delivers.
const PREVIEW: usize = 200;

/// A conversation with the entry task.
pub(crate) struct TerminalChat {
    screen: Arc<Screen>,
    tally: Arc<RunTally>,
    setup: Arc<Setup>,
    room: RoomId,
    /// Whether output goes to a terminal, which control characters could steer.
    is_terminal: bool,
    /// Whether gates check what people read. Then only questions and answers that passed are shown.
    is_guarded: bool,
    /// Set once the entry task has its result.
    over: watch::Sender<bool>,
    /// The requests to models that have no answer yet.
    requests: watch::Sender<BTreeSet<(CallId, u32)>>,
    state: Mutex<ConversationState>,
}

/// The next speaker when the room asks its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NextSpeaker {
    #[default]
    User,
    /// The agent has yet to read the host's message, such as a tool's result. L-029: an empty
    /// answer of the user lets it continue.
    Agent,
}

/// A turn in progress.
#[derive(Clone, Copy, Debug)]
struct OpenTurn {
    began: Instant,
    /// The counts before the turn.
    before: Counts,
    /// The time for which questions were open before the turn.
    questions: Duration,
}

#[derive(Debug, Default)]
struct ConversationState {
    turn: Option<OpenTurn>,
    pending: PendingCalls,
    next: NextSpeaker,
    /// The entry task's step in progress.
    step: Option<CallId>,
    /// The models' streamed text, by request.
    streams: BTreeMap<u32, PieceStream>,
    tools: BTreeMap<CallId, String>,
    background: BTreeMap<BackgroundId, (TaskName, Instant)>,
    transcript: Transcript,
    /// The exit code of a turn without an answer.
    failure: Option<u8>,
    /// The reason why the turn has no answer so far.
    why: Option<String>,
    /// Ctrl-C was pressed, and the turn has not stopped yet.
    stopping: bool,
    /// The step failed, so the host's message is for the user.
    faulted: bool,
    /// The component answered in the host's role.
    responded: bool,
}

impl TerminalChat {
    pub(crate) fn new(
        screen: Arc<Screen>,
        tally: Arc<RunTally>,
        setup: Arc<Setup>,
        room: RoomId,
    ) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let is_guarded = setup.gates.iter().any(|gate| gate.on == GatePoint::Outbound);
        Self {
            screen,
            tally,
            setup,
            room,
            is_terminal,
            is_guarded,
            over: watch::Sender::new(false),
            requests: watch::Sender::new(BTreeSet::new()),
            state: Mutex::default(),
        }
    }

    /// Whether a model's text is shown while it arrives.
    fn shows_drafts(&self) -> bool {
        // The agent may answer otherwise, which a reader of a pipe could not tell from the answer.
        self.is_terminal && !self.is_guarded
    }

    fn stream(&self) -> PieceStream {
        PieceStream::new(self.is_terminal.then(columns))
    }

    fn state(&self) -> MutexGuard<'_, ConversationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next speaker, now that the room asks its user.
    pub(crate) fn next(&self) -> NextSpeaker {
        let state = self.state();
        // A turn that Ctrl-C stops must not continue by itself, whatever its agent has yet to read.
        if state.stopping { NextSpeaker::User } else { state.next }
    }

    /// Begins a turn with the user's message.
    pub(crate) fn begin_turn(&self, message: &str) {
        let mut state = self.state();
        state.begin_turn(self.tally.counts());
        (state.failure, state.why, state.stopping) = (None, None, false);
        state.transcript.add(Speaker::User, message);
    }

    /// Begins a turn that was interrupted earlier and is resumed now.
    pub(crate) fn turn_is_open(&self) {
        self.state().begin_turn(self.tally.counts());
    }

    /// Whether a turn is in progress.
    pub(crate) fn is_at_work(&self) -> bool {
        self.state().turn.is_some()
    }

    /// The start of the turn in progress.
    pub(crate) fn turn(&self) -> Option<Instant> {
        self.state().turn.map(|turn| turn.began)
    }

    /// Marks the turn as being stopped by the user. A room that asks its user at that moment
    /// ignores the stop, and its question is shown.
    pub(crate) fn stop_begins(&self) {
        let mut state = self.state();
        state.stopping = state.turn.is_some();
    }

    /// Waits until the requests of a stopped turn are counted, which follows at once.
    pub(crate) async fn stop_is_counted(&self) {
        if self.state().stopping {
            let mut requests = self.requests.subscribe();
            let _ = timeout(COUNTED, requests.wait_for(BTreeSet::is_empty)).await;
        }
    }

    /// Ends the turn and prints its summary. Returns false if no turn was in progress.
    pub(crate) fn end_turn(&self) -> bool {
        self.screen.clear_status();
        let (turn, why) = {
            let mut state = self.state();
            let turn = state.turn.take().map(|turn| (turn.before, state.worked(&turn)));
            (turn, state.why.take())
        };
        let Some((before, worked)) = turn else { return false };
        if let Some(why) = why.filter(|_| self.screen.is_quiet()) {
            // Any other failure was reported when it happened.
            EntryText::new(BAD, "no answer")
                .in_full(Style::new(), why.trim())
                .rows(total_columns())
                .iter()
                .for_each(|row| self.screen.notice(row));
        }
        let counts = self.tally.counts();
        let space = if self.screen.is_live() { "\n" } else { "" };
        let summary = usage::after_turn(counts.since(before), worked, counts, columns());
        self.screen.line(format_args!("{}{space}", paint(FAINT, summary)));
        true
    }

    /// Shows the status line during silence. Called periodically.
    pub(crate) fn tick(&self) {
        let state = self.state();
        let Some(worked) = state.turn.map(|turn| state.worked(&turn)) else { return };
        if worked.as_millis() > PATIENCE_MS {
            let tools: Vec<String> = state.tools.values().cloned().collect();
            self.screen.status(&usage::while_waiting(worked, &tools));
        }
    }

    /// The names of the background tasks that run.
    pub(crate) fn background(&self) -> Vec<String> {
        self.state().background.values().map(|(task, _)| task.to_string()).collect()
    }

    /// The background tasks that run, with their ids and running times.
    pub(crate) fn background_tasks(&self) -> Vec<(BackgroundId, TaskName, Duration)> {
        self.state()
            .background
            .iter()
            .map(|(id, (task, start))| (id.clone(), task.clone(), start.elapsed()))
            .collect()
    }

    /// Resolves once the entry task has its result. Background work may still run.
    pub(crate) async fn is_over(&self) {
        // This conversation owns the sender, so it lives as long as the wait does.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// The exit code of a last turn that had no answer.
    pub(crate) fn failure(&self) -> Option<u8> {
        self.state().failure
    }

    /// Writes the transcript to a file.
    ///
    /// # Errors
    /// The reason, as text for the user.
    pub(crate) fn save(&self, path: &std::path::Path) -> Result<(), String> {
        self.state().transcript.save(path)
    }

    /// Whether the task is the entry task, or one that the conversation may be handed to.
    pub(crate) fn holds(&self, task: &TaskName) -> bool {
        *task == self.setup.entry || self.setup.holders().contains(task)
    }

    /// Whether `q`, `x` and `DONE` end a conversation with the task too (L-086).
    pub(crate) fn short_goodbyes_quit(&self, task: &TaskName) -> bool {
        self.setup.tasks.get(task).is_some_and(|task| task.short_goodbyes_quit())
    }

    /// Shows the next piece of a stream. A row that other output has ended is not continued.
    fn say(&self, stream: &mut PieceStream, next: impl FnOnce(&mut PieceStream) -> String) {
        if !self.screen.is_text_open() {
            stream.row_ended();
        }
        self.screen.say(&next(stream));
    }

    fn notice(&self, notice: &Notice) {
        match notice {
            Notice::ModelCalled { call, ordinal, .. } => {
                self.requests.send_modify(|open| {
                    open.insert((*call, *ordinal));
                });
            }
            Notice::ModelAnswered { call, ordinal, .. }
            | Notice::AttemptLost { call, ordinal, .. } => {
                self.requests.send_modify(|open| {
                    open.remove(&(*call, *ordinal));
                });
            }
            _ => {}
        }
        let mut state = self.state();
        match notice {
            Notice::StepStarted { call, task, .. } if self.holds(task) => {
                state.step = Some(*call);
                // Streams are keyed by the ordinal of their request, which counts anew in each
                // step.
                state.streams.clear();
                (state.faulted, state.responded) = (false, false);
            }
            Notice::ModelCalled { call, ordinal, .. }
                if state.step == Some(*call) && self.shows_drafts() =>
            {
                state.streams.insert(*ordinal, self.stream());
            }
            Notice::ModelAnswered { call, ordinal, error, trouble, .. }
                if state.step == Some(*call) =>
            {
                if let Some(stream) = state.streams.get_mut(ordinal) {
                    self.say(stream, PieceStream::finish);
                }
                self.screen.end_text();
                if let Some(stream) = state
                    .streams
                    .get(ordinal)
                    .filter(|stream| error.is_some() && !stream.is_empty())
                {
                    // The user has read the beginning, so the transcript has it too.
                    let beginning = stream.text().to_owned();
                    state.transcript.add(
                        Speaker::Agent(self.setup.entry.to_string()),
                        format!("{beginning} …"),
                    );
                    self.screen.line(paint(FAINT, "  … it broke off here"));
                }
                state.failure = trouble.as_ref().map(|trouble| exit::of_trouble(trouble.kind));
                state.why =
                    trouble.as_ref().map(|trouble| &trouble.text).or(error.as_ref()).cloned();
                if let Some(why) = state.why.clone() {
                    state.transcript.add(Speaker::Note, why);
                }
            }
            Notice::PluginFaulted { call, fault, .. } if state.step == Some(*call) => {
                state.faulted = true;
                // A failed model is the cause of the fault, and says more than the fault.
                state.why = state.why.take().or_else(|| Some(fault.message.clone()));
                state.failure = state.failure.or(Some(exit::PLUGIN));
            }
            Notice::MessagePosted { task, message, .. } if self.holds(task) => {
                self.posted(&mut state, message)
            }
            Notice::StepStalled { task, .. } if self.holds(task) => state.next = NextSpeaker::User,
            Notice::TurnStopped { .. } => self.stopped(&mut state),
            Notice::ToolCalled { call, caller, name, arguments, .. } => {
                let name = one_line(name, 60);
                state.transcript.add(
                    Speaker::Note,
                    format!("{caller} calls {name} {}", one_line(&arguments.to_string(), PREVIEW)),
                );
                state.tools.insert(*call, name);
            }
            Notice::ToolAnswered { call: Some(call), .. } => drop(state.tools.remove(call)),
            Notice::BackgroundStarted { id, task, .. } => {
                drop(state.background.insert(id.clone(), (task.clone(), Instant::now())))
            }
            Notice::ResultReady { outcome } => {
                // The content of a run that the user quit is the user's goodbye.
                let is_answer = outcome.status.is_success() && outcome.status != Status::UserQuit;
                let content = outcome.content.as_deref().filter(|_| is_answer);
                self.show_checked(&mut state, content.unwrap_or_default());
                self.over.send_replace(true);
            }
            Notice::BackgroundEnded { ended } => state.end_background(ended),
            _ => {}
        }
    }

    fn posted(&self, state: &mut ConversationState, message: &Message) {
        // The host posts in the agent's role too, such as a tool's result. Only a record tells that
        // the component itself answered.
        let is_hosts = message.sender == Role::Agent && !state.responded;
        state.next =
            if is_hosts && !state.faulted { NextSpeaker::Agent } else { NextSpeaker::User };
        let is_persons = message.sender == Role::User
            && !self.setup.tasks.contains_key(message.sender_name.as_str());
        let is_elsewhere =
            message.recipient.as_deref().is_some_and(|name| Role::from_name(name).is_none());
        if is_hosts || is_persons || is_elsewhere || message.text().trim().is_empty() {
            return;
        }
        // `show_checked` shows the text once it has passed the gates.
        if self.is_guarded {
            return;
        }
        let speaker = if message.sender == Role::User {
            message.sender_name.clone()
        } else {
            self.setup.entry.to_string()
        };
        // What was streamed is on the screen already.
        if !state.streams.values().any(|stream| stream.has_said(message.text())) {
            if message.sender == Role::User {
                self.screen.say(&format!(
                    "{}:{}",
                    one_line(&speaker, 40),
                    if self.is_terminal { "\n" } else { " " }
                ));
            }
            self.say_whole(message.text());
        }
        state.transcript.add(Speaker::Agent(speaker), message.text());
        // After a fault the message is the host's report of it, so the turn still has no answer.
        if !state.faulted {
            state.why = None;
        }
    }

    fn say_whole(&self, text: &str) {
        let mut stream = self.stream();
        self.say(&mut stream, |stream| format!("{}{}", stream.push(text), stream.finish()));
        self.screen.end_text();
    }

    /// Shows the question of the entry task, which passed the gates before people. Without such
    /// gates its text was shown when it was posted.
    pub(crate) fn show_question(&self, prompt: &str) {
        self.show_checked(&mut self.state(), prompt);
    }

    fn show_checked(&self, state: &mut ConversationState, text: &str) {
        if !self.is_guarded || text.trim().is_empty() {
            return;
        }
        self.say_whole(text);
        state.transcript.add(Speaker::Agent(self.setup.entry.to_string()), text);
        state.why = None;
    }

    fn stopped(&self, state: &mut ConversationState) {
        let drafts = state
            .streams
            .values()
            .filter(|stream| !stream.is_empty())
            .map(PieceStream::text)
            .collect::<Vec<_>>()
            .join("\n");
        // A draft that became an answer is in the transcript already.
        if !drafts.is_empty() && !state.transcript.is_answered() {
            state
                .transcript
                .add(Speaker::Agent(self.setup.entry.to_string()), format!("{drafts} …"));
        }
        state.transcript.add(Speaker::Note, "stopped");
        state.streams.values_mut().for_each(|stream| self.say(stream, PieceStream::finish));
        self.screen.end_text();
        state.step = None;
        state.tools.clear();
        state.next = NextSpeaker::User;
    }
}

impl ConversationState {
    fn begin_turn(&mut self, before: Counts) {
        let questions = self.pending.total(now());
        self.turn = Some(OpenTurn { began: Instant::now(), before, questions });
    }

    /// The time the agent worked in the turn, without the time for which a question was open.
    fn worked(&self, turn: &OpenTurn) -> Duration {
        let question_time = self.pending.total(now()).saturating_sub(turn.questions);
        turn.began.elapsed().saturating_sub(question_time)
    }

    /// Handles the end of a background task, for which the trace shows a line.
    fn end_background(&mut self, ended: &EndedTask) {
        self.background.remove(&ended.id);
        let text = ended.output.as_deref().or(ended.error.as_deref()).unwrap_or_default();
        let (agent, status) = (&ended.worker, ended.status.as_str());
        self.transcript.add(Speaker::Note, format!("{agent} {status}: {text}"));
    }
}

impl Subscriber for TerminalChat {
    fn on(&self, happening: &Published) {
        // Before the filter below: the question of a background task keeps the user busy as well.
        if let RunEvent::Notice { notice } = &happening.what {
            self.state().pending.take(&happening.room, happening.at, notice);
        }
        if happening.room != self.room {
            return;
        }
        match &happening.what {
            RunEvent::Notice { notice } => self.notice(notice),
            RunEvent::Streamed { call, ordinal, text } => {
                let mut state = self.state();
                if state.step == Some(*call)
                    && let Some(stream) = state.streams.get_mut(ordinal)
                {
                    self.say(stream, |stream| stream.push(text));
                }
            }
            RunEvent::Recorded { record } => {
                if let Event::AgentResponded { answer: Ok(Some(_)), .. } = &record.event {
                    self.state().responded = true;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::types::ids::Millis;
    use serde_json::json;

    use super::*;

    fn notice(value: serde_json::Value) -> Notice {
        serde_json::from_value(value).expect("it is a notice")
    }

    #[test]
    fn a_turn_is_no_longer_for_a_user_who_thinks_about_a_question() {
        let (mut state, room) = (ConversationState::default(), RoomId::from("3f2a"));
        let question = notice(json!({ "notice": "top-up-asked", "call": 3, "top_up": {
            "budget": "tokens", "limit": 10, "used": 9, "set_aside": 0, "needed": 5, "proposed": 5,
            "task": "desk",
        } }));
        let answered = notice(json!({
            "notice": "topped-up", "call": 3, "budget": "tokens", "more": 5, "reason": null,
            "author": "program",
        }));
        state.begin_turn(Counts::default());
        let turn = state.turn.map(|turn| OpenTurn {
            began: Instant::now().checked_sub(Duration::from_secs(90)).expect("90 s ago"),
            ..turn
        });
        let turn = turn.expect("it was begun");
        assert!(state.worked(&turn) >= Duration::from_secs(90));
        let at = now();
        state.pending.take(&room, Millis(at.0 - 80_000), &question);
        state.pending.take(&room, Millis(at.0 - 20_000), &answered);
        let worked = state.worked(&turn);
        assert!(
            worked >= Duration::from_secs(30) && worked < Duration::from_secs(90),
            "{worked:?}"
        );
    }

    #[test]
    fn a_limit_question_that_outlasts_a_stopped_turn_still_belongs_to_the_user() {
        let (mut state, room) = (ConversationState::default(), RoomId::from("3f2a"));
        let question = notice(json!({ "notice": "top-up-asked", "call": 3, "top_up": {
            "budget": "tokens", "limit": 10, "used": 9, "set_aside": 0, "needed": 5, "proposed": 5,
            "task": "desk",
        } }));
        let stopped = notice(json!({ "notice": "turn-stopped", "task": "desk", "reason": "no" }));
        let at = now();
        state.pending.take(&room, Millis(at.0 - 90_000), &question);
        state.pending.take(&room, Millis(at.0 - 80_000), &stopped);
        // The next turn waits for the same answer.
        let began = Instant::now().checked_sub(Duration::from_secs(60)).expect("a minute ago");
        let questions = state.pending.total(Millis(at.0 - 60_000));
        let turn = OpenTurn { began, before: Counts::default(), questions };
        assert!(state.worked(&turn) < Duration::from_secs(5), "{:?}", state.worked(&turn));
    }
}
