//! Signatures of components: ed25519 over a statement of digests, in a DSSE envelope. Says which
//! keys signed a component; whether they are trusted is decided in the core.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use conclave_core::config::PublicKey;
use conclave_core::types::oci::is_sha256;
use ed25519_dalek::{Signature, Signer, VerifyingKey};
use serde::{Deserialize, Serialize};

use super::read_component;
use super::registry::{Artifact, Package};

/// The type of the signed payload. It is part of what is signed, so a signature over anything else
/// is none over a statement.
const PAYLOAD_TYPE: &str = "application/vnd.conclave.statement.v1+json";
/// Bytes of an envelope, at most; one signature needs about 600.
pub(super) const ENVELOPE_BYTES: u64 = 64 << 10;
/// Envelopes of one component, at most; further ones are ignored.
pub(super) const ENVELOPES: usize = 64;
/// Signatures of one envelope, at most; further ones are ignored.
const SIGNATURES: usize = 64;
const SECRET_PREFIX: &str = "ed25519-secret:";

/// The digests that a signature covers, each `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    component: String,
    /// The manifest of the artifact.
    manifest: String,
    /// The config of the artifact.
    config: String,
}

impl Statement {
    /// The statement about an artifact.
    #[must_use]
    pub fn of_artifact(artifact: &Artifact) -> Self {
        let text = |digest: &str| format!("sha256:{digest}");
        Self {
            component: text(artifact.component_sha256()),
            manifest: text(artifact.reference().digest().unwrap_or_default()),
            config: text(artifact.config_sha256()),
        }
    }

    /// The statement about a component in a file, with the manifest and the config under which it
    /// is pushed.
    #[must_use]
    pub fn of_package(package: &Package) -> Self {
        let text = |digest: String| format!("sha256:{digest}");
        Self {
            component: text(package.component_digest()),
            manifest: text(package.digest()),
            config: text(package.config_digest()),
        }
    }

    /// Whether it is about this component: by all digests that are known of it. A file has neither
    /// manifest nor config.
    fn is_about(&self, subject: Subject<'_>) -> bool {
        match subject {
            Subject::Artifact(artifact) => *self == Self::of_artifact(artifact),
            Subject::File { sha256 } => self.component.strip_prefix("sha256:") == Some(sha256),
        }
    }
}

/// The component that signatures are verified for.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// An artifact of a registry.
    Artifact(&'a Artifact),
    /// A file.
    File {
        /// The digest of the component, in lower-case hexadecimal.
        sha256: &'a str,
    },
}

/// A statement with its signatures: a DSSE envelope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    payload_type: String,
    payload: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct EnvelopeSignature {
    /// The public key. Not trusted: it only selects the key to verify with.
    keyid: String,
    sig: String,
}

impl Envelope {
    /// Parses an envelope; `None` if it is none, or is too large.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() as u64 > ENVELOPE_BYTES {
            return None;
        }
        serde_json::from_slice(bytes).ok()
    }

    /// Parses the envelopes of a signature file, one on each line. A line that is none is skipped,
    /// since it proves nothing.
    #[must_use]
    pub fn parse_lines(bytes: &[u8]) -> Vec<Self> {
        bytes.split(|byte| *byte == b'\n').filter_map(Self::parse).take(ENVELOPES).collect()
    }

    /// The envelope as JSON on one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it has only texts")
    }

    /// The keys with a valid signature over a statement about this component.
    fn signers(&self, subject: Subject<'_>) -> BTreeSet<PublicKey> {
        let payload = match BASE64.decode(&self.payload) {
            Ok(payload) if self.payload_type == PAYLOAD_TYPE => payload,
            _ => return BTreeSet::new(),
        };
        let is_about = serde_json::from_slice::<Statement>(&payload)
            .is_ok_and(|statement| statement.is_about(subject));
        if !is_about {
            return BTreeSet::new();
        }
        let signed = signed_bytes(&payload);
        let valid = self.signatures.iter().take(SIGNATURES).filter_map(|signature| {
            let key: PublicKey = signature.keyid.parse().ok()?;
            let bytes = BASE64.decode(&signature.sig).ok()?;
            let signature = Signature::from_slice(&bytes).ok()?;
            let verifying = VerifyingKey::from_bytes(&key.to_bytes()).ok()?;
            // Strict: a weak key has signatures that are valid for any text.
            verifying.verify_strict(&signed, &signature).ok()?;
            Some(key)
        });
        valid.collect()
    }
}

/// The file with the signatures of a component's file, which need not be there: the name of the
/// component with `.sig` appended.
#[must_use]
pub fn signature_file(component: &Path) -> PathBuf {
    let mut name = component.as_os_str().to_owned();
    name.push(".sig");
    PathBuf::from(name)
}

/// Returns the envelopes in the file beside a component; none if there is no such file.
///
/// # Errors
/// As [`read_component`].
pub fn signatures_beside(component: &Path) -> io::Result<Vec<Envelope>> {
    match read_component(&signature_file(component)) {
        Ok(bytes) => Ok(Envelope::parse_lines(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The keys with a valid signature in any of these envelopes.
#[must_use]
pub fn signers(envelopes: &[Envelope], subject: Subject<'_>) -> BTreeSet<PublicKey> {
    envelopes.iter().take(ENVELOPES).flat_map(|envelope| envelope.signers(subject)).collect()
}

/// The bytes that a signature covers: DSSE's pre-authentication encoding.
fn signed_bytes(payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {PAYLOAD_TYPE} {} ", PAYLOAD_TYPE.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

/// A secret key to sign components with.
pub struct SigningKey(ed25519_dalek::SigningKey);

/// A text that is no secret key. It does not hold the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is not `ed25519-secret:` and 64 hexadecimal digits, as `conclave plugin keygen` writes them"
)]
pub struct SigningKeyError;

impl SigningKey {
    /// Returns a new key from the system's randomness.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        Ok(Self(ed25519_dalek::SigningKey::from_bytes(&seed)))
    }

    /// The key as one line of a file, which is as secret as the key.
    #[must_use]
    pub fn to_secret(&self) -> String {
        let digits: String = self.0.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{SECRET_PREFIX}{digits}")
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey::new(self.0.verifying_key().as_bytes())
    }

    /// Signs a statement.
    #[must_use]
    pub fn sign(&self, statement: &Statement) -> Envelope {
        let payload = serde_json::to_vec(statement).expect("it has only texts");
        let signature = self.0.sign(&signed_bytes(&payload));
        Envelope {
            payload_type: PAYLOAD_TYPE.to_owned(),
            payload: BASE64.encode(&payload),
            signatures: vec![EnvelopeSignature {
                keyid: self.public().to_string(),
                sig: BASE64.encode(signature.to_bytes()),
            }],
        }
    }
}

impl FromStr for SigningKey {
    type Err = SigningKeyError;

    fn from_str(text: &str) -> Result<Self, SigningKeyError> {
        let digits = text.trim().strip_prefix(SECRET_PREFIX).filter(|digits| is_sha256(digits));
        let public = digits.map(|digits| format!("ed25519:{digits}").parse::<PublicKey>());
        // A seed has the form of a key, whose parser reads the digits.
        let seed = public.and_then(Result::ok).ok_or(SigningKeyError)?.to_bytes();
        Ok(Self(ed25519_dalek::SigningKey::from_bytes(&seed)))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SigningKey").field("public", &self.public().to_string()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPONENT: &str = "aa";

    fn sha256() -> String {
        COMPONENT.repeat(32)
    }

    fn statement() -> Statement {
        let text = |digits: &str| format!("sha256:{}", digits.repeat(32));
        Statement { component: text(COMPONENT), manifest: text("bb"), config: text("cc") }
    }

    fn key(seed: u8) -> SigningKey {
        SigningKey(ed25519_dalek::SigningKey::from_bytes(&[seed; 32]))
    }

    fn signers_of(envelope: &Envelope) -> Vec<PublicKey> {
        let sha256 = sha256();
        signers(std::slice::from_ref(envelope), Subject::File { sha256: &sha256 })
            .into_iter()
            .collect()
    }

    #[test]
    fn a_signature_names_the_key_that_made_it() {
        let envelope = key(1).sign(&statement());
        assert_eq!(signers_of(&envelope), [key(1).public()]);
        let written =
            Envelope::parse_lines(format!("\nno envelope\n{}\n", envelope.to_json()).as_bytes());
        assert_eq!(written, [envelope]);
    }

    #[test]
    fn the_encoding_is_that_of_dsse() {
        assert_eq!(
            signed_bytes(b"{}"),
            b"DSSEv1 42 application/vnd.conclave.statement.v1+json 2 {}"
        );
    }

    #[test]
    fn a_signature_that_was_changed_in_any_part_counts_for_nobody() {
        let signature = key(1).sign(&statement());
        let changes: [fn(&mut Envelope); 7] = [
            |envelope| envelope.payload_type.push('x'),
            |envelope| {
                let mut other = statement();
                other.manifest = other.config.clone();
                envelope.payload = BASE64.encode(serde_json::to_vec(&other).unwrap());
            },
            |envelope| envelope.payload = "%".to_owned(),
            |envelope| envelope.signatures[0].keyid = key(2).public().to_string(),
            |envelope| envelope.signatures[0].keyid = format!("ed25519:{}", "00".repeat(32)),
            |envelope| {
                let other = key(1).sign(&Statement { component: String::new(), ..statement() });
                envelope.signatures = other.signatures;
            },
            |envelope| envelope.signatures[0].sig.clear(),
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut changed = signature.clone();
            change(&mut changed);
            assert!(signers_of(&changed).is_empty(), "{index}");
        }
    }

    #[test]
    fn a_signature_over_another_component_counts_for_nobody() {
        let envelope = key(1).sign(&statement());
        let other = "ad".repeat(32);
        assert!(signers(&[envelope], Subject::File { sha256: &other }).is_empty());
    }

    #[test]
    fn a_weak_key_signs_nothing() {
        // The neutral element as key and as R, and S = 0: valid for any text without strictness.
        let weak = PublicKey::new(&std::array::from_fn(|index| u8::from(index == 0)));
        let mut signature = [0; 64];
        signature[0] = 1;
        let mut envelope = key(1).sign(&statement());
        envelope.signatures[0].keyid = weak.to_string();
        envelope.signatures[0].sig = BASE64.encode(signature);
        assert!(signers_of(&envelope).is_empty());
    }

    #[test]
    fn a_secret_key_is_read_as_it_was_written_and_never_shown() {
        let key = SigningKey::generate().expect("there is randomness");
        let secret = key.to_secret();
        let read: SigningKey = format!("{secret}\n").parse().expect("it is a key");
        assert_eq!(read.public(), key.public());
        let digits = secret.trim_start_matches(SECRET_PREFIX);
        assert!(!format!("{key:?}").contains(digits));
        assert_eq!(secret[1..].parse::<SigningKey>().map(|_| ()), Err(SigningKeyError));
    }
}
