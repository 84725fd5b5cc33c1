//! Verifies the signatures of components before they are compiled. The core decides whether those
//! that are valid suffice.

use std::collections::BTreeSet;
use std::path::Path;

#[cfg(feature = "registry")]
use conclave_core::config::ProblemCode;
use conclave_core::config::{
    Config, ConfigProblem, PluginSource, PublicKey, SignedComponent, TrustRefusal,
};
use conclave_core::types::ids::PluginName;

use super::Host;
use super::sources::FoundComponent;

impl Host {
    /// Returns the names of the keys that signed a plugin's component, if it needs signatures.
    ///
    /// # Errors
    /// The problem of a component that is revoked or lacks signatures.
    pub(super) async fn check_trust(
        &self,
        config: &Config,
        plugin: &PluginName,
        found: &FoundComponent,
    ) -> Result<BTreeSet<String>, ConfigProblem> {
        // Hashing takes time, and nothing could be refused.
        if config.signature_rule(plugin).is_none() && config.trust.revoked_digests.is_empty() {
            return Ok(BTreeSet::new());
        }
        let component = Candidate { config, plugin, sha256: found.component.sha256() };
        let source = config.plugins.get(plugin).map(|plugin| &plugin.source);
        let checked = match source {
            Some(PluginSource::File(path)) => component.check_file(Path::new(&path.path)),
            #[cfg(feature = "registry")]
            Some(PluginSource::Oci { .. }) => match &found.artifact {
                Some(artifact) => self.check_artifact(&component, artifact).await,
                None => component.check(None, &BTreeSet::new()),
            },
            _ => component.check(None, &BTreeSet::new()),
        };
        checked.map_err(|untrusted| untrusted.problem(config, plugin))
    }

    /// Uses the kept signatures if they suffice, so that a pinned plugin needs no network.
    #[cfg(feature = "registry")]
    async fn check_artifact(
        &self,
        component: &Candidate<'_>,
        artifact: &crate::plugin::Artifact,
    ) -> Result<BTreeSet<String>, Untrusted> {
        use crate::plugin::{Subject, signers};

        let manifest = artifact.reference().digest();
        let check = |envelopes: &[_]| {
            component.check(manifest, &signers(envelopes, Subject::Artifact(artifact)))
        };
        match check(&self.registry.kept_signatures(artifact)) {
            Err(Untrusted::Refused(TrustRefusal::Unsigned { .. })) => {}
            checked => return checked,
        }
        let signatures = self.registry.signatures(artifact).await;
        let signatures = signatures.map_err(|error| Untrusted::Unreadable {
            reason: error.to_string(),
            help: error.help(),
        })?;
        check(&signatures.envelopes).map_err(|untrusted| match untrusted {
            Untrusted::Refused(refusal) if signatures.unread > 0 => {
                Untrusted::Unread { refusal, unread: signatures.unread }
            }
            other => other,
        })
    }
}

/// A component that may be compiled if it is trusted.
pub(super) struct Candidate<'a> {
    pub(super) config: &'a Config,
    pub(super) plugin: &'a PluginName,
    /// The digest of its bytes, in lower-case hexadecimal.
    pub(super) sha256: String,
}

impl Candidate<'_> {
    /// Checks a component with the signatures in the file beside it.
    pub(super) fn check_file(&self, path: &Path) -> Result<BTreeSet<String>, Untrusted> {
        let is_required = self.config.signature_rule(self.plugin).is_some();
        let signers = if is_required { self.signers_beside(path)? } else { BTreeSet::new() };
        self.check(None, &signers)
    }

    #[cfg(feature = "registry")]
    fn signers_beside(&self, path: &Path) -> Result<BTreeSet<PublicKey>, Untrusted> {
        use crate::plugin::{Subject, signature_file, signatures_beside, signers};

        let envelopes = signatures_beside(path).map_err(|error| Untrusted::Unreadable {
            reason: format!("{} could not be read: {error}", signature_file(path).display()),
            help: "put the signature file that belongs to the component beside it".to_owned(),
        })?;
        Ok(signers(&envelopes, Subject::File { sha256: &self.sha256 }))
    }

    /// A host without the code to verify signatures has verified none.
    #[cfg(not(feature = "registry"))]
    #[expect(clippy::unnecessary_wraps, reason = "with the feature it can fail")]
    fn signers_beside(&self, _: &Path) -> Result<BTreeSet<PublicKey>, Untrusted> {
        Ok(BTreeSet::new())
    }

    fn check(
        &self,
        artifact_sha256: Option<&str>,
        signers: &BTreeSet<PublicKey>,
    ) -> Result<BTreeSet<String>, Untrusted> {
        let component = SignedComponent { sha256: &self.sha256, artifact_sha256, signers };
        self.config.check_trust(self.plugin, component).map_err(Untrusted::Refused)
    }
}

/// The reason why a component is not compiled.
#[derive(Debug, thiserror::Error)]
pub(super) enum Untrusted {
    /// The signatures do not suffice, or the component is revoked.
    #[error("{0}")]
    Refused(TrustRefusal),
    /// The same, and the registry lists more signatures than are read.
    #[cfg(feature = "registry")]
    #[error("{refusal}; {unread} more signatures in the registry were not read")]
    Unread { refusal: TrustRefusal, unread: usize },
    /// The signatures could not be read.
    #[cfg(feature = "registry")]
    #[error("its signatures cannot be read: {reason}")]
    Unreadable { reason: String, help: String },
}

impl Untrusted {
    /// Returns the remedy, for display.
    pub(super) fn help(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.help(),
            #[cfg(feature = "registry")]
            Self::Unread { .. } => {
                "remove signatures of others from the repository, or put the component and its signature file on disk".to_owned()
            }
            #[cfg(feature = "registry")]
            Self::Unreadable { help, .. } => help.clone(),
        }
    }

    fn problem(&self, config: &Config, plugin: &PluginName) -> ConfigProblem {
        let code = match self {
            Self::Refused(refusal) => refusal.code(),
            #[cfg(feature = "registry")]
            Self::Unread { refusal, .. } => refusal.code(),
            #[cfg(feature = "registry")]
            Self::Unreadable { .. } => ProblemCode::Unsigned,
        };
        let key = format!("plugins.{plugin}.source");
        let what = format!("the plugin `{plugin}` is refused: {self}");
        config.problem(code, &key, what).help(self.help())
    }
}
