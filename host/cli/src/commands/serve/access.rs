//! Who may use the server: the token of the address that the operator opens, the cookie that the
//! browser keeps instead, and the checks of `Host` and `Origin` against other web sites. The headers
//! that restrict what the page may do are here too.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

use super::connections::Connection;
use super::conversations::FAILED;
use super::http::Failure;
use crate::program::error::CliError;

/// Bytes of a token.
const TOKEN: usize = 32;

/// Headers of every response. Scripts and styles come from this server alone, and the page cannot be
/// framed, so that no other site can act through it.
const HEADERS: [(HeaderName, &str); 9] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
    (header::VARY, "Cookie, Origin"),
];

/// The access of browsers to the server.
pub(super) struct Access {
    token: String,
    /// The value of the cookie. It differs from the token, so that an address that leaks after its
    /// use is worth no more than before.
    session: String,
    cookie: String,
    /// The values of `Host` that lead here on purpose, in lower case.
    hosts: Vec<String>,
}

impl Access {
    /// Returns new access for a server on `port`, which browsers reach under these hosts.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub(super) fn new(port: u16, hosts: Vec<String>) -> Result<Self, CliError> {
        // Cookies of all ports of a host are in one jar.
        let cookie = format!("conclave-{port}");
        Ok(Self { token: random()?, session: random()?, cookie, hosts })
    }

    /// Returns the token of the address that the operator opens.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Returns the cookie for a browser that has the token; `None` for a wrong token.
    pub(super) fn begin_session(&self, token: &str) -> Option<String> {
        let Self { cookie, session, .. } = self;
        is_same(token, &self.token)
            .then(|| format!("{cookie}={session}; HttpOnly; SameSite=Strict; Path=/"))
    }

    fn has_session(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(header::COOKIE).iter();
        let mut pairs = cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(name, value)| name == self.cookie && is_same(value, &self.session))
    }

    /// Returns why the request is refused, if it is.
    fn check(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<(), Failure> {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        // A name that another site has pointed at this address is not among the hosts.
        let host = text(header::HOST).map(str::to_ascii_lowercase);
        if !host.is_some_and(|host| self.hosts.contains(&host)) {
            let what = format!("this server is {}, and not the host of the request", self.hosts[0]);
            return Err(Failure::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", what));
        }
        let is_api = path.starts_with("/api/");
        let origin = headers.get(header::ORIGIN);
        let is_own = origin.and_then(|value| value.to_str().ok()).is_some_and(|origin| {
            let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            host.is_some_and(|host| self.hosts.iter().any(|own| own == host))
        });
        // Browsers send an origin with each POST; one without comes from no page of this server.
        let needs_origin = origin.is_some() || method != Method::GET;
        let site = text(HeaderName::from_static("sec-fetch-site"));
        let is_foreign = site.is_some_and(|site| !matches!(site, "same-origin" | "none"));
        if is_api && ((needs_origin && !is_own) || is_foreign) {
            let what = "the request comes from another web site, and only the page of this server may send it";
            return Err(Failure::new(StatusCode::FORBIDDEN, "wrong_origin", what));
        }
        if is_api && path != "/api/session" && !self.has_session(headers) {
            let what = "this browser has no access; open the address that `conclave serve` printed";
            return Err(Failure::new(StatusCode::UNAUTHORIZED, "no_access", what));
        }
        Ok(())
    }
}

/// Refuses requests without access, and adds the headers of every response.
pub(super) async fn guard(
    State(server): State<super::http::Server>,
    request: Request,
    next: Next,
) -> Response {
    let access = server.access();
    let has_session = access.has_session(request.headers());
    let connection = request.extensions().get::<Arc<Connection>>();
    let is_admitted = !has_session || connection.is_none_or(Connection::recognize);
    let checked = if is_admitted {
        access.check(request.method(), request.uri().path(), request.headers())
    } else {
        let what = "too many pages are open already; close one and load this one again";
        Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", what))
    };
    let mut response = match checked {
        Ok(()) => in_a_task(next.run(request)).await,
        Err(failure) => failure.into_response(),
    };
    if !has_session || !is_admitted {
        // A client without a session gets one answer for each connection.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Answers a request in a task of its own. A client that leaves ends its connection, which drops the
/// future of the request at any of its awaits; a change must not end half-way.
async fn in_a_task(answer: impl Future<Output = Response> + Send + 'static) -> Response {
    tokio::spawn(answer).await.unwrap_or_else(|_| {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", FAILED).into_response()
    })
}

/// Returns whether two secrets are the same. Their digests are compared, so that the time tells
/// nothing about the secret.
fn is_same(given: &str, secret: &str) -> bool {
    Sha256::digest(given) == Sha256::digest(secret)
}

fn random() -> Result<String, CliError> {
    let mut bytes = [0; TOKEN];
    getrandom::fill(&mut bytes)
        .map_err(|error| CliError::internal(format!("the system has no randomness: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(method: Method, path: &str, headers: &[(HeaderName, &str)]) -> Option<&'static str> {
        let access = Access {
            token: "t".to_owned(),
            session: "s".to_owned(),
            cookie: "conclave-80".to_owned(),
            hosts: vec!["here".to_owned()],
        };
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()))
            .collect();
        access.check(&method, path, &headers).err().map(|failure| failure.code())
    }

    #[test]
    fn a_request_needs_the_host_the_origin_and_the_cookie() {
        let site = HeaderName::from_static("sec-fetch-site");
        let (host, origin) = ((header::HOST, "here"), (header::ORIGIN, "http://here"));
        let cookie = (header::COOKIE, "a=b; conclave-80=s");
        let (foreign, null) = ((header::ORIGIN, "http://there"), (header::ORIGIN, "null"));
        let get = |headers: &[_]| checked(Method::GET, "/api/conversations", headers);
        let post = |headers: &[_]| checked(Method::POST, "/api/conversations", headers);
        assert_eq!(get(&[host.clone(), cookie.clone()]), None);
        assert_eq!(post(&[host.clone(), origin.clone(), cookie.clone()]), None);
        for wrong in [foreign.clone(), null, (header::ORIGIN, "here")] {
            assert_eq!(post(&[host.clone(), wrong.clone(), cookie.clone()]), Some("wrong_origin"));
            assert_eq!(get(&[host.clone(), wrong, cookie.clone()]), Some("wrong_origin"));
        }
        assert_eq!(post(&[host.clone(), cookie.clone()]), Some("wrong_origin"), "without origin");
        let cross = (site, "cross-site");
        assert_eq!(get(&[host.clone(), cookie.clone(), cross]), Some("wrong_origin"));
        for wrong in ["", "conclave-80=t", "conclave-81=s", "conclave-80=ss"] {
            let cookie = (header::COOKIE, wrong);
            assert_eq!(get(&[host.clone(), cookie]), Some("no_access"), "{wrong}");
        }
        assert_eq!(get(&[(header::HOST, "there"), cookie.clone()]), Some("wrong_host"));
        assert_eq!(get(&[cookie]), Some("wrong_host"));
        assert_eq!(checked(Method::GET, "/", &[host]), None, "the page holds no secret");
    }
}
