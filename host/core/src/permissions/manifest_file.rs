//! `conclave-plugin.toml`: the manifest as an author writes it. The Rust SDK reads it at compile
//! time; for other toolchains the host adds it to the finished component.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::permissions::manifest::{CapabilityRequest, FORMAT, Manifest, ManifestError};
use crate::types::capability::Capability;

/// The error for a file that is not a manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestFileError {
    #[error("{0}")]
    Malformed(#[from] toml::de::Error),
    #[error("[asks.{name}] names no capability; these are there: {known}")]
    UnknownCapability { name: String, known: String },
    #[error(
        "[{table}] has no `why`: add a sentence that tells the operator what it is for, such as `why = \"Reads the tide table.\"`"
    )]
    MissingReason { table: String },
    #[error("{0}")]
    Content(#[from] ManifestError),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestFile {
    plugin: ManifestPlugin,
    #[serde(default)]
    asks: BTreeMap<String, CapabilityRequest>,
    #[serde(default)]
    config: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestPlugin {
    name: String,
    version: String,
    contract: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    license: String,
}

impl Manifest {
    /// Parses a `conclave-plugin.toml`.
    ///
    /// # Errors
    /// `Malformed` with line and column if it is not TOML of this shape, `UnknownCapability` if it
    /// requests an unknown capability, `MissingReason` if a request has no `why`, `Content` if a name
    /// or version would be refused at load.
    pub fn from_toml(text: &str) -> Result<Self, ManifestFileError> {
        let ManifestFile { plugin, asks, config } = toml::from_str(text)?;
        if let Some(name) = asks.keys().find(|name| Capability::named(name).is_none()) {
            let known: Vec<&str> = Capability::ALL.into_iter().map(Capability::as_str).collect();
            return Err(ManifestFileError::UnknownCapability {
                name: name.clone(),
                known: known.join(", "),
            });
        }
        if let Some(table) = asks.iter().find_map(|(name, ask)| missing_reason(name, ask)) {
            return Err(ManifestFileError::MissingReason { table });
        }
        let ManifestPlugin { name, version, contract, description, license } = plugin;
        let manifest =
            Self { format: FORMAT, name, version, contract, description, license, asks, config };
        // Check here what the host checks at load, so that the author gets the error.
        let json = serde_json::to_vec(&manifest)
            .expect("a manifest holds nothing but JSON values and texts");
        Ok(Self::parse(&json)?)
    }
}

/// Returns the table of a request without a reason, if there is one: the capability's, or that of a
/// secret which is requested by its name.
fn missing_reason(name: &str, ask: &CapabilityRequest) -> Option<String> {
    if !ask.why.trim().is_empty() {
        return None;
    }
    let is_by_name = Capability::named(name) == Some(Capability::Secrets)
        && !ask.detail.is_empty()
        && ask.detail.values().all(Value::is_object);
    if !is_by_name {
        return Some(format!("asks.{name}"));
    }
    let has_reason = |secret: &Value| {
        secret.get("why").and_then(Value::as_str).is_some_and(|why| !why.trim().is_empty())
    };
    let (secret, _) = ask.detail.iter().find(|(_, secret)| !has_reason(secret))?;
    Some(format!("asks.{name}.{secret}"))
}

#[cfg(test)]
mod tests {
    use crate::permissions::manifest::Manifest;
    use crate::types::capability::Capability;

    const HEAD: &str = "[plugin]\nname = \"shout\"\nversion = \"0.1.0\"\ncontract = \"0.1\"\n";

    #[test]
    fn a_file_becomes_a_manifest() {
        let manifest =
            Manifest::from_toml(&format!("{HEAD}[asks.log]\nwhy = \"Says who called.\"\n"))
                .expect("it is right");
        assert_eq!(manifest.name, "shout");
        assert_eq!(
            manifest.ask(Capability::Log).map(|ask| ask.why.as_str()),
            Some("Says who called.")
        );
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let wrong = |text: &str| Manifest::from_toml(text).expect_err("it is wrong").to_string();
        assert!(
            wrong(&format!("{HEAD}colour = 1\n")).contains("line 5"),
            "{}",
            wrong(&format!("{HEAD}colour = 1\n"))
        );
        assert!(wrong(&format!("{HEAD}[asks.flying]\n")).contains("flying"));
        assert!(wrong(&HEAD.replace("0.1\"", "9.9\"")).contains("9.9"));
        for table in ["asks.files", "asks.secrets", "asks.secrets.token"] {
            let error = wrong(&format!("{HEAD}[{table}]\noptional = true\n"));
            assert!(error.starts_with(&format!("[{table}] has no `why`")), "{error}");
        }
        assert!(wrong(&HEAD.replace("shout", "sh out")).contains("name"));
    }
}
