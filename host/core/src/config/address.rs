//! URLs in a config. Lexical only: nothing here connects to a server.

use crate::types::oci::is_sha256;

/// The reason why a URL is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    #[error("it does not begin with `http://` or `https://`")]
    Scheme,
    #[error("it names no host")]
    Host,
    #[error("it holds a user name or a password, which do not belong in a config")]
    Login,
    #[error("its port is not a number from 1 to 65535")]
    Port,
    #[error("it has {0:?} in it")]
    Character(char),
    #[error("it has a `?` or a `#`; the host adds its own path")]
    Query,
    #[error("it is not held to a digest")]
    NoDigest,
    #[error("its digest is not 64 hexadecimal digits")]
    Digest,
}

/// Checks a URL to which the host adds a path.
pub(crate) fn check_http_url(text: &str) -> Result<(), AddressError> {
    authority_of(text)?;
    if text.contains(['?', '#']) { Err(AddressError::Query) } else { Ok(()) }
}

/// Splits a URL and its digest: `https://…/x.wasm#sha256=…`.
pub(crate) fn check_pinned_url(text: &str) -> Result<(&str, &str), AddressError> {
    authority_of(text)?;
    let (url, digest) = text.split_once("#sha256=").ok_or(AddressError::NoDigest)?;
    if is_sha256(digest) { Ok((url, digest)) } else { Err(AddressError::Digest) }
}

/// Returns host and port as written; `None` if the text is not a URL.
pub(crate) fn authority(text: &str) -> Option<&str> {
    authority_of(text).ok()
}

/// Whether requests to the URL stay on this machine.
pub(crate) fn is_loopback(text: &str) -> bool {
    let Some(authority) = authority(text) else { return false };
    let host = match authority.rfind(']') {
        Some(end) => &authority[..=end],
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_local = |address: &str| {
        address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    host.eq_ignore_ascii_case("localhost")
        || is_local(host.trim_start_matches('[').trim_end_matches(']'))
}

fn authority_of(text: &str) -> Result<&str, AddressError> {
    if let Some(other) = text.chars().find(|c| {
        c.is_whitespace() || c.is_control() || *c == '\\' || crate::types::text::is_deceptive(*c)
    }) {
        return Err(AddressError::Character(other));
    }
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"))
        .ok_or(AddressError::Scheme)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(AddressError::Login);
    }
    let (host, port) = match authority.rfind(']') {
        Some(end) => (&authority[..=end], authority[end + 1..].strip_prefix(':')),
        None => {
            authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)))
        }
    };
    if host.is_empty() {
        return Err(AddressError::Host);
    }
    match port.map(str::parse::<u16>) {
        None => Ok(authority),
        Some(Ok(port)) if port != 0 => Ok(authority),
        Some(_) => Err(AddressError::Port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_are_taken() {
        let cases = [
            ("http://127.0.0.1:11434/v1", Ok(())),
            ("https://[::1]:8080", Ok(())),
            ("https://models.example", Ok(())),
            ("ftp://models.example", Err(AddressError::Scheme)),
            ("models.example", Err(AddressError::Scheme)),
            ("http://", Err(AddressError::Host)),
            ("http://:80/v1", Err(AddressError::Host)),
            ("http://me:secret@models.example/v1", Err(AddressError::Login)),
            ("http://models.example:99999/v1", Err(AddressError::Port)),
            ("http://models.example:0/v1", Err(AddressError::Port)),
            ("http://models.example/v1?key=1", Err(AddressError::Query)),
            ("http://models.example/v1 ", Err(AddressError::Character(' '))),
            ("http://models.example\\v1", Err(AddressError::Character('\\'))),
        ];
        for (text, expected) in cases {
            assert_eq!(check_http_url(text), expected, "{text}");
        }
        assert_eq!(authority("https://[::1]:8080/v1"), Some("[::1]:8080"));
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for own in [
            "http://127.0.0.1:80/v1",
            "http://localhost:11434",
            "http://LOCALHOST/v1",
            "http://[::1]:8080/v1",
            "http://127.9.9.9",
        ] {
            assert!(is_loopback(own), "{own}");
        }
        for other in [
            "http://localhost.example/v1",
            "http://127.0.0.1.example",
            "http://10.0.0.1:80",
            "http://[::2]",
            "http://0.0.0.0",
        ] {
            assert!(!is_loopback(other), "{other}");
        }
    }

    #[test]
    fn a_pinned_address_has_a_whole_digest() {
        let digest = "0123456789abcdef".repeat(4);
        let text = format!("https://plugins.example/x.wasm#sha256={digest}");
        assert_eq!(
            check_pinned_url(&text),
            Ok(("https://plugins.example/x.wasm", digest.as_str()))
        );
        assert_eq!(check_pinned_url("https://plugins.example/x.wasm"), Err(AddressError::NoDigest));
        assert_eq!(
            check_pinned_url("https://plugins.example/x.wasm#sha256=ABC"),
            Err(AddressError::Digest)
        );
    }
}
