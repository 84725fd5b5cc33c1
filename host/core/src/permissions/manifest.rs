//! The manifest of a plugin: its description of itself and the capabilities that it requests. A
//! ceiling, never a grant. The host reads it from the custom section `conclave:manifest`; this
//! module gets only the JSON.

mod secrets;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::capability::Capability;
use crate::types::host_tool::HostTool;

pub use secrets::{AskError, NamedAsk, requested_secrets};

/// The name in `config` of a manifest that stands for all settings: a component that was not built
/// for the contract declares none, and may read any by `wasi:config/store`.
pub const ANY_SETTING: &str = "*";
/// The name of the custom section.
pub const SECTION: &str = "conclave:manifest";
/// The format that this host writes, and the newest that it reads.
pub const FORMAT: u32 = conclave_manifest::FORMAT;
/// The contract that this host offers.
pub const CONTRACT: &str = conclave_manifest::CONTRACT;

/// A request for one capability.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CapabilityRequest {
    /// The reason, shown to the operator.
    #[serde(default)]
    pub why: String,
    /// Whether the plugin works without it.
    #[serde(default)]
    pub optional: bool,
    /// Details such as URLs, unchanged.
    #[serde(flatten)]
    pub detail: BTreeMap<String, Value>,
}

impl CapabilityRequest {
    /// The tools of the host among the names that the request lists, in its order. Other names are
    /// the author's words, which no proposal repeats.
    #[must_use]
    pub fn host_tools(&self) -> Vec<&str> {
        let names = self.detail.get("names").and_then(Value::as_array).into_iter().flatten();
        names.filter_map(Value::as_str).filter(|name| HostTool::from_name(name).is_some()).collect()
    }
}

/// A plugin's description of itself.
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
    /// Requests by the capability's name; unknown names are kept for the host's error message.
    #[serde(default)]
    pub asks: BTreeMap<String, CapabilityRequest>,
    /// The settings that it accepts: name to `{type, default, …}`. Under [`ANY_SETTING`] it accepts
    /// every name.
    #[serde(default)]
    pub config: BTreeMap<String, Value>,
}

/// A manifest that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("the section `{SECTION}` does not hold JSON as expected: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error(
        "the manifest has format {format}; this host reads up to {FORMAT}. Use a newer host, or build the plugin with an older SDK."
    )]
    TooNew { format: u32 },
    #[error(
        "the plugin was built for contract {contract:?}; this host offers {CONTRACT}. Build it again with the SDK of this host."
    )]
    OtherContract { contract: String },
    #[error(transparent)]
    Secrets(#[from] AskError),
    #[error("the manifest's `{field}` {problem}")]
    Field { field: &'static str, problem: &'static str },
}

impl Manifest {
    /// Parses and checks the JSON of the custom section.
    ///
    /// # Errors
    /// `Malformed` if it is not JSON of this shape, `TooNew` and `OtherContract` if it is for
    /// another host, `Field` if a name or version is empty, too long or has deceptive characters.
    pub fn parse(json: &[u8]) -> Result<Self, ManifestError> {
        let mut manifest: Self = serde_json::from_slice(json)?;
        if manifest.format > FORMAT {
            return Err(ManifestError::TooNew { format: manifest.format });
        }
        if manifest.contract != CONTRACT {
            return Err(ManifestError::OtherContract { contract: manifest.contract });
        }
        for (field, text) in [("name", &manifest.name), ("version", &manifest.version)] {
            if text.is_empty() || text.len() > 64 {
                return Err(ManifestError::Field {
                    field,
                    problem: "must have 1 to 64 characters",
                });
            }
            if !text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c)) {
                return Err(ManifestError::Field {
                    field,
                    problem: "may hold ASCII letters, digits and `-_.+` only",
                });
            }
        }
        manifest.asks.get_mut(Capability::Secrets.as_str()).map_or(Ok(()), secrets::complete)?;
        Ok(manifest)
    }

    /// The request for a capability; `None` if the plugin does not request it.
    #[must_use]
    pub fn ask(&self, capability: Capability) -> Option<&CapabilityRequest> {
        self.asks.get(capability.as_str())
    }
}
