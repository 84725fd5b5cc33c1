//! Requests allowed and refused by each layer, and the identity of the matched URL with the sent
//! one.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::permissions::fetch::target;
use crate::permissions::grants::Grants;
use crate::permissions::manifest::Manifest;

fn rule(url: &str, methods: &[&str]) -> FetchRule {
    FetchRule {
        url: UrlPattern::parse(url).unwrap(),
        methods: methods.iter().map(|method| (*method).to_owned()).collect(),
    }
}

fn manifest(detail: Value) -> Manifest {
    let mut manifest = Manifest::default();
    manifest.asks.insert("fetch".to_owned(), serde_json::from_value(detail).unwrap());
    manifest
}

fn decide(
    manifest: &Manifest,
    fetch: Option<FetchGrant>,
    method: &str,
    url: &str,
) -> Result<(), Refused> {
    let grants = Grants { fetch, ..Grants::default() };
    let rights = Rights { plugin: "subject", manifest, grants: &grants, narrowed: None };
    rights.may_fetch(method, &target(url).unwrap(), [])
}

fn granted() -> Option<FetchGrant> {
    Some(FetchGrant::new(vec![rule("https://api.example.org/v1/*", &["GET", "HEAD"])]))
}

#[test]
fn what_is_asked_for_and_granted_is_allowed() {
    assert_eq!(
        decide(&manifest(json!({})), granted(), "GET", "https://api.example.org/v1/a?b"),
        Ok(())
    );
    let asks = manifest(json!({ "urls": ["https://api.example.org/v1/*"], "methods": ["GET"] }));
    assert_eq!(decide(&asks, granted(), "GET", "https://api.example.org/v1/a"), Ok(()));
}

#[test]
fn each_layer_says_that_it_was_the_one() {
    let asks = manifest(json!({}));
    let layer = |manifest: &Manifest, fetch, method: &str, url: &str| {
        decide(manifest, fetch, method, url).unwrap_err().layer
    };
    let url = "https://api.example.org/v1/a";
    assert_eq!(layer(&Manifest::default(), granted(), "GET", url), Layer::Manifest);
    assert_eq!(layer(&asks, None, "GET", url), Layer::Config);
    assert_eq!(layer(&asks, granted(), "POST", url), Layer::Config);
    assert_eq!(layer(&asks, granted(), "GET", "https://api.example.org/v2/"), Layer::Config);
    assert_eq!(layer(&asks, granted(), "TRACE", url), Layer::Host);
    assert_eq!(layer(&asks, granted(), "CONNECT", url), Layer::Host);
}

#[test]
fn a_manifest_is_a_ceiling_whatever_was_granted() {
    let url = "https://api.example.org/v1/a";
    for (detail, method) in [
        (json!({ "urls": ["https://api.example.org/v1/b"] }), "GET"),
        (json!({ "urls": [] }), "GET"),
        (json!({ "urls": "https://api.example.org/v1/*" }), "GET"),
        (json!({ "urls": [1, null, "https://*", "nonsense"] }), "GET"),
        (json!({ "methods": ["GET"] }), "HEAD"),
        (json!({ "methods": ["get"] }), "GET"),
    ] {
        assert_eq!(
            decide(&manifest(detail.clone()), granted(), method, url).unwrap_err().layer,
            Layer::Manifest,
            "{detail}"
        );
    }
    let other_spelling = manifest(json!({ "urls": ["HTTPS://API.example.org:443/v1/*"] }));
    assert_eq!(decide(&other_spelling, granted(), "GET", url), Ok(()));
}

#[test]
fn the_smallest_grant_takes_nothing_away() {
    let suggestion = |fetch, method: &str, url: &str| {
        decide(&manifest(json!({})), fetch, method, url).unwrap_err().suggestion
    };
    let line = suggestion(None, "GET", "https://a.example/x?key=1").unwrap();
    assert_eq!(
        line,
        r#"[plugins.subject] grants.fetch = [{ url = "https://a.example/x", methods = ["GET"] }]"#
    );
    let line = suggestion(granted(), "POST", "https://b.example:444/").unwrap();
    assert_eq!(
        line,
        r#"[plugins.subject] grants.fetch = ["https://api.example.org/v1/*", { url = "https://b.example:444/", methods = ["POST"] }]"#
    );
    let wide = FetchGrant {
        requests: 5,
        private: vec!["10.0.0.0/8".parse().unwrap()],
        time_ms: 1_500,
        ..granted().unwrap()
    };
    let line = suggestion(Some(wide), "GET", "https://b.example/").unwrap();
    assert!(
        line.ends_with(r#"], private = ["10.0.0.0/8"], requests = 5, timeout = "1500 ms" }"#),
        "{line}"
    );
}

/// B9: a server acted on headers that the decision had not covered.
#[test]
fn a_header_goes_when_it_is_usual_or_granted_and_the_refusal_names_it() {
    let url = target("https://api.example.org/v1/a").unwrap();
    let may = |manifest: &Manifest, fetch: &FetchGrant, headers: &[&str]| {
        let grants = Grants { fetch: Some(fetch.clone()), ..Grants::default() };
        let rights = Rights { plugin: "subject", manifest, grants: &grants, narrowed: None };
        rights.may_fetch("GET", &url, headers.iter().copied())
    };
    let (asks, plain) = (manifest(json!({})), granted().unwrap());
    assert_eq!(
        may(&asks, &plain, &["accept", "authorization", "content-type", "x-api-key"]),
        Ok(())
    );
    let denied =
        may(&asks, &plain, &["x-original-url", "accept", "x-forwarded-for", "x-original-url"])
            .unwrap_err();
    assert_eq!(denied.layer, Layer::Config);
    assert!(denied.reason.contains("plugins.subject.grants.fetch.headers does not name the headers `x-forwarded-for`, `x-original-url`"));
    assert!(
        denied.denial.detail.ends_with("with the headers `x-forwarded-for`, `x-original-url`"),
        "{}",
        denied.denial.detail
    );
    assert_eq!(
        denied.suggestion.as_deref(),
        Some(
            r#"[plugins.subject] grants.fetch = { urls = ["https://api.example.org/v1/*"], headers = ["x-forwarded-for", "x-original-url"] }"#
        )
    );
    let with_header = FetchGrant { headers: vec!["x-original-url".to_owned()], ..plain.clone() };
    assert_eq!(may(&asks, &with_header, &["x-original-url"]), Ok(()));
    assert!(
        may(&asks, &with_header, &["x-original-url", "x_original_url"]).is_err(),
        "another spelling is another header"
    );
    // An address without a grant is reported first, and its suggested grant includes no header.
    let other_url = target("https://b.example/").unwrap();
    let grants = Grants { fetch: granted(), ..Grants::default() };
    let rights = Rights { plugin: "subject", manifest: &asks, grants: &grants, narrowed: None };
    let denied = rights.may_fetch("GET", &other_url, ["x-original-url"]).unwrap_err();
    assert!(
        denied
            .suggestion
            .is_some_and(|line| line.contains("b.example") && !line.contains("x-original-url"))
    );
    // A manifest that lists headers is a ceiling; the usual ones need no entry.
    let lists = manifest(json!({ "headers": ["X-Own"] }));
    let wide = FetchGrant { headers: vec!["x-own".to_owned(), "x-other".to_owned()], ..plain };
    assert_eq!(may(&lists, &wide, &["x-own", "accept"]), Ok(()));
    assert_eq!(may(&lists, &wide, &["x-other"]).unwrap_err().layer, Layer::Manifest);
}

#[test]
fn an_address_inside_gets_no_ready_made_grant() {
    for url in [
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://169.254.169.254/latest",
        "http://localhost/",
        "http://router/",
        "http://db.internal/",
        "http://10.0.0.1/",
    ] {
        assert_eq!(
            decide(&manifest(json!({})), granted(), "GET", url).unwrap_err().suggestion,
            None,
            "{url}"
        );
    }
    let grants = Grants { fetch: granted(), ..Grants::default() };
    let manifest = manifest(json!({}));
    let rights = Rights { plugin: "subject", manifest: &manifest, grants: &grants, narrowed: None };
    let record = rights
        .may_connect(&target("https://api.example.org/v1/").unwrap(), "10.0.0.1".parse().unwrap())
        .unwrap_err();
    assert_eq!((record.layer, record.suggestion), (Layer::Runtime, None));
    assert!(record.reason.contains("private address, 10.0.0.1"), "{}", record.reason);
    assert!(
        !record.denial.detail.contains("10.0.0.1"),
        "the plugin is not told what a name stands for: {}",
        record.denial.detail
    );
}

/// Returns the parts of an address as a server gets them, taken from the sent text and not from the
/// parser.
fn sent(text: &str) -> (&str, &str, &str) {
    let (scheme, rest) = text.split_once("://").unwrap();
    let (authority, path) = rest.split_at(rest.find('/').unwrap());
    (scheme, authority, path.split('?').next().unwrap())
}

/// Returns addresses that are close to being ambiguous.
fn tricky() -> impl Strategy<Value = String> {
    let scheme = prop::sample::select(vec![
        "https://",
        "HTTPS://",
        "https:/",
        "https:\\\\",
        "http://",
        "https:///",
        "//",
        "ftp://",
        "https:",
    ]);
    let host = prop::sample::select(vec![
        "api.example.org",
        "API.example.ORG",
        "api.example.org:443",
        "api.example.org:0443",
        "api.example.org:8443",
        "u@api.example.org",
        "api.example.org@evil.example",
        "evil.example#@api.example.org",
        "evil.example\\@api.example.org",
        "api.example.org.",
        "evil.example",
        "api。example。org",
        "api.example.org%2eevil.example",
        "api%2eexample%2eorg",
        "127.0.0.1",
        "0x7f.1",
        "[::1]",
        "ａpi.example.org",
    ]);
    let part = prop::sample::select(vec![
        "v1",
        "V1",
        "..",
        ".",
        "%2e%2e",
        "%2E.",
        ".%2e",
        "%252e%252e",
        "..;",
        "..%2f",
        "..%5c",
        "a",
        "%2f",
        "",
        "admin",
        "%00",
        "%c0%ae",
        "?",
        "#",
        "*",
        " ",
        "\t",
        "%76%31",
    ]);
    let slash = prop::sample::select(vec!["/", "\\", "//"]);
    (scheme, host, prop::collection::vec((slash, part), 0..6)).prop_map(|(scheme, host, parts)| {
        let path: String =
            parts.into_iter().map(|(slash, part)| format!("{slash}{part}")).collect();
        format!("{scheme}{host}{path}")
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_matches_is_what_is_sent(text in tricky()) {
        let Ok(url) = target(&text) else { return Ok(()) };
        // The client parses the text again; the result must be the same.
        let reparsed = Url::parse(url.as_str()).unwrap();
        prop_assert_eq!(reparsed.as_str(), url.as_str());
        let pattern = UrlPattern::parse("https://api.example.org/v1/*").unwrap();
        let (scheme, authority, path) = sent(url.as_str());
        let would_be = scheme == "https" && authority == "api.example.org" && path.starts_with("/v1/");
        prop_assert_eq!(pattern.covers(&url), would_be, "{}", url);
        if would_be {
            let decoded = path.to_ascii_lowercase().replace("%2f", "/").replace("%5c", "/").replace("%2e", ".").replace("%252e", ".");
            prop_assert!(decoded.split('/').all(|part| part != ".." && !part.starts_with("..;")), "{}", url);
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,40}") {
        let _ = target(&text);
        let _ = target(&format!("https://{text}"));
        let _ = UrlPattern::parse(&text);
        if let Ok(pattern) = UrlPattern::parse(&format!("https://{text}")) {
            // A pattern without stars covers itself.
            if let Ok(url) = target(pattern.as_str()) && !pattern.as_str().contains('*') {
                prop_assert!(pattern.covers(&url), "{}", url);
            }
        }
        if let Ok(host) = crate::permissions::fetch::HostPattern::parse(&text) && let Ok(url) = target(&format!("https://{text}/")) {
            prop_assert!(text.starts_with("*.") || host.covers(url.host_str().unwrap()), "{}", url);
        }
    }
}

#[test]
fn a_tunnel_needs_a_rule_of_its_own() {
    let asks = manifest(json!({ "why": "its program" }));
    let tunnel = |fetch: Option<FetchGrant>, url: &str| {
        let grants = Grants { fetch, ..Grants::default() };
        let rights = Rights { plugin: "it", manifest: &asks, grants: &grants, narrowed: None };
        rights.may_tunnel(&target(url).unwrap())
    };
    let to = |pattern: &str, methods: &[&str]| Some(FetchGrant::new(vec![rule(pattern, methods)]));
    let tunnels = |pattern| to(pattern, &["CONNECT"]);
    assert_eq!(tunnel(tunnels("https://api.example.org/*"), "https://api.example.org/"), Ok(()));
    assert_eq!(tunnel(tunnels("https://a.example:8443/*"), "https://a.example:8443/"), Ok(()));
    for (grant, url) in [
        // Bytes in a tunnel cannot be held to a path or a method.
        (to("https://api.example.org/*", &["GET", "POST"]), "https://api.example.org/"),
        (tunnels("https://api.example.org/v1/*"), "https://api.example.org/"),
        (tunnels("https://api.example.org/*"), "https://other.example.org/"),
        (tunnels("https://api.example.org/*"), "https://api.example.org:8443/"),
        (tunnels("https://api.example.org/*"), "https://93.184.216.34/"),
        (tunnels("http://api.example.org/*"), "https://api.example.org/"),
        (None, "https://api.example.org/"),
    ] {
        assert_eq!(tunnel(grant, url).unwrap_err().layer, Layer::Config, "{url}");
    }
    let refused = tunnel(None, "https://api.example.org/").unwrap_err();
    let line = r#"[plugins.it] grants.fetch = [{ url = "https://api.example.org/", methods = ["CONNECT"] }]"#;
    assert_eq!(refused.suggestion.as_deref(), Some(line));
    let (private, url) = (tunnels("https://10.0.0.1/*"), "https://10.0.0.1/");
    let grants = Grants { fetch: private, ..Grants::default() };
    let rights = Rights { plugin: "it", manifest: &asks, grants: &grants, narrowed: None };
    let request = AccessRequest { target: url, method: "CONNECT", ..AccessRequest::new(rights) };
    assert_eq!(FetchGrant::decide(&request).unwrap_err().layer, Layer::Runtime);
}
