//! The capabilities that a plugin can ask for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Everything that a plugin can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Capability {
    Log,
    Progress,
    Config,
    Scratch,
    Blobs,
    Model,
    Tools,
    Delegate,
    Route,
    Files,
    Fetch,
    Kv,
    Secrets,
    Rooms,
    Exec,
}

impl Capability {
    /// Every capability, in the order in which people see them.
    pub const ALL: [Self; 15] = [
        Self::Model,
        Self::Tools,
        Self::Delegate,
        Self::Route,
        Self::Files,
        Self::Fetch,
        Self::Kv,
        Self::Secrets,
        Self::Rooms,
        Self::Exec,
        Self::Config,
        Self::Scratch,
        Self::Blobs,
        Self::Log,
        Self::Progress,
    ];

    /// The word in manifests, configs and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Progress => "progress",
            Self::Config => "config",
            Self::Scratch => "scratch",
            Self::Blobs => "blobs",
            Self::Model => "model",
            Self::Tools => "tools",
            Self::Delegate => "delegate",
            Self::Route => "route",
            Self::Files => "files",
            Self::Fetch => "fetch",
            Self::Kv => "kv",
            Self::Secrets => "secrets",
            Self::Rooms => "rooms",
            Self::Exec => "exec",
        }
    }

    /// The capability of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|capability| capability.as_str() == name)
    }

    /// It touches nothing but the plugin's own: nobody has to grant it.
    #[must_use]
    pub fn is_own(self) -> bool {
        matches!(self, Self::Log | Self::Progress | Self::Config | Self::Scratch | Self::Blobs)
    }

    /// This host can grant it. The others come later: asking for one that is required is refused at
    /// load.
    #[must_use]
    pub fn is_offered(self) -> bool {
        self != Self::Exec
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}
