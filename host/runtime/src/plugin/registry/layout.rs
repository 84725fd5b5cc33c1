//! The documents of an artifact: manifest and config, in the layout of `wkg` (CNCF's "Wasm OCI
//! artifact layout"). Both follow from the component alone, so that equal components have equal
//! digests in every registry.

use std::collections::BTreeMap;

use conclave_core::types::oci::{OciReference, is_sha256};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::RegistryError;
use crate::plugin::Inspection;
use crate::support::digest::sha256;

/// The annotation of a manifest with the version of its component.
const VERSION: &str = "org.opencontainers.image.version";
pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The kind of artifact that holds a signature, and the type of its layer.
pub(super) const SIGNATURE: &str = "application/vnd.conclave.signature.v1+json";
const ENVELOPE: &str = "application/vnd.dsse.envelope.v1+json";
/// The config of an artifact that needs none, by the image specification.
const EMPTY: &str = "application/vnd.oci.empty.v1+json";
pub(super) const EMPTY_BYTES: &[u8] = b"{}";
pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.wasm.config.v0+json";
const COMPONENT: &str = "application/wasm";
/// The layout requires a time, and the time of a push would change the digest.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// A part of an artifact, by digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    /// Of an entry in an index: the kind of the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) artifact_type: Option<String>,
}

impl Descriptor {
    pub(super) fn of(media_type: &str, bytes: &[u8]) -> Self {
        let digest = format!("sha256:{}", sha256(bytes));
        let size = bytes.len() as u64;
        Self { media_type: media_type.to_owned(), digest, size, artifact_type: None }
    }

    /// The SHA-256 digest in lower-case hexadecimal; `None` for another kind of digest.
    pub(super) fn sha256(&self) -> Option<&str> {
        self.digest.strip_prefix("sha256:").filter(|hex| is_sha256(hex))
    }
}

/// A manifest. Unknown fields are ignored, as the specification requires.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImageManifest {
    schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    artifact_type: Option<String>,
    config: Descriptor,
    layers: Vec<Descriptor>,
    /// The manifest that this one refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

/// A list of manifests: the referrers of one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImageIndex {
    schema_version: u32,
    media_type: Option<String>,
    pub(super) manifests: Vec<Descriptor>,
}

impl Default for ImageIndex {
    fn default() -> Self {
        let media_type = Some(INDEX.to_owned());
        Self { schema_version: 2, media_type, manifests: Vec::new() }
    }
}

/// The manifest of an artifact that holds an envelope and refers to another manifest, with its
/// entry in an index of referrers.
pub(super) fn signature_manifest(subject: &[u8], envelope: &[u8]) -> (Vec<u8>, Descriptor) {
    let manifest = ImageManifest {
        schema_version: 2,
        media_type: Some(MANIFEST.to_owned()),
        artifact_type: Some(SIGNATURE.to_owned()),
        config: Descriptor::of(EMPTY, EMPTY_BYTES),
        layers: vec![Descriptor::of(ENVELOPE, envelope)],
        subject: Some(Descriptor::of(MANIFEST, subject)),
        annotations: BTreeMap::new(),
    };
    let manifest = serde_json::to_vec(&manifest).expect("it has only texts and numbers");
    let artifact_type = Some(SIGNATURE.to_owned());
    let entry = Descriptor { artifact_type, ..Descriptor::of(MANIFEST, &manifest) };
    (manifest, entry)
}

/// The SHA-256 digest of the envelope in such an artifact, in lower-case hexadecimal; `None`
/// if the manifest is another one.
pub(super) fn envelope_sha256(manifest: &[u8]) -> Option<String> {
    let manifest: ImageManifest = serde_json::from_slice(manifest).ok()?;
    let [layer] = manifest.layers.as_slice() else { return None };
    if layer.media_type == ENVELOPE { layer.sha256().map(str::to_owned) } else { None }
}

/// A component with the manifest and the config under which it is pushed.
#[derive(Clone, Debug)]
pub struct Package {
    pub(super) component: Vec<u8>,
    pub(super) config: Vec<u8>,
    pub(super) manifest: Vec<u8>,
}

impl Package {
    /// Packs a component.
    #[must_use]
    pub fn new(component: Vec<u8>, inspection: &Inspection) -> Self {
        let layer = Descriptor::of(COMPONENT, &component);
        let config = json!({
            "created": CREATED,
            "author": null,
            "architecture": "wasm",
            "os": "wasip2",
            "layerDigests": [layer.digest],
            "component": {
                "exports": inspection.exports,
                "imports": inspection.imports,
                "target": null,
            },
        });
        let config = config.to_string().into_bytes();
        let about = &inspection.manifest;
        let annotations = [
            ("title", &about.name),
            ("version", &about.version),
            ("description", &about.description),
            ("licenses", &about.license),
        ];
        let manifest = ImageManifest {
            schema_version: 2,
            media_type: Some(MANIFEST.to_owned()),
            artifact_type: None,
            config: Descriptor::of(CONFIG, &config),
            layers: vec![layer],
            subject: None,
            annotations: annotations
                .into_iter()
                .filter(|(_, text)| !text.is_empty())
                .map(|(name, text)| (format!("org.opencontainers.image.{name}"), text.clone()))
                .collect(),
        };
        let manifest = serde_json::to_vec(&manifest).expect("it has only texts and numbers");
        Self { component, config, manifest }
    }

    /// The SHA-256 digest of the manifest, in lower-case hexadecimal.
    #[must_use]
    pub fn digest(&self) -> String {
        sha256(&self.manifest)
    }

    /// The SHA-256 digest of the component, in lower-case hexadecimal.
    #[must_use]
    pub fn component_digest(&self) -> String {
        sha256(&self.component)
    }

    /// The SHA-256 digest of the config, in lower-case hexadecimal.
    #[must_use]
    pub fn config_digest(&self) -> String {
        sha256(&self.config)
    }
}

/// An artifact whose manifest describes one component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    reference: OciReference,
    manifest: Vec<u8>,
    component_sha256: String,
    component_size: u64,
    config_sha256: String,
}

impl Artifact {
    /// Parses a manifest whose digest was verified, if the reference has one.
    pub(super) fn parse(
        reference: &OciReference,
        manifest: Vec<u8>,
    ) -> Result<Self, RegistryError> {
        let refused = |reason: String| RegistryError::NotAComponent {
            reference: reference.to_string(),
            reason,
        };
        let parsed: ImageManifest = serde_json::from_slice(&manifest)
            .map_err(|error| refused(format!("its manifest is not that of an image: {error}")))?;
        let media_type = parsed.media_type.as_deref().unwrap_or(MANIFEST);
        if media_type != MANIFEST {
            return Err(refused(format!("its manifest has the type {media_type:.100?}")));
        }
        if parsed.config.media_type != CONFIG {
            let found = &parsed.config.media_type;
            return Err(refused(format!("its config has the type {found:.100?}, not {CONFIG}")));
        }
        let [layer] = parsed.layers.as_slice() else {
            return Err(refused(format!("it has {} layers, not one", parsed.layers.len())));
        };
        if layer.media_type != COMPONENT {
            let found = &layer.media_type;
            return Err(refused(format!("its layer has the type {found:.100?}, not {COMPONENT}")));
        }
        let component_sha256 = layer
            .sha256()
            .ok_or_else(|| refused("its layer has no SHA-256 digest".to_owned()))?
            .to_owned();
        let component_size = layer.size;
        let config_sha256 = parsed
            .config
            .sha256()
            .ok_or_else(|| refused("its config has no SHA-256 digest".to_owned()))?
            .to_owned();
        let reference = reference.at(sha256(&manifest));
        Ok(Self { reference, manifest, component_sha256, component_size, config_sha256 })
    }

    /// The reference with the digest of the manifest.
    #[must_use]
    pub fn reference(&self) -> &OciReference {
        &self.reference
    }

    /// The SHA-256 digest of the component, in lower-case hexadecimal.
    #[must_use]
    pub fn component_sha256(&self) -> &str {
        &self.component_sha256
    }

    /// The size of the component in bytes, as the manifest states it.
    #[must_use]
    pub fn component_size(&self) -> u64 {
        self.component_size
    }

    /// The SHA-256 digest of the config, in lower-case hexadecimal.
    #[must_use]
    pub fn config_sha256(&self) -> &str {
        &self.config_sha256
    }

    /// The version of the component, as whoever pushed it states it in the manifest.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        let manifest: ImageManifest = serde_json::from_slice(&self.manifest).ok()?;
        manifest.annotations.get(VERSION).cloned()
    }

    pub(super) fn manifest(&self) -> &[u8] {
        &self.manifest
    }
}
