//! The connection to a model's server: one HTTP client per server, with connection reuse. No proxy
//! except the configured one, no redirects, and the platform's certificates.

use std::error::Error;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use conclave_core::types::completion::ModelApi;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Method, Proxy, Request, Url};
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;

use super::{HttpModelError, HttpModelSettings, messages_api};
use crate::ApiKey;

/// Timeout for connecting, which distinguishes a dead host from a slow model. Attempts have a
/// timeout of their own.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Models in one list of the Messages API, its maximum.
const MODELS_LISTED: &str = "1000";

/// Headers that the client sets itself for every request.
const RESERVED: [HeaderName; 5] = [
    CONTENT_TYPE,
    reqwest::header::HOST,
    reqwest::header::CONTENT_LENGTH,
    reqwest::header::TRANSFER_ENCODING,
    reqwest::header::CONNECTION,
];

/// A server and its HTTP client.
#[derive(Clone)]
pub(crate) struct ServerAddress {
    api: ModelApi,
    client: Client,
    headers: HeaderMap,
    base: Url,
    /// The address without possible secrets.
    pub display: String,
}

impl ServerAddress {
    pub(crate) fn new(settings: &HttpModelSettings) -> Result<Self, HttpModelError> {
        let base = base_url(&settings.url, settings.api)?;
        let builder = Client::builder()
            .user_agent(concat!("conclave/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(Policy::none())
            // Retries are counted in this crate only.
            .retry(reqwest::retry::never())
            // Disables the proxies of the environment too.
            .no_proxy()
            // Another crate of the program may enable decompression; model servers are not asked
            // for it.
            .no_gzip()
            .no_brotli()
            .no_deflate();
        let (builder, is_proxy_secure) = with_proxy(builder, settings.proxy.as_deref())?;
        let builder =
            builder.tls_backend_preconfigured(tls(base.scheme() == "https" || is_proxy_secure)?);
        let client = builder
            .build()
            .map_err(|error| HttpModelError::Client { reason: chain(&error.without_url()) })?;
        let display = display(&base);
        Ok(Self { api: settings.api, client, headers: headers(settings)?, base, display })
    }

    /// Returns possible secrets of the address: its query, and values with a secret-like name.
    /// Servers may echo them.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = String> {
        let values = self
            .base
            .query_pairs()
            .filter(|(name, _)| is_secret_called(name))
            .map(|(_, value)| value.into_owned());
        self.base.query().map(str::to_owned).into_iter().chain(values)
    }

    /// A request to a path below the base; a body makes it a POST of JSON.
    pub(crate) fn request(&self, path: &[&str], body: Option<Vec<u8>>) -> Request {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        let mut request =
            Request::new(if body.is_some() { Method::POST } else { Method::GET }, url);
        *request.headers_mut() = self.headers.clone();
        if let Some(body) = body {
            request
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Some(body.into());
        }
        request
    }

    /// A request for the list of models.
    pub(crate) fn models_request(&self) -> Request {
        let mut request = self.request(&["models"], None);
        if self.api == ModelApi::Messages {
            // Without it the list has twenty.
            request.url_mut().query_pairs_mut().append_pair("limit", MODELS_LISTED);
        }
        request
    }

    /// Adds the key to a request, marked as sensitive. `None` if it is not a valid header value.
    pub(crate) fn set_key(&self, request: &mut Request, key: &ApiKey) -> Option<()> {
        let value = match self.api {
            ModelApi::ChatCompletions | ModelApi::Responses => {
                HeaderValue::from_str(&format!("Bearer {}", key.reveal()))
            }
            ModelApi::Messages => HeaderValue::from_str(key.reveal()),
        };
        let mut value = value.ok()?;
        value.set_sensitive(true);
        request.headers_mut().insert(key_header(self.api), value);
        Some(())
    }

    pub(crate) async fn send(&self, request: Request) -> Result<reqwest::Response, reqwest::Error> {
        self.client.execute(request).await
    }
}

fn key_header(api: ModelApi) -> HeaderName {
    match api {
        ModelApi::ChatCompletions | ModelApi::Responses => AUTHORIZATION,
        ModelApi::Messages => messages_api::KEY,
    }
}

fn base_url(text: &str, api: ModelApi) -> Result<Url, HttpModelError> {
    let wrong = |reason: &str| HttpModelError::Url { reason: reason.to_owned() };
    let url = Url::parse(text.trim())
        .map_err(|error| HttpModelError::Url { reason: error.to_string() })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("it must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("it must not hold a name or a password: set a key or a header"));
    }
    for ended in ModelApi::ALL {
        let path = format!("/{}", ended.path().join("/"));
        if url.path().trim_end_matches('/').ends_with(&path) {
            let kind = match ended == api {
                true => String::new(),
                false => format!(", and {ended} has the kind {:?}", ended.kind()),
            };
            return Err(wrong(&format!("it must end before {path}{kind}")));
        }
    }
    Ok(url)
}

/// Whether a parameter's name suggests a secret. Other values, such as a version, may occur in a
/// model's text.
fn is_secret_called(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "token", "secret", "sig", "auth", "pass", "code", "cred"]
        .iter()
        .any(|word| name.contains(word))
}

/// The URL without query and fragment, since a query may contain a key.
fn display(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.as_str().trim_end_matches('/').to_owned()
}

fn with_proxy(
    builder: ClientBuilder,
    proxy: Option<&str>,
) -> Result<(ClientBuilder, bool), HttpModelError> {
    let Some(proxy) = proxy else { return Ok((builder, false)) };
    let is_secure = proxy.trim_start().starts_with("https:");
    let proxy = Proxy::all(proxy)
        .map_err(|error| HttpModelError::Proxy { reason: chain(&error.without_url()) })?;
    Ok((builder.proxy(proxy), is_secure))
}

/// Returns this crate's TLS configuration, for other HTTP clients: certificates of the platform,
/// cryptography from ring.
///
/// # Errors
/// If the platform has no certificates.
pub fn platform_tls() -> Result<ClientConfig, HttpModelError> {
    tls(true)
}

/// Returns the same, cached for clients that are created often. Without `is_secure` it needs no
/// certificates, and cannot connect securely.
///
/// # Errors
/// If the platform has no certificates.
pub fn shared_tls(is_secure: bool) -> Result<ClientConfig, HttpModelError> {
    static PLAIN: OnceLock<ClientConfig> = OnceLock::new();
    static SECURE: OnceLock<ClientConfig> = OnceLock::new();
    let shared = if is_secure { &SECURE } else { &PLAIN };
    match shared.get() {
        Some(config) => Ok(config.clone()),
        None => tls(is_secure).map(|config| shared.get_or_init(|| config).clone()),
    }
}

/// Reads the platform's certificates only if needed, so that a machine without any can reach a
/// local server.
fn tls(is_needed: bool) -> Result<ClientConfig, HttpModelError> {
    let wrong = |error: rustls::Error| HttpModelError::Certificates { reason: error.to_string() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(wrong)?;
    if is_needed {
        Ok(builder.with_platform_verifier().map_err(wrong)?.with_no_client_auth())
    } else {
        Ok(builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
    }
}

fn headers(settings: &HttpModelSettings) -> Result<HeaderMap, HttpModelError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.headers {
        let wrong = |reason| HttpModelError::Header { name: name.clone(), reason };
        let header: HeaderName = name.parse().map_err(|_| wrong("this is no name of a header"))?;
        if RESERVED.contains(&header) {
            return Err(wrong("the host sets it"));
        }
        if header == key_header(settings.api) && settings.key.is_some() {
            return Err(wrong("the key is sent in it"));
        }
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| wrong("its value has characters that no header can hold"))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    if settings.api == ModelApi::Messages {
        let version = HeaderValue::from_static(messages_api::VERSION_SENT);
        headers.entry(messages_api::VERSION).or_insert(version);
    }
    Ok(headers)
}

/// Why a request failed before there was a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoConnection {
    Refused,
    UnknownHost,
    /// The connection cannot be made secure; a retry does not help.
    NotSecure,
    TimedOut,
    /// The connection was closed without a response.
    Closed,
    Other,
}

impl NoConnection {
    pub(crate) fn of(error: &reqwest::Error) -> Self {
        let is_refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if causes(error).any(|cause| cause.is::<rustls::Error>()) {
            Self::NotSecure
        } else if error.is_dns() {
            Self::UnknownHost
        } else if causes(error)
            .filter_map(|cause| cause.downcast_ref::<io::Error>())
            .any(is_refused)
        {
            Self::Refused
        } else if error.is_timeout() {
            Self::TimedOut
        } else if !error.is_connect() {
            Self::Closed
        } else {
            Self::Other
        }
    }
}

/// The text of the innermost cause.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

/// The chain of causes as text, outermost first, without repetitions.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut words: Vec<String> = Vec::new();
    for cause in causes(error).map(ToString::to_string) {
        if !words.iter().any(|known| known.contains(&cause)) {
            words.push(cause);
        }
    }
    words.join(": ")
}

/// The error and its causes. An I/O error hides its wrapped error from `source`.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |outer: &&'a (dyn Error + 'static)| {
        let outer: &'a (dyn Error + 'static) = *outer;
        match outer.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => outer.source(),
        }
    })
}

#[cfg(test)]
mod tests {
    use conclave_core::types::completion::ModelApi;

    use super::{base_url, display};

    #[test]
    fn an_address_is_shown_without_what_may_be_secret() {
        assert_eq!(
            display(&base_url("https://api.example/v1/?key=sk-1#x", ModelApi::Messages).unwrap()),
            "https://api.example/v1"
        );
        let local = base_url("http://127.0.0.1:80/", ModelApi::Messages).unwrap();
        assert_eq!(display(&local), "http://127.0.0.1");
    }

    #[test]
    fn addresses_that_cannot_be_meant_are_refused_without_being_repeated() {
        for url in [
            "",
            "api.example/v1",
            "file:///etc",
            "https://user:secret@host/v1",
            "http://host/v1/chat/completions/",
            "http://host/v1/messages",
        ] {
            for api in ModelApi::ALL {
                let error = base_url(url, api).unwrap_err().to_string();
                assert!(!error.contains("secret"), "{error}");
            }
        }
    }

    #[test]
    fn the_path_of_the_other_api_is_refused_with_its_kind() {
        let refused = |api| base_url("http://host/v1/messages", api).unwrap_err().to_string();
        assert!(!refused(ModelApi::Messages).contains("anthropic"));
        assert!(refused(ModelApi::ChatCompletions).ends_with(
            "it must end before /messages, and the Messages API has the kind \"anthropic\""
        ));
    }
}
