//! Channels of a room: connections to people and programs, and the access of each. A channel is
//! bound to a room; a child room gets a binding with equal or less access, never more.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::ids::{ChannelId, PluginName, TaskName};

/// The kind of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChannelKind {
    /// A terminal, or any other text.
    #[default]
    Text,
    Web,
    Voice,
    Agent,
    /// Requests over HTTP, which the host sends and receives itself.
    Webhook,
    /// A plugin speaks the protocol of the other side.
    Plugin,
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
            Self::Webhook => "webhook",
            Self::Plugin => "plugin",
            Self::Other => "other",
        }
    }

    /// Whether the channel leads to people outside; an agent's does not.
    #[must_use]
    pub fn is_for_people(self) -> bool {
        self != Self::Agent
    }
}

/// The current activity on a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    #[default]
    Idle,
    /// The channel is speaking.
    Speaking,
    /// The channel's user is speaking.
    UserSpeaking,
    /// A model is generating text for the channel.
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

/// The direction in which a channel works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChannelAccess {
    #[default]
    ReadWrite,
    /// The channel gets messages and sends none.
    ReadOnly,
    /// The channel sends messages and gets none.
    WriteOnly,
    None,
}

impl ChannelAccess {
    /// The words in configs.
    pub const WORDS: [&'static str; 4] = ["read-write", "read-only", "write-only", "none"];

    /// The access of that name; `None` if there is none.
    #[must_use]
    pub fn from_name(word: &str) -> Option<Self> {
        Some(match word {
            "read-write" => Self::ReadWrite,
            "read-only" => Self::ReadOnly,
            "write-only" => Self::WriteOnly,
            "none" => Self::None,
            _ => return None,
        })
    }

    /// Whether the channel may get the room's messages.
    #[must_use]
    pub fn may_read(self) -> bool {
        matches!(self, Self::ReadWrite | Self::ReadOnly)
    }

    /// Whether messages from the channel are accepted.
    #[must_use]
    pub fn may_write(self) -> bool {
        matches!(self, Self::ReadWrite | Self::WriteOnly)
    }

    /// The access that both allow.
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

/// The recipients of messages from a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Visibility {
    #[default]
    All,
    None,
    /// Channels that lead to people.
    People,
    /// Agents.
    Agents,
    /// These channels.
    Only(BTreeSet<ChannelId>),
}

impl Visibility {
    /// Parses `all`, `none`, `people`, `agents`, or names of channels separated by commas.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.trim() {
            "" | "all" => Self::All,
            "none" | "internal" => Self::None,
            "people" => Self::People,
            "agents" => Self::Agents,
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

    /// Whether this channel gets the message.
    #[must_use]
    pub fn is_for(&self, channel: &ChannelId, kind: ChannelKind) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::People => kind.is_for_people(),
            Self::Agents => !kind.is_for_people(),
            Self::Only(names) => names.contains(channel),
        }
    }

    /// Whether the agent of this task gets the message; a list may name tasks beside channels.
    #[must_use]
    pub fn is_for_task(&self, task: &TaskName) -> bool {
        match self {
            Self::Only(names) => names.iter().any(|name| name.as_str() == task.as_str()),
            _ => self.is_for_agents(),
        }
    }

    /// Whether all agents of the room get the message.
    #[must_use]
    pub fn is_for_agents(&self) -> bool {
        matches!(self, Self::All | Self::Agents)
    }
}

/// The binding of a channel to a room: its kind and its access.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "BindingForm")]
pub struct Binding {
    pub kind: ChannelKind,
    #[serde(default, skip_serializing_if = "is_default")]
    pub access: ChannelAccess,
    #[serde(default, skip_serializing_if = "is_default")]
    pub visibility: Visibility,
    /// Whether the channel gets no messages; messages from it are still accepted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub muted: bool,
    /// The limit of incoming messages per second; `None` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// A JSON object, or null.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub metadata: Value,
    /// Milliseconds per word of a simulated voice; `None` if the program speaks itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulate_ms: Option<u32>,
    /// Where the host sends its messages; `None` if a program serves the channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached_at: Option<String>,
    /// Whether a message with an unknown outcome is not sent again: its receiver may have it, and
    /// does not recognize a repeated one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sends_once: bool,
    /// The plugin that delivers its messages; `None` if the host or a program does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginName>,
}

impl Binding {
    /// Returns a binding of this kind with full access.
    #[must_use]
    pub fn of(kind: ChannelKind) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Whether the channel can get messages.
    #[must_use]
    pub fn can_receive(&self) -> bool {
        self.kind.is_for_people() && self.access.may_read() && !self.muted
    }
}

/// The serialised forms of a binding; older journals hold the kind alone.
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
        #[serde(default)]
        reached_at: Option<String>,
        #[serde(default)]
        sends_once: bool,
        #[serde(default)]
        plugin: Option<PluginName>,
    },
}

impl From<BindingForm> for Binding {
    fn from(form: BindingForm) -> Self {
        match form {
            BindingForm::Kind(kind) => Self::of(kind),
            BindingForm::Whole {
                kind,
                access,
                visibility,
                muted,
                rate,
                metadata,
                simulate_ms,
                reached_at,
                sends_once,
                plugin,
            } => Self {
                kind,
                access,
                visibility,
                muted,
                rate,
                metadata,
                simulate_ms,
                reached_at,
                sends_once,
                plugin,
            },
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
            ChannelAccess::from_name(word).is_some_and(|access| serde_json::json!(access) == **word)
        }));
    }

    #[test]
    fn visibility_says_whom_it_is_for() {
        let (phone, desk) = (ChannelId::from("phone"), ChannelId::from("desk"));
        assert!(Visibility::parse("people").is_for(&phone, ChannelKind::Voice));
        assert!(!Visibility::parse("people").is_for(&desk, ChannelKind::Agent));
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
