//! Signatures of webhooks, in both directions: HMAC-SHA256 over id, time and body, in the form of
//! Standard Webhooks, so that existing libraries make and verify them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The header with the id of a message, which all attempts at it have.
pub const ID: &str = "webhook-id";
/// The header with the time of an attempt, in seconds since the Unix epoch.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// The header with the signatures of an attempt.
pub const SIGNATURE: &str = "webhook-signature";
/// The seconds by which the clocks of sender and receiver may differ.
pub const TOLERANCE: u64 = 300;

/// The bytes of an id.
const ID_MAX: usize = 128;
/// The signatures that are looked at: a sender that changes its secret sends two.
const SIGNATURES: usize = 8;
/// The lengths of a secret that Standard Webhooks allows.
const SECRET: std::ops::RangeInclusive<usize> = 24..=64;

/// The secret that sender and receiver share.
pub struct WebhookSecret(Hmac<Sha256>);

/// Why a message is not one of a sender with the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureFault {
    /// A header is absent or cannot be parsed.
    #[error("it needs the headers webhook-id, webhook-timestamp and webhook-signature")]
    Headers,
    /// The message is older or younger than the tolerance.
    #[error("its webhook-timestamp differs from this server's time by more than {TOLERANCE} s")]
    Time,
    /// No signature is one of this id, time and body with the secret.
    #[error("its signature is not valid")]
    Signature,
}

impl WebhookSecret {
    /// Parses `whsec_` and 24 to 64 bytes in base64; the prefix may be absent. Of a secret in another
    /// form nothing is repeated.
    ///
    /// # Errors
    /// The form that a secret has.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.strip_prefix("whsec_").unwrap_or(text);
        let bytes = STANDARD.decode(text).ok().filter(|bytes| SECRET.contains(&bytes.len()));
        let bytes = bytes.ok_or("a webhook's secret is `whsec_` and 24 to 64 bytes in base64")?;
        Ok(Self(Hmac::new_from_slice(&bytes).expect("a MAC takes a key of any length")))
    }

    fn mac(&self, id: &str, time: &str, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in [id.as_bytes(), b".", time.as_bytes(), b".", body] {
            mac.update(part);
        }
        mac
    }

    /// The value of [`SIGNATURE`] for an attempt.
    #[must_use]
    pub fn sign(&self, id: &str, time: u64, body: &[u8]) -> String {
        let tag = self.mac(id, &time.to_string(), body).finalize().into_bytes();
        format!("v1,{}", STANDARD.encode(tag))
    }

    /// Verifies an attempt at `now`, in seconds since the Unix epoch. Signatures are compared in
    /// constant time.
    ///
    /// # Errors
    /// `Headers`, `Time` or `Signature`.
    pub fn verify(
        &self,
        headers: &SignedHeaders<'_>,
        body: &[u8],
        now: u64,
    ) -> Result<(), SignatureFault> {
        let SignedHeaders { id, time, signatures } = *headers;
        // Without a `.`, so that no other id, time and body have the same bytes.
        let is_id = |c: u8| c.is_ascii_graphic() && c != b'.';
        if id.is_empty() || id.len() > ID_MAX || !id.bytes().all(is_id) {
            return Err(SignatureFault::Headers);
        }
        let is_time = !time.is_empty() && time.bytes().all(|c| c.is_ascii_digit());
        let at: u64 = time.parse().ok().filter(|_| is_time).ok_or(SignatureFault::Headers)?;
        let tags = signatures.split(' ').take(SIGNATURES).filter_map(|one| one.strip_prefix("v1,"));
        // The body is digested once, however many signatures a stranger sends.
        let mac = self.mac(id, time, body);
        let is_signed = tags
            .filter_map(|tag| STANDARD.decode(tag).ok())
            .any(|tag| mac.clone().verify_slice(&tag).is_ok());
        if !is_signed {
            return Err(SignatureFault::Signature);
        }
        if at.abs_diff(now) > TOLERANCE { Err(SignatureFault::Time) } else { Ok(()) }
    }
}

/// The headers of an attempt, as they came.
#[derive(Clone, Copy, Debug)]
pub struct SignedHeaders<'a> {
    /// The value of [`ID`].
    pub id: &'a str,
    /// The value of [`TIMESTAMP`].
    pub time: &'a str,
    /// The value of [`SIGNATURE`].
    pub signatures: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> WebhookSecret {
        WebhookSecret::parse(text).unwrap_or_else(|what| panic!("{what}"))
    }

    /// The example of the specification of Standard Webhooks.
    const SECRET_TEXT: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const EXAMPLE: (&str, &str, &[u8]) =
        ("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", br#"{"test": 2432232314}"#);
    const VALID: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn the_example_of_the_specification_is_signed_and_verified() {
        let (id, time, body) = EXAMPLE;
        let at = time.parse().unwrap();
        assert_eq!(secret(SECRET_TEXT).sign(id, at, body), VALID);
        let verify = |id, time, signatures: &str, body, now| {
            let headers = SignedHeaders { id, time, signatures };
            secret(SECRET_TEXT).verify(&headers, body, now)
        };
        let two = format!("v1a,x v1,AAAA {VALID}");
        for (signatures, now) in [(VALID, at), (&two, at), (VALID, at + 300), (VALID, at - 300)] {
            assert_eq!(verify(id, time, signatures, body, now), Ok(()), "{signatures}");
        }
        use SignatureFault::{Headers, Signature, Time};
        for (id, time, signatures, body, now, fault) in [
            (id, time, VALID, body, at + 301, Time),
            (id, time, VALID, body, at - 301, Time),
            (id, time, VALID, &b"{}"[..], at, Signature),
            ("msg_other", time, VALID, body, at, Signature),
            (id, "1614265331", VALID, body, at, Signature),
            (id, time, &VALID[3..], body, at, Signature),
            (id, time, "v1,", body, at, Signature),
            ("", time, VALID, body, at, Headers),
            ("msg.1614265330", time, VALID, body, at, Headers),
            (id, "+1614265330", VALID, body, at, Headers),
            (id, "99999999999999999999", VALID, body, at, Headers),
        ] {
            assert_eq!(verify(id, time, signatures, body, now), Err(fault), "{id} {time}");
        }
        let many = format!("{} {VALID}", ["v1,AAAA"; SIGNATURES].join(" "));
        assert_eq!(verify(id, time, &many, body, at), Err(Signature), "the work is bounded");
    }

    #[test]
    fn a_secret_is_base64_of_enough_bytes() {
        assert!(WebhookSecret::parse(&SECRET_TEXT["whsec_".len()..]).is_ok());
        for text in ["", "whsec_", "hunter2", "whsec_c2hvcnQ=", &"A".repeat(100)] {
            assert!(WebhookSecret::parse(text).is_err(), "{text}");
        }
    }
}
