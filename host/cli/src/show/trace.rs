//! The run as it goes on, one entry for each thing that a person would want to know: when, which task, what. What plugins wrote stands
//! behind a mark.

mod calls;

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anstyle::Style;
use conclave_core::action::Action;
use conclave_core::budget::Budget;
use conclave_core::fault::{CallReport, FaultKind};
use conclave_core::grant::DenialRecord;
use conclave_core::ids::{BackgroundId, CallId, PluginName, RoomId, TaskName};
use conclave_core::message::{Entity, Message, Signal};
use conclave_core::model::Stop;
use conclave_core::notice::Notice;
use conclave_core::outcome::Status;
use conclave_core::setup::{NoTool, Setup};
use conclave_core::side_effect::{SideEffect, SideEffectAnswer};
use conclave_core::text::show_size;
use conclave_runtime::subscribe::{Happening, Level, Subscriber, What};

use super::entry::Entry;
use super::foreign;
use super::plan::summary;
use super::steps::Steps;
use super::{BAD, FAINT, GOOD, NAME, ODD, bytes, one_line, paint, plural, time};
use crate::screen::{Screen, total_columns};
use calls::{CallBook, Progress, TOGETHER, name_of};

/// Columns of a line at most: a longer one is hard to read.
const COLUMNS_MAX: usize = 140;
/// Columns of the time of a run.
const TIME: usize = 6;
/// Columns of who it is about: at least, and at most.
const WHO: std::ops::RangeInclusive<usize> = 11..=22;

/// Prints a run to stderr.
pub(crate) struct Trace {
    screen: Arc<Screen>,
    manner: Manner,
    verbose: bool,
    /// What is refused can be looked up later.
    has_journal: bool,
    /// Shown in the place of lines about calls and answers.
    steps: Option<Steps>,
    /// Columns of who it is about.
    who: usize,
    state: Mutex<State>,
}

/// How a run is told.
enum Manner {
    /// With the time since it began. What the tasks in `asking` say is shown in full where the user is asked.
    Run { started: Instant, entry: TaskName, asking: BTreeSet<TaskName> },
    /// Around a conversation, which is shown elsewhere: what this task says, and what ends in the background.
    Chat { room: RoomId, task: TaskName },
}

#[derive(Debug, Default)]
struct State {
    calls: CallBook,
    /// Calls in which a model was in trouble: that the plugin failed too needs no line of its own.
    troubled: HashSet<(RoomId, CallId)>,
    /// Rooms in which it was told why the step that goes on has no answer.
    explained: HashSet<RoomId>,
    /// Background work whose start was told, so that its receipt need not be.
    started: HashSet<(RoomId, BackgroundId)>,
    /// What the entry task said last, not yet shown: the result is shown elsewhere, once.
    said: Option<Said>,
}

/// Something that a task said.
#[derive(Debug)]
struct Said {
    text: String,
    lines: Vec<String>,
}

impl Trace {
    /// Of a run.
    pub(crate) fn of_run(screen: Arc<Screen>, verbose: bool, setup: &Setup) -> Self {
        let asks = setup.tasks.iter().filter(|(_, task)| task.interactive || task.no_tool == NoTool::User);
        let (entry, asking) = (setup.entry.clone(), asks.map(|(name, _)| name.clone()).collect());
        Self::new(screen, Manner::Run { started: Instant::now(), entry, asking }, verbose, widest(setup))
    }

    /// Of a conversation with a task.
    pub(crate) fn of_chat(screen: Arc<Screen>, verbose: bool, setup: &Setup, room: RoomId, task: TaskName) -> Self {
        Self::new(screen, Manner::Chat { room, task }, verbose, widest(setup))
    }

    fn new(screen: Arc<Screen>, manner: Manner, verbose: bool, who: usize) -> Self {
        Self { screen, manner, verbose, has_journal: false, steps: None, who, state: Mutex::default() }
    }

    /// With these steps in the place of lines about calls and answers, where there are some. What goes wrong is told as ever.
    pub(crate) fn with_steps(self, steps: Option<Steps>) -> Self {
        Self { steps, ..self }
    }

    /// With the address of each refusal, where a journal is kept in which it can be looked up.
    pub(crate) fn with_addresses(self, has_journal: bool) -> Self {
        Self { has_journal, ..self }
    }

    /// What the columns of the steps are; nothing where there are none.
    pub(crate) fn legend(&self) {
        if let Some(steps) = &self.steps {
            steps.legend();
        }
    }

    /// The run is over, and this is shown as its result.
    pub(crate) fn end(&self, result: Option<&str>) {
        self.screen.set_progress("");
        let said = self.state().said.take();
        if let Some(said) = said.filter(|said| result.is_none_or(|result| result.trim() != said.text.trim())) {
            said.lines.iter().for_each(|line| self.screen.line(line));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows an entry about a task, or whatever else it is about.
    fn put(&self, who: &str, entry: &Entry) {
        self.flush();
        if let Some(steps) = &self.steps {
            let rows = entry.rows(steps.width());
            let (first, more) = rows.split_first().map_or(("", &[][..]), |(first, more)| (first.as_str(), more));
            steps.aside(&one_line(who, self.who), first);
            more.iter().for_each(|row| steps.more(row));
            return;
        }
        self.lines(who, entry).iter().for_each(|line| self.screen.line(line));
    }

    /// Returns the lines of an entry: when, who, what; further rows below what.
    fn lines(&self, who: &str, entry: &Entry) -> Vec<String> {
        let who = one_line(who, self.who);
        let blanks = " ".repeat(self.who.saturating_sub(foreign::width(&who)));
        let (first, indent) = match &self.manner {
            Manner::Run { started, .. } => {
                let at = started.elapsed().as_secs_f64();
                let at = paint(FAINT, format_args!("{at:>TIME$.2}"));
                (format!("{at} {}{blanks} ", paint(NAME, who)), TIME + 1 + self.who + 1)
            }
            Manner::Chat { .. } => (format!("  {}{blanks} ", paint(FAINT, who)), 2 + self.who + 1),
        };
        let rows = entry.rows(total_columns().min(COLUMNS_MAX).saturating_sub(indent).max(20));
        let styled = |row: &String| if self.is_chat() { faint(row) } else { row.clone() };
        let margins = std::iter::once(first).chain(std::iter::repeat(" ".repeat(indent)));
        rows.iter().zip(margins).map(|(row, margin)| format!("{margin}{}", styled(row))).collect()
    }

    /// Shows what was held back.
    fn flush(&self) {
        if let Some(said) = self.state().said.take() {
            said.lines.iter().for_each(|line| self.screen.line(line));
        }
    }

    fn is_chat(&self) -> bool {
        matches!(self.manner, Manner::Chat { .. })
    }

    /// Returns whose entry something in a call is: the task's, with the number of a tool call and the plugin in front of its words. Outside
    /// of calls that are known it is the plugin's.
    fn about(&self, room: &RoomId, call: Option<CallId>, plugin: &PluginName) -> (String, Entry) {
        match call.and_then(|call| self.state().calls.find(room, call)) {
            Some((task, Some(number))) => (name_of(room, &task), Entry::plain(format!("#{number} {plugin}"))),
            Some((task, None)) => (name_of(room, &task), Entry::plain(plugin.to_string())),
            None => (plugin.to_string(), Entry::default()),
        }
    }

    fn told(&self, room: &RoomId, seq: Option<u64>, notice: &Notice) {
        if self.steps.as_ref().is_some_and(|steps| steps.told(room, notice)) {
            return;
        }
        let of = |task: &TaskName| name_of(room, task);
        match notice {
            Notice::MessagePosted { task, message, .. } => {
                self.posted(room, task, message);
                self.begin_batch(room, task, message);
            }
            Notice::StepStarted { call, task, .. } => {
                let mut state = self.state();
                state.explained.remove(room);
                state.calls.begin_step(room, *call, task);
            }
            Notice::StepStalled { task, stalled, of: most } => {
                // In a conversation the person sees what comes of it: it is their turn.
                if self.is_chat() && self.state().explained.remove(room) {
                    return;
                }
                self.put(&of(task), &Entry::new(FAINT, format!("nobody had a valid answer ({stalled} of {most})")));
            }
            // The end of a run shows it whole.
            Notice::QuestionUnanswered { task, question } if self.is_chat() => {
                let entry = Entry::plain("asks, and nobody is there to answer").cut(Style::new(), question);
                self.put(&of(task), &entry);
            }
            Notice::QuestionUnanswered { .. } => {}
            Notice::ToolCalled { call, task, name, arguments, .. } => {
                let (number, is_batched) = {
                    let mut state = self.state();
                    (state.calls.begin(room, *call, task), state.calls.is_batched(room, task))
                };
                if !is_batched {
                    let entry = Entry::plain(format!("calls #{number} {}", one_line(name, 80))).cut(FAINT, &arguments.to_string());
                    self.put(&of(task), &entry);
                }
            }
            Notice::ToolAnswered { call, task, name, content, is_error, report, .. } => {
                self.answered(room, (*call, task), name, content, *is_error, report);
            }
            Notice::PluginFaulted { call, plugin, fault } => {
                let is_told = self.state().troubled.remove(&(room.clone(), *call)) && fault.kind == FaultKind::Error;
                self.state().explained.insert(room.clone());
                if !is_told {
                    let (who, entry) = self.about(room, Some(*call), plugin);
                    self.put(&who, &entry.words(BAD, "stopped").whole(BAD, &fault.message));
                }
            }
            Notice::Denied { call, plugin, record } => self.denied(&address(room, seq), self.about(room, *call, plugin), record),
            Notice::SideEffectStarted { call, plugin, side_effect, .. } => {
                let (who, entry) = self.about(room, Some(*call), plugin);
                let (what, target) = told_side_effect(side_effect);
                self.put(&who, &entry.words(Style::new(), what).cut(Style::new(), &target));
            }
            Notice::SideEffectEnded { call, plugin, answer, .. } => {
                let (who, entry) = self.about(room, Some(*call), plugin);
                match answer {
                    SideEffectAnswer::Failed { message, .. } => self.put(&who, &entry.words(BAD, "that failed").whole(FAINT, message)),
                    answer => {
                        if let Some(text) = told_answer(answer) {
                            self.put(&who, &entry.words(FAINT, text));
                        }
                    }
                }
            }
            Notice::ModelAnswered { call, stop, is_empty, error, trouble, .. } => {
                if let Some(text) = trouble.as_ref().map(|trouble| &trouble.text).or(error.as_ref()) {
                    self.state().troubled.insert((room.clone(), *call));
                    self.put("model", &Entry::default().whole(BAD, text));
                } else if *stop == Some(Stop::Length) {
                    self.put("model", &Entry::new(FAINT, "the server cut the answer at its limit"));
                } else if *is_empty {
                    self.put("model", &Entry::new(ODD, "the model said nothing"));
                }
                if *is_empty {
                    self.state().explained.insert(room.clone());
                }
            }
            Notice::TurnStopped { task, .. } => {
                self.state().calls.stop(room);
                self.show_progress();
                self.put(&of(task), &Entry::new(ODD, "stopped"));
            }
            Notice::HistoryCut { task, cut, dropped } => {
                let what = if *dropped > 0 { format!("left out {dropped}") } else { format!("cut {cut}") };
                self.put(&of(task), &Entry::new(ODD, format!("its history is too long for the model: {what} of its older messages")));
            }
            Notice::GateBlocked { point, plugin, reason } => {
                self.put(plugin.as_str(), &Entry::new(BAD, format!("blocked ({})", point.as_str())).whole(Style::new(), reason));
            }
            Notice::GateModified { point, plugin } => {
                self.put(plugin.as_str(), &Entry::new(FAINT, format!("changed the text ({})", point.as_str())));
            }
            Notice::HandedOff { from, to, reason, .. } => {
                let to = to.as_ref().map_or("its user", |to| to.as_str());
                self.put(&of(from), &Entry::plain(format!("hands the conversation to {to}")).whole(FAINT, reason));
            }
            Notice::HandoffRejected { from, refusal, .. } => {
                self.put(&of(from), &Entry::new(ODD, "does not hand the conversation over").whole(FAINT, &refusal.message));
            }
            Notice::HistoryCondensed { task, forgotten, masked, summarised } => {
                let summary = if *summarised { ", with a summary in its place" } else { "" };
                let what = format!("its history was condensed: {forgotten} of its messages left out, {masked} masked{summary}");
                self.put(&of(task), &Entry::new(FAINT, what));
            }
            Notice::KnowledgeAdded { task, file, trigger } => {
                self.put(&of(task), &Entry::new(FAINT, format!("reads {}, which the message names", one_line(file, 60))).cut(FAINT, trigger));
            }
            Notice::PlanChanged { task, plan } => {
                self.put(&of(task), &Entry::plain("plans").cut(Style::new(), &summary(plan)));
            }
            Notice::AgentStuck { task, reason, .. } => self.put(&of(task), &Entry::new(ODD, "stuck").whole(Style::new(), reason)),
            Notice::RunPaused { reason } => {
                self.put("host", &Entry::new(ODD, "paused").cut(Style::new(), reason));
                self.put("host", &Entry::new(FAINT, format!("`conclave resume {room}` resumes it")));
            }
            Notice::RunUnpaused => self.put("host", &Entry::plain("resumes")),
            Notice::UserHeard { task, message } => {
                self.put(&of(task), &Entry::plain("reads what was said").cut(Style::new(), message.text()));
            }
            Notice::UserUnheard { task, reason, .. } => {
                self.put(&of(task), &Entry::new(ODD, "nobody reads what was said").whole(FAINT, reason));
            }
            Notice::Resumed { down_ms } => {
                let down = super::amounts::took(*down_ms);
                self.put("host", &Entry::plain(format!("resumes where it was interrupted, {down} later")));
            }
            // The question itself is put by whoever asks it.
            Notice::TopUpAsked { top_up, .. } => {
                if let Some(problem) = &top_up.problem {
                    self.put("budget", &Entry::new(ODD, "not so").whole(FAINT, problem));
                }
            }
            Notice::ToppedUp { budget, more: Some(more), .. } => {
                self.put("budget", &Entry::plain(format!("{} more for {}", budget.show(*more), budget.key())));
            }
            Notice::ToppedUp { budget, more: None, reason, .. } => {
                let entry = Entry::new(ODD, format!("no more for {}", budget.key()));
                self.put("budget", &entry.whole(FAINT, reason.as_deref().unwrap_or_default()));
            }
            Notice::PriceUnknown { model, limit } => {
                let what = format!("the price of the model {model} is not known: {limit} does not hold it back, only a limit on tokens does");
                self.put("budget", &Entry::new(ODD, what));
            }
            Notice::AttemptLost { model, input_tokens, .. } => {
                let tokens = Budget::Tokens.show(*input_tokens);
                let what = format!("a request to the model {model} has no answer; {tokens} that it sent are counted");
                self.put("host", &Entry::new(ODD, what));
            }
            Notice::Inbound { channel, sender, text, .. } => {
                let who = if sender.is_empty() { String::new() } else { format!("{sender}: ") };
                self.put(channel.as_str(), &Entry::default().cut(Style::new(), &format!("{who}{text}")));
            }
            Notice::InboundRefused { channel, reason, .. } => self.put(channel.as_str(), &Entry::new(ODD, "not taken").whole(FAINT, reason)),
            Notice::NotTold { channel, reason, .. } => self.put(channel.as_str(), &Entry::new(ODD, "was not told").whole(FAINT, reason)),
            Notice::ChannelBound { channel, binding } => {
                let muted = if binding.muted { ", muted" } else { "" };
                self.put(channel.as_str(), &Entry::plain(format!("is bound ({}{muted})", binding.kind.as_str())));
            }
            Notice::ChannelUnbound { channel } => self.put(channel.as_str(), &Entry::plain("is no longer bound")),
            Notice::RoomClosed { reason } => self.put("host", &Entry::plain("the room is closed").cut(FAINT, reason)),
            Notice::PluginReplaced { plugin, .. } => self.put(plugin.as_str(), &Entry::plain("was built anew")),
            Notice::InvariantViolated { reason, .. } => self.put("host", &Entry::default().whole(BAD, reason)),
            Notice::BackgroundStarted { id, task, by, brief, .. } => {
                self.state().started.insert((room.clone(), id.clone()));
                let who = by.as_ref().map_or_else(|| "host".to_owned(), of);
                self.put(&who, &Entry::plain(format!("→ {task} ({id})")).cut(FAINT, brief));
            }
            // A call that was not approved is told as its answer.
            Notice::BackgroundEnded { .. }
            | Notice::ModelCalled { .. }
            // Too often for a line: `conclave show` and --json have it.
            | Notice::AgentStateChanged { .. }
            | Notice::ApprovalAsked { .. }
            | Notice::ApprovalGiven { .. }
            | Notice::StepEnded { .. }
            | Notice::TaskStarted { .. } => {}
            Notice::Delivered { id, agent, strategy, channel, .. } if !self.is_chat() => {
                self.put(&ended(agent, id), &Entry::plain(format!("finished; delivered by {strategy} on {channel}")));
            }
            Notice::NotDelivered { id, agent, reason } => {
                self.put(&ended(agent, id), &Entry::plain("finished;").words(ODD, "not delivered").whole(FAINT, reason));
            }
            Notice::DeadLetter { id, agent, attempts, reason } => {
                let what = format!("not delivered, tried {attempts} times");
                self.put(&ended(agent, id), &Entry::plain("finished;").words(BAD, what).whole(FAINT, reason));
            }
            Notice::ResultsRelayed { task, ids, .. } => {
                let results = plural(ids.len() as u64, "result", "results");
                self.put(&of(task), &Entry::plain(format!("answers {results} of the background")));
            }
            Notice::ResultsTold { task, ids } => {
                self.put(&of(task), &Entry::plain(format!("reads {}", plural(ids.len() as u64, "result", "results"))));
            }
            // Whoever stopped the run is told so at its end.
            Notice::TaskEnded { status: Status::Kill, .. } if !self.is_chat() && !room.as_str().contains('/') => {}
            Notice::TaskEnded { task, status, reason } if !status.is_success() && !self.tells_end_itself(room, task) => {
                self.put(&of(task), &Entry::new(BAD, status.as_str()).whole(Style::new(), reason));
            }
            Notice::Delivered { .. } | Notice::TaskEnded { .. } | Notice::ResultReady { .. } => {}
        }
    }

    fn answered(
        &self,
        room: &RoomId,
        (call, task): (Option<CallId>, &TaskName),
        name: &str,
        content: &str,
        is_error: bool,
        report: &CallReport,
    ) {
        let ((number, progress), batch, is_batched) = {
            let mut state = self.state();
            let is_batched = state.calls.is_batched(room, task);
            let ended = call.map(|call| state.calls.end(room, call)).unwrap_or_default();
            (ended, state.calls.answer_batched(room, task, report), is_batched)
        };
        if let Some(progress) = progress {
            self.show_progress();
            if !progress.is_told && !self.screen.has_status() {
                self.put(&progress.who, &progress_entry(&progress));
            }
        }
        let is_receipt = || self.started_by(room, content);
        let who = name_of(room, task);
        if (!is_batched || is_error) && !is_receipt() {
            let number = number.map(|number| format!("#{number} ")).unwrap_or_default();
            let entry = Entry::plain(format!("{number}{}", one_line(name, 80)));
            let entry = match (is_error, call) {
                (false, _) => entry.cut(Style::new(), content),
                (true, None) => entry.words(BAD, "refused").whole(BAD, content),
                (true, Some(_)) => entry.words(BAD, "failed").whole(BAD, content),
            };
            self.put(&who, &entry.tail(cost(report)));
        }
        if let Some((answers, all)) = batch {
            self.put(&who, &Entry::plain(format!("{answers} answers")).tail(format!("{} in all", cost(&all))));
        }
    }

    /// The content is the receipt of background work whose start was told.
    fn started_by(&self, room: &RoomId, content: &str) -> bool {
        let mut state = self.state();
        if state.started.is_empty() {
            return false;
        }
        let receipt: Option<serde_json::Value> = serde_json::from_str(content).ok();
        let id = receipt.as_ref().and_then(|receipt| receipt.get("task_id")).and_then(serde_json::Value::as_str);
        id.is_some_and(|id| state.started.remove(&(room.clone(), BackgroundId::from(id))))
    }

    /// The task is the one that the person talks to.
    fn is_conversation(&self, in_room: &RoomId, with: &TaskName) -> bool {
        matches!(&self.manner, Manner::Chat { room, task } if room == in_room && task == with)
    }

    /// How this task ends is shown as the end of the run, or of the conversation.
    fn tells_end_itself(&self, room: &RoomId, task: &TaskName) -> bool {
        let is_entry = matches!(&self.manner, Manner::Run { entry, .. } if entry == task && !room.as_str().contains('/'));
        is_entry || self.is_conversation(room, task)
    }

    /// What is said is shown elsewhere, in full.
    fn is_shown(&self, room: &RoomId, task: &TaskName, message: &Message) -> bool {
        let to_user = message.recipient.as_deref().and_then(Entity::named) == Some(Entity::User);
        let to_anyone = message.recipient.is_none() && message.tool_calls.is_empty() && message.signal.is_none();
        match &self.manner {
            Manner::Run { asking, .. } => to_user || (to_anyone && asking.contains(task)),
            Manner::Chat { .. } => self.is_conversation(room, task) && (to_user || message.recipient.is_none()),
        }
    }

    fn begin_batch(&self, room: &RoomId, task: &TaskName, message: &Message) {
        if self.verbose || message.sender != Entity::Llm || message.tool_calls.len() < TOGETHER {
            return;
        }
        let mut names: Vec<&str> = message.tool_calls.iter().map(|call| call.name.as_str()).collect();
        names.dedup();
        let calls = message.tool_calls.len();
        self.put(&name_of(room, task), &Entry::plain(format!("calls {} {calls} times", one_line(&names.join(", "), 60))));
        self.state().calls.begin_batch(room, task, calls);
    }

    fn posted(&self, room: &RoomId, task: &TaskName, message: &Message) {
        // Around a conversation, what others say among themselves is one line too many: their results are shown.
        let is_talk = message.recipient.is_none() && message.signal != Some(Signal::Rejected);
        if self.is_shown(room, task, message) || (self.is_chat() && !self.verbose && is_talk) {
            return;
        }
        let who = match message.sender {
            // Another task, a channel, or a person.
            Entity::User => message.sender_name.clone(),
            _ => name_of(room, task),
        };
        let (text, plain) = (message.text(), Style::new());
        let has_calls = message.action.is_some() || !message.tool_calls.is_empty();
        let entry = match (&message.signal, &message.recipient) {
            // Its result is shown.
            (Some(Signal::Done { .. }), _) if message.sender == Entity::Llm && !self.verbose => return,
            (Some(Signal::Done { .. }), _) if message.sender == Entity::Llm => Entry::new(GOOD, "is done"),
            (Some(Signal::Rejected), _) => Entry::new(ODD, "gives up").cut(plain, text),
            (_, Some(recipient)) => Entry::plain(format!("→ {}", one_line(recipient, 30))).cut(FAINT, text),
            _ if message.sender == Entity::Agent || (has_calls && text.trim().is_empty()) => return,
            // The action is told by itself.
            _ if message.action.is_some() && !matches!(message.action, Some(Action::Talk { .. })) => return,
            _ => Entry::plain("says").cut(FAINT, text),
        };
        let is_result = matches!(&self.manner, Manner::Run { entry, .. } if entry == task) && !room.as_str().contains('/') && !has_calls;
        if is_result && self.steps.is_none() && message.signal.is_none() && message.recipient.is_none() {
            self.flush();
            let lines = self.lines(&who, &entry);
            self.state().said = Some(Said { text: text.to_owned(), lines });
            return;
        }
        self.put(&who, &entry);
    }

    fn denied(&self, address: &str, (who, entry): (String, Entry), record: &DenialRecord) {
        let denial = &record.denial;
        let entry = entry.words(BAD, "DENIED").words(Style::new(), &denial.capability).cut(Style::new(), &denial.target);
        let address = if self.has_journal { format!("conclave why {address}") } else { String::new() };
        self.put(&who, &entry.tail(address));
        let mut more = vec![format!("{} says no: {}", record.layer.as_str(), one_line(&record.reason, 1_000))];
        more.extend(record.suggestion.as_ref().map(|suggestion| format!("to allow it: {}", one_line(suggestion, 1_000))));
        let width = match &self.steps {
            Some(steps) => steps.width(),
            None => total_columns().min(COLUMNS_MAX).saturating_sub(self.margin()).max(20),
        };
        let rows = more.iter().flat_map(|line| hanging(line, width));
        for row in rows.map(|row| paint(FAINT, row)) {
            match &self.steps {
                Some(steps) => steps.more(&row),
                None => self.screen.line(format_args!("{:1$}{row}", "", self.margin())),
            }
        }
    }

    /// Columns in front of an entry.
    fn margin(&self) -> usize {
        if self.is_chat() { 2 + self.who + 1 } else { TIME + 1 + self.who + 1 }
    }

    fn progressed(&self, room: &RoomId, call: CallId, plugin: &PluginName, (done, total): (u64, Option<u64>), message: &str) {
        let (who, _) = self.about(room, Some(call), plugin);
        let number = self.state().calls.find(room, call).and_then(|(_, number)| number);
        let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
        let number = number.map(|number| format!("#{number} ")).unwrap_or_default();
        let progress = Progress { who, done: format!("{number}{plugin} {done}{of}"), message: message.to_owned(), is_told: false };
        let is_first = self.state().calls.progressed(room, call, progress.clone());
        if self.screen.has_status() {
            self.show_progress();
        } else if is_first {
            self.put(&progress.who, &progress_entry(&progress));
        }
    }

    /// Shows how far all calls have come in the one line that is written over.
    fn show_progress(&self) {
        let under_way = self.state().calls.under_way();
        let done: Vec<&str> = under_way.iter().map(|progress| progress.done.as_str()).collect();
        let message = under_way.last().map(|progress| progress.message.as_str()).filter(|message| !message.trim().is_empty());
        let message = message.map(|message| format!(" {}{}", foreign::MARK, one_line(message, 60))).unwrap_or_default();
        self.screen.set_progress(&format!("{}{message}", done.join(" · ")));
    }
}

fn progress_entry(progress: &Progress) -> Entry {
    Entry::new(FAINT, progress.done.clone()).cut(FAINT, &progress.message)
}

/// Background work that has ended, as the trace names it while it goes on.
fn ended(agent: &TaskName, id: &BackgroundId) -> String {
    format!("{agent} ({id})")
}

/// In rows of so many columns, the further ones indented.
fn hanging(text: &str, most: usize) -> Vec<String> {
    let rows = super::columns::wrap(text, most.saturating_sub(2));
    rows.into_iter().enumerate().map(|(index, row)| if index == 0 { row } else { format!("  {row}") }).collect()
}

/// Returns the columns that the names of all tasks would need.
fn widest(setup: &Setup) -> usize {
    let delegated = |task: &TaskName| {
        let grants = setup.plugins.values().filter_map(|plugin| plugin.grants.delegate.as_ref());
        grants.flat_map(|grant| &grant.tasks).any(|granted| granted == task)
    };
    let width = |task: &TaskName| foreign::width(task.as_str()) + if delegated(task) { " (task-1)".len() } else { 0 };
    setup.tasks.keys().map(width).fold(*WHO.start(), usize::max).min(*WHO.end())
}

/// The address of what follows from a record: `3f2a91c0:17`.
fn address(room: &RoomId, seq: Option<u64>) -> String {
    seq.map_or_else(|| room.to_string(), |seq| format!("{room}:{seq}"))
}

impl Subscriber for Trace {
    fn on(&self, happening: &Happening) {
        match &happening.what {
            What::Told { told } => self.told(&happening.room, happening.seq, told),
            What::Logged { call, plugin, level, message } => {
                if self.verbose || *level >= Level::Info {
                    let (who, entry) = self.about(&happening.room, Some(*call), plugin);
                    self.put(&who, &entry.words(FAINT, "log").cut(FAINT, message));
                }
            }
            What::Recorded { .. } | What::Streamed { .. } => {}
            What::Progressed { call, plugin, done, total, message } => {
                self.progressed(&happening.room, *call, plugin, (*done, *total), message);
            }
        }
    }
}

/// Faint, also after a style within it has ended.
fn faint(text: &str) -> String {
    let end = format!("{FAINT:#}");
    paint(FAINT, text.replace(&end, &format!("{end}{FAINT}")))
}

fn cost(report: &CallReport) -> String {
    if report.wall_us == 0 {
        return String::new();
    }
    format!("{} · {}", time(Duration::from_micros(report.wall_us)), bytes(report.memory))
}

/// Returns what a plugin is about to do to the world, and to what.
pub(crate) fn told_side_effect(side_effect: &SideEffect) -> (String, String) {
    match side_effect {
        SideEffect::Fetch { method, url, .. } => (format!("sends {method}"), url.to_string()),
        SideEffect::WriteFile { path, bytes, .. } => (format!("writes {}", show_size(bytes.length)), path.to_string()),
        SideEffect::RemoveFile { path } => ("removes".to_owned(), path.to_string()),
        SideEffect::SetKey { key, value } => (format!("sets a key of its own to {}", show_size(value.length)), key.to_string()),
        SideEffect::DeleteKey { key } => ("deletes a key of its own".to_owned(), key.to_string()),
    }
}

/// Returns how it went, where that is worth a line.
pub(crate) fn told_answer(answer: &SideEffectAnswer) -> Option<String> {
    match answer {
        SideEffectAnswer::Fetched { status, body, .. } => Some(format!("got {status}, {}", show_size(body.length))),
        SideEffectAnswer::Failed { .. } | SideEffectAnswer::Done { .. } | SideEffectAnswer::Denied { .. } => None,
    }
}
