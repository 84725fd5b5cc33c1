//! What a request says once. Of two values some programs read the first and others the last: a proxy
//! could check one of them, and this server act on the other.

use std::collections::BTreeSet;

use axum::http::header::{self, HeaderMap, HeaderName};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use conclave_runtime::webhook;

use crate::http::Failure;

/// The headers that a handler or a check reads. Lists such as `If-None-Match` are not among them.
const HEADERS: [HeaderName; 13] = [
    header::HOST,
    header::ORIGIN,
    header::COOKIE,
    header::AUTHORIZATION,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::TRANSFER_ENCODING,
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("last-event-id"),
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static(webhook::ID),
    HeaderName::from_static(webhook::TIMESTAMP),
    HeaderName::from_static(webhook::SIGNATURE),
];
/// The fields of queries and forms that are lists: of `can`, and of the selected calls of the inbox.
const LISTS: [&str; 2] = ["header", "question"];

/// Checks that a request has each header and each field of its query once, and names one host.
///
/// # Errors
/// `ambiguous_request`.
pub(crate) fn check(head: &Parts) -> Result<(), Failure> {
    for name in &HEADERS {
        if head.headers.get_all(name).iter().nth(1).is_some() {
            return Err(ambiguous(&format!("the header `{name}` comes more than once")));
        }
    }
    check_host(&head.uri, &head.headers)?;
    check_fields(head.uri.query().unwrap_or_default())
}

/// Checks that a query or a form has each field once.
///
/// # Errors
/// `ambiguous_request`.
pub(crate) fn check_fields(encoded: &str) -> Result<(), Failure> {
    let mut names = BTreeSet::new();
    for (name, _) in url::form_urlencoded::parse(encoded.as_bytes()) {
        if !LISTS.contains(&&*name) && !names.insert(name) {
            return Err(ambiguous("a field of the query or form comes more than once"));
        }
    }
    Ok(())
}

/// A request line can have a host too, which other programs prefer to that of the header.
fn check_host(uri: &Uri, headers: &HeaderMap) -> Result<(), Failure> {
    let Some(authority) = uri.authority() else { return Ok(()) };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    match host {
        Some(host) if host.eq_ignore_ascii_case(authority.as_str()) => Ok(()),
        _ => Err(ambiguous("the request line and the header `host` name two hosts")),
    }
}

fn ambiguous(what: &str) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, "ambiguous_request", what)
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn is_refused(uri: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(&request.body(()).unwrap().into_parts().0).is_err()
    }

    #[test]
    fn each_header_and_field_comes_once() {
        assert!(!is_refused("/runs?config=a&status=done", &[("host", "here"), ("cookie", "a=b")]));
        for name in &HEADERS {
            let name = name.as_str();
            assert!(is_refused("/", &[(name, "a"), (name, "a")]), "{name}");
        }
        assert!(!is_refused("/", &[("if-none-match", "\"a\""), ("if-none-match", "\"b\"")]));
        for query in ["config=a&config=b", "cursor=&cursor=x", "a=1&%61=2", "config&config=a"] {
            assert!(is_refused(&format!("/runs?{query}"), &[]), "{query}");
        }
        assert!(!is_refused("/api/v1/can?header=a&header=b&plugin=p", &[]));
    }

    #[test]
    fn a_request_line_names_no_other_host() {
        for (uri, is) in [("http://here/runs", false), ("http://there/runs", true)] {
            assert_eq!(is_refused(uri, &[("host", "here")]), is, "{uri}");
        }
        assert!(is_refused("http://here/runs", &[]));
    }
}
