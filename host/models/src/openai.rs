//! Chat Completions over HTTP, for any server that speaks it. One [`OpenAi`] is one model on one
//! server; it keeps connections and the key. It does not know what a call may cost or who may make
//! it.

mod answer;
mod content;
mod exchange;
mod failure;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod keys;
mod messages;
mod names;
mod options;
mod quote;
mod reply;
mod request;
mod retry;
mod secrets;
mod server_error;
mod settings;
mod transport;
mod wire;

use std::fmt;
use std::sync::Arc;

use conclave_core::types::completion::{Completion, ModelDiagnostic, Prompt};

use self::keys::KeyHolder;
use self::quote::Quoter;
use self::transport::ServerAddress;
use crate::{ApiKey, BoxFuture, ModelClient, ModelFailure, TextSink};

pub use self::settings::{OpenAiError, OpenAiSettings};
pub use self::transport::{platform_tls, shared_tls};

/// A model behind Chat Completions. Cloning is cheap, and clones share connections and the key.
#[derive(Clone)]
pub struct OpenAi {
    shared: Arc<ClientState>,
}

impl fmt::Debug for OpenAi {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OpenAi")
            .field("server", &self.shared.server.shown)
            .field("model", &self.shared.settings.model)
            .finish()
    }
}

struct ClientState {
    settings: OpenAiSettings,
    server: ServerAddress,
    keys: KeyHolder,
    /// Knows the values of the operator's headers, and what the address holds after its `?`.
    quoter: Quoter,
}

impl OpenAi {
    /// Checks the settings; nothing is sent, and no key is asked for.
    ///
    /// # Errors
    /// When an address, a header or an option cannot be used.
    pub fn new(settings: OpenAiSettings) -> Result<Self, OpenAiError> {
        if settings.model.is_empty() {
            return Err(OpenAiError::NoModel);
        }
        if let Some(name) =
            settings.options.keys().find(|name| options::RESERVED.contains(&name.as_str()))
        {
            return Err(OpenAiError::Option { name: name.clone() });
        }
        let server = ServerAddress::new(&settings)?;
        let keys = KeyHolder::new(settings.key.clone());
        let quoter = Quoter::new(settings.secrets().chain(server.secrets()).map(ApiKey::new));
        Ok(Self { shared: Arc::new(ClientState { settings, server, keys, quoter }) })
    }

    /// Names of the server's models, in its order: whether it can be reached, and takes the key.
    /// Tried once, for five seconds.
    ///
    /// # Errors
    /// What stands in the way.
    pub async fn probe(&self) -> Result<Vec<String>, ModelDiagnostic> {
        self.shared.probe().await.map_err(|failed| failed.trouble)
    }
}

impl ModelClient for OpenAi {
    fn complete(
        &self,
        prompt: Prompt,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<Completion, ModelFailure>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { shared.complete(Arc::new(prompt), sink).await })
    }
}
