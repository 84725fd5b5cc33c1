//! Requests to a provider: its metadata, its keys and its tokens. All go to addresses that the
//! metadata of the configured issuer names; each has a time limit, its answer a size limit, and no
//! redirect is followed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use conclave_core::config::{KeyRef, OidcConfig};
use conclave_runtime::models::ApiKey;
use conclave_runtime::models::http::shared_tls;
use conclave_runtime::secrets::SecretSource;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Mutex;
use url::Url;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::id_token::{UnverifiedToken, VerifyingKey};

/// The time of a request with its answer.
const WITHIN: Duration = Duration::from_secs(10);
/// Bytes of an answer.
const ANSWER: usize = 256 << 10;
/// Keys of a provider that are looked at.
const KEYS: usize = 64;
/// The time after which metadata and keys are read again. A key that the provider takes away
/// counts no longer than that.
const FRESH: Duration = Duration::from_secs(60 * 60);
/// The path of the metadata below the issuer.
const METADATA: &str = ".well-known/openid-configuration";

/// The reason why a provider was asked in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProviderFailure {
    #[error("the provider cannot be reached; try again in a moment")]
    Unreachable,
    #[error("the provider answered with something else than OpenID Connect asks for")]
    Unusable,
    #[error("the provider is another issuer than the one of the config")]
    Issuer,
    #[error("the provider does not accept this log-in")]
    Revoked,
    #[error("the secret of this server at its provider cannot be read")]
    Secret,
}

/// A request for tokens.
pub(super) enum TokenRequest<'r> {
    Code { code: &'r str, verifier: &'r str, redirect_uri: &'r str },
    Refresh { token: &'r ApiKey },
}

/// The answer to one that is refused.
#[derive(Deserialize)]
struct TokenError {
    error: String,
}

/// The answer to one.
#[derive(Deserialize)]
pub(super) struct TokenAnswer {
    pub(super) id_token: Option<String>,
    pub(super) refresh_token: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

impl Metadata {
    /// Whether the provider takes the secret of a client in the header of a request.
    fn takes_basic(&self) -> bool {
        let methods = &self.token_endpoint_auth_methods_supported;
        methods.is_empty() || methods.iter().any(|method| method == "client_secret_basic")
    }
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// An answer of the provider, and since when it is known.
type Known<T> = Mutex<Option<(Instant, Arc<T>)>>;

pub(super) struct Provider {
    http: Client,
    issuer: String,
    client_id: String,
    client_secret: Option<KeyRef>,
    secrets: Arc<dyn SecretSource>,
    metadata: Known<Metadata>,
    keys: Known<Vec<VerifyingKey>>,
}

impl Provider {
    pub(super) fn new(config: &OidcConfig, secrets: Arc<dyn SecretSource>) -> Result<Self, String> {
        let is_secure = config.issuer.starts_with("https://");
        let tls = shared_tls(is_secure).map_err(|error| error.to_string())?;
        let http = Client::builder()
            .user_agent(concat!("conclave/", env!("CARGO_PKG_VERSION")))
            .timeout(WITHIN)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .https_only(is_secure)
            .tls_backend_preconfigured(tls)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self {
            http,
            issuer: config.issuer.clone(),
            client_id: config.client_id.clone(),
            client_secret: config.client_secret.clone(),
            secrets,
            metadata: Mutex::default(),
            keys: Mutex::default(),
        })
    }

    /// Returns the address at which people log in, with these fields in its query.
    pub(super) async fn authorization_url(
        &self,
        fields: &[(&str, &str)],
    ) -> Result<String, ProviderFailure> {
        let metadata = self.metadata().await?;
        let mut url = self.endpoint(&metadata.authorization_endpoint)?;
        url.query_pairs_mut().extend_pairs(fields);
        Ok(url.into())
    }

    /// Checks the issuer that a browser brings back (RFC 9207), so that the code of one provider is
    /// not sent to another.
    pub(super) async fn check_issuer(&self, issuer: Option<&str>) -> Result<(), ProviderFailure> {
        let is_required = self.metadata().await?.authorization_response_iss_parameter_supported;
        let is_right = issuer.map_or(!is_required, |issuer| issuer == self.issuer);
        if is_right { Ok(()) } else { Err(ProviderFailure::Issuer) }
    }

    /// Asks for tokens.
    pub(super) async fn tokens(
        &self,
        request: TokenRequest<'_>,
    ) -> Result<TokenAnswer, ProviderFailure> {
        let metadata = self.metadata().await?;
        let url = self.endpoint(&metadata.token_endpoint)?;
        let secret = match &self.client_secret {
            None => None,
            Some(from) => {
                Some(self.secrets.secret(from).await.map_err(|_| ProviderFailure::Secret)?)
            }
        };
        let (authorization, form) = self.token_form(&metadata, &request, secret.as_ref());
        let request = self.http.post(url).header(ACCEPT, "application/json");
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let request = match authorization {
            Some(value) => request.header(AUTHORIZATION, value),
            None => request,
        };
        let (status, answer) = self.send(request.body(form)).await?;
        if status.is_success() {
            return json(&answer);
        }
        match json::<TokenError>(&answer) {
            Ok(TokenError { error }) if error == "invalid_grant" => Err(ProviderFailure::Revoked),
            _ => Err(ProviderFailure::Unusable),
        }
    }

    /// The header and the body of a request for tokens.
    fn token_form(
        &self,
        metadata: &Metadata,
        request: &TokenRequest<'_>,
        secret: Option<&ApiKey>,
    ) -> (Option<String>, String) {
        let mut form = Serializer::new(String::new());
        match request {
            TokenRequest::Code { code, verifier, redirect_uri } => form
                .append_pair("grant_type", "authorization_code")
                .append_pair("code", code)
                .append_pair("redirect_uri", redirect_uri)
                .append_pair("code_verifier", verifier),
            TokenRequest::Refresh { token } => form
                .append_pair("grant_type", "refresh_token")
                .append_pair("refresh_token", token.reveal()),
        };
        if let Some(secret) = secret.filter(|_| metadata.takes_basic()) {
            let part = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
            let pair = format!("{}:{}", part(&self.client_id), part(secret.reveal()));
            return (Some(format!("Basic {}", BASE64_STANDARD.encode(pair))), form.finish());
        }
        form.append_pair("client_id", &self.client_id);
        secret.map(|secret| form.append_pair("client_secret", secret.reveal()));
        (None, form.finish())
    }

    /// Returns the key that a token names. One that is not known may be new, so the keys are read
    /// again.
    pub(super) async fn key(
        &self,
        token: &UnverifiedToken<'_>,
    ) -> Result<Option<VerifyingKey>, ProviderFailure> {
        let mut known = self.keys.lock().await;
        if let Some((since, keys)) = &*known
            && since.elapsed() < FRESH
            && let Some(key) = token.find_key(keys)
        {
            return Ok(Some(key.clone()));
        }
        let metadata = self.metadata().await?;
        let set: KeySet = self.read(&metadata.jwks_uri).await?;
        let keys = set.keys.iter().take(KEYS).filter_map(VerifyingKey::of_jwk).collect();
        let keys: Arc<Vec<VerifyingKey>> = Arc::new(keys);
        *known = Some((Instant::now(), Arc::clone(&keys)));
        Ok(token.find_key(&keys).cloned())
    }

    async fn metadata(&self) -> Result<Arc<Metadata>, ProviderFailure> {
        // The lock is held over the request: those who wait for the same answer ask once.
        let mut known = self.metadata.lock().await;
        if let Some((since, metadata)) = &*known
            && since.elapsed() < FRESH
        {
            return Ok(Arc::clone(metadata));
        }
        let url = format!("{}/{METADATA}", self.issuer.trim_end_matches('/'));
        let metadata: Metadata = self.read(&url).await?;
        if metadata.issuer != self.issuer {
            return Err(ProviderFailure::Issuer);
        }
        let metadata = Arc::new(metadata);
        *known = Some((Instant::now(), Arc::clone(&metadata)));
        Ok(metadata)
    }

    /// The URL of an endpoint that the metadata names.
    fn endpoint(&self, text: &str) -> Result<Url, ProviderFailure> {
        let url = Url::parse(text).map_err(|_| ProviderFailure::Unusable)?;
        let is_encrypted = url.scheme() == "https";
        let is_plain = url.scheme() == "http" && self.issuer.starts_with("http://");
        let is_usable = (is_encrypted || is_plain) && url.username().is_empty();
        if is_usable { Ok(url) } else { Err(ProviderFailure::Unusable) }
    }

    async fn read<T: DeserializeOwned>(&self, url: &str) -> Result<T, ProviderFailure> {
        let request = self.http.get(self.endpoint(url)?).header(ACCEPT, "application/json");
        let (status, answer) = self.send(request).await?;
        if status.is_success() { json(&answer) } else { Err(ProviderFailure::Unusable) }
    }

    /// Sends a request. No word of its answer is reported: it may be a secret.
    async fn send(
        &self,
        request: RequestBuilder,
    ) -> Result<(StatusCode, Vec<u8>), ProviderFailure> {
        let unreachable = |_| ProviderFailure::Unreachable;
        let mut answer = request.send().await.map_err(unreachable)?;
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > ANSWER {
                return Err(ProviderFailure::Unusable);
            }
            body.extend_from_slice(&chunk);
        }
        Ok((answer.status(), body))
    }
}

fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ProviderFailure> {
    serde_json::from_slice(bytes).map_err(|_| ProviderFailure::Unusable)
}
