//! Log-in at a provider of OpenID Connect: the authorisation code flow with PKCE. Who a person is,
//! and which role that is, the core decides by the claims of the provider; this module makes sure
//! that they are the provider's, for this server, and for the log-in that the browser began. It
//! knows no sessions.

mod attempt;
mod id_token;
mod provider;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conclave_core::config::{OidcConfig, UnnamedPerson};
use conclave_core::policy::roles::Role;
use conclave_core::types::ids::Principal;
use conclave_runtime::models::ApiKey;
use conclave_runtime::secrets::SecretSource;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

pub(crate) use attempt::Attempt;
use id_token::{Expected, IdTokenProblem};
pub(crate) use provider::ProviderFailure;
use provider::{Provider, TokenRequest};

/// Log-ins that are checked at once. Each asks the provider.
const CALLBACKS: usize = 8;
/// Log-ins that begin at once, and the time that each waits for the provider's description.
const BEGINNINGS: usize = 64;
const BEGINNING: Duration = Duration::from_secs(15);
/// The time that a failed log-in occupies one of those places.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// Log-ins that are remembered so that none counts twice. The provider remembers its codes too.
const USED: usize = 1_024;

/// The number of the next log-in: one may give sessions at several configs.
static LOGINS: AtomicU64 = AtomicU64::new(0);
/// Characters of a provider's reason.
const DENIAL: usize = 40;

/// A provider of OpenID Connect, and what the config says about its people.
pub struct Oidc {
    config: OidcConfig,
    provider: Provider,
    used: Mutex<VecDeque<String>>,
    callbacks: Arc<Semaphore>,
    beginnings: Semaphore,
    has_failed: AtomicBool,
}

/// The reason why there is no log-in by a provider.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OidcError {
    /// The source has no secret.
    #[error("the secret of the server at its provider is not there: {0}")]
    Secret(String),
    /// There is no client for requests.
    #[error("there is no HTTP client: {0}")]
    Client(String),
}

/// The query with which a provider leads a browser back.
#[derive(Debug, Default)]
pub(crate) struct Callback {
    pub(crate) code: Option<String>,
    pub(crate) state: Option<String>,
    pub(crate) issuer: Option<String>,
    pub(crate) error: Option<String>,
}

/// A person whom the provider has identified.
#[derive(Debug)]
pub(crate) struct OidcPerson {
    pub(crate) principal: Principal,
    pub(crate) role: Role,
    /// The number of the log-in, which no other one of the process has.
    pub(crate) login: u64,
    /// What the provider said last.
    pub(crate) claims: Value,
    /// The person at the provider.
    subject: String,
    /// Asks the provider whether the person still has access; `None` if it cannot be asked.
    refresh_token: Option<ApiKey>,
}

/// The reason why nobody is logged in by a provider.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OidcRefusal {
    #[error(
        "this log-in did not begin in this browser, is too old, or was used already; begin it again"
    )]
    UnknownLogin,
    #[error("too many people log in at once; try again in some seconds")]
    Busy,
    #[error("the provider did not log you in: {0}")]
    Denied(String),
    #[error(transparent)]
    Provider(#[from] ProviderFailure),
    #[error("the provider's answer was refused: {0}")]
    IdToken(#[from] IdTokenProblem),
    #[error("you have no name at this server: {0}")]
    Unnamed(#[from] UnnamedPerson),
    #[error("you have no role at this server; its operator gives roles to groups of the provider")]
    NoRole,
}

/// What a provider says about a person who has logged in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// Nothing has changed, or the provider cannot be asked now.
    Valid,
    /// The person has no access, or another role or name.
    Revoked,
}

impl Oidc {
    /// The provider of a config. It is asked when somebody logs in, and need not be there yet.
    ///
    /// # Errors
    /// If the source has no secret, or there is no client for requests.
    pub fn new(config: OidcConfig, secrets: Arc<dyn SecretSource>) -> Result<Self, OidcError> {
        if let Some(from) = &config.client_secret {
            secrets.check(from).map_err(OidcError::Secret)?;
        }
        let provider = Provider::new(&config, secrets).map_err(OidcError::Client)?;
        Ok(Self {
            config,
            provider,
            used: Mutex::default(),
            callbacks: Arc::new(Semaphore::new(CALLBACKS)),
            beginnings: Semaphore::new(BEGINNINGS),
            has_failed: AtomicBool::default(),
        })
    }

    /// The server as a client of its provider.
    pub(crate) fn client(&self) -> String {
        format!("{} {}", self.config.client_id, self.config.issuer)
    }

    /// What the config says about it.
    pub(crate) fn config(&self) -> &OidcConfig {
        &self.config
    }

    /// The host of the provider, for people.
    pub(crate) fn name(&self) -> &str {
        let rest = self.config.issuer.split_once("://").map_or("", |(_, rest)| rest);
        rest.split('/').next().unwrap_or_default()
    }

    /// The longest time of a session.
    pub(crate) fn session(&self) -> Duration {
        Duration::from_millis(self.config.session_ms)
    }

    /// The interval between two renewals of a log-in.
    pub(crate) fn refresh(&self) -> Duration {
        Duration::from_millis(self.config.refresh_ms)
    }

    /// Returns the address at the provider to which a browser goes.
    pub(crate) async fn authorization_url(
        &self,
        attempt: &Attempt,
        redirect_uri: &str,
    ) -> Result<String, OidcRefusal> {
        let fields = [
            ("response_type", "code"),
            ("client_id", &self.config.client_id),
            ("redirect_uri", redirect_uri),
            ("scope", &self.config.scopes.join(" ")),
            ("state", &attempt.state()),
            ("nonce", &attempt.nonce()),
            ("code_challenge", &attempt.challenge()),
            ("code_challenge_method", "S256"),
        ];
        // A provider that does not answer keeps only so many waiting, and each only so long.
        let _place = self.beginnings.try_acquire().map_err(|_| OidcRefusal::Busy)?;
        let url = timeout(BEGINNING, self.provider.authorization_url(&fields)).await;
        Ok(url.unwrap_or(Err(ProviderFailure::Unreachable))?)
    }

    /// Ends a log-in: returns the person whom the provider names to this browser.
    pub(crate) async fn finish(
        self: &Arc<Self>,
        attempt: Attempt,
        callback: Callback,
        redirect_uri: String,
    ) -> Result<OidcPerson, OidcRefusal> {
        // Before it counts: another site can make a browser send any other query.
        if callback.state.as_ref() != Some(&attempt.state()) || !self.use_once(&attempt) {
            return Err(OidcRefusal::UnknownLogin);
        }
        let place = Arc::clone(&self.callbacks).try_acquire_owned();
        let Ok(place) = place else { return Err(OidcRefusal::Busy) };
        let oidc = Arc::clone(self);
        // In a task of its own: a client that leaves does not free its place.
        let checking = tokio::spawn(async move {
            let _place = place;
            let found = oidc.person(&attempt, callback, &redirect_uri).await;
            if found.is_err() {
                tokio::time::sleep(FAILED_PAUSE).await;
            }
            found
        });
        checking.await.unwrap_or(Err(OidcRefusal::UnknownLogin))
    }

    /// Whether this is the first end of a log-in.
    fn use_once(&self, attempt: &Attempt) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let state = attempt.state();
        if used.contains(&state) {
            return false;
        }
        used.push_back(state);
        if used.len() > USED {
            used.pop_front();
        }
        true
    }

    async fn person(
        &self,
        attempt: &Attempt,
        callback: Callback,
        redirect_uri: &str,
    ) -> Result<OidcPerson, OidcRefusal> {
        self.provider.check_issuer(callback.issuer.as_deref()).await?;
        if let Some(error) = callback.error {
            // It is a word of the protocol, and shown as no more than one.
            let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            let word = error.chars().filter(is_plain).take(DENIAL).collect();
            return Err(OidcRefusal::Denied(word));
        }
        let code = callback.code.ok_or(OidcRefusal::UnknownLogin)?;
        let verifier = attempt.verifier();
        let request = TokenRequest::Code { code: &code, verifier: &verifier, redirect_uri };
        let answer = self.provider.tokens(request).await?;
        let id_token = answer.id_token.ok_or(IdTokenProblem::Missing)?;
        let nonce = attempt.nonce();
        let claims = self.verify(&id_token, Some(&nonce)).await?;
        let principal = self.config.person(&claims)?;
        let role = self.config.role_of(&claims).ok_or(OidcRefusal::NoRole)?;
        Ok(OidcPerson {
            principal,
            role,
            login: LOGINS.fetch_add(1, Ordering::Relaxed),
            subject: subject(&claims).to_owned(),
            claims,
            refresh_token: answer.refresh_token.map(ApiKey::new),
        })
    }

    async fn verify(&self, token: &str, nonce: Option<&str>) -> Result<Value, OidcRefusal> {
        let OidcConfig { issuer, client_id, .. } = &self.config;
        let expected = Expected { issuer, client_id, nonce };
        let token = id_token::parse(token)?;
        let key = self.provider.key(&token).await?;
        Ok(token.verified(key.as_ref(), &expected, crate::http::now())?)
    }

    /// The name and the role by these claims, which are for this server as a client.
    pub(crate) fn person_of(&self, claims: &Value) -> Option<(Principal, Role)> {
        Some((self.config.person(claims).ok()?, self.config.role_of(claims)?))
    }

    /// Asks the provider whether a person still has access, and the same role.
    pub(crate) async fn renew(&self, person: &mut OidcPerson) -> Renewal {
        let Some(token) = person.refresh_token.clone() else { return Renewal::Valid };
        let answer = self.provider.tokens(TokenRequest::Refresh { token: &token }).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(ProviderFailure::Revoked) => return Renewal::Revoked,
            // The end of the session bounds what this leaves open.
            Err(_) => return Renewal::Valid,
        };
        if let Some(next) = answer.refresh_token {
            person.refresh_token = Some(ApiKey::new(next));
        }
        let Some(id_token) = answer.id_token else { return Renewal::Valid };
        let claims = match self.verify(&id_token, None).await {
            Ok(claims) => claims,
            // Its keys cannot be read now.
            Err(OidcRefusal::Provider(_)) => return Renewal::Valid,
            Err(_) => return Renewal::Revoked,
        };
        let is_same = subject(&claims) == person.subject
            && self.person_of(&claims) == Some((person.principal.clone(), person.role));
        person.claims = claims;
        if is_same { Renewal::Valid } else { Renewal::Revoked }
    }

    /// Returns whether this outcome is the first failure of the provider after a success, which its
    /// operator has to know.
    pub(crate) fn begins_to_fail<T>(&self, outcome: &Result<T, OidcRefusal>) -> bool {
        match outcome {
            Ok(_) => {
                self.has_failed.store(false, Ordering::Relaxed);
                false
            }
            Err(OidcRefusal::Provider(_) | OidcRefusal::IdToken(_)) => {
                !self.has_failed.swap(true, Ordering::Relaxed)
            }
            Err(_) => false,
        }
    }
}

impl OidcPerson {
    /// Whether the provider can be asked about the person later.
    pub(crate) fn is_renewable(&self) -> bool {
        self.refresh_token.is_some()
    }
}

fn subject(claims: &Value) -> &str {
    claims["sub"].as_str().unwrap_or_default()
}
