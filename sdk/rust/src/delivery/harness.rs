//! The test kit for strategies. Like the host, it plays a script of rooms, clocks, channels and
//! failures to a strategy, and reports the guarantees that the strategy breaks. It needs no host,
//! no component and no waiting, since the clock is the script's. It runs natively, in a test.
//!
//! ```
//! use conclave_sdk::Result;
//! use conclave_sdk::delivery::harness::{Guarantee, Harness};
//! use conclave_sdk::delivery::{Activity, ChannelKind, Context, Decision, Wake, deliver};
//!
//! /// Says everything at once, and never thinks of who is speaking.
//! fn rude(_wake: Wake, context: &Context) -> Result<Vec<Decision>> {
//!     Ok(vec![deliver(context.pending_results().into_iter().map(|ended| ended.task_id))])
//! }
//!
//! let report = Harness::new(rude)
//!     .channel("phone", ChannelKind::Voice)
//!     .at(0).activity("phone", Activity::UserSpeaking)
//!     .at(500).completes("task-1", "48 metres")
//!     .run();
//! let broken = report.check().unwrap_err();
//! assert!(broken.is(Guarantee::NeverOverAUser), "{broken}");
//! ```
//!
//! The script is played four times. The first two plays are unchanged, and must have the same
//! result. The third joins everything that happens in one moment into one wake, as a host does
//! while it is deciding. The fourth loses the answer of each wake once, as in a crash, and asks
//! again a second later. All guarantees must hold in every play.

mod report;
mod room;
mod script;

use serde_json::Value;

use super::{Activity, ChannelKind, Context, Decision, EndedTask, TaskStatus, Wake};
use crate::{Error, Result, native};

pub use report::{AcceptedMessage, Breach, Broken, Guarantee, InboxEntry, Report, WakeRecord};
use room::{Play, Room};
pub use script::Script;
use script::{Line, ScriptEvent};

/// A strategy, and the script that is played to it.
#[must_use = "nothing is played before `run`"]
pub struct Harness<F> {
    decide: F,
    script: Script,
    config: Value,
    now: u64,
}

impl<F: Fn(Wake, &Context<'_>) -> Result<Vec<Decision>>> Harness<F> {
    /// Creates a harness with a room without channels and an empty script. `MyStrategy::decide` is
    /// a strategy.
    pub fn new(decide: F) -> Self {
        Self { decide, script: Script::default(), config: Value::Null, now: 0 }
    }

    /// Replaces the script with one from data; see [`Script::from_json`].
    pub fn script(mut self, script: Script) -> Self {
        self.script = script;
        self
    }

    /// Sets the plugin's settings, as `config::get` returns them: an object.
    pub fn config(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    /// Adds a channel on which the strategy may speak.
    pub fn channel(mut self, id: &str, kind: ChannelKind) -> Self {
        self.script.add_channel(id, kind, 0);
        self
    }

    /// Adds a channel that is busy for this many milliseconds with each message, like a voice.
    pub fn voice(mut self, id: &str, says_ms: u64) -> Self {
        self.script.add_channel(id, ChannelKind::Voice, says_ms);
        self
    }

    /// Sets the time of the following lines, in milliseconds after the beginning.
    pub fn at(mut self, ms: u64) -> Self {
        self.now = ms;
        self
    }

    /// Completes a background task with that answer.
    pub fn completes(self, task: &str, output: &str) -> Self {
        let ended = EndedTask { output: Some(output.to_owned()), ..ended(task) };
        self.happens(ScriptEvent::Ends(ended))
    }

    /// Ends a background task with another status and an error; with [`TaskStatus::Completed`],
    /// without an answer.
    pub fn ends(self, task: &str, status: TaskStatus, error: &str) -> Self {
        let error = (status != TaskStatus::Completed).then(|| error.to_owned());
        self.happens(ScriptEvent::Ends(EndedTask { status, error, output: None, ..ended(task) }))
    }

    /// Completes this many background tasks in the same moment: `NAME-0`, `NAME-1` and so on.
    pub fn burst(self, name: &str, count: usize) -> Self {
        (0..count)
            .fold(self, |harness, number| harness.completes(&format!("{name}-{number}"), "done"))
    }

    /// Makes a channel busy, or idle again.
    pub fn activity(self, channel: &str, activity: Activity) -> Self {
        self.happens(ScriptEvent::Activity { channel: channel.to_owned(), activity })
    }

    /// Makes a channel reject its next `times` messages.
    pub fn refuses(self, channel: &str, times: u32) -> Self {
        self.happens(ScriptEvent::Refuses { channel: channel.to_owned(), times })
    }

    /// Mutes a channel.
    pub fn mutes(self, channel: &str) -> Self {
        self.happens(ScriptEvent::Mutes { channel: channel.to_owned(), muted: true })
    }

    /// Unmutes a channel.
    pub fn unmutes(self, channel: &str) -> Self {
        self.happens(ScriptEvent::Mutes { channel: channel.to_owned(), muted: false })
    }

    /// Removes a channel from the room.
    pub fn leaves(self, channel: &str) -> Self {
        self.happens(ScriptEvent::Leaves { channel: channel.to_owned() })
    }

    /// Stops the host for this many milliseconds. The answer to the next wake is lost, with its
    /// changes to the scratch, and asked for again.
    pub fn crashes(self, for_ms: u64) -> Self {
        self.happens(ScriptEvent::Crashes { for_ms })
    }

    fn happens(mut self, what: ScriptEvent) -> Self {
        self.script.lines.push(Line { at: self.now, what });
        self
    }

    /// Plays the script, and returns the report. It describes the first of the four plays, and
    /// contains the breaches of all.
    pub fn run(mut self) -> Report {
        self.script.lines.sort_by_key(|line| line.at);
        let before = native::set_config(self.config.is_object().then(|| self.config.to_string()));
        let mut report = self.play(Play { name: "", asks_twice: true, ..Play::default() });
        report.expect(self.script.expected.as_ref());
        let replay = self.play(Play { name: "played again", ..Play::default() });
        if replay.wakes != report.wakes {
            report.breaks(
                Guarantee::Deterministic,
                0,
                "the same script, played again, was answered otherwise".to_owned(),
            );
        }
        let others = [
            Play { name: "with wakes of one moment joined", joins: true, ..Play::default() },
            Play { name: "with each answer lost once", loses_answers: true, ..Play::default() },
        ];
        for play in others {
            report.breaches.extend(self.play(play).breaches);
        }
        native::set_config(before);
        report
    }

    fn play(&self, play: Play) -> Report {
        Room::new(&self.decide, &self.script, play).play()
    }
}

/// A task that completed without an answer, as a start for a test's own: `EndedTask { attempts: 2,
/// ..ended("a") }`.
pub fn ended(task_id: &str) -> EndedTask {
    EndedTask {
        task_id: task_id.to_owned(),
        worker: "worker".to_owned(),
        description: "Find out.".to_owned(),
        status: TaskStatus::Completed,
        output: None,
        error: None,
        duration_ms: 1_000,
        attempts: 0,
        metadata: "{}".to_owned(),
    }
}

fn unknown(what: &str, name: &str, known: &[&str]) -> Error {
    Error::invalid_arguments(format!("{name:?} is no {what}: there are {}", known.join(", ")))
}
