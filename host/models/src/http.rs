//! Chat Completions, the Responses API and the Messages API over HTTP. One [`HttpModel`] is one model
//! on one server; it keeps connections and the key. Costs and permissions are decided elsewhere.

mod answer;
mod arrange;
mod chat_completions;
mod content;
mod exchange;
mod failure;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod keys;
mod messages_api;
mod names;
mod options;
mod quote;
mod repair;
mod reply;
mod request;
mod responses_api;
mod retry;
mod secrets;
mod server_error;
mod settings;
mod thinking;
mod transport;

use std::fmt;
use std::sync::Arc;

use conclave_core::config::is_reserved_option;
use conclave_core::types::completion::{Completion, ModelDiagnostic, Prompt};

use self::failure::RetryAdvice;
use self::keys::KeyHolder;
use self::quote::Quoter;
use self::thinking::ThinkingFormat;
use self::transport::ServerAddress;
use crate::{ApiKey, BoxFuture, ModelClient, ModelFailure, TextSink};

pub use self::settings::{HttpModelError, HttpModelSettings};
pub use self::transport::{platform_tls, shared_tls};

/// A model behind a server. Cloning is cheap; clones share connections and the key.
#[derive(Clone)]
pub struct HttpModel {
    shared: Arc<ClientState>,
}

impl fmt::Debug for HttpModel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("HttpModel")
            .field("server", &self.shared.server.display)
            .field("model", &self.shared.settings.model)
            .finish()
    }
}

struct ClientState {
    settings: HttpModelSettings,
    server: ServerAddress,
    keys: KeyHolder,
    /// Masks the values of the operator's headers and of the URL's query.
    quoter: Quoter,
    /// What separates the model's thinking from its text.
    thinking: ThinkingFormat,
}

impl HttpModel {
    /// Checks the settings, without sending anything or reading a key.
    ///
    /// # Errors
    /// If a URL, a header or an option is invalid.
    pub fn new(settings: HttpModelSettings) -> Result<Self, HttpModelError> {
        if settings.model.is_empty() {
            return Err(HttpModelError::NoModel);
        }
        if let Some(name) =
            settings.options.keys().find(|name| is_reserved_option(settings.api, name))
        {
            return Err(HttpModelError::Option { name: name.clone() });
        }
        let server = ServerAddress::new(&settings)?;
        let keys = KeyHolder::new(settings.key.clone());
        let quoter = Quoter::new(settings.secrets().chain(server.secrets()).map(ApiKey::new));
        let thinking = ThinkingFormat::new(settings.thinking.clone());
        Ok(Self { shared: Arc::new(ClientState { settings, server, keys, quoter, thinking }) })
    }

    /// Returns the names of the server's models, in its order, to test connection and key. One
    /// attempt, with a timeout of five seconds.
    ///
    /// # Errors
    /// The reason why it failed.
    pub async fn probe(&self) -> Result<Vec<String>, ProbeFailure> {
        self.shared.probe().await.map_err(|failed| ProbeFailure {
            is_loading: failed.advice == RetryAdvice::WhenLoaded,
            trouble: failed.trouble,
        })
    }
}

/// The reason why a server did not list its models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeFailure {
    /// The failure, with the server's words.
    pub trouble: ModelDiagnostic,
    /// Whether the server says that it is loading its model.
    pub is_loading: bool,
}

impl ModelClient for HttpModel {
    fn complete(
        &self,
        prompt: Prompt,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<Completion, ModelFailure>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { shared.complete(Arc::new(prompt), sink).await })
    }
}
