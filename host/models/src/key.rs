//! Keys of model servers. A key is written into the header of a request and nowhere else: it cannot
//! be printed or serialised, and its memory is cleared when it is dropped.

use std::fmt;

use zeroize::Zeroizing;

use crate::BoxFuture;

/// A secret that a server knows its customer by.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Zeroizing<String>);

impl ApiKey {
    /// Takes a key; white space around it is left out, for a file ends with a line break.
    #[must_use]
    pub fn new(secret: String) -> Self {
        let secret = Zeroizing::new(secret);
        Self(Zeroizing::new(secret.trim().to_owned()))
    }

    /// The key itself, for the header of a request.
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

/// Where a key comes from. Asked at the first request, and once more after the server refused the
/// key, for it may have been replaced.
pub trait KeySource: Send + Sync + 'static {
    /// The key as it is now.
    ///
    /// # Errors
    /// In words for the operator: where it was looked for, and why it is not there.
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
