//! The key of the requests: read once, cached, and read again after the server refused it.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::{ApiKey, KeySource};

pub(crate) struct KeyHolder {
    source: Option<Arc<dyn KeySource>>,
    /// Locked while the source is read, so that concurrent requests read it once.
    held: Mutex<Option<ApiKey>>,
}

impl KeyHolder {
    pub(crate) fn new(source: Option<Arc<dyn KeySource>>) -> Self {
        Self { source, held: Mutex::new(None) }
    }

    /// Returns the key; `None` for a server without keys.
    ///
    /// # Errors
    /// The source's reason why there is no key.
    pub(crate) async fn current(&self) -> Result<Option<ApiKey>, String> {
        let Some(source) = &self.source else { return Ok(None) };
        let mut held = self.held.lock().await;
        if held.is_none() {
            *held = Some(source.key().await?);
        }
        Ok(held.clone())
    }

    /// Returns a key other than the refused one, if there is one.
    ///
    /// # Errors
    /// The source's reason why there is no key any more.
    pub(crate) async fn renewed(&self, refused: &ApiKey) -> Result<Option<ApiKey>, String> {
        let Some(source) = &self.source else { return Ok(None) };
        let mut held = self.held.lock().await;
        // Another request may have renewed it already.
        if held.as_ref() == Some(refused) {
            *held = None;
            *held = Some(source.key().await?);
        }
        Ok(held.clone().filter(|key| key != refused))
    }
}
