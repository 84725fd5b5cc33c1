//! A play of a script: asks the strategy, and checks its answers against the guarantees.

use std::mem;
use std::sync::Arc;

use conclave_core::types::channel::{Activity, Channel};
use conclave_core::types::delivery::{BackgroundStatus, Decision, DeliveryView, EndedTask, Wake};

use crate::report::{Guarantee, Report, WakeRecord};
use crate::room::{ScriptedRoom, StrategyCall};
use crate::script::{Script, ScriptEvent};

/// Milliseconds between timers below which a series without any action counts as a busy loop.
const BUSY_MS: u64 = 100;
const BUSY_TIMERS: u32 = 20;

/// A strategy's answer to a wake.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The decisions, or the text of an error.
    pub decisions: Result<Vec<Decision>, String>,
    /// The strategy's scratch afterwards.
    pub scratch: Vec<u8>,
}

/// A wake that a strategy answers.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The reason of the wake.
    pub wake: &'a Wake,
    /// What the strategy sees of the room.
    pub view: &'a DeliveryView,
    /// Its scratch of before.
    pub scratch: &'a [u8],
    /// Whether the report describes the answer: once for each wake of the first play. The others
    /// are only compared and checked.
    pub is_reported: bool,
}

/// A strategy.
pub type Decide<'a> = dyn FnMut(Question<'_>) -> Answer + 'a;

/// Plays the script four times, and returns the report. It describes the first play, and contains
/// the breaches of all.
pub fn play(script: &Script, decide: &mut Decide<'_>) -> Report {
    let mut play = |how| Play::begin(script, how, decide).run();
    let mut report = play(Mode { asks_twice: true, ..Mode::default() });
    report.expect(script.expected.as_ref());
    let replay = play(Mode { name: "played again", ..Mode::default() });
    if replay.wakes != report.wakes {
        let what = "the same script, played again, was answered otherwise";
        report.breaks(Guarantee::Deterministic, 0, what);
    }
    let others = [
        Mode { name: "with wakes of one moment joined", joins: true, ..Mode::default() },
        Mode { name: "with each answer lost once", loses_answers: true, ..Mode::default() },
    ];
    report.breaches.extend(others.into_iter().flat_map(|mode| play(mode).breaches));
    report
}

/// How a script is played.
#[derive(Clone, Copy, Default)]
struct Mode {
    /// The name for messages; empty for the first.
    name: &'static str,
    /// Whether each wake is asked twice, to compare the answers.
    asks_twice: bool,
    /// Whether everything of one moment happens while the strategy decides.
    joins: bool,
    /// Whether the first answer to each wake is lost.
    loses_answers: bool,
}

struct Play<'a, 'd> {
    script: &'a Script,
    mode: Mode,
    decide: &'a mut Decide<'d>,
    room: ScriptedRoom,
    /// The call that is answered after everything of the moment has happened.
    deciding: Option<StrategyCall>,
    /// The time for which the host stops during the next wake.
    crash_ms: Option<u64>,
    pace: Pace,
}

/// Timers that follow each other closely.
#[derive(Default)]
struct Pace {
    last: Option<u64>,
    timers: u32,
    settled: usize,
}

impl<'a, 'd> Play<'a, 'd> {
    fn begin(script: &'a Script, mode: Mode, decide: &'a mut Decide<'d>) -> Self {
        let room = ScriptedRoom::open(script);
        let pace = Pace::default();
        Self { script, mode, decide, room, deciding: None, crash_ms: None, pace }
    }

    fn run(mut self) -> Report {
        let mut lines: Vec<_> = self.script.lines.iter().collect();
        lines.sort_by_key(|line| line.at);
        let (end, mut lines) = (self.script.end(), lines.into_iter().peekable());
        loop {
            let next = [lines.peek().map(|line| line.at), self.room.next_time()];
            let Some(next) = next.into_iter().flatten().min().filter(|next| *next <= end) else {
                break;
            };
            self.room.now = self.room.now.max(next);
            // The time may have jumped over several lines, which still happen in their order.
            while let Some(line) = lines.next_if(|line| line.at <= next) {
                if let ScriptEvent::Crashes { for_ms } = line.what {
                    self.crash_ms = Some(for_ms);
                }
                self.room.play_event(&line.what);
                self.settle();
            }
            self.room.fall_silent(next);
            self.settle();
            self.room.fire_timers(next);
            self.settle();
            let mut deciding = self.deciding.take();
            while let Some(call) = deciding {
                self.wake(call);
                deciding = self.room.poll_call();
            }
        }
        self.end(end)
    }

    /// Lets the strategy answer until the room waits for something else. If wakes are joined, it
    /// begins to decide, and answers after everything of the moment has happened.
    fn settle(&mut self) {
        while let Some(call) = self.room.poll_call() {
            if self.mode.joins {
                self.deciding = Some(call);
            } else {
                self.wake(call);
            }
        }
    }

    fn wake(&mut self, StrategyCall { call, wake, start }: StrategyCall) {
        let Some(view) = start.delivery else { return };
        let question =
            Question { wake: &wake, view: &view, scratch: &start.scratch, is_reported: false };
        if self.mode.loses_answers || self.crash_ms.is_some() {
            // The host stopped before the answer was recorded: it has no effect, and is asked for
            // again afterwards, with the same view.
            drop((self.decide)(question));
            self.room.crash(self.crash_ms.take().unwrap_or(1_000));
        }
        let is_reported = self.mode.asks_twice;
        let answer = (self.decide)(Question { is_reported, ..question });
        let woken = describe(&wake);
        if self.mode.asks_twice && (self.decide)(question) != answer {
            let what = format!("asked twice about {woken}, it answered otherwise the second time");
            self.breaks(Guarantee::Deterministic, what);
        }
        let Answer { decisions, scratch } = answer;
        self.room.report.wakes.push(WakeRecord {
            at: self.room.now,
            wake: wake.clone(),
            pending: view.pending_results.len(),
            decided: decisions.clone(),
        });
        match &decisions {
            Ok(decisions) => {
                self.check_tasks(&view, decisions);
                self.check_channels(&wake, &view, decisions);
                self.check_words(question, decisions);
            }
            Err(error) => {
                self.breaks(Guarantee::Answers, format!("woken by {woken}, it failed: {error}"));
            }
        }
        let decisions = decisions.as_deref().map_err(String::as_str);
        self.room.answer(call, decisions, scratch);
        self.check_pace(&wake);
    }

    fn check_tasks(&mut self, view: &DeliveryView, decisions: &[Decision]) {
        let mut pending: Vec<&str> =
            view.pending_results.iter().map(|ended| ended.id.as_str()).collect();
        for decision in decisions {
            let (Decision::Deliver { tasks, .. } | Decision::MoveToInbox { tasks }) = decision
            else {
                continue;
            };
            for task in tasks {
                if let Some(at) = pending.iter().position(|pending| pending == task) {
                    pending.remove(at);
                } else if self.room.has_ended(task) {
                    let what = format!("it decides about {task} a second time");
                    self.breaks(Guarantee::DecidesOnce, what);
                } else {
                    let what = format!("it decides about {task:?}, and there is no such task");
                    self.breaks(Guarantee::OnlyPendingResults, what);
                }
            }
        }
    }

    fn check_channels(&mut self, wake: &Wake, view: &DeliveryView, decisions: &[Decision]) {
        let refused = mem::take(&mut self.room.refused);
        for decision in decisions {
            let Decision::Deliver { tasks, channel: target, .. } = decision else { continue };
            let ids = tasks.join(", ");
            let is_again = tasks.iter().any(|task| refused.contains(task));
            if is_again && matches!(wake, Wake::SendFailed { .. }) {
                let what = format!("after a failed message about {ids}, it sends it again at once");
                self.breaks(Guarantee::BacksOff, what);
            }
            let by_name = |channel: &&Channel| Some(channel.id.as_str()) == target.as_deref();
            let channel = match target {
                Some(_) => view.channels.iter().find(by_name).filter(|channel| !channel.muted),
                None => view.preferred_channel(),
            };
            match (channel, target) {
                (Some(Channel { id, activity: Activity::UserSpeaking, .. }), _) => {
                    let what = format!(
                        "it speaks about {ids} on {:?}, whose user is speaking",
                        id.as_str()
                    );
                    self.breaks(Guarantee::NeverOverAUser, what);
                }
                (Some(_), _) => {}
                (None, Some(id)) => {
                    let what = format!("it speaks on {id:?}, which is muted or was not offered");
                    self.breaks(Guarantee::OnlyItsChannels, what);
                }
                (None, None) => {
                    let what = "it speaks, and there is no channel to speak on";
                    self.breaks(Guarantee::OnlyItsChannels, what);
                }
            }
        }
    }

    /// Compares the strategy's words about a failed task with its words about a completed one in
    /// the same room.
    fn check_words(&mut self, question: Question<'_>, decisions: &[Decision]) {
        let view = question.view;
        let is_failed = |ended: &&Arc<EndedTask>| ended.status != BackgroundStatus::Completed;
        for failed in view.pending_results.iter().filter(is_failed) {
            let Some(words) = words_about(failed.id.as_str(), decisions) else { continue };
            let mut other = view.clone();
            for same in other.pending_results.iter_mut().filter(|same| same.id == failed.id) {
                let same = Arc::make_mut(same);
                same.status = BackgroundStatus::Completed;
                (same.output, same.error) = (same.output.take().or(same.error.take()), None);
            }
            let answer = (self.decide)(Question { view: &other, ..question });
            let decided = answer.decisions.unwrap_or_default();
            if words_about(failed.id.as_str(), &decided) == Some(words) {
                let id = failed.id.as_str();
                let what = format!("what it says about {id} would be the same had it completed");
                self.breaks(Guarantee::ReportsFailures, what);
            }
        }
    }

    fn check_pace(&mut self, wake: &Wake) {
        if *wake != Wake::Timer {
            return;
        }
        let (now, settled) = (self.room.now, self.room.settled);
        let is_near = self.pace.last.is_some_and(|last| now.saturating_sub(last) < BUSY_MS);
        let is_loop = is_near && self.pace.settled == settled;
        let timers = if is_loop { self.pace.timers + 1 } else { 0 };
        self.pace = Pace { last: Some(now), timers, settled };
        if timers == BUSY_TIMERS {
            let what = format!(
                "it waits for less than {BUSY_MS} ms again and again, and nothing comes of it"
            );
            self.breaks(Guarantee::NotBusy, what);
        }
    }

    fn end(mut self, end: u64) -> Report {
        self.room.now = end;
        let pending = self.room.pending();
        if let [first, others @ ..] = pending.as_slice() {
            let others = match others.len() {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            let why = if self.room.has_timer() {
                "though the script is long over"
            } else {
                "and nothing will wake the strategy again"
            };
            self.breaks(Guarantee::NothingLost, format!("{first}{others} still waits, {why}"));
        }
        self.room.report.pending = pending;
        self.room.report
    }

    fn breaks(&mut self, guarantee: Guarantee, what: impl Into<String>) {
        let now = self.room.now;
        self.room.report.breaks(guarantee, now, what);
        if let Some(breach) = self.room.report.breaches.last_mut() {
            breach.play = self.mode.name;
        }
    }
}

fn words_about<'a>(task: &str, decisions: &'a [Decision]) -> Option<&'a str> {
    decisions.iter().find_map(|decision| match decision {
        Decision::Deliver { tasks, prompt, .. } if tasks.iter().any(|id| id == task) => {
            prompt.as_deref()
        }
        _ => None,
    })
}

fn describe(wake: &Wake) -> String {
    match wake {
        Wake::Ended { task } => format!("the end of {}", task.as_str()),
        Wake::ChannelIdle { channel } => format!("the idle channel {}", channel.as_str()),
        Wake::Timer => "a timer".to_owned(),
        Wake::SendFailed { reason } => format!("a failed message ({reason})"),
    }
}
