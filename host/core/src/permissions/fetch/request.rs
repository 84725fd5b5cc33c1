//! Headers and methods of requests: headers that the host sets, those allowed with every granted
//! request, those that need a grant of their own, and methods with a body.

/// Headers that frame a request, name its host, ask for compression, or belong to one connection.
/// The host sets them.
const OWN: [&str; 12] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "trailers",
    "upgrade",
    "expect",
    "http2-settings",
    "accept-encoding",
];

/// Headers allowed with every granted request. An allow list, because the list of dangerous headers
/// has no end: some servers take another method, path, host or client from a header. Examples:
/// `x-original-url`, `x-http-method-override`, `x-forwarded-*`, `destination`, `x-amz-copy-source`,
/// `metadata-flavor`, and the same with `_` for `-`.
const USUAL: [&str; 43] = [
    "accept",
    "accept-charset",
    "accept-datetime",
    "accept-language",
    "api-key",
    "authorization",
    "cache-control",
    "content-digest",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-md5",
    "content-type",
    "cookie",
    "date",
    "digest",
    "dnt",
    "from",
    "idempotency-key",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-event-id",
    "origin",
    "pragma",
    "prefer",
    "priority",
    "range",
    "referer",
    "repr-digest",
    "traceparent",
    "tracestate",
    "user-agent",
    "want-content-digest",
    "want-repr-digest",
    "x-api-key",
    "x-auth-token",
    "x-correlation-id",
    "x-csrf-token",
    "x-request-id",
    "x-requested-with",
];

/// Whether the host sets the header itself. `name` is in lower case.
#[must_use]
pub fn is_own_header(name: &str) -> bool {
    OWN.contains(&name) || name.starts_with("proxy-")
}

/// Whether the header goes with every granted request. `name` is in lower case.
#[must_use]
pub fn is_usual_header(name: &str) -> bool {
    USUAL.contains(&name)
}

/// Whether `name` is a header's name in lower case, as RFC 9110 spells it.
#[must_use]
pub fn is_header_name(name: &str) -> bool {
    let is_part = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
    };
    (1..=128).contains(&name.len()) && name.bytes().all(is_part)
}

/// A body for a method without one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a {method} request has no body: a server that does not read it takes it for the next request"
)]
pub struct UnexpectedBody {
    method: String,
}

/// Checks that a request with this method may have this body.
///
/// # Errors
/// `UnexpectedBody` if a GET or HEAD has a body.
pub fn check_body(method: &str, body: &[u8]) -> Result<(), UnexpectedBody> {
    match matches!(method, "GET" | "HEAD") && !body.is_empty() {
        true => Err(UnexpectedBody { method: method.to_owned() }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_header_that_overrides_forwards_or_proves_is_usual() {
        for name in [
            "x-original-url",
            "x-rewrite-url",
            "x-envoy-original-path",
            "x-http-method-override",
            "x-method-override",
            "x-http-method",
            "x_http_method_override",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-prefix",
            "forwarded",
            "via",
            "x-real-ip",
            "true-client-ip",
            "cf-connecting-ip",
            "metadata-flavor",
            "metadata",
            "x-aws-ec2-metadata-token",
            "x-aws-ec2-metadata-token-ttl-seconds",
            "destination",
            "x-amz-copy-source",
            "x-ms-copy-source",
        ] {
            assert!(
                is_header_name(name) && !is_usual_header(name) && !is_own_header(name),
                "{name}"
            );
        }
        for name in USUAL {
            assert!(is_header_name(name) && !is_own_header(name), "{name}");
        }
        assert!(is_own_header("proxy-authorization") && is_own_header("host"));
        for name in ["", "X-Own", "a b", "a:", "ä", "a\r\n"] {
            assert!(!is_header_name(name), "{name:?}");
        }
    }

    #[test]
    fn a_get_and_a_head_have_no_body() {
        for method in ["GET", "HEAD"] {
            assert!(
                check_body(method, b"x").is_err_and(|error| error.to_string().contains(method))
            );
            assert_eq!(check_body(method, b""), Ok(()));
        }
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            assert_eq!(check_body(method, b"x"), Ok(()));
        }
    }
}
