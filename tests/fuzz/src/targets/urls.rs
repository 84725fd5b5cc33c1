//! Addresses. Each line of the input is used as a pattern, an address, a redirect and a network
//! address. All lines are combined with each other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use conclave_core::config::Config;
use conclave_core::permissions::fetch::{
    AddressKind, HostPattern, UrlPattern, is_inside, next_hop, target,
};
use conclave_core::permissions::grants::{FetchGrant, FetchRule, Grants, Rights};
use conclave_core::permissions::manifest::Manifest;
use url::{Host, Url};

use super::facts;

/// The maximum number of lines, because each is combined with each.
const LINES: usize = 6;

pub(super) fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let lines: Vec<&str> = text.split('\n').take(LINES).collect();
    let urls: Vec<Url> = lines.iter().filter_map(|line| readable(line)).collect();
    let manifest = facts::versatile().manifest;
    for line in &lines {
        if let Ok(pattern) = UrlPattern::parse(line) {
            assert_eq!(UrlPattern::parse(pattern.as_str()).as_ref(), Ok(&pattern));
            urls.iter().for_each(|url| pattern_against(&pattern, line, url, &manifest));
        }
        if let Ok(pattern) = HostPattern::parse(line) {
            urls.iter().for_each(|url| host_against(&pattern, line, url));
        }
        if let Ok(address) = line.parse() {
            connects(address);
        }
        for url in &urls {
            redirected(url, line);
        }
    }
    for url in &urls {
        granted_smallest(url, &manifest);
    }
    if let Some(bytes) = input.first_chunk::<16>() {
        connects(IpAddr::V6(Ipv6Addr::from(*bytes)));
        connects(IpAddr::V4(Ipv4Addr::from([bytes[0], bytes[1], bytes[2], bytes[3]])));
    }
}

/// A request's address is the one that `url` parses, and stays the same when it is sent again.
fn readable(line: &str) -> Option<Url> {
    let url = target(line).ok()?;
    assert_eq!(Url::parse(line).as_ref(), Ok(&url), "another reader reads another address");
    assert!(
        matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
    );
    assert!(url.fragment().is_none() && url.port() != Some(0));
    assert_eq!(target(url.as_str()).as_ref(), Ok(&url), "its normal form is another address");
    assert!(!url.path().split('/').any(|part| matches!(part, "." | "..")), "its path goes upwards");
    if let Some(Host::Ipv4(address)) = url.host() {
        assert!(
            is_public(address.into()) || is_inside(&url),
            "an inner address is taken for a public one"
        );
    }
    Some(url)
}

/// Checks with an independent parser that a pattern covers only addresses on its own host.
fn pattern_against(pattern: &UrlPattern, text: &str, url: &Url, manifest: &Manifest) {
    let is_covered = pattern.covers(url);
    if is_covered {
        let (scheme, rest) = text.split_once("://").expect("a pattern has a scheme");
        let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        let (is_below, authority) =
            authority.strip_prefix("*.").map_or((false, authority), |authority| (true, authority));
        let named = Url::parse(&format!("{scheme}://{authority}{}", path.trim_end_matches('*')))
            .expect("a pattern is an address");
        assert_eq!(
            (url.scheme(), url.port_or_known_default()),
            (named.scheme(), named.port_or_known_default()),
            "{text} covers {url}"
        );
        let (host, name) =
            (url.host_str().unwrap_or_default(), named.host_str().unwrap_or_default());
        if is_below {
            assert!(
                host.ends_with(&format!(".{name}")) && matches!(url.host(), Some(Host::Domain(_))),
                "{text} covers {url}"
            );
        } else {
            assert_eq!(host, name, "{text} covers {url}");
        }
        if path.ends_with('*') {
            assert!(url.path().starts_with(named.path()), "{text} covers {url}");
        } else {
            assert_eq!(url.path(), named.path(), "{text} covers {url}");
        }
        assert!(pattern.names_host(host), "{text} covers {url} and does not name its host");
    }
    let rules = vec![FetchRule { url: pattern.clone(), methods: vec!["GET".to_owned()] }];
    let grants = Grants { fetch: Some(FetchGrant::new(rules)), ..Grants::default() };
    let rights = Rights { plugin: "a", manifest, grants: &grants, narrowed: None };
    assert_eq!(
        rights.may_fetch("GET", url, []).is_ok(),
        is_covered,
        "the decision is that of the pattern {text}: {url}"
    );
    for method in ["POST", "CONNECT", "TRACE", "get"] {
        assert!(rights.may_fetch(method, url, []).is_err(), "{method} is not granted");
    }
}

fn host_against(pattern: &HostPattern, text: &str, url: &Url) {
    let host = url.host_str().unwrap_or_default();
    if !pattern.covers(host) {
        return;
    }
    match text.strip_prefix("*.") {
        Some(name) => {
            let named = Host::parse(name).expect("a pattern names a host").to_string();
            assert!(
                host.ends_with(&format!(".{named}")) && matches!(url.host(), Some(Host::Domain(_))),
                "{text} covers {host}"
            );
        }
        None => {
            let named = text
                .parse::<Ipv6Addr>()
                .map(Host::Ipv6)
                .or_else(|_| Host::parse(text))
                .expect("a pattern names a host");
            assert_eq!(host, named.to_string());
        }
    }
}

/// Without a grant for private networks, only addresses that the standard library also considers
/// public are reachable.
fn connects(address: IpAddr) {
    let none = FetchGrant::new(Vec::new());
    let allowed = none.may_connect(address);
    assert_eq!(allowed.is_ok(), AddressKind::of(address).is_none());
    if allowed.is_ok() {
        assert!(is_public(address), "{address} is not public");
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            !(v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_broadcast()
                || v4.is_documentation())
                && !(v4.is_unspecified()
                    || v4.is_multicast()
                    || v4.octets()[0] == 0
                    || v4.octets()[0] >= 240)
                && !(v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64)
        }
        IpAddr::V6(v6) => {
            let inner = v6.to_ipv4().or_else(|| v6.to_ipv4_mapped());
            !(v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || v6.is_unique_local()
                || v6.is_unicast_link_local())
                && inner.is_none()
        }
    }
}

/// A redirect that is followed leads to an address that could have been requested directly.
fn redirected(from: &Url, location: &str) {
    for (method, status) in [("GET", 302), ("POST", 301), ("PUT", 307)] {
        let Ok(Some(hop)) = next_hop(method, from, status, Some(location)) else { continue };
        assert_eq!(
            target(hop.url.as_str()).as_ref(),
            Ok(&hop.url),
            "a redirect leads to what may not be asked for"
        );
        assert!(
            from.scheme() != "https" || hop.url.scheme() == "https",
            "it leads from a secure address to one that is not"
        );
        assert_eq!(hop.is_same_origin, from.origin() == hop.url.origin());
        for proof in ["Authorization", "cookie"] {
            assert!(
                hop.is_same_origin || !hop.keeps_header(proof, false),
                "it takes {proof} to another origin"
            );
        }
    }
}

/// The grant that a refusal suggests is valid and covers the refused address.
fn granted_smallest(url: &Url, manifest: &Manifest) {
    let grants = Grants::default();
    let rights = Rights { plugin: "a", manifest, grants: &grants, narrowed: None };
    let Err(denial) = rights.may_fetch("GET", url, []) else { panic!("nothing is granted") };
    let Some(smallest) = denial.suggestion.as_deref() else { return };
    let (_, fetch) = smallest.split_once(" grants.fetch = ").expect("the grant is one of fetch");
    let text = format!(
        "entry = \"t\"\n[plugins.a]\nsource = \"stock:chat\"\ngrants.fetch = {fetch}\n[tasks.t]\nagent = \"a\"\n"
    );
    let config = Config::parse("conclave.toml", "", &text);
    let config =
        config.unwrap_or_else(|problems| panic!("the smallest grant can be written: {problems}"));
    let grants = &config.plugins.values().next().expect("it has a plugin").grants;
    let rights = Rights { plugin: "a", manifest, grants, narrowed: None };
    assert!(
        rights.may_fetch("GET", url, []).is_ok(),
        "the smallest grant {smallest} does not cover {url}"
    );
}
