//! Who may use the server: the token of the address that the operator opens or those of people, the
//! session in their place, and the checks of `Host` and `Origin` against other web sites. The headers
//! that restrict what the page may do are here too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use conclave_core::policy::roles::Role;
use conclave_core::types::ids::{OPERATOR, Principal};
use tokio::sync::watch;

use crate::api::{API, Problem};
use crate::connections::Connection;
use crate::conversations::FAILED;
use crate::error::ServerError;
use crate::hooks::HOOKS;
use crate::http::{Failure, Server};
use crate::operator::Operator;
use crate::page;
use crate::people::{LoginRefusal, People};
use crate::sessions::{Credential, Identity, SESSION, Session, Sessions, is_same};
use crate::tls::TlsError;
use crate::tokens::random_text;

/// The interval between two looks at the tokens of people: a revoked one is worth nothing after
/// less than a second.
const RELOAD: Duration = Duration::from_millis(400);
/// The paths that need no session: the page, which holds no secret, and whether the server lives.
const OPEN_PATHS: [&str; 11] = [
    "/",
    "/chat.css",
    "/chat.js",
    "/page.css",
    "/live.js",
    "/inbox.js",
    "/icon.svg",
    "/healthz",
    "/readyz",
    LOGIN_PATH,
    page::LOGIN,
];
/// The path at which a token is exchanged for a session.
const LOGIN_PATH: &str = "/api/session";
/// The header by which browsers reach a host with TLS only from now on.
const HSTS: (HeaderName, &str) = (header::STRICT_TRANSPORT_SECURITY, "max-age=31536000");

/// Headers of every response. Scripts and styles come from this server alone, and the page cannot be
/// framed, so that no other site can act through it.
const HEADERS: [(HeaderName, &str); 9] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
         form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // With `no-referrer` browsers would send no origin with the forms of pages.
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
    (header::VARY, "Cookie, Origin"),
];

/// The access to a server.
pub struct Access {
    address: Address,
    cookie: String,
    /// The token of the printed address, which gives access until people have tokens.
    printed: Mutex<String>,
    people: Arc<People>,
    /// Never notified: somebody whom a proxy names has a session for each request.
    proxied: watch::Sender<()>,
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
    /// Who encrypts between browsers and the server.
    pub encryption: Encryption,
}

/// Who encrypts between browsers and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// Nobody: for browsers of this machine, or an operator who says so.
    None,
    /// A proxy, whose host is the first one. Requests of this machine come without.
    Proxy,
    /// The server itself, under each of its hosts.
    Server,
}

impl Address {
    fn has_tls(&self) -> bool {
        self.encryption != Encryption::None
    }
}

impl Access {
    /// Creates the access to a server: of people, or while there are none, with a new token for the
    /// printed address.
    ///
    /// # Errors
    /// `Randomness` if the system has none.
    pub fn new(
        address: Address,
        people: People,
        operator: Arc<dyn Operator>,
    ) -> Result<Self, ServerError> {
        // Cookies of all ports of a host are in one jar. No page of another host can set one whose
        // name begins with `__Host-`, and none is sent without TLS.
        let prefix = if address.has_tls() { "__Host-" } else { "" };
        let cookie = format!("{prefix}conclave-{}", address.port);
        let (printed, people) = (Mutex::new(random_text()?), Arc::new(people));
        let (proxied, sessions) = (watch::Sender::new(()), Mutex::default());
        Ok(Self { address, cookie, printed, people, proxied, sessions, operator })
    }

    /// The token of the address that the operator opens; `None` if people have tokens of their own.
    #[must_use]
    pub fn token(&self) -> Option<String> {
        (!self.people.are_known()).then(|| lock(&self.printed).clone())
    }

    /// Reports to the operator that a changed certificate cannot be used.
    pub(crate) fn report_unusable(&self, error: &TlsError) {
        self.operator.certificate_unusable(error);
    }

    /// Ends the sessions of revoked tokens, again and again; and those of the printed address, once
    /// people have tokens.
    pub(crate) async fn watch_tokens(&self) {
        let people = &self.people;
        let mut was_readable = true;
        loop {
            tokio::time::sleep(RELOAD).await;
            let reloaded = Arc::clone(people);
            let reload = tokio::task::spawn_blocking(move || reloaded.reload());
            let Ok((is_changed, read)) = reload.await else { continue };
            if is_changed {
                lock(&self.sessions).end_revoked(|identity| people.has(identity));
            }
            if let Err(error) = &read
                && was_readable
            {
                self.operator.tokens_unreadable(error);
            }
            was_readable = read.is_ok();
        }
    }

    /// The cookie for a browser that has a token.
    pub(crate) async fn begin_session(&self, token: &str) -> Result<String, LoginRefusal> {
        // Before anything changes: without randomness the present token stays valid.
        let secret = random_text().map_err(|_| LoginRefusal::Busy)?;
        let identity = match self.people.are_known() {
            true => self.people.identify(token).await?,
            false => self.use_printed(token)?,
        };
        self.begin(&secret, identity)?;
        let (cookie, age) = (&self.cookie, SESSION.as_secs());
        let secure = if self.address.has_tls() { "; Secure" } else { "" };
        Ok(format!("{cookie}={secret}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age}{secure}"))
    }

    /// Begins a session, unless its token was revoked while it was verified.
    fn begin(&self, secret: &str, identity: Identity) -> Result<Session, LoginRefusal> {
        // Under the lock of the sessions: a token that is revoked later ends this one too.
        let mut sessions = lock(&self.sessions);
        if self.people.are_known() && !self.people.has(&identity) {
            return Err(LoginRefusal::WrongToken);
        }
        Ok(sessions.begin(secret, identity, Instant::now()))
    }

    /// Lets in whoever has the token of the printed address. A public one is used once.
    fn use_printed(&self, token: &str) -> Result<Identity, LoginRefusal> {
        let next = {
            let mut printed = lock(&self.printed);
            if !is_same(token, &printed) {
                return Err(LoginRefusal::WrongToken);
            }
            let is_public = self.address.is_public;
            let next = is_public.then(random_text).transpose().map_err(|_| LoginRefusal::Busy)?;
            next.iter().for_each(|next| printed.clone_from(next));
            next
        };
        // The operator is told by printing, and other requests must not wait for that.
        next.iter().for_each(|next| self.operator.token_renewed(next));
        // The page's people are users of the operator's runs, and not the operator.
        let principal = Principal(OPERATOR.into());
        Ok(Identity { principal, role: Role::User, credential: Credential::Printed })
    }

    /// The session of a browser's request.
    fn cookie_session(&self, headers: &HeaderMap) -> Option<Session> {
        let now = Instant::now();
        let cookies = headers.get_all(header::COOKIE).iter();
        let mut cookies = cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter(|(name, _)| *name == self.cookie);
        let sessions = lock(&self.sessions);
        cookies.find_map(|(_, secret)| sessions.find(secret, now))
    }

    /// The session of a browser's or a program's request.
    async fn session(&self, headers: &HeaderMap) -> Result<Session, LoginRefusal> {
        if let Some(session) = self.cookie_session(headers) {
            return Ok(session);
        }
        // The token of the printed address is for a browser, and gives a program no access.
        let token = bearer(headers).filter(|_| self.people.are_known());
        let token = token.ok_or(LoginRefusal::WrongToken)?;
        let known = lock(&self.sessions).find(token, Instant::now());
        if let Some(session) = known {
            return Ok(session);
        }
        // The hash is slow, so a program's token is its session from the first request on.
        let identity = self.people.identify(token).await?;
        self.begin(token, identity)
    }

    /// Whether a page of this origin is one of this server. Behind a proxy with TLS an `http`
    /// origin is refused: its page may have been changed on the way to the browser.
    fn is_own(&self, origin: &str) -> bool {
        let Address { hosts, encryption, .. } = &self.address;
        let Some((scheme, host)) = origin.split_once("://") else { return false };
        let needs_tls = match encryption {
            Encryption::None => false,
            Encryption::Proxy => hosts.first().is_some_and(|first| first == host),
            Encryption::Server => true,
        };
        let is_scheme = scheme == "https" || (scheme == "http" && !needs_tls);
        is_scheme && hosts.iter().any(|own| own == host)
    }

    /// Returns why the request is refused before its session is looked at, if it is.
    fn check(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<(), Failure> {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        // A name that another site has pointed at this address is not among the hosts.
        let host = text(header::HOST).map(str::to_ascii_lowercase);
        let hosts = &self.address.hosts;
        if !host.is_some_and(|host| hosts.contains(&host)) {
            let what = format!("this server is {}, and not the host of the request", hosts[0]);
            return Err(Failure::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", what));
        }
        if is_open(path) && path != LOGIN_PATH && path != page::LOGIN {
            return Ok(());
        }
        let origin = headers.get(header::ORIGIN);
        let is_own =
            origin.and_then(|value| value.to_str().ok()).is_some_and(|origin| self.is_own(origin));
        // Browsers send an origin with each POST; one without comes from no page of this server.
        // They add no token by themselves, so a request with one is a program's.
        let is_change = method != Method::GET && method != Method::HEAD;
        let needs_origin = origin.is_some() || (is_change && bearer(headers).is_none());
        let site = text(HeaderName::from_static("sec-fetch-site"));
        // `none` is the user's own navigation, such as from the address bar.
        let is_foreign = site.is_some_and(|site| !matches!(site, "same-origin" | "none"));
        if (needs_origin && !is_own) || is_foreign {
            let what = "the request comes from another web site, and only the page of this server may send it";
            return Err(Failure::new(StatusCode::FORBIDDEN, "wrong_origin", what));
        }
        Ok(())
    }
}

/// Whether a path needs no session. Every other one does, also one that does not exist: a new route
/// cannot be forgotten.
fn is_open(path: &str) -> bool {
    OPEN_PATHS.contains(&path) || is_hook(path)
}

/// Whether a request to the path is signed, which takes the place of a session.
fn is_hook(path: &str) -> bool {
    path.starts_with(HOOKS)
}

/// The token in the header of a program's request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses requests without access, and adds the headers of every response.
pub(crate) async fn guard(State(server): State<Server>, request: Request, next: Next) -> Response {
    let access = server.access();
    let (mut head, body) = request.into_parts();
    let (session, admitted) = match admit(access, &mut head).await {
        Ok(session) => (session, Ok(())),
        Err(failure) => (None, Err(failure)),
    };
    let has_session = session.is_some();
    let is_v1 = head.uri.path().starts_with(API) || is_hook(head.uri.path());
    let page = Some(head.uri.path().to_owned()).filter(|path| page::is_page(path));
    if let Some(session) = session {
        head.extensions.insert(session);
    }
    let mut response = match admitted {
        Ok(()) => in_a_task(next.run(Request::from_parts(head, body))).await,
        Err(failure) if is_v1 => Problem::from(failure).into_response(),
        Err(failure) => match page {
            Some(page) => page::refused(failure, Some(&page)),
            None => failure.into_response(),
        },
    };
    if !has_session {
        // A client without a session gets one answer for each connection.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let hsts = access.address.has_tls().then_some(HSTS);
    for (name, value) in HEADERS.into_iter().chain(hsts) {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns the session of a request that is answered; `None` for one that needs no session.
async fn admit(access: &Access, head: &mut Parts) -> Result<Option<Session>, Failure> {
    let connection = head.extensions.get::<Arc<Connection>>();
    let peer = connection.map(|connection| connection.peer());
    // Removed before anything else, so that nothing reads that of a client.
    let proxied = access.people.take_proxied(peer, &mut head.headers);
    let path = head.uri.path();
    // Before it counts, so that no other web site makes the server verify tokens.
    access.check(&head.method, path, &head.headers)?;
    let proxied =
        proxied?.map(|identity| Session::of_request(identity, access.proxied.subscribe()));
    let session = match is_open(path) {
        _ if proxied.is_some() => proxied,
        true => access.cookie_session(&head.headers),
        false => Some(access.session(&head.headers).await?),
    };
    if session.is_some() && !connection.is_none_or(Connection::recognize) {
        let what = "too many pages are open already; close one and load this one again";
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", what));
    }
    Ok(session)
}

impl From<LoginRefusal> for Failure {
    fn from(refusal: LoginRefusal) -> Self {
        match refusal {
            LoginRefusal::WrongToken => {
                let what = "this browser has no access; open the address that `conclave serve` printed, or log in with a token";
                Self::new(StatusCode::UNAUTHORIZED, "no_access", what)
            }
            LoginRefusal::WrongProxyHeader => {
                let what = "the proxy must name one person in its header";
                Self::new(StatusCode::BAD_REQUEST, "wrong_proxy_header", what)
            }
            LoginRefusal::NoRole => {
                let what = "the proxy names somebody who has no role at this server";
                Self::new(StatusCode::FORBIDDEN, "no_access", what)
            }
            LoginRefusal::Busy => {
                let what = "too many attempts to log in; try again in some seconds";
                Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", what)
            }
        }
    }
}

/// Answers a request in a task of its own.
async fn in_a_task(answer: impl Future<Output = Response> + Send + 'static) -> Response {
    // A client that leaves ends its connection, which drops the future of the request at any of its
    // awaits; a change must not end half-way.
    tokio::spawn(answer).await.unwrap_or_else(|_| {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", FAILED).into_response()
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Display;

    use conclave_core::config::ServerConfig;
    use conclave_core::setup::ChangedComponent;
    use conclave_core::types::ids::RoomId;
    use conclave_runtime::store::StoreError;

    use super::*;

    /// Records the tokens that are reported.
    #[derive(Default)]
    struct Tokens(Mutex<Vec<String>>);

    impl Operator for Tokens {
        fn components_changed(&self, _: &RoomId, _: &[ChangedComponent]) {}

        fn room_failed(&self, _: &RoomId, _: &dyn Display) {}

        fn tokens_unreadable(&self, _: &std::io::Error) {}

        fn store_unreadable(&self, _: &StoreError) {}

        fn certificate_unusable(&self, _: &TlsError) {}

        fn token_renewed(&self, token: &str) {
            self.0.lock().unwrap().push(token.to_owned());
        }
    }

    fn access(is_public: bool, encryption: Encryption) -> (Access, Arc<Tokens>) {
        let hosts = vec!["here".to_owned(), "127.0.0.1:80".to_owned()];
        let tokens = Arc::<Tokens>::default();
        let address = Address { port: 80, hosts, is_public, encryption };
        let people = People::find(&ServerConfig::default(), None, "/c.toml".into()).unwrap();
        (Access::new(address, people, Arc::clone(&tokens) as Arc<dyn Operator>).unwrap(), tokens)
    }

    async fn checked(
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
    ) -> Option<&'static str> {
        let (access, _) = access(false, Encryption::None);
        let principal = Principal(OPERATOR.into());
        let (role, credential) = (Role::User, Credential::Printed);
        let identity = Identity { principal, role, credential };
        lock(&access.sessions).begin("s", identity, Instant::now());
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let request = request.body(axum::body::Body::empty()).unwrap();
        admit(&access, &mut request.into_parts().0).await.err().map(|failure| failure.code())
    }

    #[tokio::test]
    async fn a_request_needs_the_host_the_origin_and_the_cookie() {
        let site = HeaderName::from_static("sec-fetch-site");
        let (host, origin) = ((header::HOST, "here"), (header::ORIGIN, "http://here"));
        let cookie = (header::COOKIE, "a=b; conclave-80=s");
        let (foreign, null) = ((header::ORIGIN, "http://there"), (header::ORIGIN, "null"));
        let get = async |headers: &[_]| checked(Method::GET, "/api/conversations", headers).await;
        let post = async |headers: &[_]| checked(Method::POST, "/api/conversations", headers).await;
        assert_eq!(get(&[host.clone(), cookie.clone()]).await, None);
        assert_eq!(post(&[host.clone(), origin.clone(), cookie.clone()]).await, None);
        for wrong in [foreign.clone(), null, (header::ORIGIN, "here")] {
            assert_eq!(
                post(&[host.clone(), wrong.clone(), cookie.clone()]).await,
                Some("wrong_origin")
            );
            assert_eq!(get(&[host.clone(), wrong, cookie.clone()]).await, Some("wrong_origin"));
        }
        assert_eq!(
            post(&[host.clone(), cookie.clone()]).await,
            Some("wrong_origin"),
            "without origin"
        );
        let cross = (site, "cross-site");
        assert_eq!(get(&[host.clone(), cookie.clone(), cross]).await, Some("wrong_origin"));
        for wrong in ["", "conclave-80=t", "conclave-81=s", "conclave-80=ss"] {
            let cookie = (header::COOKIE, wrong);
            assert_eq!(get(&[host.clone(), cookie]).await, Some("no_access"), "{wrong}");
        }
        assert_eq!(get(&[(header::HOST, "there"), cookie.clone()]).await, Some("wrong_host"));
        assert_eq!(get(&[cookie]).await, Some("wrong_host"));
        assert_eq!(checked(Method::GET, "/", std::slice::from_ref(&host)).await, None);
        for path in ["/metrics", "/api/v1/runs", "/no-such-page"] {
            let refused = checked(Method::GET, path, std::slice::from_ref(&host)).await;
            assert_eq!(refused, Some("no_access"), "{path}");
        }
        // The token of the address is none of a program.
        let bearer = (header::AUTHORIZATION, "Bearer s");
        assert_eq!(get(&[host, bearer]).await, Some("no_access"));
    }

    #[tokio::test]
    async fn a_public_token_is_used_once_and_the_next_one_is_reported() {
        let (public, next) = access(true, Encryption::Proxy);
        let first = public.token().unwrap();
        let cookie = public.begin_session(&first).await.unwrap();
        assert!(public.begin_session(&first).await.is_err(), "it was used");
        let second = next.0.lock().unwrap()[0].clone();
        assert_eq!(public.token().as_ref(), Some(&second));
        assert_ne!(public.begin_session(&second).await.unwrap(), cookie);
        let (local, next) = access(false, Encryption::None);
        let token = local.token().unwrap();
        for _ in 0..2 {
            assert!(local.begin_session(&token).await.is_ok());
        }
        assert!(next.0.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn behind_tls_a_cookie_is_secure_and_no_page_without_tls_is_own() {
        let (tls, _) = access(true, Encryption::Proxy);
        let cookie = tls.begin_session(&tls.token().unwrap()).await.unwrap();
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
        let (own, _) = access(true, Encryption::Server);
        assert!(own.is_own("https://127.0.0.1:80") && !own.is_own("http://127.0.0.1:80"));
        let (plain, _) = access(true, Encryption::None);
        let cookie = plain.begin_session(&plain.token().unwrap()).await.unwrap();
        assert!(cookie.starts_with("conclave-80=") && !cookie.contains("Secure"), "{cookie}");
        assert!(plain.is_own("http://here"));
    }
}
