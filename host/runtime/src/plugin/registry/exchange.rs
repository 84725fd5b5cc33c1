//! HTTP with one repository of a registry: requests, logins, uploads. Knows the distribution
//! protocol, and nothing of components.

use std::collections::BTreeMap;
use std::sync::Arc;

use conclave_core::types::oci::OciReference;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, WWW_AUTHENTICATE,
};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use url::{Host, Url};

use super::layout::{INDEX, MANIFEST};
use super::login::{Login, RegistryLogins};
use super::{RegistryError, shared};
use crate::plugin::download::{self, innermost};
use crate::support::digest::sha256;

/// Bytes of a token server's answer, at most; real tokens have a few KiB.
const TOKEN_BYTES: u64 = 256 << 10;

/// A conversation with one repository. It logs in when the registry requires it, and keeps the
/// token.
pub(super) struct Exchange {
    client: Client,
    /// `https://HOST/v2/REPOSITORY/`.
    base: Url,
    reference: OciReference,
    registry: String,
    repository: String,
    logins: Arc<dyn RegistryLogins>,
    authorization: Option<HeaderValue>,
}

impl Exchange {
    pub(super) fn new(
        reference: &OciReference,
        logins: Arc<dyn RegistryLogins>,
    ) -> Result<Self, RegistryError> {
        let (registry, repository) = (reference.registry(), reference.repository());
        let url = |scheme: &str| Url::parse(&format!("{scheme}://{registry}/v2/{repository}/"));
        let invalid = |error: url::ParseError| RegistryError::Protocol {
            registry: registry.to_owned(),
            reason: format!("its name makes no URL: {error}"),
        };
        let secure = url("https").map_err(invalid)?;
        // Only on this machine nobody else can read or change what is sent.
        let is_local = is_loopback(&secure);
        let base = if is_local { url("http").map_err(invalid)? } else { secure };
        let client = download::client(base.host_str().unwrap_or_default(), !is_local, may_lead)
            .map_err(|error| RegistryError::Setup(error.to_string()))?;
        Ok(Self {
            client,
            base,
            reference: reference.clone(),
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            logins,
            authorization: None,
        })
    }

    pub(super) fn reference(&self) -> &OciReference {
        &self.reference
    }

    /// Returns the manifest of a tag or digest, of at most `limit` bytes; `None` if there is none.
    pub(super) async fn manifest(
        &mut self,
        version: &str,
        limit: u64,
    ) -> Result<Option<Vec<u8>>, RegistryError> {
        self.document(&format!("manifests/{version}"), MANIFEST, limit).await
    }

    /// Returns the image index of a tag; `None` if there is none.
    pub(super) async fn index(
        &mut self,
        tag: &str,
        limit: u64,
    ) -> Result<Option<Vec<u8>>, RegistryError> {
        self.document(&format!("manifests/{tag}"), INDEX, limit).await
    }

    /// Returns the image index of the manifests that refer to one; `None` if the registry has no
    /// API for them.
    pub(super) async fn referrers(
        &mut self,
        sha256: &str,
        limit: u64,
    ) -> Result<Option<Vec<u8>>, RegistryError> {
        let path = format!("referrers/sha256:{sha256}");
        match self.document(&path, INDEX, limit).await {
            // Some registries answer so to what they do not know.
            Err(RegistryError::Status { status: 400 | 405 | 501, .. }) => Ok(None),
            answer => answer,
        }
    }

    async fn document(
        &mut self,
        path: &str,
        media_type: &'static str,
        limit: u64,
    ) -> Result<Option<Vec<u8>>, RegistryError> {
        let url = self.url(path)?;
        let response =
            self.send(|client| client.get(url.clone()).header(ACCEPT, media_type)).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let response = accepted(response)?;
        let what = "the manifest";
        body(response, limit).await?.map(Some).ok_or_else(|| self.too_large(path, what, limit))
    }

    /// Returns a blob of at most `limit` bytes; `None` if it is larger. Its digest is not checked.
    pub(super) async fn blob(
        &mut self,
        sha256: &str,
        limit: u64,
    ) -> Result<Option<Vec<u8>>, RegistryError> {
        let url = self.url(&format!("blobs/sha256:{sha256}"))?;
        let response = self.send(|client| client.get(url.clone())).await?;
        if response.status() == StatusCode::NOT_FOUND {
            let what = format!("blob sha256:{sha256} in {}", self.repository);
            return Err(RegistryError::NotFound { registry: self.registry.clone(), what });
        }
        body(accepted(response)?, limit).await
    }

    /// Uploads a blob in one request, unless the repository has it.
    pub(super) async fn push_blob(&mut self, bytes: &[u8]) -> Result<(), RegistryError> {
        let digest = format!("sha256:{}", sha256(bytes));
        let known = self.url(&format!("blobs/{digest}"))?;
        if self.send(|client| client.head(known.clone())).await?.status().is_success() {
            return Ok(());
        }
        let start = self.url("blobs/uploads/")?;
        let response = accepted(self.send(|client| client.post(start.clone())).await?)?;
        let mut upload = self.upload_location(&response)?;
        upload.query_pairs_mut().append_pair("digest", &digest);
        let bytes = shared(bytes);
        let response = self
            .send(|client| {
                client
                    .put(upload.clone())
                    .header(CONTENT_TYPE, "application/octet-stream")
                    .body(bytes.clone())
            })
            .await?;
        accepted(response).map(drop)
    }

    /// Stores a manifest under a tag or its digest.
    pub(super) async fn push_manifest(
        &mut self,
        version: &str,
        media_type: &'static str,
        bytes: &[u8],
    ) -> Result<HeaderMap, RegistryError> {
        let url = self.url(&format!("manifests/{version}"))?;
        let bytes = shared(bytes);
        let response = self
            .send(|client| {
                client.put(url.clone()).header(CONTENT_TYPE, media_type).body(bytes.clone())
            })
            .await?;
        Ok(accepted(response)?.headers().clone())
    }

    /// Returns where an upload continues.
    fn upload_location(&self, response: &Response) -> Result<Url, RegistryError> {
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let location = location.ok_or_else(|| self.protocol("an upload has no location"))?;
        let url = response
            .url()
            .join(location)
            .map_err(|error| self.protocol(&format!("an upload's location is no URL: {error}")))?;
        // The address is the registry's choice, so it is checked like a redirect.
        match may_lead(Some(&self.base), &url, 1) {
            Ok(()) => Ok(url),
            Err(reason) => {
                Err(self.protocol(&format!("the address of an upload is refused: {reason}")))
            }
        }
    }

    /// Sends a request, and once more after a login if the registry requires one.
    async fn send(
        &mut self,
        request: impl Fn(&Client) -> RequestBuilder,
    ) -> Result<Response, RegistryError> {
        let response = self.attempt(&request).await?;
        // A host that the registry redirected to has no say in where a password is sent.
        let is_challenge = response.status() == StatusCode::UNAUTHORIZED
            && is_same_origin(response.url(), &self.base);
        if !is_challenge {
            return self.permitted(response, "");
        }
        let tried = self.log_in(response.headers()).await?;
        let response = self.attempt(&request).await?;
        self.permitted(response, tried)
    }

    fn permitted(&self, response: Response, tried: &str) -> Result<Response, RegistryError> {
        match response.status() {
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(self.unauthorized(status, tried))
            }
            _ => Ok(response),
        }
    }

    async fn attempt(
        &self,
        request: &impl Fn(&Client) -> RequestBuilder,
    ) -> Result<Response, RegistryError> {
        let request = request(&self.client)
            .build()
            .map_err(|error| RegistryError::Setup(error.to_string()))?;
        let url = request.url().clone();
        let mut request = request;
        if let Some(value) = &self.authorization
            && is_same_origin(&url, &self.base)
        {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        self.client.execute(request).await.map_err(|error| unreachable(&url, error))
    }

    /// Answers the registry's challenge. Returns the login that was used, for messages.
    async fn log_in(&mut self, headers: &HeaderMap) -> Result<&'static str, RegistryError> {
        let login = self.login().await?;
        let tried = if login.is_some() {
            "; the stored login was tried"
        } else {
            "; no login is stored for it"
        };
        let value = match Challenge::read(headers) {
            Some(Challenge::Bearer(parameters)) => {
                let token = self.token(&parameters, login.as_ref()).await?;
                format!("Bearer {token}")
            }
            Some(Challenge::Basic) => match &login {
                Some(login) => basic(login),
                None => return Err(self.unauthorized(StatusCode::UNAUTHORIZED, tried)),
            },
            None => {
                return Err(
                    self.protocol("it requires a login, and offers neither `Bearer` nor `Basic`")
                );
            }
        };
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| self.protocol("its token is not the text of a header"))?;
        value.set_sensitive(true);
        self.authorization = Some(value);
        Ok(tried)
    }

    async fn login(&self) -> Result<Option<Login>, RegistryError> {
        let (logins, registry) = (Arc::clone(&self.logins), self.registry.clone());
        let found = tokio::task::spawn_blocking(move || logins.login(&registry)).await;
        found.unwrap_or_else(|panic| Err(panic.to_string())).map_err(|reason| {
            RegistryError::Unauthorized {
                registry: self.registry.clone(),
                repository: self.repository.clone(),
                status: StatusCode::UNAUTHORIZED.as_u16(),
                why: format!("; its login cannot be read: {reason}"),
            }
        })
    }

    /// Requests a token from the server that the registry names.
    async fn token(
        &self,
        parameters: &BTreeMap<String, String>,
        login: Option<&Login>,
    ) -> Result<String, RegistryError> {
        let realm = parameters.get("realm").map(String::as_str).unwrap_or_default();
        let mut url = Url::parse(realm)
            .map_err(|error| self.protocol(&format!("its token server is no URL: {error}")))?;
        may_lead(Some(&self.base), &url, 1).map_err(|reason| {
            self.protocol(&format!("the address of its token server is refused: {reason}"))
        })?;
        for name in ["service", "scope"] {
            if let Some(value) = parameters.get(name) {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        let mut request = self.client.get(url.clone());
        if let Some(login) = login {
            request = request.basic_auth(&login.user, Some(&login.password));
        }
        let response = request.send().await.map_err(|error| unreachable(&url, error))?;
        if matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(
                self.unauthorized(response.status(), "; its token server refused the login")
            );
        }
        let answer = body(accepted(response)?, TOKEN_BYTES)
            .await?
            .ok_or_else(|| self.protocol("its token is too long"))?;
        let answer: TokenAnswer = serde_json::from_slice(&answer)
            .map_err(|_| self.protocol("its token server's answer is not the JSON of a token"))?;
        answer
            .token
            .or(answer.access_token)
            .ok_or_else(|| self.protocol("its token server gave no token"))
    }

    fn url(&self, path: &str) -> Result<Url, RegistryError> {
        self.base.join(path).map_err(|error| self.protocol(&error.to_string()))
    }

    fn too_large(&self, path: &str, what: &'static str, limit: u64) -> RegistryError {
        RegistryError::TooLarge {
            reference: format!("{} {path}", self.reference),
            what,
            limit: conclave_core::types::text::show_size(limit),
        }
    }

    fn protocol(&self, reason: &str) -> RegistryError {
        RegistryError::Protocol { registry: self.registry.clone(), reason: reason.to_owned() }
    }

    fn unauthorized(&self, status: StatusCode, why: &str) -> RegistryError {
        RegistryError::Unauthorized {
            registry: self.registry.clone(),
            repository: self.repository.clone(),
            status: status.as_u16(),
            why: why.to_owned(),
        }
    }
}

/// The way to log in that a registry asks for.
enum Challenge {
    Basic,
    Bearer(BTreeMap<String, String>),
}

impl Challenge {
    /// The better of the offered ways: a token is bound to one repository.
    fn read(headers: &HeaderMap) -> Option<Self> {
        let mut basic = None;
        for value in headers.get_all(WWW_AUTHENTICATE) {
            let Ok(challenges) = http_auth::parse_challenges(value.to_str().ok()?) else {
                continue;
            };
            for challenge in challenges {
                if challenge.scheme.eq_ignore_ascii_case("bearer") {
                    let parameters = challenge.params.iter();
                    let parameters = parameters
                        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_unescaped()));
                    return Some(Self::Bearer(parameters.collect()));
                }
                if challenge.scheme.eq_ignore_ascii_case("basic") {
                    basic = Some(Self::Basic);
                }
            }
        }
        basic
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

fn basic(login: &Login) -> String {
    use base64::Engine;
    let text = format!("{}:{}", login.user, login.password);
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
}

/// Whether a registry may lead to this address: as a download may, and without TLS only on this
/// machine.
fn may_lead(first: Option<&Url>, to: &Url, hops: usize) -> Result<(), &'static str> {
    download::may_follow(first, to, hops)?;
    if to.scheme() == "https" || to.scheme() == "http" && is_loopback(to) {
        Ok(())
    } else {
        Err("it leads to another machine without TLS")
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn is_same_origin(url: &Url, other: &Url) -> bool {
    url.origin() == other.origin()
}

fn accepted(response: Response) -> Result<Response, RegistryError> {
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status().as_u16();
    Err(RegistryError::Status { url: without_query(response.url()), status })
}

/// Returns the body; `None` if it is longer than `limit`. The announced length only fails early.
async fn body(mut response: Response, limit: u64) -> Result<Option<Vec<u8>>, RegistryError> {
    if response.content_length().is_some_and(|length| length > limit) {
        return Ok(None);
    }
    let url = response.url().clone();
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(&url, error))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > limit {
            return Ok(None);
        }
    }
    Ok(Some(bytes))
}

fn unreachable(url: &Url, error: reqwest::Error) -> RegistryError {
    if error.is_redirect() {
        return RegistryError::Protocol {
            registry: url.host_str().unwrap_or_default().to_owned(),
            reason: format!("a redirect is not followed: {}", innermost(error)),
        };
    }
    RegistryError::Unreachable { url: without_query(url), cause: innermost(error) }
}

/// A URL without its query, which may hold a signature that grants access.
fn without_query(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_leads_to_no_inner_address_and_to_none_without_tls() {
        let url = |text: &str| Url::parse(text).unwrap();
        let leads = |from: &str, to: &str| may_lead(Some(&url(from)), &url(to), 1).is_ok();
        assert!(leads("https://registry.example/v2/", "https://cdn.example/blob"));
        assert!(leads("http://127.0.0.1:5000/v2/", "http://127.0.0.1:5001/blob"));
        for refused in [
            "http://cdn.example/blob",
            "https://169.254.169.254/latest",
            "https://10.0.0.7/",
            "https://registry.internal/",
            "file:///etc/passwd",
        ] {
            assert!(!leads("https://registry.example/v2/", refused), "{refused}");
        }
        assert!(
            !leads("http://127.0.0.1:5000/v2/", "http://10.0.0.7/blob"),
            "plain HTTP stays on this machine"
        );
    }
}
