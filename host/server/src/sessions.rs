//! The sessions of browsers and programs. Each belongs to a principal with a role, and ends after
//! a time, in the place of a newer one, or when its token is revoked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conclave_core::policy::roles::{Action, Role, RoleRefusal, may};
use conclave_core::types::ids::Principal;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

/// The time after which a browser with a token has to log in again.
pub(crate) const SESSION: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Sessions at once. One more ends the oldest.
const SESSIONS: usize = 256;
/// Sessions of one person at once; the oldest ends for another one.
const OWN_SESSIONS: usize = 16;

/// Who sends requests.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) principal: Principal,
    pub(crate) role: Role,
    pub(crate) credential: Credential,
}

impl Identity {
    /// Whether a provider has identified the person.
    pub(crate) fn is_of_provider(&self) -> bool {
        #[cfg(feature = "oidc")]
        return matches!(self.credential, Credential::Oidc(_));
        #[cfg(not(feature = "oidc"))]
        false
    }
}

/// How a person was identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    /// By the token of the printed address, which names nobody.
    Printed,
    /// By a token of its own, whose stored hash this is.
    Token(String),
    /// By the header of a trusted proxy.
    Proxy,
    /// By a provider of OpenID Connect, in the log-in with this number.
    #[cfg(feature = "oidc")]
    Oidc(u64),
}

/// A session, as the handler of a request sees it.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) identity: Identity,
    /// Closed when the session ends.
    open: watch::Receiver<()>,
    /// The configs that the person sees, if there are several, each with the role there.
    configs: Arc<[(Arc<str>, Role)]>,
    /// The config of the request; `None` if it is about several.
    config: Option<Arc<str>>,
}

impl Session {
    fn new(identity: Identity, open: watch::Receiver<()>) -> Self {
        Self { identity, open, configs: Arc::default(), config: None }
    }

    /// The session of a request of somebody who sees these configs.
    pub(crate) fn among(self, configs: Arc<[(Arc<str>, Role)]>, config: Option<Arc<str>>) -> Self {
        Self { configs, config, ..self }
    }

    /// The names of the configs that the person sees, if there are several.
    pub(crate) fn configs(&self) -> impl Iterator<Item = &str> {
        self.configs.iter().map(|(name, _)| &**name)
    }

    /// The name of the config of the request, if it is about one of several.
    pub(crate) fn config(&self) -> Option<&str> {
        self.config.as_deref().filter(|_| !self.configs.is_empty())
    }

    /// Decides whether this person may do something; see [`may`].
    pub(crate) fn may(&self, action: Action, owner: Option<&Principal>) -> Result<(), RoleRefusal> {
        may(&self.identity.principal, self.identity.role, action, owner)
    }

    /// Whether the person may do something at the config of the request; if it is about several, at
    /// one of them.
    pub(crate) fn may_somewhere(&self, action: Action) -> bool {
        match self.config {
            None if !self.configs.is_empty() => self.first_config_where(action).is_some(),
            _ => self.may(action, None).is_ok(),
        }
    }

    /// The name of the first config at which the person may do something, if there are several.
    pub(crate) fn first_config_where(&self, action: Action) -> Option<&str> {
        let may_as = |role| may(&self.identity.principal, role, action, None).is_ok();
        self.configs.iter().find(|(_, role)| may_as(*role)).map(|(name, _)| &**name)
    }

    /// The name of the person; `None` if the token names nobody.
    pub(crate) fn name(&self) -> Option<&str> {
        (self.identity.credential != Credential::Printed).then(|| &*self.identity.principal.0)
    }

    /// A session for one request, which ends with `open`.
    pub(crate) fn of_request(identity: Identity, open: watch::Receiver<()>) -> Self {
        Self::new(identity, open)
    }

    /// Returns when the session has ended.
    pub(crate) async fn ended(mut self) {
        while self.open.changed().await.is_ok() {}
    }
}

/// The digest of a secret, which tells nothing about it.
pub(crate) type SecretDigest = [u8; 32];

/// All sessions, by the digest of their secrets.
#[derive(Default)]
pub(crate) struct Sessions(BTreeMap<SecretDigest, ActiveSession>);

struct ActiveSession {
    end: Instant,
    identity: Identity,
    open: watch::Sender<()>,
}

impl Sessions {
    pub(crate) fn begin(
        &mut self,
        secret: &str,
        identity: Identity,
        age: Duration,
        now: Instant,
    ) -> Session {
        self.0.retain(|_, session| session.end > now);
        // Of requests with one token that were verified at once, the first begins the session: a
        // later one would end the streams of those before.
        if let Some(known) = self.find(secret, now) {
            return known;
        }
        // Own sessions first, so that a person who logs in again and again ends nobody else's.
        let is_own = |session: &ActiveSession| session.identity.principal == identity.principal;
        let own = self.0.values().filter(|session| is_own(session)).count();
        if own >= OWN_SESSIONS || self.0.len() >= SESSIONS {
            let all = self.0.iter();
            let displaceable = all.filter(|(_, it)| own < OWN_SESSIONS || is_own(it));
            let oldest = displaceable.min_by_key(|(_, session)| session.end);
            let oldest = oldest.map(|(digest, _)| *digest);
            oldest.map(|oldest| self.0.remove(&oldest));
        }
        let session = ActiveSession { end: now + age, identity, open: watch::Sender::new(()) };
        let handle = session.handle();
        self.0.insert(digest(secret), session);
        handle
    }

    pub(crate) fn find(&self, secret: &str, now: Instant) -> Option<Session> {
        let session = self.0.get(&digest(secret)).filter(|session| session.end > now);
        session.map(ActiveSession::handle)
    }

    /// Ends the session with this secret, and the streams of whoever follows in it.
    pub(crate) fn end(&mut self, secret: &str) {
        self.0.remove(&digest(secret));
    }

    /// Whether this log-in at a provider still has a session.
    #[cfg(feature = "oidc")]
    pub(crate) fn has_login(&self, login: u64) -> bool {
        let mut sessions = self.0.values();
        sessions.any(|session| session.identity.credential == Credential::Oidc(login))
    }

    /// Ends the sessions of people whose token or role is not the same any more.
    pub(crate) fn end_revoked(&mut self, is_valid: impl Fn(&Identity) -> bool) {
        self.0.retain(|_, session| is_valid(&session.identity));
    }
}

impl ActiveSession {
    fn handle(&self) -> Session {
        Session::new(self.identity.clone(), self.open.subscribe())
    }
}

/// Whether two secrets are the same.
pub(crate) fn is_same(candidate: &str, secret: &str) -> bool {
    // Digests, so that the time of the comparison tells nothing about the secret.
    digest(candidate) == digest(secret)
}

pub(crate) fn digest(secret: &str) -> SecretDigest {
    Sha256::digest(secret).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(hash: Option<&str>) -> Identity {
        let credential =
            hash.map_or(Credential::Printed, |hash| Credential::Token(hash.to_owned()));
        Identity { principal: Principal("ada".into()), role: Role::User, credential }
    }

    #[test]
    fn a_session_ends_and_the_oldest_one_first() {
        let mut sessions = Sessions::default();
        let begin = Instant::now();
        sessions.begin("a", identity(None), SESSION, begin);
        assert!(sessions.find("a", begin).is_some() && sessions.find("b", begin).is_none());
        assert!(sessions.find("a", begin + SESSION).is_none());
        let later = begin + Duration::from_secs(1);
        let of = |name: &str| Identity { principal: Principal(name.into()), ..identity(None) };
        for number in 0..OWN_SESSIONS {
            sessions.begin(&format!("own{number}"), of("bob"), SESSION, later);
        }
        sessions.begin("own", of("bob"), SESSION, later + Duration::from_secs(1));
        assert_eq!(sessions.0.len(), OWN_SESSIONS + 1, "one of bob's has ended, and not ada's");
        assert!(sessions.find("a", later).is_some());
        for number in 0..SESSIONS {
            sessions.begin(&number.to_string(), of(&number.to_string()), SESSION, later);
        }
        assert!(sessions.find("a", later).is_none() && sessions.find("255", later).is_some());
        sessions.begin("z", identity(None), SESSION, begin + SESSION + Duration::from_secs(2));
        assert_eq!(sessions.0.len(), 1, "ended sessions are forgotten");
    }

    #[tokio::test]
    async fn a_session_that_begins_twice_goes_on() {
        let mut sessions = Sessions::default();
        let now = Instant::now();
        let first = sessions.begin("a", identity(None), SESSION, now);
        let second = sessions.begin("a", identity(None), SESSION, now);
        let ended = async { tokio::join!(first.ended(), second.ended()) };
        let mut ended = std::pin::pin!(ended);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(ended.as_mut().poll(&mut context).is_pending());
        sessions.end_revoked(|_| false);
        ended.await;
    }

    #[tokio::test]
    async fn a_revoked_token_ends_its_sessions_and_those_who_follow() {
        let mut sessions = Sessions::default();
        let now = Instant::now();
        let (ada, bob) = (identity(Some("one")), identity(Some("other")));
        let ended = sessions.begin("a", ada, SESSION, now);
        sessions.begin("b", bob, SESSION, now);
        sessions
            .end_revoked(|identity| identity.credential == Credential::Token("other".to_owned()));
        ended.ended().await;
        assert!(sessions.find("a", now).is_none());
        assert!(sessions.find("b", now).is_some());
    }
}
