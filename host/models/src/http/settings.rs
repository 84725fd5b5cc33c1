//! The operator's settings of a model behind a server, and their errors.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conclave_core::config::{ModelServerConfig, ThinkingMarks};
use conclave_core::types::completion::ModelApi;
use serde_json::{Map, Value};

use crate::{BlobSource, KeySource, NoBlobs};

/// The settings of a model. The default has no URL and no model; both must be set.
#[derive(Clone)]
pub struct HttpModelSettings {
    /// The API that the server has.
    pub api: ModelApi,
    /// The base URL of the API, such as `http://127.0.0.1:11434/v1`, with or without a final slash.
    /// A query is kept.
    pub url: String,
    /// The server's name of the model.
    pub model: String,
    /// The key; `None` for a server without keys.
    pub key: Option<Arc<dyn KeySource>>,
    /// Additional headers of every request. Values with a secret-like name are treated as secrets.
    pub headers: BTreeMap<String, String>,
    /// Options of every request, unchanged; a plugin's own options override them.
    pub options: Map<String, Value>,
    /// The proxy of all requests; the environment's proxies are ignored.
    pub proxy: Option<String>,
    /// Maximum retries after a transient failure.
    pub retries: u32,
    /// Delay before the first retry, which doubles up to 20 s. A delay that the server asks for
    /// takes precedence.
    pub backoff: Duration,
    /// Timeout of all attempts and delays together.
    pub timeout: Duration,
    /// Timeout of one attempt.
    pub attempt_timeout: Duration,
    /// Timeout for silence within a stream; keep-alive bytes count as activity.
    pub idle_timeout: Duration,
    /// Maximum bytes of an answer: the whole body, or the text, reasoning and arguments of a
    /// stream.
    pub reply_max: u64,
    /// The marks around thinking in the text; `None` if the text has none.
    pub thinking: Option<ThinkingMarks>,
    /// The source of attachments.
    pub images: Arc<dyn BlobSource>,
}

impl Default for HttpModelSettings {
    fn default() -> Self {
        // Uses the defaults of a config.
        let config = ModelServerConfig::new(ModelApi::default(), String::new(), String::new());
        Self {
            api: config.api,
            url: config.url,
            model: config.model,
            key: None,
            headers: config.headers,
            options: config.options,
            proxy: config.proxy,
            retries: config.retries,
            backoff: Duration::from_millis(500),
            timeout: Duration::from_millis(config.timeout_ms),
            attempt_timeout: Duration::from_millis(config.attempt_timeout_ms),
            idle_timeout: Duration::from_millis(config.idle_timeout_ms),
            reply_max: config.reply_max,
            thinking: config.thinking,
            images: Arc::new(NoBlobs),
        }
    }
}

impl HttpModelSettings {
    /// The values of headers with a secret-like name; of `Bearer x` also the `x`. Other values may
    /// occur in a model's text.
    pub(super) fn secrets(&self) -> impl Iterator<Item = String> {
        let bare = |(name, value): (&String, &String)| {
            let (_, bare) = value
                .trim()
                .rsplit_once(' ')
                .filter(|_| name.to_ascii_lowercase().ends_with("authorization"))?;
            Some(bare.to_owned())
        };
        let speaks_of_a_secret = |(name, _): &(&String, &String)| {
            let name = name.to_ascii_lowercase();
            ["auth", "key", "token", "secret", "cookie", "pass"]
                .iter()
                .any(|word| name.contains(word))
        };
        let values = self.headers.iter().filter(speaks_of_a_secret).map(|(_, value)| value.clone());
        values.chain(self.headers.iter().filter_map(bare))
    }
}

/// Omits URLs and headers, which may contain secrets.
impl fmt::Debug for HttpModelSettings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("HttpModelSettings")
            .field("model", &self.model)
            .field("has_key", &self.key.is_some())
            .field("headers", &self.headers.keys())
            .field("has_proxy", &self.proxy.is_some())
            .field("retries", &self.retries)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Invalid settings. The message names the setting, never its secret.
#[derive(Debug, thiserror::Error)]
pub enum HttpModelError {
    /// The URL is malformed, not http or https, or holds a name, a password or the path of a
    /// request.
    #[error("the url of the model's server is not usable: {reason}")]
    Url {
        /// The reason, for display.
        reason: String,
    },
    /// The name of the model on its server is empty.
    #[error("the model has no name")]
    NoModel,
    /// A header is malformed, or one that the client sets itself.
    #[error("the header {name:?} cannot be sent: {reason}")]
    Header {
        /// The name as configured.
        name: String,
        /// The reason, for display.
        reason: &'static str,
    },
    /// An option would override a field of the request that the host sets.
    #[error("the option {name:?} is the host's to set")]
    Option {
        /// The key of the option.
        name: String,
    },
    /// The URL of the proxy is malformed.
    #[error("the proxy is not usable: {reason}")]
    Proxy {
        /// The reason, for display.
        reason: String,
    },
    /// The system's root certificates cannot be loaded.
    #[error(
        "no connection can be secured: {reason}. Install the system's certificates (often the package ca-certificates)."
    )]
    Certificates {
        /// The reason, for display.
        reason: String,
    },
    /// The HTTP client cannot be built from these settings.
    #[error("the client for the model's server cannot be made: {reason}")]
    Client {
        /// The reason, for display.
        reason: String,
    },
}
