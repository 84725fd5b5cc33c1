//! The key of the requests: read once, cached, and read again after the server refused it.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::{ApiKey, KeySource};

pub(crate) struct KeyHolder {
    source: Option<Arc<dyn KeySource>>,
    /// Locked while the source is read, so that concurrent requests read it once.
    cached: Mutex<Option<ApiKey>>,
}

impl KeyHolder {
    pub(crate) fn new(source: Option<Arc<dyn KeySource>>) -> Self {
        Self { source, cached: Mutex::new(None) }
    }

    /// Returns the key; `None` for a server without keys.
    ///
    /// # Errors
    /// The source's reason why there is no key.
    pub(crate) async fn current(&self) -> Result<Option<ApiKey>, String> {
        let Some(source) = &self.source else { return Ok(None) };
        let mut cached = self.cached.lock().await;
        if cached.is_none() {
            *cached = Some(source.key().await?);
        }
        Ok(cached.clone())
    }

    /// Returns a key other than the refused one, if there is one.
    ///
    /// # Errors
    /// The source's reason why there is no key any more.
    pub(crate) async fn renewed(&self, refused: &ApiKey) -> Result<Option<ApiKey>, String> {
        let Some(source) = &self.source else { return Ok(None) };
        let mut cached = self.cached.lock().await;
        // Another request may have renewed it already.
        if cached.as_ref() == Some(refused) {
            *cached = None;
            *cached = Some(source.key().await?);
        }
        Ok(cached.clone().filter(|key| key != refused))
    }
}
