//! The people who may use a server, with their tokens: those of the config, and those of a file
//! that is read again when it changes.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
#[cfg(any(test, feature = "oidc"))]
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;
use conclave_core::config::ServerConfig;
use conclave_core::types::ids::{Millis, Principal};

#[cfg(feature = "oidc")]
use crate::oidc::Oidc;
use crate::proxy::ProxiedPeople;
use crate::sessions::{Credential, Identity};
use crate::tokens::{PersonToken, TokenFile, name_of};

/// The people of a config.
pub struct People {
    of_config: Mutex<ConfigPeople>,
    file: Option<TokenFile>,
    /// The config, which some tokens are for.
    config: PathBuf,
    /// All valid tokens.
    tokens: Mutex<Vec<PersonToken>>,
    are_known: AtomicBool,
    /// The provider at which others log in.
    #[cfg(feature = "oidc")]
    oidc: Mutex<Option<Arc<Oidc>>>,
}

/// The people that a config names.
struct ConfigPeople {
    tokens: Vec<PersonToken>,
    /// Those whom a proxy names.
    proxied: Option<ProxiedPeople>,
}

/// The reason why nobody is logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginRefusal {
    /// No valid token.
    WrongToken,
    /// Too many attempts at once.
    Busy,
    /// The proxy sent a header that names no person, or several.
    WrongProxyHeader,
    /// The proxy names somebody without a role.
    NoRole,
}

impl People {
    /// The people of a config, and those of the file whose tokens are for it. There may be none.
    /// `config` is the absolute path.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn find(
        server: &ServerConfig,
        file: Option<TokenFile>,
        config: PathBuf,
    ) -> io::Result<Self> {
        let people = Self {
            of_config: Mutex::new(ConfigPeople::of(server)),
            file,
            config,
            tokens: Mutex::default(),
            are_known: AtomicBool::default(),
            #[cfg(feature = "oidc")]
            oidc: Mutex::default(),
        };
        let tokens = people.read()?;
        let are_known = !tokens.is_empty() || people.of_config().proxied.is_some();
        people.are_known.store(are_known, Ordering::Relaxed);
        *people.tokens() = tokens;
        Ok(people)
    }

    /// Takes those of a config that was read again. Returns whether people of another provider log
    /// in from now on. Who has access by a token, the next [`reload`](Self::reload) says.
    pub(crate) fn replace(&self, next: Self) -> bool {
        self.are_known.fetch_or(next.are_known(), Ordering::Relaxed);
        *self.of_config() = next.of_config.into_inner().unwrap_or_else(PoisonError::into_inner);
        #[cfg(feature = "oidc")]
        {
            let next = next.oidc.into_inner().unwrap_or_else(PoisonError::into_inner);
            let mut oidc = self.oidc.lock().unwrap_or_else(PoisonError::into_inner);
            let config = |oidc: &Option<Arc<Oidc>>| oidc.as_ref().map(|oidc| oidc.config().clone());
            // The same one knows the log-ins that it has ended.
            let is_other = config(&next) != config(&oidc);
            if is_other {
                *oidc = next;
            }
            is_other
        }
        #[cfg(not(feature = "oidc"))]
        false
    }

    /// The same people, and those of a provider.
    #[cfg(feature = "oidc")]
    #[must_use]
    pub fn with_oidc(mut self, oidc: Oidc) -> Self {
        self.are_known.store(true, Ordering::Relaxed);
        self.oidc = Mutex::new(Some(Arc::new(oidc)));
        self
    }

    /// The provider at which people log in.
    #[cfg(feature = "oidc")]
    pub(crate) fn oidc(&self) -> Option<Arc<Oidc>> {
        self.oidc.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The host of the provider at which people log in.
    pub(crate) fn provider_name(&self) -> Option<String> {
        #[cfg(feature = "oidc")]
        return self.oidc().map(|oidc| oidc.name().to_owned());
        #[cfg(not(feature = "oidc"))]
        None
    }

    /// Removes the header of a proxy from a request. Returns whom it names.
    pub(crate) fn take_proxied(
        &self,
        peer: Option<IpAddr>,
        headers: &mut HeaderMap,
    ) -> Result<Option<Identity>, LoginRefusal> {
        let of_config = self.of_config();
        of_config.proxied.as_ref().map_or(Ok(None), |proxied| proxied.take(peer, headers))
    }

    /// Whether a proxy or a provider names people, or they have tokens or had some since the start:
    /// the printed address gives access no more, also after the last of them was revoked.
    #[must_use]
    pub fn are_known(&self) -> bool {
        self.are_known.load(Ordering::Relaxed)
    }

    /// Reads the file again. Returns whether the tokens have changed. If it cannot be read, only
    /// those of the config are valid.
    pub(crate) fn reload(&self) -> (bool, io::Result<()>) {
        let (now, read) = match self.read() {
            Ok(tokens) => (tokens, Ok(())),
            Err(error) => (self.of_config().tokens.clone(), Err(error)),
        };
        let mut tokens = self.tokens();
        let is_changed = *tokens != now;
        self.are_known.fetch_or(!now.is_empty(), Ordering::Relaxed);
        *tokens = now;
        (is_changed, read)
    }

    /// Whether a person still has the token of a session, with the same role. Whether those of a
    /// provider have access, the provider says.
    pub(crate) fn has(&self, identity: &Identity) -> bool {
        let Identity { principal, role, credential } = identity;
        #[cfg(feature = "oidc")]
        if matches!(credential, Credential::Oidc(_)) {
            return true;
        }
        self.tokens().iter().any(|token| {
            *token.name == *principal.0
                && token.role == *role
                && matches!(credential, Credential::Token(hash) if *hash == token.hash)
        })
    }

    /// The stored tokens that this one can be: those of the person whom it names.
    pub(crate) fn candidates(&self, token: &str) -> Vec<PersonToken> {
        let name = name_of(token);
        self.tokens().iter().filter(|person| Some(&*person.name) == name).cloned().collect()
    }

    /// The person with this stored token, and its role here; `None` if the token is not valid here.
    pub(crate) fn identity(&self, name: &str, hash: &str) -> Option<Identity> {
        let tokens = self.tokens();
        let person = tokens.iter().find(|token| token.name == name && token.hash == hash)?;
        Some(Identity {
            principal: Principal(person.name.as_str().into()),
            role: person.role,
            credential: Credential::Token(person.hash.clone()),
        })
    }

    fn read(&self) -> io::Result<Vec<PersonToken>> {
        let mut tokens = self.of_config().tokens.clone();
        let of_file = self.file.as_ref().map(TokenFile::read).transpose()?;
        tokens.extend(
            of_file
                .into_iter()
                .flatten()
                .filter(|token| token.config.as_ref().is_none_or(|config| *config == self.config)),
        );
        Ok(tokens)
    }

    fn tokens(&self) -> MutexGuard<'_, Vec<PersonToken>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of_config(&self) -> MutexGuard<'_, ConfigPeople> {
        self.of_config.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConfigPeople {
    fn of(server: &ServerConfig) -> Self {
        let tokens = server.users.iter().filter_map(|(name, user)| {
            Some(PersonToken {
                name: name.clone(),
                role: user.role,
                config: None,
                hash: user.token_hash.clone()?,
                created: Millis::default(),
            })
        });
        Self { tokens: tokens.collect(), proxied: ProxiedPeople::of(server) }
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::config::ServerUser;
    use conclave_core::policy::roles::Role;

    use super::*;
    use crate::login_attempts::LoginAttempts;
    use crate::tokens::NewToken;

    async fn identify(people: &People, token: &str) -> Result<Identity, LoginRefusal> {
        let attempts = Arc::new(LoginAttempts::new());
        let found = attempts.verify(token, None, people.candidates(token)).await?;
        people.identity(&found.name, &found.hash).ok_or(LoginRefusal::WrongToken)
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_belongs_to_its_person_until_it_is_revoked() {
        let temp = tempfile::tempdir().unwrap();
        let (ada, bob) = (NewToken::of("ada").unwrap(), NewToken::of("bob").unwrap());
        let file = TokenFile::in_folder(temp.path());
        let none =
            People::find(&ServerConfig::default(), Some(file.clone()), "/c.toml".into()).unwrap();
        assert!(!none.are_known());
        let token = |config: &str| PersonToken {
            name: "bob".to_owned(),
            role: Role::Viewer,
            config: Some(config.into()),
            hash: bob.hash.clone(),
            created: Millis(1),
        };
        file.edit(|tokens| tokens.push(token("/other.toml"))).unwrap();
        let user = ServerUser { role: Role::Approver, token_hash: Some(ada.hash.clone()) };
        let users = [("ada".to_owned(), user)].into();
        let server = ServerConfig { users, ..ServerConfig::default() };
        let people = People::find(&server, Some(file.clone()), "/c.toml".into()).unwrap();
        assert!(people.are_known());
        let found = identify(&people, &ada.token).await.unwrap();
        assert_eq!((&*found.principal.0, found.role), ("ada", Role::Approver));
        let refusal = identify(&people, &bob.token).await.unwrap_err();
        assert_eq!(refusal, LoginRefusal::WrongToken, "it is for another config");
        file.edit(|tokens| tokens.push(token("/c.toml"))).unwrap();
        assert!(people.reload().0 && !people.reload().0);
        let found_bob = identify(&people, &bob.token).await.unwrap();
        assert_eq!(found_bob.role, Role::Viewer);
        assert!(people.has(&found) && people.has(&found_bob));
        assert!(!people.has(&Identity { role: Role::Admin, ..found_bob.clone() }));
        let stolen = bob.token.replace("bob.", "ada.");
        for wrong in [stolen.as_str(), "", "bob", &bob.hash] {
            assert_eq!(identify(&people, wrong).await.unwrap_err(), LoginRefusal::WrongToken);
        }
        file.edit(Vec::clear).unwrap();
        assert!(people.has(&found_bob) && people.reload().0 && !people.has(&found_bob));
        let role = Role::Viewer;
        let demoted = ServerUser { role, token_hash: Some(ada.hash.clone()) };
        let users = [("ada".to_owned(), demoted)].into();
        let server = ServerConfig { users, ..ServerConfig::default() };
        let next = People::find(&server, Some(file.clone()), "/c.toml".into()).unwrap();
        assert!(!people.replace(next), "there is no provider");
        assert!(people.has(&found), "until the next look");
        assert!(people.reload().0 && !people.has(&found), "the config was read again");
        let found = Identity { role, ..found };
        assert!(identify(&people, &bob.token).await.is_err() && people.has(&found));
        std::fs::write(file.path(), "?").unwrap();
        assert!(people.reload().1.is_err() && people.has(&found));
    }
}
