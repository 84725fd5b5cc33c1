//! Channels of a room: how people and programs are reached, and what each channel may do there. A
//! channel is bound to a room; what a child room gets of a binding is attenuated, never widened
//!

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::ids::{ChannelId, TaskName};

/// What kind of channel it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChannelKind {
    /// A terminal, or any other text.
    #[default]
    Text,
    Web,
    Voice,
    Agent,
    Other,
}

impl ChannelKind {
    /// The word in configs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Web => "web",
            Self::Voice => "voice",
            Self::Agent => "agent",
            Self::Other => "other",
        }
    }

    /// It leads to people outside; an agent's leads to nobody.
    #[must_use]
    pub fn is_transport(self) -> bool {
        self != Self::Agent
    }
}

/// What keeps a channel busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    #[default]
    Idle,
    /// It says something.
    Speaking,
    /// Its user does.
    UserSpeaking,
    /// A model makes what it will say.
    Generating,
}

/// A channel, as a strategy sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    pub id: ChannelId,
    pub kind: ChannelKind,
    pub activity: Activity,
    pub muted: bool,
}

/// Which way a channel works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChannelAccess {
    #[default]
    ReadWrite,
    /// It is told things, and nothing comes in from it.
    ReadOnly,
    /// Things come in from it, and it is told nothing.
    WriteOnly,
    None,
}

impl ChannelAccess {
    /// The words in configs.
    pub const WORDS: [&'static str; 4] = ["read-write", "read-only", "write-only", "none"];

    /// The access of that name.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Some(match word {
            "read-write" => Self::ReadWrite,
            "read-only" => Self::ReadOnly,
            "write-only" => Self::WriteOnly,
            "none" => Self::None,
            _ => return None,
        })
    }

    /// It may be told what is said in the room.
    #[must_use]
    pub fn may_read(self) -> bool {
        matches!(self, Self::ReadWrite | Self::ReadOnly)
    }

    /// What comes in from it counts.
    #[must_use]
    pub fn may_write(self) -> bool {
        matches!(self, Self::ReadWrite | Self::WriteOnly)
    }

    /// What both allow.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self.may_read() && other.may_read(), self.may_write() && other.may_write()) {
            (true, true) => Self::ReadWrite,
            (true, false) => Self::ReadOnly,
            (false, true) => Self::WriteOnly,
            (false, false) => Self::None,
        }
    }
}

/// Who sees what comes in from a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Visibility {
    #[default]
    All,
    None,
    /// Channels that lead to people.
    Transport,
    /// Agents.
    Intelligence,
    /// These channels.
    Only(BTreeSet<ChannelId>),
}

impl Visibility {
    /// `all`, `none`, `transport`, `intelligence`, or names of channels with commas between.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.trim() {
            "" | "all" => Self::All,
            "none" | "internal" => Self::None,
            "transport" => Self::Transport,
            "intelligence" => Self::Intelligence,
            names => Self::Only(
                names
                    .split(',')
                    .map(str::trim)
                    .filter(|name| !name.is_empty())
                    .map(ChannelId::from)
                    .collect(),
            ),
        }
    }

    /// It is for this channel.
    #[must_use]
    pub fn is_for(&self, channel: &ChannelId, kind: ChannelKind) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Transport => kind.is_transport(),
            Self::Intelligence => !kind.is_transport(),
            Self::Only(names) => names.contains(channel),
        }
    }

    /// It is for the agent of this task; a list may name tasks beside channels.
    #[must_use]
    pub fn is_for_task(&self, task: &TaskName) -> bool {
        match self {
            Self::Only(names) => names.iter().any(|name| name.as_str() == task.as_str()),
            _ => self.is_for_agents(),
        }
    }

    /// It is for the agents of the room, whichever they are.
    #[must_use]
    pub fn is_for_agents(&self) -> bool {
        matches!(self, Self::All | Self::Intelligence)
    }
}

/// A channel in a room: what it is there, and what it may do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "BindingForm")]
pub struct Binding {
    pub kind: ChannelKind,
    #[serde(default, skip_serializing_if = "is_default")]
    pub access: ChannelAccess,
    #[serde(default, skip_serializing_if = "is_default")]
    pub visibility: Visibility,
    /// It is told nothing, and what comes in from it still counts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub muted: bool,
    /// Messages a second that may come in from it; none: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// A JSON object; null when there is none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub metadata: Value,
    /// Milliseconds that a simulated voice takes for a word; none: the program speaks itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulate_ms: Option<u32>,
}

impl Binding {
    /// A channel of this kind that may do all.
    #[must_use]
    pub fn of(kind: ChannelKind) -> Self {
        Self { kind, ..Self::default() }
    }

    /// It can be told something.
    #[must_use]
    pub fn can_be_told(&self) -> bool {
        self.kind.is_transport() && self.access.may_read() && !self.muted
    }
}

/// Older journals hold the kind alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum BindingForm {
    Kind(ChannelKind),
    Whole {
        #[serde(default)]
        kind: ChannelKind,
        #[serde(default)]
        access: ChannelAccess,
        #[serde(default)]
        visibility: Visibility,
        #[serde(default)]
        muted: bool,
        #[serde(default)]
        rate: Option<u32>,
        #[serde(default)]
        metadata: Value,
        #[serde(default)]
        simulate_ms: Option<u32>,
    },
}

impl From<BindingForm> for Binding {
    fn from(form: BindingForm) -> Self {
        match form {
            BindingForm::Kind(kind) => Self::of(kind),
            BindingForm::Whole { kind, access, visibility, muted, rate, metadata, simulate_ms } => {
                Self { kind, access, visibility, muted, rate, metadata, simulate_ms }
            }
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_accesses_allow_what_both_allow() {
        let all = [
            ChannelAccess::ReadWrite,
            ChannelAccess::ReadOnly,
            ChannelAccess::WriteOnly,
            ChannelAccess::None,
        ];
        for (a, b) in all.into_iter().flat_map(|a| all.map(|b| (a, b))) {
            let both = a.and(b);
            assert_eq!(
                (both.may_read(), both.may_write()),
                (a.may_read() && b.may_read(), a.may_write() && b.may_write()),
                "{a:?} {b:?}"
            );
        }
        assert!(ChannelAccess::WORDS.iter().all(|word| {
            ChannelAccess::named(word).is_some_and(|access| serde_json::json!(access) == **word)
        }));
    }

    #[test]
    fn visibility_says_whom_it_is_for() {
        let (phone, desk) = (ChannelId::from("phone"), ChannelId::from("desk"));
        assert!(Visibility::parse("transport").is_for(&phone, ChannelKind::Voice));
        assert!(!Visibility::parse("transport").is_for(&desk, ChannelKind::Agent));
        assert!(Visibility::parse("phone, x").is_for(&phone, ChannelKind::Voice));
        assert!(!Visibility::parse("x").is_for(&phone, ChannelKind::Voice));
        assert!(
            !Visibility::parse("internal").is_for(&phone, ChannelKind::Voice),
            "R-004: bookkeeping matches no channel"
        );
        assert!(
            Visibility::parse("all").is_for_agents() && !Visibility::parse("phone").is_for_agents()
        );
    }

    #[test]
    fn a_binding_of_an_older_journal_is_its_kind() {
        let old: Binding = serde_json::from_str("\"text\"").expect("reads");
        assert_eq!(old, Binding::of(ChannelKind::Text));
        let new = Binding { muted: true, rate: Some(3), ..Binding::of(ChannelKind::Voice) };
        let text = serde_json::to_string(&new).expect("writes");
        assert_eq!(serde_json::from_str::<Binding>(&text).expect("reads"), new);
    }
}
