//! A script as data: the events in a room, with their times.

use std::collections::BTreeSet;

use conclave_core::config::{check_task_name, is_reserved_task};
use conclave_core::types::channel::{Activity, ChannelKind};
use conclave_core::types::delivery::{BackgroundStatus, EndedTask};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Milliseconds for which the clock runs after the last line by default: an hour.
const AFTERWARDS_MS: u64 = 60 * 60 * 1_000;
/// The greatest number of milliseconds in a script: a year. Sums of them do not overflow.
const LONGEST_MS: u64 = 365 * 24 * AFTERWARDS_MS;

/// The events in a room, with their times.
// `remote` makes of the derived function one that `Deserialize` below calls before its checks.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Script {
    pub(crate) channels: Vec<ScriptChannel>,
    #[serde(rename = "script")]
    pub(crate) lines: Vec<Line>,
    /// The task that is notified.
    #[serde(default, deserialize_with = "task_name")]
    pub(crate) notify: Option<String>,
    /// The time after which nothing is played.
    #[serde(default)]
    until: Option<u64>,
    #[serde(default, rename = "expect")]
    pub(crate) expected: Option<Expected>,
}

/// A channel on which the strategy may speak.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptChannel {
    pub(crate) id: String,
    pub(crate) kind: ChannelKind,
    #[serde(default)]
    pub(crate) says_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Line {
    #[serde(default)]
    pub(crate) at: u64,
    #[serde(flatten)]
    pub(crate) what: ScriptEvent,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum ScriptEvent {
    Ends {
        task: String,
        #[serde(default = "completed")]
        status: BackgroundStatus,
        #[serde(default)]
        output: Option<String>,
        #[serde(default)]
        error: Option<String>,
    },
    Activity {
        channel: String,
        #[serde(rename = "is")]
        activity: Activity,
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

impl ScriptEvent {
    /// The channel that the event is about.
    fn channel(&self) -> Option<&str> {
        match self {
            Self::Activity { channel, .. }
            | Self::Refuses { channel, .. }
            | Self::Mutes { channel, .. }
            | Self::Leaves { channel } => Some(channel),
            Self::Ends { .. } | Self::Crashes { .. } => None,
        }
    }
}

/// The expected result of the first play.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expected {
    /// The time of each message, and its tasks.
    #[serde(default)]
    pub(crate) delivered: Option<Vec<(u64, Vec<String>)>>,
    /// The contents of the inbox, sorted.
    #[serde(default)]
    pub(crate) inbox: Option<Vec<String>>,
}

fn completed() -> BackgroundStatus {
    BackgroundStatus::Completed
}

fn task_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let name = String::deserialize(deserializer)?;
    check_task_name(&name).map_err(|why| D::Error::custom(format!("notify: {why}")))?;
    if is_reserved_task(&name) {
        return Err(D::Error::custom(format!("notify: no task can have the name {name:?}")));
    }
    Ok(Some(name))
}

impl<'de> Deserialize<'de> for Script {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let script = Self::deserialize(deserializer)?;
        script.check().map_err(D::Error::custom)?;
        Ok(script)
    }
}

impl Script {
    /// Reads a script, so that cases can be data:
    ///
    /// ```
    /// use conclave_harness::Script;
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
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the text is not a script; names the wrong word and the valid ones. If an event is about
    /// a channel that the script does not have, two channels or two tasks have one name, or a time
    /// is above a year.
    pub fn from_json(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// Whether there is a channel on which the strategy may speak.
    pub fn has_channels(&self) -> bool {
        !self.channels.is_empty()
    }

    /// Checks that the events are about channels of the script, that each name is that of one
    /// channel or one task, and that no time is too long.
    fn check(&self) -> Result<(), String> {
        let (mut channels, mut tasks) = (BTreeSet::new(), BTreeSet::new());
        let mut times = vec![("until", self.until.unwrap_or_default())];
        for channel in &self.channels {
            times.push(("says_ms", channel.says_ms));
            if !channels.insert(channel.id.as_str()) {
                return Err(format!("two channels have the id {:?}", channel.id));
            }
        }
        for Line { at, what } in &self.lines {
            times.push(("at", *at));
            match what {
                ScriptEvent::Crashes { for_ms } => times.push(("for_ms", *for_ms)),
                ScriptEvent::Ends { task, .. } if !tasks.insert(task.as_str()) => {
                    return Err(format!("the task {task:?} ends twice"));
                }
                _ => {}
            }
            if let Some(id) = what.channel().filter(|id| !channels.contains(id)) {
                return Err(format!("an event is about the channel {id:?}, which is not there"));
            }
        }
        match times.iter().find(|(_, ms)| *ms > LONGEST_MS) {
            Some((key, ms)) => Err(format!("{key}: {ms} ms are more than a year")),
            None => Ok(()),
        }
    }

    /// The time after which nothing is played.
    pub(crate) fn end(&self) -> u64 {
        self.until.unwrap_or_else(|| {
            let last = self.lines.iter().map(|line| line.at).max().unwrap_or_default();
            last.saturating_add(AFTERWARDS_MS)
        })
    }
}

/// The end of a task, as its room reports it. The room above adds which task it was.
pub(crate) fn end_of(
    status: BackgroundStatus,
    output: Option<&String>,
    error: Option<&String>,
) -> EndedTask {
    EndedTask {
        status,
        output: output.cloned(),
        error: error.cloned(),
        ..EndedTask::interrupted(String::new())
    }
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
                "unknown variant `smoke`, expected one of `text`, `web`",
            ),
            (
                r#"{"channels": [], "script": [{"at": 1, "do": "dances"}]}"#,
                "unknown variant `dances`",
            ),
            (
                r#"{"channels": [], "script": [{"do": "activity", "channel": "a", "is": "gone"}]}"#,
                "unknown variant `gone`, expected one of `idle`",
            ),
            (
                r#"{"channels": [], "script": [{"do": "ends", "task": "a", "status": "won"}]}"#,
                "unknown variant `won`, expected one of `completed`",
            ),
            (r#"{"channels": [], "script": [], "notify": "The desk"}"#, "notify: "),
            (
                r#"{"channels": [], "script": [], "notify": "Finish"}"#,
                "no task can have the name \"Finish\"",
            ),
            (
                r#"{"channels": [], "script": [{"do": "ends", "task": "a", "stauts": "failed"}]}"#,
                "unknown field `stauts`, expected one of `task`, `status`",
            ),
            (
                r#"{"channels": [], "script": [{"do": "leaves", "channel": "phone"}]}"#,
                "the channel \"phone\", which is not there",
            ),
            (
                r#"{"channels": [{"id": "a", "kind": "web"}, {"id": "a", "kind": "voice"}], "script": []}"#,
                "two channels have the id \"a\"",
            ),
            (
                r#"{"channels": [], "script": [{"do": "ends", "task": "a"}, {"do": "ends", "task": "a"}]}"#,
                "the task \"a\" ends twice",
            ),
            (
                r#"{"channels": [], "script": [{"do": "crashes", "for_ms": 18446744073709551615}]}"#,
                "for_ms: 18446744073709551615 ms are more than a year",
            ),
            (r#"{"channels": [], "script": [], "until": 31536000001}"#, "until: "),
            ("{}", "missing field `channels`"),
        ] {
            let error = Script::from_json(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
