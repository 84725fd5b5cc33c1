//! What an operator says about a model behind Chat Completions, and what in it can be wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conclave_core::config::OpenAiConfig;
use serde_json::{Map, Value};

use crate::{BlobSource, KeySource, NoBlobs};

/// How a model is reached. The default has no address and no model: both must be set.
#[derive(Clone)]
pub struct OpenAiSettings {
    /// Where the API starts, such as `http://127.0.0.1:11434/v1`; a slash at its end makes no
    /// difference. A query is kept.
    pub url: String,
    /// The model, in the server's words.
    pub model: String,
    /// Sent as a bearer token; none for a server that wants no key.
    pub key: Option<Arc<dyn KeySource>>,
    /// Sent with every request, in addition. Values whose names speak of a secret are treated as
    /// one.
    pub headers: BTreeMap<String, String>,
    /// Put into every request as they are; a plugin's own options go over them.
    pub options: Map<String, Value>,
    /// A proxy for all requests; the environment's proxies are not looked at.
    pub proxy: Option<String>,
    /// How often a request is sent again after a failure that may pass.
    pub retries: u32,
    /// The wait before the first retry; it doubles from there, up to 20 s. A server that names a
    /// time is given that time.
    pub backoff: Duration,
    /// For everything: attempts and waits together.
    pub timeout: Duration,
    /// For one attempt.
    pub attempt_timeout: Duration,
    /// For silence within a streamed answer; a server that says that it is alive is not silent.
    pub idle_timeout: Duration,
    /// Bytes of an answer: a body that comes whole, or the text, the reasoning and the arguments of
    /// a streamed one.
    pub reply_max: u64,
    /// Where attachments are found.
    pub images: Arc<dyn BlobSource>,
}

impl Default for OpenAiSettings {
    fn default() -> Self {
        // What holds when a config gives nothing holds here too.
        let config = OpenAiConfig::new(String::new(), String::new());
        Self {
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
            images: Arc::new(NoBlobs),
        }
    }
}

impl OpenAiSettings {
    /// Values of the headers whose names speak of a secret; of `Bearer x` also the `x`. Other
    /// values are ordinary words, and a model may say them.
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
        let whole = self.headers.iter().filter(speaks_of_a_secret).map(|(_, value)| value.clone());
        whole.chain(self.headers.iter().filter_map(bare))
    }
}

/// Addresses and headers may hold secrets, so neither is shown.
impl fmt::Debug for OpenAiSettings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OpenAiSettings")
            .field("model", &self.model)
            .field("has_key", &self.key.is_some())
            .field("headers", &self.headers.keys())
            .field("has_proxy", &self.proxy.is_some())
            .field("retries", &self.retries)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Settings that cannot be used. Says which one, never its secret.
#[derive(Debug, thiserror::Error)]
pub enum OpenAiError {
    #[error("the url of the model's server is not usable: {reason}")]
    Url { reason: String },
    #[error("the model has no name")]
    NoModel,
    #[error("the header {name:?} cannot be sent: {reason}")]
    Header { name: String, reason: &'static str },
    #[error("the option {name:?} is the host's to set")]
    Option { name: String },
    #[error("the proxy is not usable: {reason}")]
    Proxy { reason: String },
    #[error(
        "no connection can be secured: {reason}. Install the system's certificates (often the package ca-certificates)."
    )]
    Certificates { reason: String },
    #[error("the client for the model's server cannot be made: {reason}")]
    Client { reason: String },
}
