//! References to artifacts in OCI registries: `oci://HOST[:PORT]/REPOSITORY[:TAG][@sha256:DIGEST]`.
//! Lexical only: nothing here connects to a registry.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The scheme of a reference, with its separator.
pub const OCI_SCHEME: &str = "oci://";
/// Characters of a host with its port: those of a domain name, and room for the port.
const HOST_MAX: usize = 260;
/// Characters of a repository, by the distribution specification.
const REPOSITORY_MAX: usize = 255;
/// Characters of a tag, by the distribution specification.
const TAG_MAX: usize = 128;

/// An artifact in an OCI registry: by tag, by the digest of its manifest, or both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OciReference {
    /// The registry's host, with its port if it has one, in lower case.
    registry: String,
    repository: String,
    tag: Option<String>,
    /// The SHA-256 digest of the manifest, in lower-case hexadecimal. It decides if there is a tag
    /// too.
    digest: Option<String>,
}

/// The reason why a text is no reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OciReferenceError {
    #[error("it does not begin with `oci://`")]
    Scheme,
    #[error("its registry is not a host name or an IP address, with or without a port")]
    Registry,
    #[error(
        "its repository is not lower-case words of a-z and 0-9, joined by `.`, `_`, `-` and `/`, of at most {REPOSITORY_MAX} characters"
    )]
    Repository,
    #[error(
        "its tag is not at most {TAG_MAX} letters, digits, `_`, `.` and `-`, beginning with a letter, a digit or `_`"
    )]
    Tag,
    #[error("its digest is not `sha256:` and 64 lower-case hexadecimal digits")]
    Digest,
    #[error("it has neither a tag nor a digest")]
    Unversioned,
}

impl OciReference {
    /// The registry's host, with its port if it has one.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The repository: `team/notes`.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag; `None` if the artifact is named by digest alone.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The SHA-256 digest of the manifest, in lower-case hexadecimal; `None` for a tag that is not
    /// resolved.
    #[must_use]
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// The same reference with the digest of its manifest, in lower-case hexadecimal.
    #[must_use]
    pub fn at(&self, digest: impl Into<String>) -> Self {
        Self { digest: Some(digest.into()), ..self.clone() }
    }

    /// Whether both name the same registry, repository and tag.
    #[must_use]
    pub fn has_same_name(&self, other: &Self) -> bool {
        (&self.registry, &self.repository, &self.tag)
            == (&other.registry, &other.repository, &other.tag)
    }
}

impl FromStr for OciReference {
    type Err = OciReferenceError;

    fn from_str(text: &str) -> Result<Self, OciReferenceError> {
        let rest = text.strip_prefix(OCI_SCHEME).ok_or(OciReferenceError::Scheme)?;
        let (registry, path) = rest.split_once('/').ok_or(OciReferenceError::Repository)?;
        if !is_registry(registry) {
            return Err(OciReferenceError::Registry);
        }
        let (path, digest) = match path.split_once('@') {
            Some((path, digest)) => {
                let hex = digest.strip_prefix("sha256:").filter(|hex| is_sha256(hex));
                (path, Some(hex.ok_or(OciReferenceError::Digest)?.to_owned()))
            }
            None => (path, None),
        };
        let (repository, tag) = match path.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag.to_owned())),
            None => (path, None),
        };
        if !is_repository(repository) {
            return Err(OciReferenceError::Repository);
        }
        if tag.as_deref().is_some_and(|tag| !is_tag(tag)) {
            return Err(OciReferenceError::Tag);
        }
        if tag.is_none() && digest.is_none() {
            return Err(OciReferenceError::Unversioned);
        }
        let registry = registry.to_ascii_lowercase();
        Ok(Self { registry, repository: repository.to_owned(), tag, digest })
    }
}

impl fmt::Display for OciReference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { registry, repository, tag, digest } = self;
        write!(out, "{OCI_SCHEME}{registry}/{repository}")?;
        if let Some(tag) = tag {
            write!(out, ":{tag}")?;
        }
        if let Some(digest) = digest {
            write!(out, "@sha256:{digest}")?;
        }
        Ok(())
    }
}

impl TryFrom<String> for OciReference {
    type Error = OciReferenceError;

    fn try_from(text: String) -> Result<Self, OciReferenceError> {
        text.parse()
    }
}

impl From<OciReference> for String {
    fn from(reference: OciReference) -> Self {
        reference.to_string()
    }
}

/// Whether the text is a SHA-256 digest in lower-case hexadecimal.
#[must_use]
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether the text is `HOST`, `HOST:PORT` or `[IPV6]:PORT`.
fn is_registry(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) => (address, None),
        Some((address, port)) => match port.strip_prefix(':') {
            Some(port) => (address, Some(port)),
            None => return false,
        },
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let is_host = if text.starts_with('[') {
        host.parse::<std::net::Ipv6Addr>().is_ok()
    } else {
        let is_label = |label: &str| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        host.split('.').all(is_label)
    };
    let is_port = |port: &str| {
        port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port != 0)
    };
    text.len() <= HOST_MAX && is_host && port.is_none_or(is_port)
}

/// Whether the text is `component(/component)*`, where a component is lower-case words of letters
/// and digits between separators (`.`, `_`, `__` or any number of `-`).
fn is_repository(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_component = |component: &str| {
        let mut separators = component.split(|c: char| c.is_ascii() && is_word(c as u8)).skip(1);
        // An empty text between two characters of a word is no separator.
        let is_separator = |text: &str| {
            matches!(text, "" | "." | "_" | "__") || text.bytes().all(|byte| byte == b'-')
        };
        let ends = [component.as_bytes().first(), component.as_bytes().last()];
        ends.into_iter().all(|end| end.copied().is_some_and(is_word))
            && separators.all(is_separator)
    };
    text.len() <= REPOSITORY_MAX && text.split('/').all(is_component)
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= TAG_MAX
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_reference_is_parsed_and_written_the_same() {
        let digest = "0123456789abcdef".repeat(4);
        for text in [
            "oci://registry.example/notes:1.2.3".to_owned(),
            "oci://127.0.0.1:5000/team/tools/notes__x:latest".to_owned(),
            "oci://[::1]:5000/a:_1.0-rc".to_owned(),
            "oci://localhost/a---b.c_d/e:1".to_owned(),
            format!("oci://registry.example/notes@sha256:{digest}"),
            format!("oci://registry.example:443/notes:1@sha256:{digest}"),
        ] {
            let parsed: OciReference =
                text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(parsed.to_string(), text);
        }
        let parsed: OciReference = "oci://Registry.Example:5000/a/b:T".parse().unwrap();
        assert_eq!(
            (parsed.registry(), parsed.repository(), parsed.tag(), parsed.digest()),
            ("registry.example:5000", "a/b", Some("T"), None)
        );
    }

    #[test]
    fn what_is_no_reference_is_refused_with_its_reason() {
        use OciReferenceError as Error;
        let long = |prefix: &str, length: usize| format!("{prefix}{}", "a".repeat(length));
        for (text, expected) in [
            ("registry.example/notes:1".to_owned(), Error::Scheme),
            ("oci://registry.example".to_owned(), Error::Repository),
            ("oci:///notes:1".to_owned(), Error::Registry),
            ("oci://me:secret@registry.example/notes:1".to_owned(), Error::Registry),
            ("oci://registry.example:0/notes:1".to_owned(), Error::Registry),
            ("oci://registry.example:99999/notes:1".to_owned(), Error::Registry),
            ("oci://registry.example:+1/notes:1".to_owned(), Error::Registry),
            ("oci://registry..example/notes:1".to_owned(), Error::Registry),
            ("oci://-x.example/notes:1".to_owned(), Error::Registry),
            ("oci://regístry.example/notes:1".to_owned(), Error::Registry),
            ("oci://[::1/notes:1".to_owned(), Error::Registry),
            ("oci://[::1]5000/notes:1".to_owned(), Error::Registry),
            ("oci://r.example/../v2/other:1".to_owned(), Error::Repository),
            ("oci://r.example/a//b:1".to_owned(), Error::Repository),
            ("oci://r.example/Notes:1".to_owned(), Error::Repository),
            ("oci://r.example/a___b:1".to_owned(), Error::Repository),
            ("oci://r.example/a%2e%2e:1".to_owned(), Error::Repository),
            ("oci://r.example/a?x=y:1".to_owned(), Error::Repository),
            (long("oci://r.example/", 256) + ":1", Error::Repository),
            ("oci://r.example/notes:".to_owned(), Error::Tag),
            ("oci://r.example/notes:-1".to_owned(), Error::Tag),
            ("oci://r.example/notes:1/../2".to_owned(), Error::Tag),
            ("oci://r.example/notes:1:2".to_owned(), Error::Tag),
            ("oci://r.example/notes:1\u{202e}2".to_owned(), Error::Tag),
            (long("oci://r.example/notes:", 129), Error::Tag),
            ("oci://r.example/notes@sha256:00".to_owned(), Error::Digest),
            (format!("oci://r.example/notes@sha256:{}", "A".repeat(64)), Error::Digest),
            (format!("oci://r.example/notes@sha512:{}", "0".repeat(128)), Error::Digest),
            ("oci://r.example/notes".to_owned(), Error::Unversioned),
        ] {
            assert_eq!(text.parse::<OciReference>(), Err(expected), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic_and_written_the_same(text in "oci://[\\PC]{0,60}") {
            if let Ok(reference) = text.parse::<OciReference>() {
                prop_assert_eq!(reference.to_string().parse::<OciReference>(), Ok(reference));
            }
        }
    }
}
