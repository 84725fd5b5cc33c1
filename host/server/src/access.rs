//! Who may use the server: the token of the address that the operator opens, the cookie that the
//! browser keeps instead, and the checks of `Host` and `Origin` against other web sites. The headers
//! that restrict what the page may do are here too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

use crate::connections::Connection;
use crate::conversations::FAILED;
use crate::error::ServerError;
use crate::http::Failure;
use crate::operator::Operator;

/// Bytes of a token.
const TOKEN: usize = 32;
/// The time after which a browser needs a new address.
const SESSION: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Browsers with access at once. One more ends the oldest session.
const SESSIONS: usize = 256;
/// The header by which browsers reach a host with TLS only from now on.
const HSTS: (HeaderName, &str) = (header::STRICT_TRANSPORT_SECURITY, "max-age=31536000");

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
pub struct Access {
    address: Address,
    cookie: String,
    sessions: Mutex<Sessions>,
    operator: Arc<dyn Operator>,
}

/// Where browsers reach the server.
pub struct Address {
    /// The port.
    pub port: u16,
    /// The values of `Host` that lead here on purpose, in lower case.
    pub hosts: Vec<String>,
    /// Whether other machines reach it. Their token is used once, because an address that leaks
    /// after its use must be worth nothing.
    pub is_public: bool,
    /// Whether the first host is that of a proxy with TLS.
    pub has_tls: bool,
}

struct Sessions {
    token: String,
    /// When each session ends, by the digest of its secret.
    ends: BTreeMap<[u8; 32], Instant>,
}

impl Access {
    /// Creates the access to a server, with a new token.
    ///
    /// # Errors
    /// `Randomness` if the system has none.
    pub fn new(address: Address, operator: Arc<dyn Operator>) -> Result<Self, ServerError> {
        // Cookies of all ports of a host are in one jar. No page of another host can set one whose
        // name begins with `__Host-`, and none is sent without TLS.
        let prefix = if address.has_tls { "__Host-" } else { "" };
        let cookie = format!("{prefix}conclave-{}", address.port);
        let sessions = Mutex::new(Sessions { token: random()?, ends: BTreeMap::new() });
        Ok(Self { address, cookie, sessions, operator })
    }

    /// The token of the address that the operator opens.
    #[must_use]
    pub fn token(&self) -> String {
        self.sessions().token.clone()
    }

    /// The cookie for a browser that has the token; `None` for a wrong token, and if the system has
    /// no randomness.
    pub(crate) fn begin_session(&self, token: &str) -> Option<String> {
        let now = Instant::now();
        let mut sessions = self.sessions();
        if !is_same(token, &sessions.token) {
            return None;
        }
        // Both before anything changes: without randomness the present token stays valid.
        let secret = random().ok()?;
        let next = if self.address.is_public { Some(random().ok()?) } else { None };
        sessions.begin(&secret, now);
        if let Some(next) = &next {
            sessions.token.clone_from(next);
        }
        // The operator is told by printing, and other requests must not wait for that.
        drop(sessions);
        if let Some(next) = next {
            self.operator.token_renewed(&next);
        }
        let (cookie, age) = (&self.cookie, SESSION.as_secs());
        let secure = if self.address.has_tls { "; Secure" } else { "" };
        Some(format!("{cookie}={secret}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age}{secure}"))
    }

    fn has_session(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(header::COOKIE).iter();
        let mut pairs = cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        let now = Instant::now();
        pairs.any(|(name, value)| name == self.cookie && self.sessions().has(value, now))
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a page of this origin is one of this server. Behind a proxy with TLS an `http`
    /// origin is refused: its page may have been changed on the way to the browser.
    fn is_own(&self, origin: &str) -> bool {
        let Address { hosts, has_tls, .. } = &self.address;
        let Some((scheme, host)) = origin.split_once("://") else { return false };
        let needs_tls = *has_tls && hosts.first().is_some_and(|first| first == host);
        let is_scheme = scheme == "https" || (scheme == "http" && !needs_tls);
        is_scheme && hosts.iter().any(|own| own == host)
    }

    /// Returns why the request is refused, if it is.
    fn check(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<(), Failure> {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        // A name that another site has pointed at this address is not among the hosts.
        let host = text(header::HOST).map(str::to_ascii_lowercase);
        let hosts = &self.address.hosts;
        if !host.is_some_and(|host| hosts.contains(&host)) {
            let what = format!("this server is {}, and not the host of the request", hosts[0]);
            return Err(Failure::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", what));
        }
        let is_api = path.starts_with("/api/");
        let origin = headers.get(header::ORIGIN);
        let is_own =
            origin.and_then(|value| value.to_str().ok()).is_some_and(|origin| self.is_own(origin));
        // Browsers send an origin with each POST; one without comes from no page of this server.
        let needs_origin = origin.is_some() || method != Method::GET;
        let site = text(HeaderName::from_static("sec-fetch-site"));
        // `none` is the user's own navigation, such as from the address bar.
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

impl Sessions {
    fn begin(&mut self, secret: &str, now: Instant) {
        self.ends.retain(|_, end| *end > now);
        if self.ends.len() >= SESSIONS
            && let Some(oldest) =
                self.ends.iter().min_by_key(|(_, end)| **end).map(|(session, _)| *session)
        {
            self.ends.remove(&oldest);
        }
        self.ends.insert(digest(secret), now + SESSION);
    }

    fn has(&self, secret: &str, now: Instant) -> bool {
        self.ends.get(&digest(secret)).is_some_and(|end| *end > now)
    }
}

/// Refuses requests without access, and adds the headers of every response.
pub(crate) async fn guard(
    State(server): State<crate::http::Server>,
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
    let hsts = access.address.has_tls.then_some(HSTS);
    for (name, value) in HEADERS.into_iter().chain(hsts) {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Answers a request in a task of its own.
async fn in_a_task(answer: impl Future<Output = Response> + Send + 'static) -> Response {
    // A client that leaves ends its connection, which drops the future of the request at any of its
    // awaits; a change must not end half-way.
    tokio::spawn(answer).await.unwrap_or_else(|_| {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", FAILED).into_response()
    })
}

/// Whether two secrets are the same.
fn is_same(candidate: &str, secret: &str) -> bool {
    // Digests, so that the time of the comparison tells nothing about the secret.
    digest(candidate) == digest(secret)
}

fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

fn random() -> Result<String, ServerError> {
    let mut bytes = [0; TOKEN];
    getrandom::fill(&mut bytes).map_err(ServerError::Randomness)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::fmt::Display;

    use conclave_core::setup::ChangedComponent;
    use conclave_core::types::ids::RoomId;

    use super::*;

    /// Records the tokens that are reported.
    #[derive(Default)]
    struct Tokens(Mutex<Vec<String>>);

    impl Operator for Tokens {
        fn components_changed(&self, _: &RoomId, _: &[ChangedComponent]) {}

        fn room_failed(&self, _: &RoomId, _: &dyn Display) {}

        fn token_renewed(&self, token: &str) {
            self.0.lock().unwrap().push(token.to_owned());
        }
    }

    fn access(is_public: bool, has_tls: bool) -> (Access, Arc<Tokens>) {
        let hosts = vec!["here".to_owned(), "127.0.0.1:80".to_owned()];
        let tokens = Arc::<Tokens>::default();
        let address = Address { port: 80, hosts, is_public, has_tls };
        (Access::new(address, Arc::clone(&tokens) as Arc<dyn Operator>).unwrap(), tokens)
    }

    fn checked(method: Method, path: &str, headers: &[(HeaderName, &str)]) -> Option<&'static str> {
        let (access, _) = access(false, false);
        access.sessions().begin("s", Instant::now());
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

    #[test]
    fn a_public_token_is_used_once_and_the_next_one_is_reported() {
        let (public, next) = access(true, true);
        let first = public.token();
        let cookie = public.begin_session(&first).unwrap();
        assert!(public.begin_session(&first).is_none(), "it was used");
        let second = next.0.lock().unwrap()[0].clone();
        assert_eq!(public.token(), second);
        assert_ne!(public.begin_session(&second).unwrap(), cookie);
        let (local, next) = access(false, false);
        let token = local.token();
        assert!(local.begin_session(&token).is_some() && local.begin_session(&token).is_some());
        assert!(next.0.lock().unwrap().is_empty());
    }

    #[test]
    fn behind_tls_a_cookie_is_secure_and_no_page_without_tls_is_own() {
        let (tls, _) = access(true, true);
        let cookie = tls.begin_session(&tls.token()).unwrap();
        assert!(cookie.starts_with("__Host-conclave-80="), "{cookie}");
        for attribute in ["HttpOnly", "SameSite=Strict", "Path=/", "Secure", "Max-Age=604800"] {
            assert!(cookie.split("; ").any(|part| part == attribute), "{attribute}: {cookie}");
        }
        for (origin, is_own) in [
            ("https://here", true),
            ("http://here", false),
            ("http://127.0.0.1:80", true),
            ("https://there", false),
            ("ftp://here", false),
        ] {
            assert_eq!(tls.is_own(origin), is_own, "{origin}");
        }
        let (plain, _) = access(true, false);
        let cookie = plain.begin_session(&plain.token()).unwrap();
        assert!(cookie.starts_with("conclave-80=") && !cookie.contains("Secure"), "{cookie}");
        assert!(plain.is_own("http://here"));
    }

    #[test]
    fn a_session_ends_and_the_oldest_one_first() {
        let (access, _) = access(false, false);
        let mut sessions = access.sessions();
        let begin = Instant::now();
        sessions.begin("a", begin);
        assert!(sessions.has("a", begin) && !sessions.has("b", begin));
        assert!(!sessions.has("a", begin + SESSION));
        let later = begin + Duration::from_secs(1);
        (0..SESSIONS).for_each(|number| sessions.begin(&number.to_string(), later));
        assert!(!sessions.has("a", later) && sessions.has("0", later));
        sessions.begin("z", begin + SESSION + Duration::from_secs(2));
        assert_eq!(sessions.ends.len(), 1, "ended sessions are forgotten");
    }
}
