//! Patterns of hosts and URLs in configs: `api.example.org`, `*.example.org`,
//! `https://api.example.org/v1/*`. A pattern is stored in the canonical form of `url`, so that
//! matching is a comparison. Does not know any grants.

use std::fmt;
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};
use url::{Host, Url};

use super::target::leaves_its_folder;
use crate::types::text::is_deceptive;

/// The error for a text that is not a pattern, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UrlPatternError(pub String);

fn wrong<T>(reason: &str) -> Result<T, UrlPatternError> {
    Err(UrlPatternError(reason.to_owned()))
}

/// A host: exact, or every name below one (`*.example.org`, which excludes `example.org` itself).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern {
    /// The pattern as written.
    text: String,
    /// Lower case and Punycode, an IP address as `url` writes it; a leading `*.` is kept.
    canonical: String,
}

impl HostPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The reason: it has a port or a path, a `*` other than at the beginning, a trailing dot, or
    /// no valid host.
    pub fn parse(text: &str) -> Result<Self, UrlPatternError> {
        check_characters(text)?;
        let (is_below, name) = text.strip_prefix("*.").map_or((false, text), |name| (true, name));
        let name = canonical_host(name, is_below)?;
        Ok(Self {
            text: text.to_owned(),
            canonical: if is_below { format!("*.{name}") } else { name },
        })
    }

    /// The pattern as the operator wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it covers a host in the form of [`Url::host_str`].
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        host_covers(&self.canonical, host)
    }

    /// The pattern of the hosts that both cover; `None` if there are none. Of two patterns that
    /// share a host, one covers all hosts of the other.
    pub(crate) fn overlap(&self, other: &Self) -> Option<Self> {
        let narrower = narrower_host(&self.canonical, &other.canonical)?;
        Some(if narrower == self.canonical { self.clone() } else { other.clone() })
    }
}

impl TryFrom<String> for HostPattern {
    type Error = UrlPatternError;

    fn try_from(text: String) -> Result<Self, UrlPatternError> {
        Self::parse(&text)
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.text
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.text)
    }
}

/// Scheme, host, port and path: `https://api.example.org/v1/*`. Without a trailing `*` the path is
/// exact; a query is always allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UrlPattern {
    text: String,
    canonical: String,
}

impl UrlPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The reason: a scheme other than `http` and `https`, no host, a user name, a query, a
    /// fragment, a path with `..`, or a `*` other than in front of the host and at the end of the
    /// path.
    pub fn parse(text: &str) -> Result<Self, UrlPatternError> {
        check_characters(text)?;
        let is_scheme =
            |scheme: &str| ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
        // `url` parses `http:s://a.example` as the host `s`, so the scheme is checked before `url`
        // sees the text.
        let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme))
        else {
            return wrong("it must begin with https:// or http://");
        };
        let (is_prefix, rest) = rest.strip_suffix('*').map_or((false, rest), |rest| (true, rest));
        let (is_below, rest) = rest.strip_prefix("*.").map_or((false, rest), |rest| (true, rest));
        if rest.contains('*') || (is_prefix && !rest.contains('/')) {
            return wrong(
                "a `*` may stand before the first dot of the host and at the end of the path",
            );
        }
        if rest.starts_with('/') {
            return wrong("it has no host");
        }
        if rest.contains(['?', '#']) {
            return wrong(
                "it has a query or a fragment: any query is covered, and fragments are never sent",
            );
        }
        let url = Url::parse(&format!("{scheme}://{rest}"))
            .map_err(|error| UrlPatternError(error.to_string()))?;
        check(&url, rest)?;
        let Some(host) = url.host_str() else { return wrong("it has no host") };
        canonical_host(host, is_below)?;
        let star = |is_there: bool, star: &'static str| if is_there { star } else { "" };
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let canonical = format!(
            "{}://{}{host}{port}{}{}",
            url.scheme(),
            star(is_below, "*."),
            url.path(),
            star(is_prefix, "*")
        );
        Ok(Self { text: text.to_owned(), canonical })
    }

    /// The pattern as the operator wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it covers this URL. Allocates nothing.
    #[must_use]
    pub fn covers(&self, url: &Url) -> bool {
        covers_canonical(&self.canonical, url)
    }

    /// Whether it covers every URL with this host.
    #[must_use]
    pub fn names_host(&self, host: &str) -> bool {
        PatternParts::of(&self.canonical).is_some_and(|view| host_covers(view.host, host))
    }

    /// The pattern of the URLs that both cover; `None` if there are none.
    pub(crate) fn overlap(&self, other: &Self) -> Option<Self> {
        let (one, two) = (PatternParts::of(&self.canonical)?, PatternParts::of(&other.canonical)?);
        if (one.scheme, one.port) != (two.scheme, two.port) {
            return None;
        }
        let host = narrower_host(one.host, two.host)?;
        let (path, is_prefix) = match (one.is_prefix, two.is_prefix) {
            (_, false) if one.covers_path(two.path) => (two.path, false),
            (false, _) if two.covers_path(one.path) => (one.path, false),
            (true, true) if two.path.starts_with(one.path) => (two.path, true),
            (true, true) if one.path.starts_with(two.path) => (one.path, true),
            _ => return None,
        };
        let is = |parts: &PatternParts<'_>| {
            (parts.host, parts.path, parts.is_prefix) == (host, path, is_prefix)
        };
        if is(&one) {
            return Some(self.clone());
        }
        if is(&two) {
            return Some(other.clone());
        }
        let (scheme, port) = (one.scheme, one.port);
        let star = if is_prefix { "*" } else { "" };
        Self::parse(&format!("{scheme}://{host}:{port}{path}{star}")).ok()
    }
}

impl TryFrom<String> for UrlPattern {
    type Error = UrlPatternError;

    fn try_from(text: String) -> Result<Self, UrlPatternError> {
        Self::parse(&text)
    }
}

impl From<UrlPattern> for String {
    fn from(pattern: UrlPattern) -> Self {
        pattern.text
    }
}

impl fmt::Display for UrlPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.text)
    }
}

/// Whether a pattern in canonical form covers a URL. Text in another form covers nothing, or
/// exactly what it literally says.
pub(crate) fn covers_canonical(canonical: &str, url: &Url) -> bool {
    PatternParts::of(canonical).is_some_and(|view| view.covers(url))
}

/// The parts of a canonical pattern.
struct PatternParts<'a> {
    scheme: &'a str,
    /// The host, with a leading `*.` if any.
    host: &'a str,
    port: u16,
    path: &'a str,
    is_prefix: bool,
}

impl<'a> PatternParts<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let usual = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return None,
        };
        let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        // The colons of an IPv6 address are before its bracket.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (authority, usual),
        };
        let (path, is_prefix) = path.strip_suffix('*').map_or((path, false), |path| (path, true));
        Some(Self { scheme, host, port, path, is_prefix })
    }

    fn covers(&self, url: &Url) -> bool {
        url.scheme() == self.scheme
            && url.host_str().is_some_and(|host| host_covers(self.host, host))
            && url.port_or_known_default() == Some(self.port)
            && self.covers_path(url.path())
    }

    fn covers_path(&self, path: &str) -> bool {
        if self.is_prefix { path.starts_with(self.path) } else { path == self.path }
    }
}

/// The host that covers fewer names; `None` if the two have none in common.
fn narrower_host<'a>(one: &'a str, two: &'a str) -> Option<&'a str> {
    if one == two || host_covers(one, two) {
        return Some(two);
    }
    host_covers(two, one).then_some(one)
}

/// Whether `*.example.org` and the like cover a host: `a.example.org` and `a.b.example.org`, not
/// `example.org`, never an IP address.
fn host_covers(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        // A name whose last label is a number is an address, so no address can end in a name.
        Some(end) => host.len() > end.len() && host.ends_with(end) && end.starts_with('.'),
        None => host == pattern,
    }
}

/// Rejects tabs and line ends, which `url` silently drops, and `\`, which it parses as `/`.
fn check_characters(text: &str) -> Result<(), UrlPatternError> {
    if text.chars().any(|c| c.is_whitespace() || is_deceptive(c)) {
        return wrong("it has blanks or characters that cannot be seen");
    }
    if text.contains('\\') {
        return wrong("it has a `\\`");
    }
    Ok(())
}

fn check(url: &Url, written: &str) -> Result<(), UrlPatternError> {
    if !matches!(url.scheme(), "http" | "https") {
        return wrong("it must begin with https:// or http://");
    }
    if written.split('/').next().is_some_and(|authority| authority.contains('@')) {
        return wrong("it must not hold a user name or a password");
    }
    let path = written.find('/').map_or("", |at| &written[at..]);
    let goes_up = |path: &str| path.split('/').any(|part| matches!(part, "." | ".."));
    if goes_up(path) || leaves_its_folder(path) {
        return wrong("its path goes upwards");
    }
    if url.port() == Some(0) {
        return wrong("there is no port 0");
    }
    Ok(())
}

/// Returns a host without `*.`, as `url` writes it.
fn canonical_host(name: &str, is_below: bool) -> Result<String, UrlPatternError> {
    let bracketed = name.parse::<Ipv6Addr>().ok().map(|address| format!("[{address}]"));
    let name = bracketed.as_deref().unwrap_or(name);
    if name.contains(['/', '?', '#', '@', '*', '%']) {
        return wrong("a host is a name or an IP address, with `*.` in front for all below it");
    }
    if !name.starts_with('[') && name.contains(':') {
        return wrong("a host has no port");
    }
    let host = Host::parse(name).map_err(|error| UrlPatternError(error.to_string()))?;
    match &host {
        Host::Domain(name) if name.ends_with('.') || name.split('.').any(str::is_empty) => {
            wrong("its name has a part that is empty")
        }
        Host::Domain(name) => Ok(name.clone()),
        Host::Ipv4(_) | Host::Ipv6(_) if is_below => wrong("there is nothing below an IP address"),
        Host::Ipv4(_) | Host::Ipv6(_) => Ok(host.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> HostPattern {
        HostPattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn url(text: &str) -> UrlPattern {
        UrlPattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn covered(pattern: &str, address: &str) -> bool {
        url(pattern).covers(&Url::parse(address).unwrap())
    }

    #[test]
    fn a_host_is_compared_in_one_spelling() {
        assert!(host("API.Example.org").covers("api.example.org"));
        assert!(host("bücher.example").covers("xn--bcher-kva.example"));
        assert!(host("0x7f.1").covers("127.0.0.1"));
        assert!(host("::1").covers("[::1]") && host("[0:0::1]").covers("[::1]"));
        assert_eq!(host("API.Example.org").as_str(), "API.Example.org");
    }

    #[test]
    fn below_a_name_is_not_the_name() {
        let pattern = host("*.example.org");
        assert!(pattern.covers("a.example.org") && pattern.covers("a.b.example.org"));
        for other in [
            "example.org",
            ".example.org",
            "evilexample.org",
            "a.example.org.evil",
            "a.example.org.",
            "127.0.0.1",
        ] {
            assert!(
                !pattern.covers(other)
                    || other == ".example.org" && Url::parse("http://.example.org").is_err(),
                "{other}"
            );
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in [
            "",
            "*",
            "*.",
            "*.*.org",
            "a.*.org",
            "example.org.",
            "example..org",
            "example.org:443",
            "https://example.org",
            "a/b",
            "a b",
            "a\tb",
            "a@b",
            "a%2eb",
            "*.127.0.0.1",
            "*.[::1]",
            "*example.org",
            "a\\b",
            "a\u{200b}b",
            "[::1]:80",
            "1.2.3.4.5",
        ] {
            assert!(HostPattern::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn scheme_host_port_and_path_all_count() {
        let pattern = "https://api.example.org/v1/*";
        for yes in [
            "https://api.example.org/v1/",
            "https://API.example.org:443/v1/a?b=c",
            "https://api.example.org/x/../v1/a",
        ] {
            assert!(covered(pattern, yes), "{yes}");
        }
        for no in [
            "http://api.example.org/v1/",
            "https://api.example.org:8443/v1/",
            "https://api.example.org/v1",
            "https://api.example.org/v2/",
            "https://api.example.org/V1/",
            "https://api.example.org/v1/../v2",
            "https://api.example.org/v1/%2e%2e/v2",
            "https://api.example.org/v1/.%2E/v2",
            "https://api.example.org\\v1\\..\\v2",
            "https://api.example.org.evil.example/v1/",
            "https://evil.example/https://api.example.org/v1/",
            "https://api.example.org@evil.example/v1/",
        ] {
            assert!(!covered(pattern, no), "{no}");
        }
    }

    #[test]
    fn a_path_without_a_star_is_exact() {
        assert!(covered("https://a.example/v1", "https://a.example/v1?q=1"));
        assert!(
            !covered("https://a.example/v1", "https://a.example/v1/")
                && !covered("https://a.example/v1", "https://a.example/v12")
        );
        assert!(
            covered("https://a.example", "https://a.example/")
                && !covered("https://a.example", "https://a.example/x")
        );
        assert!(covered("https://a.example/v*", "https://a.example/v12"));
    }

    #[test]
    fn ports_and_addresses_can_be_named() {
        assert!(
            covered("http://127.0.0.1:8080/*", "http://0x7f.1:8080/a")
                && !covered("http://127.0.0.1:8080/*", "http://127.0.0.1/a")
        );
        assert!(
            covered("http://[::1]:81/*", "http://[0::1]:81/")
                && covered("http://[::1]/*", "http://[::1]/")
        );
        assert!(
            covered("https://*.example.org:444/*", "https://a.example.org:444/")
                && !covered("https://*.example.org/*", "https://example.org/")
        );
    }

    #[test]
    fn a_pattern_names_the_host_that_it_covers() {
        // `url` parses the first as `http://s//a.example/`, whose host is `s`.
        for text in [
            "http:s://a.example/*",
            "https:b.example/x://a.example/*",
            "http:://a.example/",
            "http:b@c://a.example/",
        ] {
            assert!(UrlPattern::parse(text).is_err(), "{text}");
        }
        assert!(
            covered("HTTPS://a.example/*", "https://a.example/x"),
            "letters of the scheme are of any case"
        );
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in [
            "",
            "*",
            "https://",
            "https://*",
            "https://*/",
            "https://*.*/",
            "https://a.example*",
            "ftp://a.example/",
            "//a.example/",
            "a.example/*",
            "https://u@a.example/",
            "https://u:p@a.example/",
            "https://a.example/?q",
            "https://a.example/#f",
            "https://a.example/*/b",
            "https://a.example/../b",
            "https://a.example/a/..",
            "https://a.example/%2e%2e/b",
            "https://a.example/a%2f..%2fb",
            "https://a.example/\\b",
            "https://a.example./",
            "https://a.example:0/",
            "https://a.example:99999/",
            "https://*.127.0.0.1/",
            "https:// a.example/",
            "https:/a.example",
            "https:///a.example/",
            "javascript://a.example/",
            "https://a.*.example/",
            "https://a%00.example/",
        ] {
            assert!(UrlPattern::parse(text).is_err(), "{text:?}: {:?}", UrlPattern::parse(text));
        }
    }

    #[test]
    fn a_pattern_survives_being_written_down() {
        let pattern = url("HTTPS://API.example.org/v1/*");
        let text = serde_json::to_string(&pattern).unwrap();
        assert_eq!(text, "\"HTTPS://API.example.org/v1/*\"");
        assert_eq!(serde_json::from_str::<UrlPattern>(&text).unwrap(), pattern);
        assert!(serde_json::from_str::<UrlPattern>("\"ftp://a/\"").is_err());
    }
}
