//! The capabilities that a plugin can request.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A capability that a plugin can request.
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
    Channels,
    History,
    Exec,
}

impl Capability {
    /// Every capability, in the order shown to people.
    pub const ALL: [Self; 16] = [
        Self::Model,
        Self::Tools,
        Self::Delegate,
        Self::Route,
        Self::Files,
        Self::Fetch,
        Self::Kv,
        Self::Secrets,
        Self::Channels,
        Self::History,
        Self::Exec,
        Self::Config,
        Self::Scratch,
        Self::Blobs,
        Self::Log,
        Self::Progress,
    ];

    /// Every capability, these first.
    pub fn beginning_with(first: &'static [Self]) -> impl Iterator<Item = Self> {
        let others = Self::ALL.into_iter().filter(|capability| !first.contains(capability));
        first.iter().copied().chain(others)
    }

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
            Self::Channels => "channels",
            Self::History => "history",
            Self::Exec => "exec",
        }
    }

    /// The capability of that name; `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|capability| capability.as_str() == name)
    }

    /// The interface of the contract through which a plugin uses it; `None` if it takes effect
    /// through what a plugin returns.
    #[must_use]
    pub fn interface(self) -> Option<&'static str> {
        match self {
            Self::Tools => Some("toolbox"),
            Self::Delegate | Self::Route | Self::Channels => None,
            Self::Log
            | Self::Progress
            | Self::Config
            | Self::Scratch
            | Self::Blobs
            | Self::Model
            | Self::Files
            | Self::Fetch
            | Self::Kv
            | Self::Secrets
            | Self::History
            | Self::Exec => Some(self.as_str()),
        }
    }

    /// Whether the capability reaches only the plugin's own data, so that it needs no grant.
    #[must_use]
    pub fn is_own(self) -> bool {
        matches!(self, Self::Log | Self::Progress | Self::Config | Self::Scratch | Self::Blobs)
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}
