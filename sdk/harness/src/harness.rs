//! The harness of a strategy in Rust, with its script as a chain of calls.

use conclave_sdk::Result;
use conclave_sdk::delivery::{Activity, ChannelKind, Context, Decision, TaskStatus, Wake};
use conclave_sdk::testing::FakeHost;
use serde_json::Value;

use crate::script::{Line, ScriptChannel, ScriptEvent};
use crate::{Report, Script, native, play};

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
    pub fn channel(self, id: &str, kind: ChannelKind) -> Self {
        self.add_channel(id, kind, 0)
    }

    /// Adds a channel that is busy for this many milliseconds with each message, like a voice.
    pub fn voice(self, id: &str, says_ms: u64) -> Self {
        self.add_channel(id, ChannelKind::Voice, says_ms)
    }

    fn add_channel(mut self, id: &str, kind: ChannelKind, says_ms: u64) -> Self {
        let kind = native::kind(kind);
        self.script.channels.push(ScriptChannel { id: id.to_owned(), kind, says_ms });
        self
    }

    /// Sets the time of the following lines, in milliseconds after the beginning.
    pub fn at(mut self, ms: u64) -> Self {
        self.now = ms;
        self
    }

    /// Completes a background task with that answer. One without an answer (`""`) has failed, as on
    /// the host.
    pub fn completes(self, task: &str, output: &str) -> Self {
        self.task_ends(task, TaskStatus::Completed, Some(output), None)
    }

    /// Ends a background task with another status and an error. For a completed task, which has no
    /// error, this is the same as [`completes`](Self::completes) with some answer.
    pub fn ends(self, task: &str, status: TaskStatus, error: &str) -> Self {
        match status {
            TaskStatus::Completed => self.completes(task, "done"),
            _ => self.task_ends(task, status, None, Some(error)),
        }
    }

    fn task_ends(
        self,
        task: &str,
        status: TaskStatus,
        output: Option<&str>,
        error: Option<&str>,
    ) -> Self {
        self.happens(ScriptEvent::Ends {
            task: task.to_owned(),
            status: native::status(status),
            output: output.map(str::to_owned),
            error: error.map(str::to_owned),
        })
    }

    /// Completes this many background tasks in the same moment: `NAME-0`, `NAME-1` and so on.
    pub fn burst(self, name: &str, count: usize) -> Self {
        (0..count)
            .fold(self, |harness, number| harness.completes(&format!("{name}-{number}"), "done"))
    }

    /// Makes a channel busy, or idle again.
    pub fn activity(self, name: &str, activity: Activity) -> Self {
        let activity = native::activity(activity);
        self.happens(ScriptEvent::Activity { channel: name.to_owned(), activity })
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
    pub fn run(self) -> Report {
        let Self { decide, script, config, .. } = self;
        let play = || play(&script, &mut |question| native::ask(&decide, question));
        if config.is_object() { FakeHost::new().config(config).run(play) } else { play() }
    }
}
