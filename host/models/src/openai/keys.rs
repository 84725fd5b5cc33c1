//! The key that requests are sent with: asked for once, kept, and asked for again after the server
//! refused it.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::{ApiKey, KeySource};

pub(crate) struct KeyHolder {
    source: Option<Arc<dyn KeySource>>,
    /// Held while the source is asked, so that requests that start together ask it once.
    held: Mutex<Option<ApiKey>>,
}

impl KeyHolder {
    pub(crate) fn new(source: Option<Arc<dyn KeySource>>) -> Self {
        Self { source, held: Mutex::new(None) }
    }

    /// The key; none when the server wants none.
    ///
    /// # Errors
    /// Why there is no key, in the words of its source.
    pub(crate) async fn current(&self) -> Result<Option<ApiKey>, String> {
        let Some(source) = &self.source else { return Ok(None) };
        let mut held = self.held.lock().await;
        if held.is_none() {
            *held = Some(source.key().await?);
        }
        Ok(held.clone())
    }

    /// A key other than the refused one, if there is one by now.
    ///
    /// # Errors
    /// Why there is no key any more, in the words of its source.
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
