//! Names and numbers that identify things. They are newtypes, so that a task's name is never taken
//! for a plugin's. Does not create ids: the room counts numbers, and names come from the operator's
//! config.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text as the config writes it.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.pad(&self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

impl RoomId {
    /// The run that the room is part of: its name without those of child rooms.
    #[must_use]
    pub fn run(&self) -> RoomId {
        RoomId::from(self.as_str().split('/').next().unwrap_or_default())
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

name! {
    /// A room: one conversation, one journal. A child room's id is its parent's, `/`, and a number.
    RoomId
}
name! {
    /// A task of the operator's config: one agent at work.
    TaskName
}
name! {
    /// A plugin of the operator's config.
    PluginName
}
name! {
    /// A model of the operator's config.
    ModelName
}
name! {
    /// A secret of the operator's config.
    SecretName
}
name! {
    /// A channel that reaches a person, such as `terminal`.
    ChannelId
}
name! {
    /// A control message from another process, with a unique id made by its sender.
    ControlId
}
name! {
    /// A background task of one room, such as `task-1`.
    BackgroundId
}

/// The name of who starts runs at a terminal, which no person of a server may have.
pub const OPERATOR: &str = "operator";

/// The beginning of the names of people of a provider of OpenID Connect, and of nobody else's.
pub const OIDC_PREFIX: &str = "oidc:";

/// The beginning of the principals of channels that are webhooks.
pub const WEBHOOK_PREFIX: &str = "webhook:";

/// The beginning of the principals and senders of channels that plugins serve.
pub const CHANNEL_PREFIX: &str = "channel:";

/// The person or service on whose behalf a room runs, or something is asked of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Principal(pub Arc<str>);

number! {
    /// One request of the core to the host; the answering event carries the same id.
    CallId(u64), "c"
}
number! {
    /// One activation of a task within a room.
    FrameId(u32), "f"
}
number! {
    /// A timer of the core.
    TimerId(u64), "t"
}

/// Milliseconds since the Unix epoch, as recorded with an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// The milliseconds from `earlier` to this time; 0 if the clock went back.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time `milliseconds` later.
    #[must_use]
    pub fn plus(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }
}
