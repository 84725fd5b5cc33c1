//! The run as it goes on, one line for each thing that a person would want to know.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use conclave_core::action::Action;
use conclave_core::budget::Budget;
use conclave_core::fault::{CallReport, FaultKind};
use conclave_core::grant::DenialRecord;
use conclave_core::ids::{CallId, PluginName, RoomId, TaskName};
use conclave_core::message::{Entity, Message, Signal};
use conclave_core::model::Stop;
use conclave_core::notice::Notice;
use conclave_core::outcome::Status;
use conclave_core::setup::{NoTool, Setup};
use conclave_core::side_effect::{SideEffect, SideEffectAnswer};
use conclave_core::text::show_size;
use conclave_runtime::subscribe::{Happening, Level, Subscriber, What};

use super::plan::summary;
use super::steps::Steps;
use super::{BAD, FAINT, GOOD, NAME, ODD, bytes, one_line, paint, plural, time};
use crate::screen::{Screen, columns};

/// How wide the text of a line may be.
const WIDTH: usize = 100;

/// Calls in one message from which on they are told together: a screen full of the same line tells nothing.
const TOGETHER: usize = 4;

/// Prints a run to stderr.
pub(crate) struct Trace {
    screen: Arc<Screen>,
    manner: Manner,
    verbose: bool,
    /// What is refused can be looked up later.
    has_journal: bool,
    /// Shown in the place of lines about calls and answers.
    steps: Option<Steps>,
    state: Mutex<State>,
}

/// How a run is told.
enum Manner {
    /// With the time since it began. What these tasks say is shown in full where the user is asked.
    Run { started: Instant, asking: BTreeSet<TaskName> },
    /// Around a conversation, which is shown elsewhere: what this task says, and what ends in the background.
    Chat { room: RoomId, task: TaskName },
}

#[derive(Debug, Default)]
struct State {
    /// Calls that are told together, by room and task.
    batches: HashMap<(RoomId, TaskName), Batch>,
    /// Calls in which a model was in trouble: that the plugin failed too needs no line of its own.
    troubled: HashSet<(RoomId, CallId)>,
    /// Rooms in which it was told why the step that goes on has no answer.
    explained: HashSet<RoomId>,
}

/// Calls of one message that are told together.
#[derive(Debug, Default)]
struct Batch {
    left: usize,
    answered: usize,
    wall_us: u64,
    memory: u64,
}

impl Trace {
    /// Of a run.
    pub(crate) fn of_run(screen: Arc<Screen>, verbose: bool, setup: &Setup) -> Self {
        let asks = setup.tasks.iter().filter(|(_, task)| task.interactive || task.no_tool == NoTool::User);
        let manner = Manner::Run { started: Instant::now(), asking: asks.map(|(name, _)| name.clone()).collect() };
        Self { screen, manner, verbose, has_journal: false, steps: None, state: Mutex::default() }
    }

    /// Of a conversation with a task.
    pub(crate) fn of_chat(screen: Arc<Screen>, verbose: bool, room: RoomId, task: TaskName) -> Self {
        Self { screen, manner: Manner::Chat { room, task }, verbose, has_journal: false, steps: None, state: Mutex::default() }
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, who: &str, text: &str) {
        let who = one_line(who, 30);
        if let Some(steps) = &self.steps {
            steps.aside(&who, text);
            return;
        }
        match &self.manner {
            Manner::Run { started, .. } => {
                let at = started.elapsed().as_secs_f64();
                self.screen.line(format_args!(
                    "{} {} {text}",
                    paint(FAINT, format_args!("{at:>6.2}")),
                    paint(NAME, format_args!("{who:<13}"))
                ));
            }
            Manner::Chat { .. } => self.screen.line(format_args!("  {} {}", paint(FAINT, format_args!("{who:<11}")), faint(text))),
        }
    }

    /// How wide the text of a line may be: on a terminal no line should break.
    fn width(&self) -> usize {
        if let Some(steps) = &self.steps {
            return steps.width();
        }
        let before = if self.is_chat() { 16 } else { 22 };
        if self.screen.is_live() { columns().saturating_sub(before).clamp(20, WIDTH) } else { WIDTH }
    }

    fn is_chat(&self) -> bool {
        matches!(self.manner, Manner::Chat { .. })
    }

    fn told(&self, room: &RoomId, seq: Option<u64>, notice: &Notice) {
        if self.steps.as_ref().is_some_and(|steps| steps.told(room, notice)) {
            return;
        }
        match notice {
            Notice::MessagePosted { task, agent, message } => {
                self.begin_batch(room, task, agent, message);
                self.posted(room, task, agent, message);
            }
            Notice::StepStarted { .. } => drop(self.state().explained.remove(room)),
            Notice::StepStalled { task, stalled, of } => {
                // In a conversation the person sees what comes of it: it is their turn.
                if self.is_chat() && self.state().explained.remove(room) {
                    return;
                }
                self.line(task.as_str(), &paint(FAINT, format_args!("nobody had a valid answer ({stalled} of {of})")));
            }
            // The end of a run shows it whole.
            Notice::QuestionUnanswered { task, question } if self.is_chat() => {
                let question = one_line(question, self.width());
                self.line(task.as_str(), &format!("asks: {question}  {}", paint(FAINT, "nobody is there to answer")));
            }
            Notice::QuestionUnanswered { .. } => {}
            Notice::ToolCalled { task, caller, name, arguments, .. } => {
                if self.is_batched(room, task) {
                    return;
                }
                let most = self.width().saturating_sub(name.chars().count() + 8).clamp(10, 70);
                self.line(caller.as_str(), &format!("calls {name} {}", paint(FAINT, one_line(&arguments.to_string(), most))));
            }
            Notice::ToolAnswered { task, name, content, is_error, report, .. } => {
                let plugin = name.split('.').next().unwrap_or(name);
                if self.answer_batched(room, task, plugin, report) && !*is_error {
                    return;
                }
                let cost = cost(report);
                let text = if *is_error {
                    paint(BAD, as_one_line(content, 2 * WIDTH))
                } else {
                    one_line(content, self.width().saturating_sub(cost.chars().count() + 2).max(10))
                };
                self.line(plugin, &format!("{text}  {}", paint(FAINT, cost)));
            }
            Notice::PluginFaulted { call, plugin, fault } => {
                let is_told = self.state().troubled.remove(&(room.clone(), *call)) && fault.kind == FaultKind::Error;
                self.state().explained.insert(room.clone());
                if !is_told {
                    self.line(plugin.as_str(), &format!("{} {}", paint(BAD, "stopped:"), as_one_line(&fault.message, WIDTH)));
                }
            }
            Notice::Denied { plugin, record, .. } => self.denied(&address(room, seq), plugin, record),
            Notice::SideEffectStarted { plugin, side_effect, .. } => {
                self.line(plugin.as_str(), &one_line(&told_side_effect(side_effect), self.width()))
            }
            Notice::SideEffectEnded { plugin, answer, .. } => {
                if let Some(text) = told_answer(answer) {
                    self.line(plugin.as_str(), &paint(FAINT, one_line(&text, self.width())));
                }
            }
            Notice::ModelAnswered { call, stop, is_empty, error, trouble, .. } => {
                if let Some(text) = trouble.as_ref().map(|trouble| &trouble.text).or(error.as_ref()) {
                    self.state().troubled.insert((room.clone(), *call));
                    self.line("model", &paint(BAD, as_one_line(text, 5 * WIDTH)));
                } else if *stop == Some(Stop::Length) {
                    self.line("model", &paint(FAINT, "the server cut the answer at its limit"));
                } else if *is_empty {
                    self.line("model", &paint(ODD, "the model said nothing"));
                }
                if *is_empty {
                    self.state().explained.insert(room.clone());
                }
            }
            Notice::TurnStopped { task, .. } => {
                // Calls that were told together get no answers any more.
                self.state().batches.retain(|(of, _), _| of != room);
                self.line(task.as_str(), &paint(ODD, "stopped"));
            }
            Notice::HistoryCut { task, cut, dropped } => {
                let what = if *dropped > 0 { format!("left out {dropped}") } else { format!("cut {cut}") };
                self.line(task.as_str(), &paint(ODD, format!("its history is too long for the model: {what} of its older messages")));
            }
            Notice::GateBlocked { point, plugin, reason } => {
                let what = paint(BAD, format_args!("blocked ({}):", point.as_str()));
                self.line(plugin.as_str(), &format!("{what} {}", as_one_line(reason, WIDTH)));
            }
            Notice::GateModified { point, plugin } => {
                self.line(plugin.as_str(), &paint(FAINT, format_args!("changed the text ({})", point.as_str())));
            }
            Notice::HandedOff { from, to, reason, .. } => {
                let to = to.as_ref().map_or("its user", |to| to.as_str());
                self.line(from.as_str(), &format!("hands the conversation to {to}: {}", as_one_line(reason, WIDTH)));
            }
            Notice::HandoffRejected { from, refusal, .. } => {
                let what = paint(ODD, "does not hand the conversation over:");
                self.line(from.as_str(), &format!("{what} {}", as_one_line(&refusal.message, WIDTH)));
            }
            Notice::HistoryCondensed { task, forgotten, masked, summarised } => {
                let summary = if *summarised { ", with a summary in its place" } else { "" };
                let what = format!("its history was condensed: {forgotten} of its messages left out, {masked} masked{summary}");
                self.line(task.as_str(), &paint(FAINT, what));
            }
            Notice::KnowledgeAdded { task, file, trigger } => {
                let what = format!("reads {file}: the message says {trigger:?}");
                self.line(task.as_str(), &paint(FAINT, as_one_line(&what, WIDTH)));
            }
            Notice::PlanChanged { task, plan } => {
                self.line(task.as_str(), &one_line(&summary(plan), self.width()));
            }
            Notice::AgentStuck { task, reason, .. } => {
                self.line(task.as_str(), &format!("{} {}", paint(ODD, "stuck:"), as_one_line(reason, WIDTH)));
            }
            Notice::RunPaused { reason } => {
                let resume = paint(FAINT, format_args!("conclave resume {room} lets it go on"));
                self.line("host", &format!("{} {}; {resume}", paint(ODD, "paused:"), as_one_line(reason, WIDTH)));
            }
            Notice::RunUnpaused => self.line("host", "goes on"),
            Notice::UserHeard { task, message } => {
                self.line(task.as_str(), &format!("reads what was said: {}", one_line(message.text(), self.width().saturating_sub(22))));
            }
            Notice::UserUnheard { task, reason, .. } => {
                let what = paint(ODD, "nobody reads what was said:");
                self.line(task.as_str(), &format!("{what} {}", as_one_line(reason, WIDTH)));
            }
            Notice::Resumed { down_ms } => {
                let later = time(Duration::from_millis(*down_ms));
                self.line("host", &format!("goes on where it was cut off, {later} later"));
            }
            // The question itself is put by whoever asks it.
            Notice::TopUpAsked { top_up, .. } => {
                if let Some(problem) = &top_up.problem {
                    self.line("budget", &format!("{} {}", paint(ODD, "not so:"), as_one_line(problem, WIDTH)));
                }
            }
            Notice::ToppedUp { budget, more: Some(more), .. } => {
                self.line("budget", &format!("{} more for {}", budget.show(*more), budget.key()));
            }
            Notice::ToppedUp { budget, more: None, reason, .. } => {
                let reason = as_one_line(reason.as_deref().unwrap_or_default(), WIDTH);
                self.line("budget", &format!("{} for {}: {reason}", paint(ODD, "no more"), budget.key()));
            }
            Notice::PriceUnknown { model, limit } => {
                let what = paint(ODD, format!("the price of the model {model} is not known"));
                self.line("budget", &format!("{what}: {limit} does not hold it back, only a limit on tokens does"));
            }
            Notice::AttemptLost { model, input_tokens, .. } => {
                let tokens = Budget::Tokens.show(*input_tokens);
                let what = format!("a request to the model {model} has no answer; {tokens} that it sent are counted");
                self.line("host", &paint(ODD, what));
            }
            Notice::Inbound { channel, sender, text, .. } => {
                let who = if sender.is_empty() { String::new() } else { format!("{}: ", as_one_line(sender, WIDTH)) };
                self.line(channel.as_str(), &format!("{who}{}", as_one_line(text, WIDTH)));
            }
            Notice::InboundRefused { channel, reason, .. } => {
                self.line(channel.as_str(), &format!("{} {}", paint(ODD, "not taken:"), as_one_line(reason, WIDTH)));
            }
            Notice::NotTold { channel, reason, .. } => {
                self.line(channel.as_str(), &format!("{} {}", paint(ODD, "was not told:"), as_one_line(reason, WIDTH)));
            }
            Notice::ChannelBound { channel, binding } => {
                let muted = if binding.muted { ", muted" } else { "" };
                self.line(channel.as_str(), &format!("is bound ({}{muted})", binding.kind.as_str()));
            }
            Notice::ChannelUnbound { channel } => self.line(channel.as_str(), "is no longer bound"),
            Notice::RoomClosed { reason } => self.line("host", &format!("the room is closed: {}", as_one_line(reason, WIDTH))),
            Notice::PluginReplaced { plugin, .. } => self.line(plugin.as_str(), "was built anew"),
            Notice::InvariantViolated { reason, .. } => self.line("host", &paint(BAD, as_one_line(reason, 5 * WIDTH))),
            Notice::BackgroundStarted { task, .. } => self.line(task.as_str(), "started in the background"),
            // A call that was not approved is told as its answer.
            Notice::BackgroundEnded { .. }
            | Notice::ModelCalled { .. }
            // Too often for a line: `conclave show` and --json have it.
            | Notice::AgentStateChanged { .. }
            | Notice::ApprovalAsked { .. }
            | Notice::ApprovalGiven { .. }
            | Notice::StepEnded { .. }
            | Notice::TaskStarted { .. } => {}
            Notice::Delivered { agent, strategy, channel, .. } if !self.is_chat() => {
                self.line(agent.as_str(), &format!("finished; delivered by {strategy} on {channel}"));
            }
            Notice::NotDelivered { agent, reason, .. } => {
                self.line(agent.as_str(), &format!("finished; {} {}", paint(ODD, "not delivered:"), as_one_line(reason, WIDTH)));
            }
            Notice::DeadLetter { agent, attempts, reason, .. } => {
                let what = paint(BAD, format!("not delivered, tried {attempts} times:"));
                self.line(agent.as_str(), &format!("finished; {what} {}", as_one_line(reason, WIDTH)));
            }
            Notice::ResultsRelayed { task, ids, .. } => {
                self.line(task.as_str(), &format!("takes a turn about {}", plural(ids.len() as u64, "result", "results")));
            }
            Notice::ResultsTold { task, ids } => self.line(task.as_str(), &format!("reads {}", plural(ids.len() as u64, "result", "results"))),
            // Whoever stopped the run is told so at its end.
            Notice::TaskEnded { status: Status::Kill, .. } if !self.is_chat() && !room.as_str().contains('/') => {}
            Notice::TaskEnded { task, status, reason } if !status.is_success() && !self.is_conversation(room, task) => {
                self.line(task.as_str(), &format!("{} {}", paint(BAD, status.as_str()), as_one_line(reason, WIDTH)));
            }
            Notice::Delivered { .. } | Notice::TaskEnded { .. } | Notice::ResultReady { .. } => {}
        }
    }

    /// The task is the one that the person talks to.
    fn is_conversation(&self, in_room: &RoomId, with: &TaskName) -> bool {
        matches!(&self.manner, Manner::Chat { room, task } if room == in_room && task == with)
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

    fn begin_batch(&self, room: &RoomId, task: &TaskName, agent: &PluginName, message: &Message) {
        if self.verbose || message.sender != Entity::Llm || message.tool_calls.len() < TOGETHER {
            return;
        }
        let mut names: Vec<&str> = message.tool_calls.iter().map(|call| call.name.as_str()).collect();
        names.dedup();
        let calls = message.tool_calls.len();
        self.line(agent.as_str(), &format!("calls {} {calls} times", one_line(&names.join(", "), 60)));
        let batch = Batch { left: calls, ..Batch::default() };
        self.state().batches.insert((room.clone(), task.clone()), batch);
    }

    fn is_batched(&self, room: &RoomId, task: &TaskName) -> bool {
        self.state().batches.contains_key(&(room.clone(), task.clone()))
    }

    /// Counts an answer of a batch; the last one is told for all of them.
    fn answer_batched(&self, room: &RoomId, task: &TaskName, plugin: &str, report: &CallReport) -> bool {
        let batches = &mut self.state().batches;
        let key = (room.clone(), task.clone());
        let Some(batch) = batches.get_mut(&key) else { return false };
        batch.answered += 1;
        batch.wall_us += report.wall_us;
        batch.memory = batch.memory.max(report.memory);
        if batch.answered == batch.left {
            let all = CallReport { wall_us: batch.wall_us, memory: batch.memory, ..CallReport::default() };
            self.line(plugin, &format!("{} answers  {}", batch.answered, paint(FAINT, format_args!("{} in all", cost(&all)))));
            batches.remove(&key);
        }
        true
    }

    fn posted(&self, room: &RoomId, task: &TaskName, agent: &PluginName, message: &Message) {
        // Around a conversation, what others say among themselves is one line too many: their results are shown.
        let is_talk = message.recipient.is_none() && message.signal != Some(Signal::Rejected);
        if self.is_shown(room, task, message) || (self.is_chat() && !self.verbose && is_talk) {
            return;
        }
        let who = match message.sender {
            Entity::User => message.sender_name.as_str(),
            _ => agent.as_str(),
        };
        let text = one_line(message.text(), 70);
        match (&message.signal, &message.recipient) {
            (Some(Signal::Done { .. }), _) if message.sender == Entity::Llm => self.line(who, &paint(GOOD, "is done")),
            (Some(Signal::Rejected), _) => self.line(who, &format!("{} {text}", paint(ODD, "gives up:"))),
            (_, Some(recipient)) => self.line(who, &format!("passes to {recipient}: {}", paint(FAINT, text))),
            _ if matches!(message.action, Some(Action::Talk { .. })) => self.line(who, &format!("says: {text}")),
            _ if message.action.is_some() || !message.tool_calls.is_empty() || message.sender == Entity::Agent => {}
            _ => self.line(who, &format!("says: {}", paint(FAINT, text))),
        }
    }

    fn denied(&self, address: &str, plugin: &PluginName, record: &DenialRecord) {
        let denial = &record.denial;
        self.line(plugin.as_str(), &format!("{} {}: {}", paint(BAD, "DENIED"), denial.capability, one_line(&denial.target, 70)));
        let mut more = vec![format!("{} says no: {}", record.layer.as_str(), one_line(&record.reason, 1_000))];
        more.extend(record.suggestion.as_ref().map(|suggestion| format!("  to allow it: {suggestion}")));
        if self.has_journal {
            let no_line = if record.suggestion.is_none() { "No grant is suggested. " } else { "" };
            more.push(format!("{no_line}Details: conclave why {address}"));
        }
        for line in more.iter().flat_map(|more| more.lines()) {
            match &self.steps {
                Some(steps) => steps.more(&paint(FAINT, line)),
                None => self.screen.line(format_args!("{:21}{}", "", paint(FAINT, line))),
            }
        }
    }
}

/// The address of what follows from a record: `3f2a91c0:17`.
fn address(room: &RoomId, seq: Option<u64>) -> String {
    seq.map_or_else(|| room.to_string(), |seq| format!("{room}:{seq}"))
}

impl Subscriber for Trace {
    fn on(&self, happening: &Happening) {
        match &happening.what {
            What::Told { told } => self.told(&happening.room, happening.seq, told),
            What::Logged { plugin, level, message, .. } => {
                if self.verbose || *level >= Level::Info {
                    self.line(plugin.as_str(), &paint(FAINT, format_args!("log: {}", one_line(message, WIDTH))));
                }
            }
            What::Recorded { .. } | What::Streamed { .. } => {}
            What::Progressed { plugin, done, total, message, .. } => {
                let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
                self.line(plugin.as_str(), &paint(FAINT, format_args!("{done}{of} {}", one_line(message, 60))));
            }
        }
    }
}

/// Several lines in one, with a sign where each ended: they need not end with a full stop.
fn as_one_line(text: &str, most: usize) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    one_line(&lines.join(" · "), most)
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

/// What a plugin is about to do to the world.
pub(crate) fn told_side_effect(side_effect: &SideEffect) -> String {
    match side_effect {
        SideEffect::Fetch { method, url, .. } => format!("sends {method} {url}"),
        SideEffect::WriteFile { path, bytes, .. } => format!("writes {path} ({})", show_size(bytes.length)),
        SideEffect::RemoveFile { path } => format!("removes {path}"),
        SideEffect::SetKey { key, value } => format!("sets its key {key:?} ({})", show_size(value.length)),
        SideEffect::DeleteKey { key } => format!("deletes its key {key:?}"),
    }
}

/// How it went, where that is worth a line.
pub(crate) fn told_answer(answer: &SideEffectAnswer) -> Option<String> {
    match answer {
        SideEffectAnswer::Fetched { status, body, .. } => Some(format!("got {status}, {}", show_size(body.length))),
        SideEffectAnswer::Failed { message, .. } => Some(format!("that failed: {message}")),
        SideEffectAnswer::Done { .. } | SideEffectAnswer::Denied { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::as_one_line;

    #[test]
    fn lines_that_are_told_as_one_stay_apart() {
        assert_eq!(as_one_line("no JSON  object\n\n  Correct them.\n", 80), "no JSON object · Correct them.");
    }
}
