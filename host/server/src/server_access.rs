//! The access to all configs of a server. A request is checked once, and has a session of its own at
//! each config that knows its person: what one config allows says nothing about another.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use tokio::task::JoinSet;

#[cfg(feature = "oidc")]
use crate::access::EndedLogin;
use crate::access::{Access, Entrance, bearer, is_open};
use crate::connections::Connection;
use crate::http::Failure;
use crate::login_attempts::LoginAttempts;
use crate::people::LoginRefusal;
use crate::refusals::is_readable;
use crate::sessions::{Credential, Identity, SESSION, Session};
use crate::single_values;
use crate::tokens::{PersonToken, random_text};

/// The access to the configs of a server.
pub(crate) struct ServerAccess {
    entrance: Arc<Entrance>,
    attempts: Arc<LoginAttempts>,
    configs: Vec<Arc<Access>>,
}

/// What a proxy says about a request at one config.
enum ProxiedSession {
    /// Nothing: the request needs a session of its own.
    None,
    Session(Session),
    /// It names somebody without a role there.
    Refused,
}

impl ServerAccess {
    /// Creates the access to configs; there is at least one.
    pub(crate) fn new(entrance: Arc<Entrance>, configs: Vec<Arc<Access>>) -> Self {
        Self { entrance, attempts: Arc::new(LoginAttempts::new()), configs }
    }

    pub(crate) fn entrance(&self) -> &Entrance {
        &self.entrance
    }

    /// The token of the address that the operator opens; `None` if the people of each config have
    /// tokens of their own.
    pub(crate) fn token(&self) -> Option<String> {
        let is_open = self.configs.iter().any(|access| !access.people().are_known());
        is_open.then(|| self.entrance.token())
    }

    /// The host of the first provider at which people log in.
    pub(crate) fn provider_name(&self) -> Option<String> {
        self.configs.iter().find_map(|access| access.people().provider_name())
    }

    /// Ends the sessions of revoked tokens and of people without access at their provider, again and
    /// again.
    pub(crate) async fn watch_tokens(&self) {
        let mut watching = JoinSet::new();
        for access in &self.configs {
            let access = Arc::clone(access);
            #[cfg(feature = "oidc")]
            watching.spawn({
                let (access, all) = (Arc::clone(&access), self.configs.clone());
                async move { access.watch_logins(&all).await }
            });
            watching.spawn(async move { access.watch_tokens().await });
        }
        while watching.join_next().await.is_some() {}
    }

    /// The cookie for a browser that has a token. It is one secret, under which each config that
    /// knows the person has a session.
    pub(crate) async fn begin_session(
        &self,
        token: &str,
        peer: Option<IpAddr>,
    ) -> Result<String, LoginRefusal> {
        // Before anything changes: without randomness the present token stays valid.
        let secret = random_text().map_err(|_| LoginRefusal::Busy)?;
        let identities = self.identify(token, peer).await?;
        self.begin(&secret, identities)?;
        Ok(self.entrance.session_cookie(&secret, SESSION))
    }

    /// Begins the sessions of a person who has logged in at a provider, at each config with that
    /// client of it where the person has a role.
    #[cfg(feature = "oidc")]
    pub(crate) fn begin_beside(&self, ended: &EndedLogin) {
        self.configs.iter().for_each(|access| access.begin_beside(ended));
    }

    /// Ends the sessions of a browser at all configs. Returns the cookie that takes the place of
    /// theirs.
    pub(crate) fn end_session(&self, headers: &HeaderMap) -> String {
        for secret in self.entrance.cookies(headers) {
            self.configs.iter().for_each(|access| access.end_session(secret));
        }
        self.entrance.session_cookie("", Duration::ZERO)
    }

    /// Returns whom a token belongs to, at each config that knows it.
    async fn identify(
        &self,
        token: &str,
        peer: Option<IpAddr>,
    ) -> Result<Vec<Option<Identity>>, LoginRefusal> {
        let are_known: Vec<bool> =
            self.configs.iter().map(|access| access.people().are_known()).collect();
        if are_known.contains(&false) {
            match self.entrance.use_printed(token) {
                Ok(identity) => {
                    let is_printed = are_known.iter().map(|known| !known);
                    return Ok(is_printed.map(|it| it.then(|| identity.clone())).collect());
                }
                Err(refusal) if !are_known.contains(&true) => return Err(refusal),
                Err(_) => {}
            }
        }
        self.identify_person(token, peer).await
    }

    async fn identify_person(
        &self,
        token: &str,
        peer: Option<IpAddr>,
    ) -> Result<Vec<Option<Identity>>, LoginRefusal> {
        let mut candidates: Vec<PersonToken> = Vec::new();
        for candidate in self.configs.iter().flat_map(|access| access.people().candidates(token)) {
            // Verified once, although several configs may know it.
            if candidates.iter().all(|other| other.hash != candidate.hash) {
                candidates.push(candidate);
            }
        }
        let PersonToken { name, hash, .. } = self.attempts.verify(token, peer, candidates).await?;
        Ok(self.configs.iter().map(|access| access.people().identity(&name, &hash)).collect())
    }

    /// Begins the sessions of a person, of whom there is one at least.
    fn begin(
        &self,
        secret: &str,
        identities: Vec<Option<Identity>>,
    ) -> Result<Vec<Option<Session>>, LoginRefusal> {
        let pairs = self.configs.iter().zip(identities);
        let sessions = pairs.map(|(access, identity)| access.begin(secret, identity?).ok());
        let sessions: Vec<Option<Session>> = sessions.collect();
        let has_one = sessions.iter().any(Option::is_some);
        has_one.then_some(sessions).ok_or(LoginRefusal::WrongToken)
    }

    /// Returns the sessions of a request that is answered, in the order of the configs. There is
    /// none only if it needs none.
    pub(crate) async fn admit(&self, head: &mut Parts) -> Result<Vec<Option<Session>>, Failure> {
        let connection = head.extensions.get::<Arc<Connection>>();
        let peer = connection.map(|connection| connection.peer());
        // Removed before anything else, so that nothing reads that of a client.
        let proxied = self.take_proxied(peer, &mut head.headers);
        single_values::check(head)?;
        let path = head.uri.path();
        // Before it counts, so that no other web site makes the server verify tokens.
        self.entrance.check(&head.method, path, &head.headers)?;
        if !is_readable(path) {
            let what = "the address has encoded characters that are no text";
            return Err(Failure::new(StatusCode::BAD_REQUEST, "bad_arguments", what));
        }
        let proxied = proxied?;
        let is_refused = |at: usize| matches!(proxied[at], ProxiedSession::Refused);
        let mut sessions: Vec<Option<Session>> = proxied
            .iter()
            .zip(&self.configs)
            .map(|(proxied, access)| match proxied {
                ProxiedSession::Session(session) => Some(session.clone()),
                ProxiedSession::Refused => None,
                ProxiedSession::None => {
                    self.entrance.cookies(&head.headers).find_map(|secret| access.session(secret))
                }
            })
            .collect();
        let has_session = |sessions: &[Option<Session>]| sessions.iter().any(Option::is_some);
        if !has_session(&sessions) {
            if (0..proxied.len()).all(is_refused) {
                return Err(LoginRefusal::NoRole.into());
            }
            if !is_open(path) {
                sessions = self.program_sessions(&head.headers, peer).await?;
                for at in (0..proxied.len()).filter(|at| is_refused(*at)) {
                    sessions[at] = None;
                }
                if !has_session(&sessions) {
                    return Err(LoginRefusal::NoRole.into());
                }
            }
        }
        if has_session(&sessions) && !connection.is_none_or(Connection::recognize) {
            let what = "too many pages are open already; close one and load this one again";
            return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", what));
        }
        Ok(sessions)
    }

    /// Removes the headers of proxies from a request. Returns what they say at each config.
    fn take_proxied(
        &self,
        peer: Option<IpAddr>,
        headers: &mut HeaderMap,
    ) -> Result<Vec<ProxiedSession>, LoginRefusal> {
        // Each config reads them as they came: two may name the same header.
        let sent = headers.clone();
        let proxied = self.configs.iter().map(|access| {
            let mut own = sent.clone();
            let person = access.people().take_proxied(peer, &mut own);
            let names = sent.keys().filter(|name| !own.contains_key(*name));
            names.for_each(|name| drop(headers.remove(name)));
            match person {
                Ok(None) => Ok(ProxiedSession::None),
                Ok(Some(identity)) => Ok(ProxiedSession::Session(access.proxied_session(identity))),
                Err(LoginRefusal::NoRole) => Ok(ProxiedSession::Refused),
                Err(refusal) => Err(refusal),
            }
        });
        // Each of them, also after a refusal, so that every header is removed.
        let proxied: Vec<_> = proxied.collect();
        proxied.into_iter().collect()
    }

    /// The sessions of a program, whose token is its session from the first request on.
    async fn program_sessions(
        &self,
        headers: &HeaderMap,
        peer: Option<IpAddr>,
    ) -> Result<Vec<Option<Session>>, LoginRefusal> {
        // The token of the printed address is for a browser, and gives a program no access.
        let token = bearer(headers).ok_or(LoginRefusal::WrongToken)?;
        let people = || self.configs.iter().map(|access| access.people());
        if !people().any(|people| people.are_known()) {
            return Err(LoginRefusal::WrongToken);
        }
        let known: Vec<Option<Session>> =
            self.configs.iter().map(|access| access.session(token)).collect();
        let Some(session) = known.iter().flatten().next() else {
            // The hash is slow, so it is verified once.
            return self.begin(token, self.identify_person(token, peer).await?);
        };
        let Credential::Token(hash) = &session.identity.credential else { return Ok(known) };
        let name = &session.identity.principal.0;
        let completed = known.iter().zip(&self.configs).map(|(known, access)| {
            // A config that was read again may know the token since then.
            let begin = || access.begin(token, access.people().identity(name, hash)?).ok();
            known.clone().or_else(begin)
        });
        Ok(completed.collect())
    }
}
