//! Sessions of people who log in at a provider of OpenID Connect: the cookie of a log-in in
//! progress, the session when the provider has named the person, and its end when the provider
//! takes the access away.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::Value;

use super::{Access, Encryption, lock};
use crate::oidc::{Attempt, Callback, Oidc, OidcPerson, OidcRefusal, Renewal};
use crate::page::login::CALLBACK;
use crate::sessions::{Credential, Identity};
use crate::tokens::random_text;

/// Seconds of a log-in at a provider.
const ATTEMPT_AGE: u64 = 600;
/// The interval between two looks at whom the provider is to be asked about.
const RENEWAL_LOOK: Duration = Duration::from_secs(1);
/// People about whom the provider is asked at once.
const RENEWALS: usize = 8;

/// People whom the provider can be asked about, and when it is asked next.
pub(super) type Renewals = Mutex<Vec<(Instant, OidcPerson)>>;

/// A log-in that ended well.
pub(crate) struct EndedLogin {
    /// The cookies to set.
    pub(crate) cookies: [String; 2],
    /// The page to which it leads, as the browser says.
    pub(crate) page: String,
    secret: String,
    /// The client of the provider for which the claims are.
    client: String,
    login: u64,
    claims: Value,
}

impl Access {
    fn oidc(&self) -> Option<Arc<Oidc>> {
        self.people.oidc()
    }

    /// Whether a browser that a provider has led back began its log-in here.
    pub(crate) fn has_begun(&self, headers: &HeaderMap, state: Option<&str>) -> bool {
        self.attempts(headers).any(|attempt| Some(&*attempt.state()) == state)
    }

    /// The log-ins in progress that a browser has cookies of.
    fn attempts<'a>(&'a self, headers: &'a HeaderMap) -> impl Iterator<Item = Attempt> + 'a {
        let (name, oidc) = (self.attempt_name(), self.oidc());
        super::cookies(headers)
            .filter(move |(other, _)| *other == name)
            .filter_map(move |(_, value)| Attempt::of_cookie(value, oidc.as_ref()?.client()))
    }

    /// Returns the cookie of a new log-in, and the address at the provider. `None` without a
    /// provider.
    pub(crate) async fn begin_login(
        &self,
        host: &str,
        page: String,
    ) -> Option<Result<(String, String), OidcRefusal>> {
        let oidc = self.oidc()?;
        let beginning = async {
            let attempt = Attempt::new(page, oidc.client()).map_err(|_| OidcRefusal::Busy)?;
            let url = oidc.authorization_url(&attempt, &self.redirect_uri(host)).await?;
            Ok((self.attempt_cookie(&attempt.cookie(), ATTEMPT_AGE), url))
        };
        Some(self.reported(&oidc, beginning.await))
    }

    /// Ends the log-in of a browser that the provider has led back.
    pub(crate) async fn end_login(
        &self,
        headers: &HeaderMap,
        host: &str,
        callback: Callback,
    ) -> Option<Result<EndedLogin, OidcRefusal>> {
        let oidc = self.oidc()?;
        let ending = async {
            let attempt = self.attempts(headers).next().ok_or(OidcRefusal::UnknownLogin)?;
            let page = attempt.page().to_owned();
            let person = oidc.finish(attempt, callback, self.redirect_uri(host)).await?;
            let secret = random_text().map_err(|_| OidcRefusal::Busy)?;
            let (principal, credential) =
                (person.principal.clone(), Credential::Oidc(person.login));
            let identity = Identity { principal, role: person.role, credential };
            let mut sessions = lock(&self.sessions);
            // The config may name another provider since, or other roles.
            if !self.oidc().is_some_and(|now| Arc::ptr_eq(&now, &oidc)) {
                return Err(OidcRefusal::UnknownLogin);
            }
            sessions.begin(&secret, identity, oidc.session(), Instant::now());
            drop(sessions);
            let (client, login, claims) = (oidc.client(), person.login, person.claims.clone());
            if person.is_renewable() {
                lock(&self.renewals).push((Instant::now() + oidc.refresh(), person));
            }
            let session = self.entrance.session_cookie(&secret, oidc.session());
            let cookies = [session, self.attempt_cookie("", 0)];
            Ok(EndedLogin { cookies, page, secret, client, login, claims })
        };
        Some(self.reported(&oidc, ending.await))
    }

    /// Begins a session of a person who has logged in at a config with the same client of the same
    /// provider, if the person has a role here: the provider's word is for that client, whichever
    /// config it led back to.
    pub(crate) fn begin_beside(&self, ended: &EndedLogin) {
        let Some(oidc) = self.oidc().filter(|oidc| oidc.client() == ended.client) else { return };
        if let Some((principal, role)) = oidc.person_of(&ended.claims) {
            let identity = Identity { principal, role, credential: Credential::Oidc(ended.login) };
            lock(&self.sessions).begin(&ended.secret, identity, oidc.session(), Instant::now());
        }
    }

    /// Ends the sessions of a log-in at another config, unless the provider still says the same about
    /// the person; with `None` it says that there is no access.
    fn check_beside(&self, login: u64, claims: Option<&Value>) {
        let person = self.oidc().zip(claims).and_then(|(oidc, claims)| oidc.person_of(claims));
        let is_same = |identity: &Identity| {
            person.as_ref().is_some_and(|(principal, role)| {
                identity.principal == *principal && identity.role == *role
            })
        };
        lock(&self.sessions).end_revoked(|identity| {
            identity.credential != Credential::Oidc(login) || is_same(identity)
        });
    }

    /// Asks the provider about people again and again, and ends the sessions of those without
    /// access, also at the other configs.
    pub(crate) async fn watch_logins(&self, all: &[Arc<Self>]) {
        loop {
            tokio::time::sleep(RENEWAL_LOOK).await;
            // The config may name another one since the last look, or none.
            if let Some(oidc) = self.oidc() {
                self.renew_logins(&oidc, Instant::now(), all).await;
            }
        }
    }

    async fn renew_logins(&self, oidc: &Oidc, now: Instant, all: &[Arc<Self>]) {
        let others = || all.iter().filter(|other| !std::ptr::eq(&***other, self));
        let (due, dropped): (Vec<OidcPerson>, Vec<OidcPerson>) = {
            let sessions = lock(&self.sessions);
            let mut renewals = lock(&self.renewals);
            let dropped = renewals.extract_if(.., |(_, person)| !sessions.has_login(person.login));
            let dropped = dropped.map(|(_, person)| person).collect();
            let due = renewals.extract_if(.., |(at, _)| *at <= now);
            (due.map(|(_, person)| person).collect(), dropped)
        };
        // Nobody is asked about them any more.
        for person in dropped {
            others().for_each(|other| other.check_beside(person.login, None));
        }
        let renewed = stream::iter(due).map(|mut person| async move {
            let renewal = oidc.renew(&mut person).await;
            (renewal, person)
        });
        let mut renewed = std::pin::pin!(renewed.buffer_unordered(RENEWALS));
        while let Some((renewal, person)) = renewed.next().await {
            let revoked = Credential::Oidc(person.login);
            let claims = (renewal == Renewal::Valid).then_some(&person.claims);
            others().for_each(|other| other.check_beside(person.login, claims));
            match renewal {
                Renewal::Valid => lock(&self.renewals).push((now + oidc.refresh(), person)),
                Renewal::Revoked => {
                    lock(&self.sessions).end_revoked(|identity| identity.credential != revoked)
                }
            }
        }
    }

    /// Reports to the operator when the provider begins to fail.
    fn reported<T>(&self, oidc: &Oidc, outcome: Result<T, OidcRefusal>) -> Result<T, OidcRefusal> {
        if oidc.begins_to_fail(&outcome)
            && let Err(refusal) = &outcome
        {
            self.operator.provider_failed(refusal);
        }
        outcome
    }

    /// The address to which the provider leads back: that of the host by which the browser came,
    /// because it has the cookie of that one. The host was checked.
    fn redirect_uri(&self, host: &str) -> String {
        let address = &self.entrance.address;
        let scheme = match address.encryption {
            Encryption::Server => "https",
            Encryption::Proxy if address.hosts.first().is_some_and(|it| it == host) => "https",
            Encryption::Proxy | Encryption::None => "http",
        };
        format!("{scheme}://{host}{CALLBACK}")
    }

    fn attempt_name(&self) -> String {
        format!("{}-login", self.entrance.cookie)
    }

    /// A cookie that comes along when the provider leads back, as one that is `Strict` would not.
    fn attempt_cookie(&self, value: &str, age: u64) -> String {
        let (name, secure) = (self.attempt_name(), self.entrance.secure());
        format!("{name}={value}; HttpOnly; SameSite=Lax; Path=/; Max-Age={age}{secure}")
    }
}
