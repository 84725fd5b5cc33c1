use std::collections::BTreeSet;

use super::*;
use crate::permissions::fetch::HostPattern;
use crate::permissions::grants::Grants;
use crate::permissions::manifest::{CapabilityRequest, Manifest};
use crate::permissions::secret::placeholder::Seed;

fn manifest() -> Manifest {
    Manifest {
        asks: [("secrets".to_owned(), CapabilityRequest::default())].into(),
        ..Manifest::default()
    }
}

fn grants(request_parts: &[SecretPlace]) -> Grants {
    let grant = |name: &str, host: &str| SecretGrant {
        name: SecretName::from(name),
        hosts: vec![HostPattern::parse(host).expect("a host")],
        request_parts: request_parts.iter().copied().collect::<BTreeSet<_>>(),
    };
    Grants {
        secrets: vec![grant("met", "api.example.org"), grant("git", "*.git.example")],
        ..Grants::default()
    }
}

fn mine() -> Placeholders {
    Placeholders::new(Seed([1; 32]))
}

fn met() -> String {
    mine().of(&SecretName::from("met"))
}

fn parts(url: &str, headers: &[(&str, &str)], body: Option<&str>) -> RequestParts {
    RequestParts {
        method: "POST".to_owned(),
        url: Url::parse(url).expect("an address"),
        headers: headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        body: body.map(|body| body.as_bytes().to_vec()),
    }
}

fn checked(
    request_parts: &[SecretPlace],
    parts: &RequestParts,
) -> Result<SecretPlan, Box<DenialRecord>> {
    let (manifest, grants) = (manifest(), grants(request_parts));
    check(
        &Rights { plugin: "weather", manifest: &manifest, grants: &grants, narrowed: None },
        &mine(),
        parts,
    )
}

const ALL: [SecretPlace; 3] = [SecretPlace::Header, SecretPlace::Query, SecretPlace::Body];

#[test]
fn values_stand_where_their_placeholders_stood() {
    let bearer = format!("Bearer {}", met());
    let json = format!(r#"{{"token": "{}"}}"#, met());
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let parts =
        parts(&format!("https://api.example.org/v1?key={}&x=1", met()), &headers, Some(&json));
    let plan = checked(&ALL, &parts).expect("it is bound to this host");
    assert_eq!(plan.names(), ["met"]);
    let sent = plan.put_in(&parts, |_| Some("a\"b &c")).expect("it fits");
    assert_eq!(sent.url.as_str(), "https://api.example.org/v1?key=a%22b%20%26c&x=1");
    assert_eq!(sent.headers[0].1, "Bearer a\"b &c");
    assert_eq!(sent.body.as_deref(), Some(br#"{"token": "a\"b &c"}"#.as_slice()));
    let redacted = plan.redact(&parts);
    assert_eq!(redacted.headers[0].1, "Bearer {secret:met}");
    assert!(
        !String::from_utf8_lossy(redacted.body.as_deref().unwrap_or_default()).contains(&met())
    );
}

#[test]
fn a_value_that_would_break_a_header_is_not_put_in() {
    let parts = parts("https://api.example.org/", &[("x-key", &met())], None);
    let plan = checked(&ALL, &parts).expect("it is allowed");
    assert_eq!(plan.put_in(&parts, |_| Some("a\r\nevil: 1")), Err(SecretName::from("met")));
    assert_eq!(plan.put_in(&parts, |_| None), Err(SecretName::from("met")));
}

#[test]
fn a_request_without_placeholders_stays_as_it_is() {
    let parts = parts(
        "https://elsewhere.example/conclave-secret-?q=conclave-secret-12",
        &[("a", "b")],
        Some("body"),
    );
    let plan = checked(&[], &parts).expect("there is nothing to decide");
    assert!(plan.is_empty() && plan.put_in(&parts, |_| None) == Ok(parts.clone()));
}

#[test]
fn everywhere_else_it_is_refused() {
    let (met, other) = (met(), Placeholders::new(Seed([2; 32])).of(&SecretName::from("met")));
    let header = [("x-key", met.as_str())];
    let cases = [
        (parts("https://evil.example/", &header, None), Layer::Runtime, "bound to api.example.org"),
        (parts("https://api.example.org.evil.example/", &header, None), Layer::Runtime, "bound to"),
        (parts("http://api.example.org/", &header, None), Layer::Host, "unencrypted"),
        (
            parts(&format!("https://api.example.org/{met}"), &[], None),
            Layer::Host,
            "before the query",
        ),
        (
            parts(&format!("https://api.example.org/%63{}", &met[1..]), &[], None),
            Layer::Host,
            "before the query",
        ),
        (parts(&format!("https://{met}.evil.example/"), &[], None), Layer::Runtime, "bound to"),
        (parts(&format!("https://api.example.org/#{met}"), &[], None), Layer::Host, "fragment"),
        (parts("https://api.example.org/", &[(&met, "x")], None), Layer::Host, "name of a header"),
        (
            parts("https://api.example.org/", &[("Host", &met)], None),
            Layer::Host,
            "how the request is sent",
        ),
        (parts("https://api.example.org/", &[], Some(&met)), Layer::Config, "in the body"),
        (
            parts(&format!("https://api.example.org/?q={met}"), &[], None),
            Layer::Config,
            "in the query",
        ),
        (
            parts("https://api.example.org/", &[("x-key", &other)], None),
            Layer::Runtime,
            "worth nothing",
        ),
    ];
    for (parts, layer, reason) in cases {
        let record = checked(&[SecretPlace::Header], &parts).expect_err(reason);
        assert!(
            record.layer == layer && record.reason.contains(reason),
            "{record:?}, not {reason}"
        );
        assert!(
            !record.denial.detail.contains("example"),
            "the guest learns no more than the name: {record:?}"
        );
    }
}

#[test]
fn the_smallest_grant_is_offered_for_a_place_and_never_for_a_host() {
    let header = SecretPlace::Header;
    let place = checked(&[header], &parts("https://api.example.org/", &[], Some(&met())))
        .expect_err("not in the body");
    assert_eq!(place.suggestion.as_deref(), Some(r#"[secrets.met] places = ["header", "body"]"#));
    let host = checked(&[header], &parts("https://evil.example/", &[("a", &met())], None))
        .expect_err("not there");
    assert_eq!(host.suggestion, None);
}

#[test]
fn the_manifest_is_a_ceiling() {
    let by_name = |hosts: &[&str]| CapabilityRequest {
        detail: [("met".to_owned(), serde_json::json!({ "why": "w", "hosts": hosts }))].into(),
        ..CapabilityRequest::default()
    };
    let grants = grants(&ALL);
    let decide = |asks: &[(&str, CapabilityRequest)], name: &str, url: &str| {
        let asks = asks.iter().map(|(name, ask)| ((*name).to_owned(), ask.clone())).collect();
        let manifest = Manifest { asks, ..Manifest::default() };
        let rights =
            Rights { plugin: "weather", manifest: &manifest, grants: &grants, narrowed: None };
        let placeholder = mine().of(&SecretName::from(name));
        check(&rights, &mine(), &parts(url, &[("x", &placeholder)], None))
            .map(drop)
            .map_err(|record| record.layer)
    };
    assert_eq!(decide(&[], "met", "https://api.example.org/"), Err(Layer::Manifest));
    assert_eq!(decide(&[("secrets", by_name(&[]))], "met", "https://api.example.org/"), Ok(()));
    assert_eq!(
        decide(&[("secrets", by_name(&["api.example.org"]))], "met", "https://api.example.org/"),
        Ok(())
    );
    assert_eq!(
        decide(&[("secrets", by_name(&["other.example.org"]))], "met", "https://api.example.org/"),
        Err(Layer::Manifest)
    );
    assert_eq!(
        decide(&[("secrets", by_name(&[]))], "git", "https://a.git.example/"),
        Err(Layer::Manifest)
    );
    assert_eq!(
        decide(&[("secrets", CapabilityRequest::default())], "git", "https://a.git.example/"),
        Ok(())
    );
}

#[test]
fn headers_with_placeholders_of_any_call_are_dropped_on_the_way_elsewhere() {
    let mut parts = parts("https://api.example.org/", &[("a", &met()), ("b", "c")], None);
    parts.drop_secret_headers();
    assert_eq!(parts.headers, [("b".to_owned(), "c".to_owned())]);
    let url = |text: &str| Url::parse(text).expect("an address");
    assert!(is_same_origin(&url("https://a.example/x"), &url("https://a.example:443/y")));
    assert!(!is_same_origin(&url("https://a.example/x"), &url("http://a.example/x")));
}
