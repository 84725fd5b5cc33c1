//! A log-in that has begun. State, nonce and the secret of PKCE are digests of one secret, which
//! only the browser has, in a cookie: nothing is stored for a stranger who never comes back.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use crate::error::ServerError;
use crate::tokens::random_text;

/// Hexadecimal digits of the secret.
const SECRET: usize = 64;

/// A log-in of a browser, with the page to which it leads.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    secret: String,
    page: String,
    /// The client at its provider, which no other config has: what is meant for one provider is of
    /// no use to another.
    client: String,
}

impl Attempt {
    /// A new log-in.
    ///
    /// # Errors
    /// `Randomness` if the system has none.
    pub(crate) fn new(page: String, client: String) -> Result<Self, ServerError> {
        Ok(Self { secret: random_text()?, page, client })
    }

    /// The log-in of a cookie as one of this client; `None` if the text is none.
    pub(crate) fn of_cookie(value: &str, client: String) -> Option<Self> {
        let (secret, page) = value.split_once('.')?;
        let is_secret = secret.len() == SECRET && secret.bytes().all(|it| it.is_ascii_hexdigit());
        let page = BASE64_URL_SAFE_NO_PAD.decode(page).ok()?;
        let page = String::from_utf8(page).ok().filter(|_| is_secret)?;
        Some(Self { secret: secret.to_owned(), page, client })
    }

    /// The value of the cookie.
    pub(crate) fn cookie(&self) -> String {
        format!("{}.{}", self.secret, BASE64_URL_SAFE_NO_PAD.encode(&self.page))
    }

    /// The page to which the log-in leads, as the browser says.
    pub(crate) fn page(&self) -> &str {
        &self.page
    }

    /// The text that the provider gives back to the browser which began.
    pub(crate) fn state(&self) -> String {
        self.part("state")
    }

    /// The text that the provider puts into the token for this log-in.
    pub(super) fn nonce(&self) -> String {
        self.part("nonce")
    }

    /// The secret of PKCE: only whoever has it can use the code.
    pub(super) fn verifier(&self) -> String {
        self.part("verifier")
    }

    /// The digest of the verifier, which the provider gets first.
    pub(super) fn challenge(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier()))
    }

    fn part(&self, name: &str) -> String {
        BASE64_URL_SAFE_NO_PAD
            .encode(Sha256::digest(format!("{name} {} {}", self.secret, self.client)))
    }
}
