//! The author's kit for strategies: it plays a script of rooms, clocks, channels and failures to a
//! strategy, as the host would, and says which guarantees the strategy breaks. No host, no
//! component and no waiting: the clock is the script's. It runs natively, in a test.
//!
//! ```
//! use conclave_sdk::Result;
//! use conclave_sdk::delivery::harness::{Guarantee, Harness};
//! use conclave_sdk::delivery::{Activity, ChannelKind, Context, Decision, Wake, speak};
//!
//! /// Says everything at once, and never thinks of who is speaking.
//! fn rude(_wake: Wake, context: &Context) -> Result<Vec<Decision>> {
//!     Ok(vec![speak(context.waiting().into_iter().map(|ended| ended.task_id))])
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
//! The script is played four times: twice as it is, which must come out the same; with all that
//! happens in one moment joined into one wake, as a host does that is deciding already; and with
//! the answer of each wake lost once, as by a crash, and asked for again a second later. Each time
//! every guarantee must hold.

mod report;
mod room;
mod script;

use serde_json::Value;

use super::{Activity, ChannelKind, Context, Decision, EndedTask, TaskStatus, Wake};
use crate::{Error, Result, native};

pub use report::{Breach, Broken, Guarantee, Kept, Report, Told, Woken};
use room::{Play, Room};
pub use script::Script;
use script::{Happening, Line};

/// A strategy, and the script that is played to it.
#[must_use = "nothing is played before `run`"]
pub struct Harness<F> {
    decide: F,
    script: Script,
    config: Value,
    now: u64,
}

impl<F: Fn(Wake, &Context<'_>) -> Result<Vec<Decision>>> Harness<F> {
    /// A strategy in a room without channels, in which nothing has happened. `MyStrategy::decide`
    /// is a strategy.
    pub fn new(decide: F) -> Self {
        Self { decide, script: Script::default(), config: Value::Null, now: 0 }
    }

    /// The script as data, in the place of the one so far; see [`Script::from_json`].
    pub fn script(mut self, script: Script) -> Self {
        self.script = script;
        self
    }

    /// The plugin's settings, as `config::get` gives them: an object.
    pub fn config(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    /// A channel that the strategy may speak on.
    pub fn channel(mut self, id: &str, kind: ChannelKind) -> Self {
        self.script.add_channel(id, kind, 0);
        self
    }

    /// A channel that is busy with saying it for so long after each speech, as a voice is.
    pub fn voice(mut self, id: &str, says_ms: u64) -> Self {
        self.script.add_channel(id, ChannelKind::Voice, says_ms);
        self
    }

    /// What follows happens so many milliseconds after the beginning.
    pub fn at(mut self, ms: u64) -> Self {
        self.now = ms;
        self
    }

    /// A background task completes with that answer.
    pub fn completes(self, task: &str, output: &str) -> Self {
        let ended = EndedTask { output: Some(output.to_owned()), ..ended(task) };
        self.happens(Happening::Ends(ended))
    }

    /// A background task ends in another way, with that error; in [`TaskStatus::Completed`] without
    /// an answer.
    pub fn ends(self, task: &str, status: TaskStatus, error: &str) -> Self {
        let error = (status != TaskStatus::Completed).then(|| error.to_owned());
        self.happens(Happening::Ends(EndedTask { status, error, output: None, ..ended(task) }))
    }

    /// So many background tasks complete in the same moment: `NAME-0`, `NAME-1` and so on.
    pub fn burst(self, name: &str, count: usize) -> Self {
        (0..count)
            .fold(self, |harness, number| harness.completes(&format!("{name}-{number}"), "done"))
    }

    /// A channel begins to be busy, or is idle again.
    pub fn activity(self, channel: &str, activity: Activity) -> Self {
        self.happens(Happening::Activity { channel: channel.to_owned(), activity })
    }

    /// A channel does not accept the next so many speeches.
    pub fn refuses(self, channel: &str, times: u32) -> Self {
        self.happens(Happening::Refuses { channel: channel.to_owned(), times })
    }

    /// A channel is muted from now on.
    pub fn mutes(self, channel: &str) -> Self {
        self.happens(Happening::Mutes { channel: channel.to_owned(), muted: true })
    }

    /// A channel is not muted any more.
    pub fn unmutes(self, channel: &str) -> Self {
        self.happens(Happening::Mutes { channel: channel.to_owned(), muted: false })
    }

    /// A channel leaves the room.
    pub fn leaves(self, channel: &str) -> Self {
        self.happens(Happening::Leaves { channel: channel.to_owned() })
    }

    /// The host stops for so long: the answer of the next wake is lost, with what it set in the
    /// scratch, and asked for again.
    pub fn crashes(self, for_ms: u64) -> Self {
        self.happens(Happening::Crashes { for_ms })
    }

    fn happens(mut self, what: Happening) -> Self {
        self.script.lines.push(Line { at: self.now, what });
        self
    }

    /// Plays the script, and says what came of it. The report tells the first of the four times; a
    /// breach of each.
    pub fn run(mut self) -> Report {
        self.script.lines.sort_by_key(|line| line.at);
        let before = native::set_config(self.config.is_object().then(|| self.config.to_string()));
        let mut report = self.play(Play { name: "", asks_twice: true, ..Play::default() });
        report.expect(self.script.expected.as_ref());
        let again = self.play(Play { name: "played again", ..Play::default() });
        if again.woken != report.woken {
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

/// A task that completed without an answer: a start for one of a test's own, `EndedTask { attempts:
/// 2, ..ended("a") }`.
pub fn ended(task_id: &str) -> EndedTask {
    EndedTask {
        task_id: task_id.to_owned(),
        agent: "worker".to_owned(),
        task: "Find out.".to_owned(),
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
