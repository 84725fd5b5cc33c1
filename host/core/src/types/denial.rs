//! Refusals: the text for the plugin that asked, and the record for the operator.

use serde::{Deserialize, Serialize};

/// The part of a refusal that a plugin and a model may read: capability and target only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    pub capability: String,
    pub target: String,
    pub detail: String,
}

impl Denial {
    /// The text that an agent reads in place of a result.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("Refused: {} {}.", self.capability, self.target)
    }
}

/// The layer that refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// The manifest does not request it.
    Manifest,
    /// The operator did not grant it.
    Config,
    /// The task's `narrow` excludes it.
    Task,
    /// The use exceeds the grant or its limits.
    Runtime,
    /// A rule of the operator denies it.
    Policy,
    /// This host never allows it.
    Host,
}

impl Layer {
    /// A word for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::Config => "config",
            Self::Task => "task",
            Self::Runtime => "grant",
            Self::Policy => "policy",
            Self::Host => "host",
        }
    }
}

/// A refusal as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DenialRecord {
    #[serde(flatten)]
    pub denial: Denial,
    pub layer: Layer,
    /// The reason, in one sentence.
    pub reason: String,
    /// The smallest line of config that would allow it; `None` if no line should be offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// Whether a file was to be written, not only read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writes: bool,
}
