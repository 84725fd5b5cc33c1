//! Who may use the server: the token of the address that the operator opens or those of people, the
//! session in their place, and the checks of `Host` and `Origin` against other web sites. The headers
//! that restrict what the page may do are here too.

#[cfg(feature = "oidc")]
mod oidc;

#[cfg(feature = "oidc")]
pub(crate) use oidc::EndedLogin;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, Method, StatusCode};
use conclave_core::policy::roles::Role;
use conclave_core::types::ids::{OPERATOR, Principal};
use tokio::sync::watch;

use crate::error::ServerError;
use crate::hooks::HOOKS;
use crate::http::Failure;
use crate::operator::Operator;
use crate::page::login::{BEGIN, CALLBACK, LOGIN};
use crate::people::{LoginRefusal, People};
use crate::sessions::{Credential, Identity, SESSION, Session, Sessions, is_same};
use crate::tls::TlsError;
use crate::tokens::random_text;

/// The interval between two looks at the tokens of people: a revoked one is worth nothing after
/// less than a second.
const RELOAD: Duration = Duration::from_millis(400);
/// The paths that need no session: the page, which holds no secret, and whether the server lives.
const OPEN_PATHS: [&str; 13] = [
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
    LOGIN,
    BEGIN,
    // Another site, the provider, leads here; the cookie of the log-in says whether it may.
    CALLBACK,
];
/// Those of them that only pages of this server use.
const OWN_PATHS: [&str; 3] = [LOGIN_PATH, LOGIN, BEGIN];
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

/// The access to a config: its people and their sessions.
pub(crate) struct Access {
    people: Arc<People>,
    /// Never notified: somebody whom a proxy names has a session for each request. Event streams
    /// end with the sender.
    proxied: Mutex<watch::Sender<()>>,
    sessions: Mutex<Sessions>,
    #[cfg(feature = "oidc")]
    renewals: oidc::Renewals,
    #[cfg(feature = "oidc")]
    entrance: Arc<Entrance>,
    operator: Arc<dyn Operator>,
}

/// What all configs of a server share before anybody is known: its address, with the checks of each
/// request, and the printed token.
pub(crate) struct Entrance {
    address: Address,
    cookie: String,
    /// The token of the printed address, which gives access until people have tokens.
    printed: Mutex<String>,
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
    /// The address of the page, without a token.
    #[must_use]
    pub fn page(&self) -> String {
        let scheme = if self.has_tls() { "https" } else { "http" };
        format!("{scheme}://{}", self.hosts.first().map_or("", String::as_str))
    }

    fn has_tls(&self) -> bool {
        self.encryption != Encryption::None
    }
}

impl Access {
    /// Creates the access of these people. While there are none, it is that of the printed address.
    pub(crate) fn new(people: People, entrance: &Arc<Entrance>) -> Self {
        let (people, proxied) = (Arc::new(people), Mutex::new(watch::Sender::new(())));
        Self {
            people,
            proxied,
            sessions: Mutex::default(),
            #[cfg(feature = "oidc")]
            renewals: Mutex::default(),
            #[cfg(feature = "oidc")]
            entrance: Arc::clone(entrance),
            operator: Arc::clone(&entrance.operator),
        }
    }

    /// The people of the config.
    pub(crate) fn people(&self) -> &People {
        &self.people
    }

    /// Takes the people of a config that was read again. Those who are not among them, or have
    /// another role, lose their sessions. It reads the file of tokens.
    pub(crate) fn replace_people(&self, people: People) {
        let has_other_provider = self.people.replace(people);
        // A file that cannot be read is reported by the next look at it.
        let _ = self.people.reload();
        if self.people.are_known() {
            let has = |identity: &Identity| {
                self.people.has(identity) && !(has_other_provider && identity.is_of_provider())
            };
            lock(&self.sessions).end_revoked(has);
        }
        // Event streams of people whom a proxy names end, and begin again for those who may.
        *lock(&self.proxied) = watch::Sender::new(());
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

    /// A session for one request of somebody whom a proxy names.
    pub(crate) fn proxied_session(&self, identity: Identity) -> Session {
        Session::of_request(identity, lock(&self.proxied).subscribe())
    }

    /// The session with this secret.
    pub(crate) fn session(&self, secret: &str) -> Option<Session> {
        lock(&self.sessions).find(secret, Instant::now())
    }

    /// Ends the session with this secret.
    pub(crate) fn end_session(&self, secret: &str) {
        lock(&self.sessions).end(secret);
    }

    /// Begins a session, unless its token was revoked while it was verified. One that a request with
    /// the same secret has begun meanwhile goes on.
    pub(crate) fn begin(&self, secret: &str, identity: Identity) -> Result<Session, LoginRefusal> {
        // Under the lock of the sessions: a token that is revoked later ends this one too.
        let mut sessions = lock(&self.sessions);
        if self.people.are_known() && !self.people.has(&identity) {
            return Err(LoginRefusal::WrongToken);
        }
        let now = Instant::now();
        let session = sessions.find(secret, now);
        Ok(session.unwrap_or_else(|| sessions.begin(secret, identity, SESSION, now)))
    }
}

impl Entrance {
    /// Creates the entrance at an address, with a new token for the printed one.
    ///
    /// # Errors
    /// `Randomness` if the system has none.
    pub(crate) fn new(address: Address, operator: Arc<dyn Operator>) -> Result<Self, ServerError> {
        // Cookies of all ports of a host are in one jar. No page of another host can set one whose
        // name begins with `__Host-`, and none is sent without TLS.
        let prefix = if address.has_tls() { "__Host-" } else { "" };
        let cookie = format!("{prefix}conclave-{}", address.port);
        Ok(Self { address, cookie, printed: Mutex::new(random_text()?), operator })
    }

    /// The token of the printed address.
    pub(crate) fn token(&self) -> String {
        lock(&self.printed).clone()
    }

    /// Reports to the operator that a changed certificate cannot be used.
    pub(crate) fn report_unusable(&self, error: &TlsError) {
        self.operator.certificate_unusable(error);
    }

    /// The headers of every response.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (HeaderName, &'static str)> {
        HEADERS.into_iter().chain(self.address.has_tls().then_some(HSTS))
    }

    /// The value of `Set-Cookie` for the secret of a session.
    pub(crate) fn session_cookie(&self, secret: &str, age: Duration) -> String {
        let (cookie, age, secure) = (&self.cookie, age.as_secs(), self.secure());
        format!("{cookie}={secret}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age}{secure}")
    }

    /// The attribute of a cookie that is never sent without TLS.
    fn secure(&self) -> &'static str {
        if self.address.has_tls() { "; Secure" } else { "" }
    }

    /// Lets in whoever has the token of the printed address. A public one is used once.
    pub(crate) fn use_printed(&self, token: &str) -> Result<Identity, LoginRefusal> {
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

    /// The secrets of sessions that a browser sends.
    pub(crate) fn cookies<'a>(&'a self, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
        cookies(headers).filter(|(name, _)| *name == self.cookie).map(|(_, secret)| secret)
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
    pub(crate) fn check(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<(), Failure> {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        // A name that another site has pointed at this address is not among the hosts.
        let host = text(header::HOST).map(str::to_ascii_lowercase);
        let hosts = &self.address.hosts;
        if !host.is_some_and(|host| hosts.contains(&host)) {
            let what = format!("this server is {}, and not the host of the request", hosts[0]);
            return Err(Failure::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", what));
        }
        if is_open(path) && !OWN_PATHS.contains(&path) {
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
pub(crate) fn is_open(path: &str) -> bool {
    OPEN_PATHS.contains(&path) || is_hook(path)
}

/// Whether a request to the path is signed, which takes the place of a session.
pub(crate) fn is_hook(path: &str) -> bool {
    path.starts_with(HOOKS)
}

/// The cookies of a request.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let values = headers.get_all(header::COOKIE).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
}

/// The token in the header of a program's request.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use std::fmt::Display;

    use conclave_core::config::ServerConfig;
    use conclave_core::policy::daily_budget::BudgetUsedUp;
    use conclave_core::setup::ChangedComponent;
    use conclave_core::types::ids::{ChannelId, RoomId};
    use conclave_runtime::store::StoreError;

    use super::*;
    use crate::operator::AnsweredRequest;
    use crate::server_access::ServerAccess;

    /// Records the tokens that are reported.
    #[derive(Default)]
    struct Tokens(Mutex<Vec<String>>);

    impl Operator for Tokens {
        fn runs_removed(&self, _: &[RoomId], _: &[RoomId]) {}
        fn runs_not_removed(&self, _: &StoreError) {}
        fn answered(&self, _: &AnsweredRequest) {}
        fn budget_used_up(&self, _: &Principal, _: Option<&RoomId>, _: &BudgetUsedUp) {}
        fn components_changed(&self, _: &RoomId, _: &[ChangedComponent]) {}

        fn room_failed(&self, _: &RoomId, _: &dyn Display) {}

        fn tokens_unreadable(&self, _: &std::io::Error) {}

        fn store_unreadable(&self, _: &StoreError) {}

        fn certificate_unusable(&self, _: &TlsError) {}

        fn provider_failed(&self, _: &dyn Display) {}

        fn draining(&self, _: &[String]) {}

        fn hooks_refused(&self, _: Option<&ChannelId>, _: &str, _: u64) {}

        fn given_up(&self, _: &[String]) {}

        fn token_renewed(&self, token: &str) {
            self.0.lock().unwrap().push(token.to_owned());
        }
    }

    /// The access of a server whose config has no people.
    fn access(is_public: bool, encryption: Encryption) -> (ServerAccess, Arc<Tokens>) {
        let hosts = vec!["here".to_owned(), "127.0.0.1:80".to_owned()];
        let tokens = Arc::<Tokens>::default();
        let address = Address { port: 80, hosts, is_public, encryption };
        let people = People::find(&ServerConfig::default(), None, "/c.toml".into()).unwrap();
        let operator = Arc::clone(&tokens) as Arc<dyn Operator>;
        let entrance = Arc::new(Entrance::new(address, operator).unwrap());
        let config = Arc::new(Access::new(people, &entrance));
        (ServerAccess::new(entrance, vec![config]), tokens)
    }

    async fn checked(method: Method, path: &str, headers: &[(HeaderName, &str)]) -> Option<String> {
        let (access, _) = access(false, Encryption::None);
        let cookie = access.begin_session(&access.token().unwrap(), None).await.unwrap();
        let (_, secret) = cookie.split(';').next().unwrap().split_once('=').unwrap();
        let mut request = axum::http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(name, value.replace("=s", &format!("={secret}")));
        }
        let request = request.body(()).unwrap();
        let admitted = access.admit(&mut request.into_parts().0).await;
        admitted.err().map(|failure| failure.error_code().to_owned())
    }

    #[tokio::test]
    async fn a_request_needs_the_host_the_origin_and_the_cookie() {
        let site = HeaderName::from_static("sec-fetch-site");
        let (host, origin) = ((header::HOST, "here"), (header::ORIGIN, "http://here"));
        let cookie = (header::COOKIE, "a=b; conclave-80=s");
        let (foreign, null) = ((header::ORIGIN, "http://there"), (header::ORIGIN, "null"));
        let checked = async |method, path: &str, headers: &[_]| {
            checked(method, path, headers).await.unwrap_or_else(|| "admitted".to_owned())
        };
        let get = async |headers: &[_]| checked(Method::GET, "/api/conversations", headers).await;
        let post = async |headers: &[_]| checked(Method::POST, "/api/conversations", headers).await;
        assert_eq!(get(&[host.clone(), cookie.clone()]).await, "admitted");
        assert_eq!(post(&[host.clone(), origin.clone(), cookie.clone()]).await, "admitted");
        for wrong in [foreign.clone(), null, (header::ORIGIN, "here")] {
            assert_eq!(post(&[host.clone(), wrong.clone(), cookie.clone()]).await, "wrong_origin");
            assert_eq!(get(&[host.clone(), wrong, cookie.clone()]).await, "wrong_origin");
        }
        assert_eq!(post(&[host.clone(), cookie.clone()]).await, "wrong_origin", "without origin");
        let cross = (site, "cross-site");
        assert_eq!(get(&[host.clone(), cookie.clone(), cross]).await, "wrong_origin");
        for wrong in ["", "conclave-80=t", "conclave-81=s", "conclave-80=ss"] {
            let cookie = (header::COOKIE, wrong);
            assert_eq!(get(&[host.clone(), cookie]).await, "no_access", "{wrong}");
        }
        assert_eq!(get(&[(header::HOST, "there"), cookie.clone()]).await, "wrong_host");
        assert_eq!(get(&[cookie]).await, "wrong_host");
        assert_eq!(checked(Method::GET, "/", std::slice::from_ref(&host)).await, "admitted");
        for path in ["/metrics", "/api/v1/runs", "/no-such-page"] {
            let refused = checked(Method::GET, path, std::slice::from_ref(&host)).await;
            assert_eq!(refused, "no_access", "{path}");
        }
        // The token of the address is none of a program.
        let bearer = (header::AUTHORIZATION, "Bearer s");
        assert_eq!(get(&[host, bearer]).await, "no_access");
    }

    #[tokio::test]
    async fn a_public_token_is_used_once_and_the_next_one_is_reported() {
        let (public, next) = access(true, Encryption::Proxy);
        let first = public.token().unwrap();
        let cookie = public.begin_session(&first, None).await.unwrap();
        assert!(public.begin_session(&first, None).await.is_err(), "it was used");
        let second = next.0.lock().unwrap()[0].clone();
        assert_eq!(public.token().as_ref(), Some(&second));
        assert_ne!(public.begin_session(&second, None).await.unwrap(), cookie);
        let (local, next) = access(false, Encryption::None);
        let token = local.token().unwrap();
        for _ in 0..2 {
            assert!(local.begin_session(&token, None).await.is_ok());
        }
        assert!(next.0.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn behind_tls_a_cookie_is_secure_and_no_page_without_tls_is_own() {
        let (tls, _) = access(true, Encryption::Proxy);
        let cookie = tls.begin_session(&tls.token().unwrap(), None).await.unwrap();
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
            assert_eq!(tls.entrance().is_own(origin), is_own, "{origin}");
        }
        let (own, _) = access(true, Encryption::Server);
        let own = own.entrance();
        assert!(own.is_own("https://127.0.0.1:80") && !own.is_own("http://127.0.0.1:80"));
        let (plain, _) = access(true, Encryption::None);
        let cookie = plain.begin_session(&plain.token().unwrap(), None).await.unwrap();
        assert!(cookie.starts_with("conclave-80=") && !cookie.contains("Secure"), "{cookie}");
        assert!(plain.entrance().is_own("http://here"));
    }
}
