//! A simulated host: it wakes the strategy, checks and executes its decisions, and gives each
//! result one end. It keeps one timer, one awaited channel, and the scratch.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::report::{AcceptedMessage, Guarantee, InboxEntry, Report, WakeRecord};
use super::script::{Script, ScriptEvent};
use crate::delivery::{
    Activity, Channel, Context, Decision, DeliveryMessage, EndedTask, MOST_ATTEMPTS, Snapshot,
    TaskStatus, WaitRequest, Wake,
};
use crate::native;

/// The clock time of the script's beginning. It is not 0, to expose a strategy that uses 0 for
/// "never".
const BEGINNING_MS: u64 = 1_760_000_000_000;
/// The longest wait of a strategy, as in the host.
const MAX_WAIT_MS: u64 = 60 * 60 * 1_000;
/// Milliseconds between timers below which a series without any action counts as a busy loop.
const BUSY_MS: u64 = 100;
const BUSY_TIMERS: u32 = 20;
/// Wakes of one play. A strategy that takes more never ends.
const MAX_WAKES: usize = 50_000;

/// One play of a script.
#[derive(Clone, Copy, Default)]
pub(super) struct Play {
    /// The name for messages; empty for the first.
    pub(super) name: &'static str,
    /// Whether each wake is asked twice, to compare the answers.
    pub(super) asks_twice: bool,
    /// Whether all events of one moment are one wake.
    pub(super) joins: bool,
    /// Whether the first answer to each wake is lost.
    pub(super) loses_answers: bool,
}

pub(super) struct Room<'a, F> {
    decide: &'a F,
    script: &'a Script,
    play: Play,
    now: u64,
    channels: Vec<SimulatedChannel>,
    results: Vec<TrackedResult>,
    /// The ids of the waiting results, oldest first.
    waiting: Vec<usize>,
    timer: Option<u64>,
    /// The awaited channel, and whether it was idle when last checked.
    waits_for: Option<(String, bool)>,
    scratch: Vec<u8>,
    wakes: VecDeque<Wake>,
    crash_ms: Option<u64>,
    /// The results of the failed message, until the strategy is notified, and then those of the
    /// notification.
    failed: Vec<String>,
    notified_of: Vec<String>,
    busy: Busy,
    report: Report,
}

struct SimulatedChannel {
    channel: Channel,
    says_ms: u64,
    refusals: u32,
    /// The time at which it is silent again.
    quiet_at: Option<u64>,
}

struct TrackedResult {
    ended: EndedTask,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Pending,
    Delivered,
    InInbox,
}

fn weight(wake: &Wake) -> u8 {
    match wake {
        Wake::Ended(_) => 0,
        Wake::Timer => 1,
        Wake::ChannelIdle(_) => 2,
        Wake::SendFailed(_) => 3,
    }
}

#[derive(Default)]
struct Busy {
    last: Option<u64>,
    timers: u32,
    has_settled: bool,
}

impl<'a, F: Fn(Wake, &Context<'_>) -> crate::Result<Vec<Decision>>> Room<'a, F> {
    pub(super) fn new(decide: &'a F, script: &'a Script, play: Play) -> Self {
        let open = |opened: &super::script::ScriptChannel| SimulatedChannel {
            channel: Channel {
                id: opened.id.clone(),
                kind: opened.kind,
                activity: Activity::Idle,
                muted: false,
            },
            says_ms: opened.says_ms,
            refusals: 0,
            quiet_at: None,
        };
        Self {
            decide,
            script,
            play,
            now: 0,
            channels: script.channels.iter().map(open).collect(),
            results: Vec::new(),
            waiting: Vec::new(),
            timer: None,
            waits_for: None,
            scratch: Vec::new(),
            wakes: VecDeque::new(),
            crash_ms: None,
            failed: Vec::new(),
            notified_of: Vec::new(),
            busy: Busy::default(),
            report: Report::default(),
        }
    }

    pub(super) fn play(mut self) -> Report {
        let (end, script) = (self.script.end(), self.script);
        let mut lines = script.lines.iter().peekable();
        loop {
            let quiet = self.channels.iter().filter_map(|open| open.quiet_at).min();
            let next =
                [lines.peek().map(|line| line.at), quiet, self.timer].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            // The time may have jumped over several lines, which still happen in their order.
            while let Some(line) = lines.next_if(|line| line.at <= next) {
                self.play_event(&line.what);
                if !self.play.joins {
                    self.wake_all();
                }
            }
            self.fall_silent(next);
            if self.timer.is_some_and(|timer| timer <= next) {
                self.timer = None;
                self.wakes.push_back(Wake::Timer);
            }
            if self.play.joins {
                // The most informative wake stands for all, and the last of equal ones.
                let wake = std::mem::take(&mut self.wakes).into_iter().max_by_key(weight);
                self.wakes.extend(wake);
            }
            self.wake_all();
            if self.report.wakes.len() >= MAX_WAKES {
                self.breaks(
                    Guarantee::NotBusy,
                    format!("it was woken {MAX_WAKES} times, and is not done"),
                );
                break;
            }
        }
        self.end(end)
    }

    fn play_event(&mut self, what: &ScriptEvent) {
        match what {
            ScriptEvent::Ends(ended) => {
                self.waiting.push(self.results.len());
                self.results.push(TrackedResult { ended: ended.clone(), state: State::Pending });
                self.wakes.push_back(Wake::Ended(ended.task_id.clone()));
            }
            ScriptEvent::Activity { channel, activity } => self.becomes(channel, *activity, None),
            ScriptEvent::Refuses { channel, times } => {
                if let Some(open) = self.channel(channel) {
                    open.refusals = *times;
                }
            }
            ScriptEvent::Mutes { channel, muted } => {
                if let Some(open) = self.channel(channel) {
                    open.channel.muted = *muted;
                }
            }
            ScriptEvent::Leaves { channel } => {
                self.channels.retain(|open| open.channel.id != *channel)
            }
            ScriptEvent::Crashes { for_ms } => self.crash_ms = Some(*for_ms),
        }
    }

    fn channel(&mut self, id: &str) -> Option<&mut SimulatedChannel> {
        self.channels.iter_mut().find(|open| open.channel.id == id)
    }

    fn becomes(&mut self, id: &str, activity: Activity, quiet_at: Option<u64>) {
        let Some(open) = self.channel(id) else { return };
        open.quiet_at = quiet_at;
        open.channel.activity = activity;
        let Some((_, was_idle)) = self.waits_for.as_mut().filter(|(waited, _)| waited == id) else {
            return;
        };
        let is_idle = activity == Activity::Idle;
        if !std::mem::replace(was_idle, is_idle) && is_idle {
            self.wakes.push_back(Wake::ChannelIdle(id.to_owned()));
        }
    }

    fn fall_silent(&mut self, now: u64) {
        let silent: Vec<String> = self
            .channels
            .iter()
            .filter(|open| open.quiet_at.is_some_and(|quiet| quiet <= now))
            .map(|open| open.channel.id.clone())
            .collect();
        for id in silent {
            self.becomes(&id, Activity::Idle, None);
        }
    }

    fn wake_all(&mut self) {
        while let Some(wake) = self.wakes.pop_front() {
            if self.report.wakes.len() >= MAX_WAKES {
                return;
            }
            self.notified_of = std::mem::take(&mut self.failed);
            if !self.waiting.is_empty() {
                self.wake(&wake);
            }
        }
    }

    fn wake(&mut self, wake: &Wake) {
        if self.play.loses_answers || self.crash_ms.is_some() {
            // The host stopped before the answer was recorded: it has no effect, and is asked for
            // again afterwards.
            let _ = self.ask(wake, &self.snapshot());
            self.now += self.crash_ms.take().unwrap_or(1_000);
        }
        match wake {
            Wake::Timer => self.waits_for = None,
            Wake::ChannelIdle(id) => drop(self.waits_for.take_if(|(waited, _)| waited == id)),
            Wake::Ended(_) | Wake::SendFailed(_) => {}
        }
        let room = self.snapshot();
        let (decided, scratch) = self.ask(wake, &room);
        if self.play.asks_twice && self.ask(wake, &room) != (decided.clone(), scratch.clone()) {
            self.breaks(
                Guarantee::Deterministic,
                format!("asked twice for {wake:?}, it answered otherwise the second time"),
            );
        }
        let record = WakeRecord {
            at: self.now,
            wake: wake.clone(),
            pending: self.waiting.len(),
            decided: decided.clone(),
        };
        self.report.wakes.push(record);
        match decided {
            Ok(decisions) => {
                self.scratch = scratch;
                self.check_words(wake, &room, &decisions);
                self.perform_all(wake, decisions);
            }
            Err(error) => {
                self.breaks(Guarantee::Answers, format!("woken by {wake:?}, it failed: {error}"));
                self.move_all_to_inbox("the strategy failed");
            }
        }
        self.check_pace(wake);
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            room_id: "room".to_owned(),
            now_ms: BEGINNING_MS + self.now,
            pending_results: self
                .waiting
                .iter()
                .map(|at| self.results[*at].ended.clone())
                .collect(),
            channels: self.channels.iter().map(|open| open.channel.clone()).collect(),
            notified_task: Some(self.script.notify.clone().unwrap_or_else(|| "desk".to_owned())),
        }
    }

    /// Returns the answer, and the scratch that would be stored with it.
    fn ask(&self, wake: &Wake, room: &Snapshot) -> (Result<Vec<Decision>, String>, Vec<u8>) {
        native::set_scratch(self.scratch.clone());
        let outcome =
            catch_unwind(AssertUnwindSafe(|| (self.decide)(wake.clone(), &room.context())));
        let scratch = native::scratch();
        native::set_scratch(Vec::new());
        let answer = match outcome {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err("it panicked".to_owned()),
        };
        (answer, scratch)
    }

    /// Executes the decisions. The earliest wait of an answer replaces all earlier waits; without
    /// one they stay.
    fn perform_all(&mut self, wake: &Wake, decisions: Vec<Decision>) {
        let mut waits: Option<u64> = None;
        for decision in decisions {
            match decision {
                Decision::Deliver(message) => self.deliver(wake, message),
                Decision::MoveToInbox(tasks) => {
                    for at in self.pending_positions(&tasks) {
                        self.move_to_inbox(at, "moved to the inbox");
                    }
                }
                Decision::Wait(WaitRequest { channel, timeout_ms }) => {
                    if waits.is_none() || channel.is_some() {
                        self.waits_for = channel.and_then(|id| {
                            let open = self.channel(&id)?;
                            Some((id, open.channel.activity == Activity::Idle))
                        });
                    }
                    let until = self.now + timeout_ms.min(MAX_WAIT_MS);
                    waits = Some(waits.map_or(until, |earliest| earliest.min(until)));
                }
                Decision::GiveUp(reason) => self.move_all_to_inbox(&format!("given up: {reason}")),
            }
        }
        self.timer = waits.or(self.timer);
        if self.waiting.is_empty() && self.failed.is_empty() {
            (self.timer, self.waits_for) = (None, None);
        }
    }

    /// Returns those of the tasks that wait. Every other one is a breach.
    fn pending_positions(&mut self, tasks: &[String]) -> Vec<usize> {
        let mut found = Vec::new();
        for task in tasks {
            match self.results.iter().position(|result| result.ended.task_id == *task) {
                Some(at) if self.results[at].state == State::Pending && !found.contains(&at) => {
                    found.push(at)
                }
                Some(_) => self.breaks(
                    Guarantee::DecidesOnce,
                    format!("it decides about {task} a second time"),
                ),
                None => self.breaks(
                    Guarantee::OnlyPendingResults,
                    format!("it decides about {task:?}, and there is no such task"),
                ),
            }
        }
        found
    }

    fn deliver(&mut self, wake: &Wake, message: DeliveryMessage) {
        let DeliveryMessage { tasks, channel, prompt, interrupt } = message;
        let results = self.pending_positions(&tasks);
        let ids_of = |results: &[usize], room: &Self| -> Vec<String> {
            results.iter().map(|at| room.results[*at].ended.task_id.clone()).collect()
        };
        let ids = ids_of(&results, self);
        if ids.is_empty() {
            return;
        }
        if matches!(wake, Wake::SendFailed(_)) && ids.iter().any(|id| self.notified_of.contains(id))
        {
            self.breaks(
                Guarantee::BacksOff,
                format!(
                    "after a failed message about {}, it sends it again at once",
                    ids.join(", ")
                ),
            );
        }
        let target = channel
            .clone()
            .or_else(|| self.snapshot().context().preferred_channel().map(|channel| channel.id));
        let now = self.now;
        let Some(open) =
            target.as_deref().and_then(|id| self.channel(id)).filter(|open| !open.channel.muted)
        else {
            let why = match (channel, target) {
                (Some(id), _) => format!("it speaks on {id:?}, which is muted or was not offered"),
                _ => "it speaks, and there is no channel to speak on".to_owned(),
            };
            self.breaks(Guarantee::OnlyItsChannels, why.clone());
            results.into_iter().for_each(|at| self.move_to_inbox(at, &why));
            return;
        };
        let id = open.channel.id.clone();
        if open.channel.activity == Activity::UserSpeaking {
            self.breaks(
                Guarantee::NeverOverAUser,
                format!("it speaks about {} on {id:?}, whose user is speaking", ids.join(", ")),
            );
        } else if open.refusals == 0 && open.says_ms > 0 {
            let begins = if interrupt { now } else { open.quiet_at.unwrap_or(now).max(now) };
            let quiet_at = Some(begins + open.says_ms);
            self.becomes(&id, Activity::Speaking, quiet_at);
        }
        match self.channel(&id).filter(|open| open.refusals > 0) {
            Some(open) => {
                open.refusals -= 1;
                self.rejected(&results, ids);
            }
            None => self.accepted(
                &results,
                AcceptedMessage {
                    at: now,
                    tasks: ids,
                    channel: id,
                    prompt,
                    interrupted: interrupt,
                },
            ),
        }
    }

    fn accepted(&mut self, results: &[usize], message: AcceptedMessage) {
        for at in results {
            self.leave(*at, State::Delivered);
        }
        self.report.delivered.push(message);
    }

    fn rejected(&mut self, results: &[usize], ids: Vec<String>) {
        for at in results {
            self.results[*at].ended.attempts += 1;
            if self.results[*at].ended.attempts >= MOST_ATTEMPTS {
                self.move_to_inbox(*at, "tried as often as the host tries");
            }
        }
        self.failed = ids;
        self.wakes.push_front(Wake::SendFailed("the channel refused it".to_owned()));
    }

    fn move_to_inbox(&mut self, at: usize, why: &str) {
        self.leave(at, State::InInbox);
        let entry = InboxEntry { at: self.now, why: why.to_owned() };
        self.report.inbox.insert(self.results[at].ended.task_id.clone(), entry);
    }

    fn move_all_to_inbox(&mut self, why: &str) {
        for at in self.waiting.clone() {
            self.move_to_inbox(at, why);
        }
    }

    fn leave(&mut self, at: usize, state: State) {
        self.results[at].state = state;
        self.waiting.retain(|waiting| *waiting != at);
        self.busy.has_settled = true;
    }

    /// Compares the strategy's words about a failed task with its words about a completed one in
    /// the same room.
    fn check_words(&mut self, wake: &Wake, room: &Snapshot, decisions: &[Decision]) {
        let words = |decisions: &[Decision], id: &str| -> Option<String> {
            decisions.iter().find_map(|decision| match decision {
                Decision::Deliver(message) if message.tasks.iter().any(|task| task == id) => {
                    message.prompt.clone()
                }
                _ => None,
            })
        };
        for ended in
            room.pending_results.iter().filter(|ended| ended.status != TaskStatus::Completed)
        {
            let Some(failure_words) = words(decisions, &ended.task_id) else { continue };
            let mut other = room.clone();
            for same in
                other.pending_results.iter_mut().filter(|same| same.task_id == ended.task_id)
            {
                (same.status, same.output, same.error) =
                    (TaskStatus::Completed, same.output.take().or(same.error.take()), None);
            }
            if let (Ok(decided), _) = self.ask(wake, &other)
                && words(&decided, &ended.task_id) == Some(failure_words)
            {
                let what = format!(
                    "what it says about {} would be the same had it completed",
                    ended.task_id
                );
                self.breaks(Guarantee::ReportsFailures, what);
            }
        }
    }

    fn check_pace(&mut self, wake: &Wake) {
        if *wake != Wake::Timer {
            return;
        }
        let is_near =
            self.busy.last.is_some_and(|last| self.now - last < BUSY_MS) && !self.busy.has_settled;
        let timers = if is_near { self.busy.timers + 1 } else { 0 };
        self.busy = Busy { last: Some(self.now), timers, has_settled: false };
        if timers == BUSY_TIMERS {
            self.breaks(
                Guarantee::NotBusy,
                format!(
                    "it waits for less than {BUSY_MS} ms again and again, and nothing comes of it"
                ),
            );
        }
    }

    fn end(mut self, end: u64) -> Report {
        self.now = end;
        let waiting: Vec<String> =
            self.waiting.iter().map(|at| self.results[*at].ended.task_id.clone()).collect();
        if let [first, ..] = waiting.as_slice() {
            let others = if waiting.len() == 1 {
                String::new()
            } else {
                format!(" (and {} more)", waiting.len() - 1)
            };
            let why = if self.timer.is_some() {
                "though the script is long over"
            } else {
                "and nothing will wake the strategy again"
            };
            self.breaks(Guarantee::NothingLost, format!("{first}{others} still waits, {why}"));
        }
        self.report.pending = waiting;
        self.report
    }

    fn breaks(&mut self, guarantee: Guarantee, what: String) {
        self.report.breaks(guarantee, self.now, what);
        if let Some(breach) = self.report.breaches.last_mut() {
            breach.play = self.play.name;
        }
    }
}
