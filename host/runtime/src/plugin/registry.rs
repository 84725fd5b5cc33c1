//! Components in OCI registries: resolves references, pulls and pushes. Neither a registry nor a
//! host that it redirects to is trusted: every byte is checked against its digest.

mod exchange;
mod layout;
mod login;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use conclave_core::types::oci::OciReference;
use conclave_core::types::text::show_size;

use super::download::{Downloads, FileKind, WHOLE};
use super::signature::{ENVELOPE_BYTES, ENVELOPES, Envelope};
use crate::support::digest::sha256;
use exchange::Exchange;
use layout::{Descriptor, ImageIndex};

pub use layout::{Artifact, Package};
pub use login::{Login, NoLogins, RegistryLogins};

/// Bytes of a manifest, at most: what registries must accept by the distribution specification.
const MANIFEST_BYTES: u64 = 4 << 20;
/// A part that is too large, for messages.
const COMPONENT: &str = "the component";

/// The signatures that a registry lists for an artifact.
#[derive(Clone, Debug, Default)]
pub struct Signatures {
    /// Those that were read, unverified.
    pub envelopes: Vec<Envelope>,
    /// The number of listed signatures past the limit, which were not read. Everybody with push
    /// access to the repository can add some.
    pub unread: usize,
}

/// Why a registry did not give or take an artifact.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The connection failed, timed out, led to a forbidden address, or ended within the answer.
    #[error("{url} does not answer: {cause}")]
    Unreachable {
        /// The URL of the request.
        url: String,
        /// The innermost error, for display.
        cause: String,
    },
    /// The registry has no such manifest or blob.
    #[error("{registry} has no {what}")]
    NotFound {
        /// The registry's host.
        registry: String,
        /// The missing artifact or part of one.
        what: String,
    },
    /// The registry requires a login, or the login does not suffice.
    #[error("{registry} refuses access to {repository} (HTTP {status}){why}")]
    Unauthorized {
        /// The registry's host.
        registry: String,
        /// The repository.
        repository: String,
        /// 401 or 403.
        status: u16,
        /// The login that was tried, for display, after a separator; may be empty.
        why: String,
    },
    /// The registry answered with another error.
    #[error("{url} answers with {status}")]
    Status {
        /// The URL of the request.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// A part of the artifact is larger than it may be.
    #[error("{what} of {reference} is larger than {limit}")]
    TooLarge {
        /// The artifact.
        reference: String,
        /// The part that is too large.
        what: &'static str,
        /// The maximum size, with its unit.
        limit: String,
    },
    /// The registry returned other bytes than those of the digest.
    #[error("{what} of {reference} has the SHA-256 {actual}, not {expected}")]
    OtherDigest {
        /// The artifact.
        reference: String,
        /// The part that differs.
        what: &'static str,
        /// The digest of the received bytes, in lower-case hexadecimal.
        actual: String,
        /// The expected digest, in lower-case hexadecimal.
        expected: String,
    },
    /// The artifact is not one component; the text is the reason.
    #[error("{reference} is not a WebAssembly component: {reason}")]
    NotAComponent {
        /// The artifact.
        reference: String,
        /// The reason, for display.
        reason: String,
    },
    /// The registry breaks the protocol; the text is the reason.
    #[error("{registry} does not follow the OCI distribution specification: {reason}")]
    Protocol {
        /// The registry's host.
        registry: String,
        /// The reason, for display.
        reason: String,
    },
    /// A push names a digest, and no tag.
    #[error("{0} has no tag to push to")]
    NoTag(String),
    /// The HTTP client could not be created; the text is its reason.
    #[error("no secure connection can be made: {0}")]
    Setup(String),
}

impl RegistryError {
    /// Returns what the operator can do about it, for display.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::OtherDigest { .. } => {
                "the registry, or a cache before it, changes what it returns: ask its operator, or pull from another one".to_owned()
            }
            Self::NotFound { .. } => {
                "correct the reference; if the artifact was deleted, name another one, and accept it with `conclave plugin upgrade`".to_owned()
            }
            Self::Unauthorized { registry, .. } => format!(
                "log in with `docker login {registry}`; Conclave reads the login that it stores"
            ),
            Self::TooLarge { what: COMPONENT, .. } => {
                "raise `limits.component` of the plugin if you expect a component of this size".to_owned()
            }
            Self::TooLarge { .. } => {
                "no limit of yours changes this: check that the address is that of an OCI registry".to_owned()
            }
            Self::Unreachable { .. } | Self::Setup(_) => {
                "go online once: it is kept after that; or put the .wasm file beside the config and name it".to_owned()
            }
            Self::NotAComponent { .. } => {
                "name an artifact that `conclave plugin push` or `wkg oci push` made".to_owned()
            }
            Self::NoTag(_) => "append a tag: oci://registry.example/team/notes:1.2.0".to_owned(),
            Self::Protocol { .. } | Self::Status { .. } => {
                "check that the address is that of an OCI registry, and that you may use it".to_owned()
            }
        }
    }
}

/// A client of registries. Manifests and components that have a digest are kept in a folder, and
/// verified at every read.
#[derive(Clone, Debug)]
pub struct Registry {
    logins: Arc<dyn RegistryLogins>,
    downloads: Downloads,
}

impl Registry {
    /// Returns a client with these logins; `None` keeps nothing.
    #[must_use]
    pub fn new(logins: Arc<dyn RegistryLogins>, folder: Option<PathBuf>) -> Self {
        Self { logins, downloads: Downloads::new(folder) }
    }

    /// Returns the artifact of a reference: of its digest, or else of its tag at present.
    /// `downloading` is called before the network is used.
    ///
    /// # Errors
    /// If the registry does not return a manifest of this digest that describes one component.
    pub async fn artifact(
        &self,
        reference: &OciReference,
        downloading: impl FnOnce(),
    ) -> Result<Artifact, RegistryError> {
        let stored =
            reference.digest().and_then(|digest| self.downloads.stored(digest, FileKind::Manifest));
        if let Some(manifest) = stored {
            return Artifact::parse(reference, manifest);
        }
        downloading();
        let mut exchange = self.exchange(reference)?;
        let version = match (reference.digest(), reference.tag()) {
            (Some(digest), _) => format!("sha256:{digest}"),
            (None, tag) => tag.unwrap_or_default().to_owned(),
        };
        let Some(manifest) = exchange.manifest(&version, MANIFEST_BYTES).await? else {
            return Err(RegistryError::NotFound {
                registry: reference.registry().to_owned(),
                what: reference.to_string(),
            });
        };
        let found = sha256(&manifest);
        if let Some(expected) = reference.digest().filter(|expected| **expected != *found) {
            return Err(RegistryError::OtherDigest {
                reference: reference.to_string(),
                what: "the manifest",
                actual: found,
                expected: expected.to_owned(),
            });
        }
        let artifact = Artifact::parse(reference, manifest)?;
        self.downloads.keep(&found, FileKind::Manifest, artifact.manifest());
        Ok(artifact)
    }

    /// Returns the component of an artifact, of at most `limit` bytes. `downloading` is called
    /// before the network is used.
    ///
    /// # Errors
    /// If the registry does not return exactly the component that the manifest describes.
    pub async fn component(
        &self,
        artifact: &Artifact,
        limit: u64,
        downloading: impl FnOnce(),
    ) -> Result<Vec<u8>, RegistryError> {
        let reference = artifact.reference();
        let too_large = || RegistryError::TooLarge {
            reference: reference.to_string(),
            what: COMPONENT,
            limit: show_size(limit),
        };
        // The size in the manifest, before anything is downloaded.
        if artifact.component_size() > limit {
            return Err(too_large());
        }
        let expected = artifact.component_sha256();
        if let Some(bytes) = self.downloads.stored(expected, FileKind::Component) {
            return Ok(bytes);
        }
        downloading();
        let mut exchange = self.exchange(reference)?;
        // The manifest fixes the size, so a longer blob is another one.
        let blob = exchange.blob(expected, artifact.component_size()).await?.ok_or_else(|| {
            RegistryError::Protocol {
                registry: reference.registry().to_owned(),
                reason: "the component is longer than its manifest says".to_owned(),
            }
        })?;
        let found = sha256(&blob);
        if found != expected {
            return Err(RegistryError::OtherDigest {
                reference: reference.to_string(),
                what: COMPONENT,
                actual: found,
                expected: expected.to_owned(),
            });
        }
        self.downloads.keep(expected, FileKind::Component, &blob);
        Ok(blob)
    }

    /// Pushes a package under a tag, and returns the artifact. Parts that the repository has already
    /// are not sent again.
    ///
    /// # Errors
    /// `NoTag` without a tag; otherwise if the registry does not take the parts.
    pub async fn push(
        &self,
        reference: &OciReference,
        package: &Package,
    ) -> Result<Artifact, RegistryError> {
        let Some(tag) = reference.tag() else {
            return Err(RegistryError::NoTag(reference.to_string()));
        };
        let mut exchange = self.exchange(reference)?;
        // Before the manifest, because a registry refuses one whose parts it lacks.
        for blob in [&package.component, &package.config] {
            exchange.push_blob(blob).await?;
        }
        exchange.push_manifest(tag, layout::MANIFEST, &package.manifest).await?;
        Artifact::parse(reference, package.manifest.clone())
    }

    /// Attaches a signature to an artifact, as a referrer of its manifest.
    ///
    /// # Errors
    /// If the registry does not take the parts.
    pub async fn push_signature(
        &self,
        artifact: &Artifact,
        envelope: &Envelope,
    ) -> Result<(), RegistryError> {
        let mut exchange = self.exchange(artifact.reference())?;
        let envelope = envelope.to_json().into_bytes();
        let (manifest, entry) = layout::signature_manifest(artifact.manifest(), &envelope);
        for blob in [layout::EMPTY_BYTES, envelope.as_slice()] {
            exchange.push_blob(blob).await?;
        }
        let version = entry.digest.clone();
        let answer = exchange.push_manifest(&version, layout::MANIFEST, &manifest).await?;
        // Without this header the registry does not list referrers itself.
        if answer.contains_key("oci-subject") {
            return Ok(());
        }
        let tag = referrers_tag(artifact);
        let mut index = self.referrers_by_tag(&mut exchange, &tag).await?;
        if index.manifests.iter().all(|known| known.digest != entry.digest) {
            index.manifests.push(entry);
        }
        let index = serde_json::to_vec(&index).expect("it has only texts and numbers");
        exchange.push_manifest(&tag, layout::INDEX, &index).await.map(drop)
    }

    /// Returns the signatures of an artifact, and keeps them. None of them is verified.
    ///
    /// # Errors
    /// If the registry does not return its referrers. What is no signature is skipped.
    pub async fn signatures(&self, artifact: &Artifact) -> Result<Signatures, RegistryError> {
        let mut exchange = self.exchange(artifact.reference())?;
        let digest = artifact.reference().digest().unwrap_or_default();
        let index = match exchange.referrers(digest, MANIFEST_BYTES).await? {
            Some(index) => parse_index(artifact.reference(), &index)?,
            None => self.referrers_by_tag(&mut exchange, &referrers_tag(artifact)).await?,
        };
        let signatures = index
            .manifests
            .iter()
            .filter(|entry| entry.artifact_type.as_deref() == Some(layout::SIGNATURE))
            // A digest goes into the path of a request.
            .filter(|entry| entry.sha256().is_some());
        let signatures: Vec<_> = signatures.collect();
        let unread = signatures.len().saturating_sub(ENVELOPES);
        let mut envelopes = Vec::new();
        // One time limit for all: each of many slow answers would be within its own.
        let read = async {
            for entry in signatures.into_iter().take(ENVELOPES) {
                match envelope(&mut exchange, entry).await {
                    Ok(envelope) => envelopes.extend(envelope),
                    // An entry that leads nowhere must not hide the others.
                    Err(
                        RegistryError::NotFound { .. }
                        | RegistryError::TooLarge { .. }
                        | RegistryError::Status { .. },
                    ) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        // Those that came in time are verified.
        if let Ok(read) = tokio::time::timeout(WHOLE, read).await {
            read?;
        }
        self.downloads.keep_signatures(digest, &envelopes);
        Ok(Signatures { envelopes, unread })
    }

    /// The signatures that were kept when they were last requested. None of them is verified.
    #[must_use]
    pub fn kept_signatures(&self, artifact: &Artifact) -> Vec<Envelope> {
        self.downloads.kept_signatures(artifact.reference().digest().unwrap_or_default())
    }

    /// Returns the referrers of registries without an API for them; empty if there are none.
    async fn referrers_by_tag(
        &self,
        exchange: &mut Exchange,
        tag: &str,
    ) -> Result<ImageIndex, RegistryError> {
        match exchange.index(tag, MANIFEST_BYTES).await? {
            Some(index) => parse_index(exchange.reference(), &index),
            None => Ok(ImageIndex::default()),
        }
    }

    fn exchange(&self, reference: &OciReference) -> Result<Exchange, RegistryError> {
        Exchange::new(reference, Arc::clone(&self.logins))
    }
}

/// Returns the envelope that an entry in a list of referrers leads to; `None` if it is none.
async fn envelope(
    exchange: &mut Exchange,
    entry: &Descriptor,
) -> Result<Option<Envelope>, RegistryError> {
    let Some(manifest) = exchange.manifest(&entry.digest, ENVELOPE_BYTES).await? else {
        return Ok(None);
    };
    let Some(blob) = layout::envelope_sha256(&manifest) else { return Ok(None) };
    let envelope = exchange.blob(&blob, ENVELOPE_BYTES).await?;
    Ok(envelope.as_deref().and_then(Envelope::parse))
}

/// The tag that lists the referrers of an artifact, by the distribution specification.
fn referrers_tag(artifact: &Artifact) -> String {
    format!("sha256-{}", artifact.reference().digest().unwrap_or_default())
}

fn parse_index(reference: &OciReference, bytes: &[u8]) -> Result<ImageIndex, RegistryError> {
    serde_json::from_slice(bytes).map_err(|error| RegistryError::Protocol {
        registry: reference.registry().to_owned(),
        reason: format!("its list of signatures is no image index: {error}"),
    })
}

/// A cheap clone of bytes for requests that may be sent twice.
fn shared(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
