//! Keys of model servers. A key only appears in request headers: it cannot be printed or
//! serialised, and its memory is cleared on drop.

use std::fmt;

use zeroize::Zeroizing;

use crate::BoxFuture;

/// A secret that authenticates a client at a server.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Zeroizing<String>);

impl ApiKey {
    /// The key without surrounding white space, since a key file ends with a newline.
    #[must_use]
    pub fn new(secret: String) -> Self {
        let secret = Zeroizing::new(secret);
        Self(Zeroizing::new(secret.trim().to_owned()))
    }

    /// The key itself, for a request header.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Key(…)")
    }
}

/// A source of keys. Called at the first request, and again after the server refused the key,
/// because it may have been rotated.
pub trait KeySource: Send + Sync + 'static {
    /// Returns the current key.
    ///
    /// # Errors
    /// In words for the operator: where the source looked, and why there is no key.
    fn key(&self) -> BoxFuture<'static, Result<ApiKey, String>>;
}

/// A key that never changes.
impl KeySource for ApiKey {
    fn key(&self) -> BoxFuture<'static, Result<ApiKey, String>> {
        Box::pin(std::future::ready(Ok(self.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::ApiKey;

    #[test]
    fn a_key_does_not_show_itself() {
        let key = ApiKey::new(" sk-secret\n".to_owned());
        assert_eq!(key.reveal(), "sk-secret");
        assert_eq!(format!("{key:?} {:?}", Some(&key)), "Key(…) Some(Key(…))");
    }
}
