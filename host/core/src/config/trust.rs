//! `[trust]`: the keys that the operator trusts, the signatures that a component needs, and what is
//! revoked. Decides whether verified signatures suffice. Knows no cryptography: the caller verifies
//! signatures, and passes the keys that made them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::keys::{SIGNATURES, TRUST};
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::{Config, PluginSource};
use crate::setup::Provenance;
use crate::types::ids::PluginName;
use crate::types::oci::is_sha256;
use crate::types::wording::{code, one_of};

/// The prefix of a key.
const KEY_PREFIX: &str = "ed25519:";
/// The prefix of a digest.
const DIGEST_PREFIX: &str = "sha256:";

/// An ed25519 public key: `ed25519:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey(String);

impl PublicKey {
    /// The key of these bytes.
    #[must_use]
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The bytes of the key.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            let pair = self.0.get(2 * index..2 * index + 2).unwrap_or_default();
            *byte = u8::from_str_radix(pair, 16).expect("it has 64 hexadecimal digits");
        }
        bytes
    }
}

/// A text that is no public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not `ed25519:` and 64 lower-case hexadecimal digits")]
pub struct PublicKeyError;

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        // The digits of a key have the form of a digest.
        let digits = text.strip_prefix(KEY_PREFIX).filter(|digits| is_sha256(digits));
        digits.map(|digits| Self(digits.to_owned())).ok_or(PublicKeyError)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{KEY_PREFIX}{}", self.0)
    }
}

/// `[trust]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// The trusted keys, by the operator's names for them.
    pub keys: BTreeMap<String, PublicKey>,
    /// The signatures that every component needs that did not come with the program.
    pub require_signed: Option<SignatureRule>,
    /// The keys whose signatures no longer count.
    pub revoked_keys: BTreeSet<PublicKey>,
    /// The SHA-256 digests of components and manifests that are never loaded, in lower-case
    /// hexadecimal.
    pub revoked_digests: BTreeSet<String>,
}

impl Trust {
    /// The names of those of these keys that are trusted and not revoked.
    #[must_use]
    pub fn names(&self, signers: &BTreeSet<PublicKey>) -> BTreeSet<String> {
        let is_valid = |key| signers.contains(key) && !self.revoked_keys.contains(key);
        let valid_keys = self.keys.iter().filter(|(_, key)| is_valid(*key));
        valid_keys.map(|(name, _)| name.clone()).collect()
    }

    /// Those of these keys that are neither trusted nor revoked.
    #[must_use]
    pub fn unknown(&self, signers: &BTreeSet<PublicKey>) -> BTreeSet<PublicKey> {
        let is_known = |key: &&PublicKey| {
            self.revoked_keys.contains(*key) || self.keys.values().any(|known| known == *key)
        };
        signers.iter().filter(|key| !is_known(key)).cloned().collect()
    }

    /// The keys that signed a component: the trusted ones by their names, and the others.
    #[must_use]
    pub fn signers(&self, provenance: &Provenance) -> BTreeSet<PublicKey> {
        let trusted_keys =
            provenance.signed_by.iter().filter_map(|name| self.keys.get(name).cloned());
        let unknown = provenance.unknown_signers.iter().filter_map(|key| key.parse().ok());
        trusted_keys.chain(unknown).collect()
    }

    /// A key behind the operator's name for it, for display.
    #[must_use]
    pub fn describe_key(&self, key: &PublicKey) -> String {
        match self.keys.iter().find(|(_, known)| *known == key) {
            Some((name, _)) => format!("{name} ({key})"),
            None => key.to_string(),
        }
    }
}

/// The signers of the previous component that did not sign the new one. A component that loses a
/// signer may have another author.
#[must_use]
pub fn lost_signers<'a>(
    before: &'a BTreeSet<PublicKey>,
    now: &'a BTreeSet<PublicKey>,
) -> Vec<&'a PublicKey> {
    before.difference(now).collect()
}

/// The signatures that a component needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureRule {
    /// The number of different keys that must have signed it; 0 requires none.
    pub threshold: u32,
    /// The names of the keys that count; `None` for all of `[trust]`.
    pub keys: Option<BTreeSet<String>>,
}

/// A component before it is compiled, with its verified signatures.
#[derive(Clone, Copy, Debug)]
pub struct SignedComponent<'a> {
    /// The SHA-256 digest of the component, in lower-case hexadecimal.
    pub sha256: &'a str,
    /// The SHA-256 digest of its manifest in a registry, in lower-case hexadecimal.
    pub artifact_sha256: Option<&'a str>,
    /// The keys that signed it. Each signature was verified over this component.
    pub signers: &'a BTreeSet<PublicKey>,
}

/// The reason why a component is not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustRefusal {
    /// The digest of the component or of its manifest is revoked.
    Revoked {
        /// As the config has it.
        digest: String,
    },
    /// Too few of the keys that count have signed it.
    Unsigned {
        /// The number of keys that must have signed it.
        threshold: u32,
        /// The names of the keys that count.
        accepted: BTreeSet<String>,
        /// Those of them that signed it.
        signed_by: BTreeSet<String>,
        /// Keys that signed it and are revoked.
        revoked: BTreeSet<PublicKey>,
        /// Keys that signed it and do not count.
        others: BTreeSet<PublicKey>,
    },
}

impl TrustRefusal {
    /// The code of the problem.
    #[must_use]
    pub fn code(&self) -> ProblemCode {
        match self {
            Self::Revoked { .. } => ProblemCode::Revoked,
            Self::Unsigned { .. } => ProblemCode::Unsigned,
        }
    }

    /// The remedy, for display.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::Revoked { .. } => {
                "use another version; or, if it was revoked by mistake, remove the digest from `revoked` in [trust]".to_owned()
            }
            Self::Unsigned { others, .. } => match others.first() {
                Some(other) => format!(
                    "if its publisher states the key {other}: conclave trust add NAME {other}, and write NAME in `require_signed.keys` if it lists keys"
                ),
                None => "ask its publisher for signatures, made with `conclave plugin sign`; or sign what you reviewed with a key of your own".to_owned(),
            },
        }
    }
}

impl fmt::Display for TrustRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
        match self {
            Self::Revoked { digest } => write!(out, "the digest {digest} is revoked"),
            Self::Unsigned { threshold, accepted, signed_by, revoked, others } => {
                match (*threshold, accepted.len()) {
                    (1, 1) => write!(out, "it needs a signature by {}", list(accepted))?,
                    (1, _) => write!(out, "it needs a signature by one of {}", list(accepted))?,
                    _ => {
                        write!(out, "it needs signatures by {threshold} of {}", list(accepted))?;
                    }
                }
                match signed_by.is_empty() {
                    true => write!(out, ", and has none")?,
                    false => write!(out, ", and has that of {}", list(signed_by))?,
                }
                if let Some(key) = revoked.first() {
                    write!(out, "; the signature of {key} does not count, because it is revoked")?;
                }
                if let Some(key) = others.first() {
                    write!(out, "; it is signed by {key}, which does not count")?;
                }
                Ok(())
            }
        }
    }
}

impl Config {
    /// The signatures that a plugin's component needs; `None` if it needs none. Only components
    /// from files, URLs and registries can need some.
    #[must_use]
    pub fn signature_rule(&self, plugin: &PluginName) -> Option<&SignatureRule> {
        let plugin = self.plugins.get(plugin)?;
        if !is_foreign(&plugin.source) {
            return None;
        }
        let rule = plugin.require_signed.as_ref().or(self.trust.require_signed.as_ref());
        rule.filter(|rule| rule.threshold > 0)
    }

    /// Decides whether a plugin's component is trusted, and returns the names of the keys that
    /// signed it.
    ///
    /// # Errors
    /// `Revoked` whatever signed it; `Unsigned` if a rule requires more signatures.
    pub fn check_trust(
        &self,
        plugin: &PluginName,
        component: SignedComponent<'_>,
    ) -> Result<BTreeSet<String>, TrustRefusal> {
        let digests = [Some(component.sha256), component.artifact_sha256];
        if let Some(digest) = digests
            .into_iter()
            .flatten()
            .find(|digest| self.trust.revoked_digests.contains(*digest))
        {
            return Err(TrustRefusal::Revoked { digest: format!("{DIGEST_PREFIX}{digest}") });
        }
        let signed_by = self.trust.names(component.signers);
        let Some(rule) = self.signature_rule(plugin) else { return Ok(signed_by) };
        let counts = |name: &&String| rule.keys.as_ref().is_none_or(|keys| keys.contains(*name));
        // By key, so that two names of one key count once.
        let counted: BTreeSet<&PublicKey> =
            signed_by.iter().filter(counts).filter_map(|name| self.trust.keys.get(name)).collect();
        if counted.len() >= rule.threshold as usize {
            return Ok(signed_by);
        }
        let (revoked, others) = component
            .signers
            .iter()
            .filter(|key| !counted.contains(key))
            .cloned()
            .partition(|key| self.trust.revoked_keys.contains(key));
        Err(TrustRefusal::Unsigned {
            threshold: rule.threshold,
            accepted: self.trust.keys.keys().filter(counts).cloned().collect(),
            signed_by: signed_by.iter().filter(counts).cloned().collect(),
            revoked,
            others,
        })
    }
}

/// Whether components of this source are made elsewhere. Those of the program are as trusted as the
/// program, and a server has no component.
fn is_foreign(source: &PluginSource) -> bool {
    match source {
        PluginSource::File(_) | PluginSource::Url { .. } | PluginSource::Oci { .. } => true,
        PluginSource::Stock(_) | PluginSource::Native(_) | PluginSource::Mcp(_) => false,
    }
}

/// Reads `[trust]`.
pub(crate) fn read(reader: &mut ConfigReader, root: &Table<'_>) -> Trust {
    let Some(table) = root.get("trust").and_then(|item| item.table(reader, TRUST)) else {
        return Trust::default();
    };
    let mut trust = Trust::default();
    let members = table.get("keys").map(|item| item.members(reader)).unwrap_or_default();
    for (name, item) in members {
        let Some(text) = item.string(reader) else { continue };
        match text.parse::<PublicKey>() {
            Ok(key) if trust.keys.values().any(|known| *known == key) => {
                let help = "give each key one name: two signatures must come from two keys";
                item.reject(
                    reader,
                    ProblemCode::Duplicate,
                    "has another name already",
                    help.to_owned(),
                );
            }
            Ok(key) => {
                trust.keys.insert(name.to_owned(), key);
            }
            Err(problem) => {
                let help = "write the public key as `conclave plugin keygen` printed it";
                item.wrong(reader, &format!("is no key: {problem}"), help.to_owned());
            }
        }
    }
    for item in table.get("revoked").and_then(|item| item.list(reader)).unwrap_or_default() {
        let Some(text) = item.string(reader) else { continue };
        let digest = text.strip_prefix(DIGEST_PREFIX).filter(|digest| is_sha256(digest));
        match (text.parse::<PublicKey>(), digest) {
            (Ok(key), _) => {
                trust.revoked_keys.insert(key);
            }
            (_, Some(digest)) => {
                trust.revoked_digests.insert(digest.to_owned());
            }
            _ => {
                let help = "write a key, `ed25519:…`, or a digest, `sha256:…`, whole";
                item.wrong(reader, "is neither a key nor a digest", help.to_owned());
            }
        }
    }
    trust.require_signed =
        table.get("require_signed").and_then(|item| read_rule(reader, &item, &trust));
    trust
}

/// Reads the signatures that a component needs.
pub(crate) fn read_rule(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
    trust: &Trust,
) -> Option<SignatureRule> {
    let table = item.table(reader, SIGNATURES)?;
    let threshold = table.read(reader, "threshold").unwrap_or(1);
    let keys = table.get("keys").and_then(|item| {
        let mut keys = BTreeSet::new();
        for item in item.list(reader)? {
            let Some(name) = item.string(reader) else { continue };
            if !trust.keys.contains_key(name) {
                let known = trust.keys.keys().map(String::as_str);
                let help = match trust.keys.is_empty() {
                    true => format!("write `{name} = \"ed25519:…\"` in [trust.keys]"),
                    false => format!("write {}", one_of(known)),
                };
                item.wrong(reader, &format!("names no key of [trust]: {}", code(name)), help);
            }
            keys.insert(name.to_owned());
        }
        Some(keys)
    });
    let available = keys.as_ref().map_or(trust.keys.len(), BTreeSet::len);
    if available < threshold as usize {
        let help = "lower `threshold`, or add keys".to_owned();
        let problem =
            format!("has a threshold of {threshold}, and fewer keys that count: {available}");
        item.reject(reader, ProblemCode::Conflict, &problem, help);
    }
    Some(SignatureRule { threshold, keys })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> PublicKey {
        PublicKey::new(&[number; 32])
    }

    fn config(trust: &str, plugin: &str) -> Config {
        let keys: String = [("alice", 1), ("bob", 2), ("carol", 3)]
            .map(|(name, number)| format!("keys.{name} = \"{}\"\n", key(number)))
            .concat();
        let text = format!(
            "entry = \"t\"\n[trust]\n{keys}{trust}\n[plugins.p]\nsource = \"./p.wasm\"\n{plugin}\n[tasks.t]\nagent = \"p\"\n"
        );
        Config::parse("c.toml", "", &text).unwrap_or_else(|problems| panic!("{problems}"))
    }

    fn check(
        config: &Config,
        signers: impl IntoIterator<Item = PublicKey>,
    ) -> Result<BTreeSet<String>, TrustRefusal> {
        let signers = signers.into_iter().collect();
        let sha256 = "ab".repeat(32);
        let artifact = "cd".repeat(32);
        let component = SignedComponent {
            sha256: &sha256,
            artifact_sha256: Some(&artifact),
            signers: &signers,
        };
        config.check_trust(&PluginName::from("p"), component)
    }

    fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
        names.into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn a_key_is_written_as_it_is_parsed() {
        let bytes: [u8; 32] = std::array::from_fn(|index| index as u8 * 7);
        let text = PublicKey::new(&bytes).to_string();
        assert_eq!(text.parse::<PublicKey>().map(|key| key.to_bytes()), Ok(bytes));
        for wrong in ["", "ed25519:", &text[1..], &text.to_uppercase(), &format!("{text}0")] {
            assert_eq!(wrong.parse::<PublicKey>(), Err(PublicKeyError), "{wrong}");
        }
    }

    #[test]
    fn without_a_rule_everything_is_trusted_but_what_is_revoked() {
        assert_eq!(check(&config("", ""), []), Ok(names([])));
        assert_eq!(check(&config("", ""), [key(1), key(9)]), Ok(names(["alice"])));
        for digest in ["ab".repeat(32), "cd".repeat(32)] {
            let digest = format!("sha256:{digest}");
            let config = config(&format!("revoked = [\"{digest}\"]"), "");
            assert_eq!(
                check(&config, [key(1), key(2), key(3)]),
                Err(TrustRefusal::Revoked { digest }),
                "no signature outweighs it"
            );
        }
    }

    #[test]
    fn a_key_that_is_neither_named_nor_revoked_is_unknown() {
        let config = config(&format!("revoked = [\"{}\"]", key(8)), "");
        let signers = [key(1), key(8), key(9)].into();
        assert_eq!(config.trust.unknown(&signers), [key(9)].into());
        assert_eq!(config.trust.names(&signers), names(["alice"]));
    }

    #[test]
    fn a_threshold_counts_different_trusted_keys() {
        let config = config("require_signed = { threshold = 2 }", "");
        assert_eq!(check(&config, [key(1), key(3)]), Ok(names(["alice", "carol"])));
        let Err(TrustRefusal::Unsigned { threshold, accepted, signed_by, revoked, others }) =
            check(&config, [key(1), key(9)])
        else {
            panic!("one trusted key is not two");
        };
        assert_eq!(
            (threshold, accepted, signed_by, revoked, others),
            (2, names(["alice", "bob", "carol"]), names(["alice"]), [].into(), [key(9)].into())
        );
    }

    #[test]
    fn a_rule_of_a_plugin_replaces_the_rule_of_all() {
        let all = "require_signed = { keys = [\"alice\"] }";
        let bobs = config(all, "require_signed = { keys = [\"bob\"] }");
        assert_eq!(check(&bobs, [key(2)]), Ok(names(["bob"])));
        assert!(matches!(check(&bobs, [key(1)]), Err(TrustRefusal::Unsigned { .. })));
        let exempt = config(all, "require_signed = { threshold = 0 }");
        assert_eq!(check(&exempt, []), Ok(names([])));
    }

    #[test]
    fn the_signature_of_a_revoked_key_does_not_count() {
        let revoked = format!("require_signed = {{ threshold = 1 }}\nrevoked = [\"{}\"]", key(1));
        let config = config(&revoked, "");
        let refused = check(&config, [key(1)]);
        assert!(
            matches!(&refused, Err(TrustRefusal::Unsigned { revoked, .. }) if revoked.contains(&key(1))),
            "{refused:?}"
        );
        assert_eq!(check(&config, [key(1), key(2)]), Ok(names(["bob"])));
    }

    #[test]
    fn what_came_with_the_program_needs_no_signature() {
        let text = "entry = \"t\"\n[trust]\nkeys = { a = \"ed25519:KEY\" }\nrequire_signed = { threshold = 1 }\n[plugins.p]\nsource = \"stock:p\"\n[tasks.t]\nagent = \"p\"\n";
        let text = text.replace("KEY", &"0a".repeat(32));
        let config =
            Config::parse("c.toml", "", &text).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(check(&config, []), Ok(names([])));
    }
}
