//! A script as data: the events in a room, with their times.

use serde::Deserialize;

use super::{Activity, ChannelKind, EndedTask, TaskStatus, ended, unknown};
use crate::{Error, Result};

/// Milliseconds for which the clock runs after the last line by default: an hour.
const AFTERWARDS_MS: u64 = 60 * 60 * 1_000;

/// The events in a room, with their times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    pub(super) channels: Vec<ScriptChannel>,
    pub(super) lines: Vec<Line>,
    pub(super) notify: Option<String>,
    pub(super) until: Option<u64>,
    pub(super) expected: Option<Expected>,
}

/// A channel on which the strategy may speak.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ScriptChannel {
    pub(super) id: String,
    pub(super) kind: ChannelKind,
    pub(super) says_ms: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) at: u64,
    pub(super) what: ScriptEvent,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ScriptEvent {
    Ends(EndedTask),
    Activity { channel: String, activity: Activity },
    Refuses { channel: String, times: u32 },
    Mutes { channel: String, muted: bool },
    Leaves { channel: String },
    Crashes { for_ms: u64 },
}

/// The expected result of the first play.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expected {
    /// The time of each message, and its tasks.
    #[serde(default)]
    pub(super) delivered: Option<Vec<(u64, Vec<String>)>>,
    /// The contents of the inbox, sorted.
    #[serde(default)]
    pub(super) inbox: Option<Vec<String>>,
}

impl Script {
    /// Reads a script, so that cases can be data:
    ///
    /// ```
    /// use conclave_sdk::delivery::harness::Script;
    ///
    /// let script = Script::from_json(r#"{
    ///     "channels": [{ "id": "phone", "kind": "voice", "says_ms": 2000 }],
    ///     "script": [
    ///         { "at": 0, "do": "ends", "task": "a", "output": "48 m" },
    ///         { "at": 0, "do": "ends", "task": "b", "status": "failed", "error": "no disk" },
    ///         { "at": 500, "do": "activity", "channel": "phone", "is": "user-speaking" },
    ///         { "at": 900, "do": "refuses", "channel": "phone", "times": 3 },
    ///         { "at": 950, "do": "mutes", "channel": "phone", "muted": false },
    ///         { "at": 960, "do": "leaves", "channel": "phone" },
    ///         { "at": 980, "do": "crashes", "for_ms": 5000 }
    ///     ],
    ///     "notify": "desk",
    ///     "until": 60000,
    ///     "expect": { "delivered": [[0, ["a"]]], "inbox": ["b"] }
    /// }"#)?;
    /// # let _ = script;
    /// # Ok::<(), conclave_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the text is not a script; names the line and the word.
    pub fn from_json(text: &str) -> Result<Self> {
        let wrong =
            |error: serde_json::Error| Error::invalid_arguments(format!("the script: {error}"));
        let ScriptForm { channels, script, notify, until, expect } =
            serde_json::from_str(text).map_err(wrong)?;
        let channels = channels.into_iter().map(|channel| {
            let kind = kind_named(&channel.kind)?;
            Ok(ScriptChannel { id: channel.id, kind, says_ms: channel.says_ms })
        });
        let lines =
            script.into_iter().map(|LineForm { at, what }| Ok(Line { at, what: what.read()? }));
        let (channels, lines) =
            (channels.collect::<Result<Vec<_>>>()?, lines.collect::<Result<Vec<_>>>()?);
        Ok(Self { channels, lines, notify, until, expected: expect })
    }

    pub(super) fn add_channel(&mut self, id: &str, kind: ChannelKind, says_ms: u64) {
        self.channels.push(ScriptChannel { id: id.to_owned(), kind, says_ms });
    }

    /// The time after which nothing is played.
    pub(super) fn end(&self) -> u64 {
        self.until.unwrap_or_else(|| {
            self.lines.last().map_or(0, |line| line.at).saturating_add(AFTERWARDS_MS)
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptForm {
    channels: Vec<ChannelForm>,
    script: Vec<LineForm>,
    #[serde(default)]
    notify: Option<String>,
    #[serde(default)]
    until: Option<u64>,
    #[serde(default)]
    expect: Option<Expected>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChannelForm {
    id: String,
    kind: String,
    #[serde(default)]
    says_ms: u64,
}

#[derive(Deserialize)]
struct LineForm {
    #[serde(default)]
    at: u64,
    #[serde(flatten)]
    what: EventForm,
}

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
enum EventForm {
    Ends {
        task: String,
        #[serde(default)]
        status: Option<String>,
        #[serde(default)]
        output: Option<String>,
        #[serde(default)]
        error: Option<String>,
    },
    Activity {
        channel: String,
        is: String,
    },
    Refuses {
        channel: String,
        times: u32,
    },
    Mutes {
        channel: String,
        muted: bool,
    },
    Leaves {
        channel: String,
    },
    Crashes {
        for_ms: u64,
    },
}

impl EventForm {
    fn read(self) -> Result<ScriptEvent> {
        Ok(match self {
            Self::Ends { task, status, output, error } => {
                let status = status.as_deref().map_or(Ok(TaskStatus::Completed), status_named)?;
                ScriptEvent::Ends(EndedTask { status, output, error, ..ended(&task) })
            }
            Self::Activity { channel, is } => {
                ScriptEvent::Activity { channel, activity: activity_named(&is)? }
            }
            Self::Refuses { channel, times } => ScriptEvent::Refuses { channel, times },
            Self::Mutes { channel, muted } => ScriptEvent::Mutes { channel, muted },
            Self::Leaves { channel } => ScriptEvent::Leaves { channel },
            Self::Crashes { for_ms } => ScriptEvent::Crashes { for_ms },
        })
    }
}

fn kind_named(name: &str) -> Result<ChannelKind> {
    Ok(match name {
        "text" => ChannelKind::Text,
        "web" => ChannelKind::Web,
        "voice" => ChannelKind::Voice,
        "agent" => ChannelKind::Agent,
        "other" => ChannelKind::Other,
        _ => {
            return Err(unknown(
                "kind of channel",
                name,
                &["text", "web", "voice", "agent", "other"],
            ));
        }
    })
}

fn activity_named(name: &str) -> Result<Activity> {
    Ok(match name {
        "idle" => Activity::Idle,
        "speaking" => Activity::Speaking,
        "user-speaking" => Activity::UserSpeaking,
        "generating" => Activity::Generating,
        _ => {
            return Err(unknown(
                "activity",
                name,
                &["idle", "speaking", "user-speaking", "generating"],
            ));
        }
    })
}

fn status_named(name: &str) -> Result<TaskStatus> {
    Ok(match name {
        "completed" => TaskStatus::Completed,
        "failed" => TaskStatus::Failed,
        "cancelled" => TaskStatus::Cancelled,
        "timed-out" => TaskStatus::TimedOut,
        "interrupted" => TaskStatus::Interrupted,
        _ => {
            return Err(unknown(
                "status",
                name,
                &["completed", "failed", "cancelled", "timed-out", "interrupted"],
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::Script;

    #[test]
    fn an_invalid_script_is_refused_with_the_valid_words() {
        for (text, expected) in [
            (r#"{"channels": [], "script": [], "tempo": 1}"#, "unknown field `tempo`"),
            (
                r#"{"channels": [{"id": "a", "kind": "smoke"}], "script": []}"#,
                "\"smoke\" is no kind of channel: there are text, web",
            ),
            (
                r#"{"channels": [], "script": [{"at": 1, "do": "dances"}]}"#,
                "unknown variant `dances`",
            ),
            (
                r#"{"channels": [], "script": [{"do": "activity", "channel": "a", "is": "gone"}]}"#,
                "\"gone\" is no activity",
            ),
            (
                r#"{"channels": [], "script": [{"do": "ends", "task": "a", "status": "won"}]}"#,
                "\"won\" is no status",
            ),
            ("{}", "missing field `channels`"),
        ] {
            let error = Script::from_json(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
