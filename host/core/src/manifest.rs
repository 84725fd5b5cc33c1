//! A plugin's manifest: what it says about itself and what it asks for. A ceiling, never a grant. Read from the custom section
//! `conclave:manifest`; this module sees only its JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::secret;

/// Name of the custom section.
pub const SECTION: &str = "conclave:manifest";
/// The format that this host writes, and the newest that it reads.
pub const FORMAT: u32 = 1;
/// The contract that this host offers.
pub const CONTRACT: &str = "0.1";

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

    /// This host can grant it. The others come later: asking for one that is required is refused at load.
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

/// One thing that a plugin asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// Shown to the operator.
    #[serde(default)]
    pub why: String,
    /// It works without.
    #[serde(default)]
    pub optional: bool,
    /// Narrower wishes, such as URLs; kept as they came.
    #[serde(flatten)]
    pub detail: BTreeMap<String, Value>,
}

/// What a plugin says about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub name: String,
    pub version: String,
    /// The contract that it was built against, such as `0.1`.
    pub contract: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub license: String,
    /// By the capability's name; unknown names are kept, so that the host can say that it does not know them.
    #[serde(default)]
    pub asks: BTreeMap<String, Ask>,
    /// Settings that it takes: name to `{type, default, …}`.
    #[serde(default)]
    pub config: BTreeMap<String, Value>,
}

/// A manifest that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("the section `{SECTION}` does not hold JSON as expected: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the manifest has format {found}; this host reads up to {FORMAT}. Use a newer host, or build the plugin with an older SDK.")]
    TooNew { found: u32 },
    #[error("the plugin was built for contract {found:?}; this host offers {CONTRACT}. Build it again with the SDK of this host.")]
    OtherContract { found: String },
    #[error(transparent)]
    Secrets(#[from] secret::AskError),
    #[error("the manifest's `{field}` {problem}")]
    Field { field: &'static str, problem: &'static str },
}

impl Manifest {
    /// Reads and checks the JSON of the custom section.
    ///
    /// # Errors
    /// `Malformed` when it is not JSON of this shape, `TooNew` and `OtherContract` when it is for another host, `Field` when a
    /// name or version is empty, too long or holds characters that could deceive a reader.
    pub fn parse(json: &[u8]) -> Result<Self, ManifestError> {
        let mut manifest: Self = serde_json::from_slice(json)?;
        if manifest.format > FORMAT {
            return Err(ManifestError::TooNew { found: manifest.format });
        }
        if manifest.contract != CONTRACT {
            return Err(ManifestError::OtherContract { found: manifest.contract });
        }
        for (field, text) in [("name", &manifest.name), ("version", &manifest.version)] {
            if text.is_empty() || text.len() > 64 {
                return Err(ManifestError::Field { field, problem: "must have 1 to 64 characters" });
            }
            if !text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c)) {
                return Err(ManifestError::Field { field, problem: "may hold ASCII letters, digits and `-_.+` only" });
            }
        }
        manifest.asks.get_mut(Capability::Secrets.as_str()).map_or(Ok(()), secret::complete)?;
        Ok(manifest)
    }

    /// The ask for a capability; none when the plugin did not ask.
    #[must_use]
    pub fn ask(&self, capability: Capability) -> Option<&Ask> {
        self.asks.get(capability.as_str())
    }
}
