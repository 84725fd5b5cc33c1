//! Patterns of hosts and addresses as the operator writes them: `api.example.org`, `*.example.org`, `https://api.example.org/v1/*`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A text that is no pattern, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PatternError(pub String);

/// A host: exact, or all below a name (`*.example.org`, which is not `example.org` itself).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostPattern(String);

impl HostPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        Ok(Self(text.to_owned()))
    }

    /// As the operator wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.0)
    }
}

/// Scheme, host, port and path: `https://api.example.org/v1/*`. Without a `*` at its end the path is exact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UrlPattern(String);

impl UrlPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        Ok(Self(text.to_owned()))
    }

    /// As the operator wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UrlPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.0)
    }
}
