//! Verifies the signatures of components before they are compiled. The core decides whether those
//! that are valid suffice.

use std::collections::BTreeSet;
use std::path::Path;

#[cfg(feature = "registry")]
use conclave_core::config::ProblemCode;
use conclave_core::config::{
    Config, ConfigProblem, PluginSource, PublicKey, SignedComponent, TrustRefusal,
};
use conclave_core::setup::Provenance;
use conclave_core::types::ids::PluginName;
use conclave_core::types::oci::OciReference;

use super::Host;
use super::sources::FoundComponent;

impl Host {
    /// Returns the keys that signed a plugin's component. Signatures that no rule requires are read
    /// where they are at hand, and a registry is not asked for them.
    ///
    /// # Errors
    /// The problem of a component that is revoked or lacks signatures.
    pub(super) async fn check_trust(
        &self,
        config: &Config,
        plugin: &PluginName,
        found: &FoundComponent,
    ) -> Result<VerifiedSigners, ConfigProblem> {
        let source = config.plugins.get(plugin).map(|plugin| &plugin.source);
        // Hashing takes time, and nothing could be refused or named.
        if config.signature_rule(plugin).is_none()
            && config.trust.revoked_digests.is_empty()
            && !self.has_signatures(source, found)
        {
            return Ok(VerifiedSigners::default());
        }
        let component = Candidate { config, plugin, sha256: found.component.sha256() };
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

    /// Whether signatures of the component are at hand, on this machine.
    #[cfg(feature = "registry")]
    fn has_signatures(&self, source: Option<&PluginSource>, found: &FoundComponent) -> bool {
        match source {
            Some(PluginSource::File(path)) => {
                crate::plugin::signature_file(Path::new(&path.path)).exists()
            }
            Some(PluginSource::Oci { .. }) => found
                .artifact
                .as_ref()
                .is_some_and(|artifact| !self.registry.kept_signatures(artifact).is_empty()),
            _ => false,
        }
    }

    /// A host without the code to verify signatures reads none.
    #[cfg(not(feature = "registry"))]
    #[expect(clippy::unused_self, reason = "with the feature it looks for them")]
    fn has_signatures(&self, _: Option<&PluginSource>, _: &FoundComponent) -> bool {
        false
    }

    /// Uses the kept signatures if they suffice, so that a pinned plugin needs no network.
    #[cfg(feature = "registry")]
    async fn check_artifact(
        &self,
        component: &Candidate<'_>,
        artifact: &crate::plugin::Artifact,
    ) -> Result<VerifiedSigners, Untrusted> {
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
    pub(super) fn check_file(&self, path: &Path) -> Result<VerifiedSigners, Untrusted> {
        let signers = match self.signers_beside(path) {
            // Signatures that nothing requires stop nobody by being unreadable.
            Err(_) if self.config.signature_rule(self.plugin).is_none() => BTreeSet::new(),
            signers => signers?,
        };
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
    ) -> Result<VerifiedSigners, Untrusted> {
        let component = SignedComponent { sha256: &self.sha256, artifact_sha256, signers };
        let trusted = self.config.check_trust(self.plugin, component);
        let trusted = trusted.map_err(Untrusted::Refused)?;
        Ok(VerifiedSigners { trusted, unknown: self.config.trust.unknown(signers) })
    }
}

/// The keys whose signatures of a component were verified.
#[derive(Debug, Default)]
pub(super) struct VerifiedSigners {
    /// The operator's names of trusted keys.
    trusted: BTreeSet<String>,
    /// The keys that `[trust]` does not name.
    unknown: BTreeSet<PublicKey>,
}

impl VerifiedSigners {
    /// The provenance of the component, which came as this artifact.
    pub(super) fn provenance(self, artifact: Option<OciReference>) -> Provenance {
        let unknown_signers = self.unknown.iter().map(ToString::to_string).collect();
        Provenance { artifact, signed_by: self.trusted, unknown_signers }
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
    /// The remedy, for display.
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
