//! The secret that the operator shares with a service, and what is verified with it. A plugin that
//! speaks the protocol of the service names the proof, and never reads the secret.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::calls::{Proof, SignaturePort};

/// The proofs of one request that are looked at: a service that changes its secret sends two, and a
/// plugin must not try out many.
const PROOFS: u32 = 8;

/// The secret of a service.
pub(crate) struct SharedSecret(Vec<u8>);

impl fmt::Debug for SharedSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SharedSecret")
    }
}

impl SharedSecret {
    /// # Errors
    /// If it is too short to be one.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        // Shorter ones could be found by trying.
        match text.len() >= 16 {
            true => Ok(Self(text.as_bytes().to_vec())),
            false => Err("the secret of a channel has 16 bytes or more"),
        }
    }

    fn mac(key: &[u8], data: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::new_from_slice(key).expect("a MAC takes a key of any length");
        mac.update(data);
        mac
    }
}

/// The verification of one request.
#[derive(Debug)]
pub(crate) struct RequestVerification {
    secret: Arc<SharedSecret>,
    body: Vec<u8>,
    proofs: AtomicU32,
    is_verified: AtomicBool,
}

impl RequestVerification {
    pub(crate) fn new(secret: Arc<SharedSecret>, body: Vec<u8>) -> Self {
        let (proofs, is_verified) = (AtomicU32::new(0), AtomicBool::new(false));
        Self { secret, body, proofs, is_verified }
    }

    /// Whether a proof was valid.
    pub(crate) fn is_verified(&self) -> bool {
        self.is_verified.load(Ordering::Acquire)
    }
}

impl SignaturePort for RequestVerification {
    fn verify(&self, proof: &Proof) -> bool {
        let SharedSecret(key) = &*self.secret;
        if self.proofs.fetch_add(1, Ordering::Relaxed) >= PROOFS {
            return false;
        }
        let is_valid = match proof {
            Proof::HmacSha256 { data, signature } => {
                data.ends_with(&self.body)
                    && SharedSecret::mac(key, data).verify_slice(signature).is_ok()
            }
            // Compared as MACs, which takes the same time for each token of its length.
            Proof::Token(token) => {
                let own = SharedSecret::mac(key, b"token").finalize().into_bytes();
                SharedSecret::mac(token.as_bytes(), b"token").verify_slice(&own).is_ok()
            }
        };
        if is_valid {
            self.is_verified.store(true, Ordering::Release);
        }
        is_valid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";

    fn verification(body: &str) -> RequestVerification {
        let secret = SharedSecret::parse(SECRET).expect("it is long enough");
        RequestVerification::new(Arc::new(secret), body.as_bytes().to_vec())
    }

    fn signed(key: &str, data: &str) -> Proof {
        let mac = SharedSecret::mac(key.as_bytes(), data.as_bytes());
        let signature = mac.finalize().into_bytes().to_vec();
        Proof::HmacSha256 { data: data.as_bytes().to_vec(), signature }
    }

    #[test]
    fn a_proof_is_of_the_secret_and_ends_with_the_body() {
        let request = verification("hello");
        let forged = [
            signed("another secret, as long", "v0:17:hello"),
            signed(SECRET, "v0:17:hello again"),
            Proof::Token("8f742231b10e8888abcd99yyyzzz85a6".to_owned()),
            Proof::Token(String::new()),
        ];
        assert!(forged.iter().all(|proof| !request.verify(proof)) && !request.is_verified());
        assert!(request.verify(&signed(SECRET, "v0:17:hello")) && request.is_verified());
        assert!(verification("hello").verify(&Proof::Token(SECRET.to_owned())));
    }

    #[test]
    fn nothing_is_verified_after_many_proofs() {
        let request = verification("hello");
        for _ in 0..PROOFS {
            assert!(!request.verify(&Proof::Token("a guess".to_owned())));
        }
        assert!(!request.verify(&signed(SECRET, "hello")) && !request.is_verified());
        assert!(SharedSecret::parse("short").is_err());
    }
}
