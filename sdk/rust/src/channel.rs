//! A channel: it carries messages to people elsewhere, and reads the requests of their service. The
//! operator's config names it, with the senders who may speak.
//!
//! The host journals a message before its first attempt, counts the attempts, and never repeats one
//! whose outcome is unknown, unless the operator says that the service drops repetitions.

use crate::Result;
use crate::bindings::channel::conclave::plugin::channel_secret;
use crate::bindings::channel::exports::conclave::plugin::channel as contract;

pub use channel_secret::{Proof, SignedData};
pub use contract::{
    AnswerType, Delivery, HttpAnswer, Message, ReceivedMessage, Reception, Request, RetryHint,
};

/// The trait of a channel; `export!(channel: X)` exports it.
///
/// ```
/// use conclave_sdk::channel::{Channel, Delivery, Message, Reception, Request};
/// use conclave_sdk::{Result, fetch};
///
/// /// Posts each message to a pager, and reads nothing.
/// struct Pager;
///
/// impl Channel for Pager {
///     fn send(message: &Message) -> Result<Delivery> {
///         let request = fetch::post("https://pager.example.org/pages")
///             .header("Idempotency-Key", message.id.clone());
///         let response = request.json(&serde_json::json!({ "text": message.text })).send()?;
///         Ok(match response.status() {
///             200..=299 => Delivery::Delivered(None),
///             status => Delivery::Refused(format!("the pager answered {status}")),
///         })
///     }
///
///     fn received(_: &Request) -> Result<Reception> {
///         Ok(Reception::Refused("this pager sends nothing".to_owned()))
///     }
/// }
/// # conclave_sdk::export!(channel: Pager, asks: []);
/// # assert!(true);
/// ```
pub trait Channel {
    /// Makes one attempt at a message. After an error the outcome is unknown if the attempt sent a
    /// request.
    fn send(message: &Message) -> Result<Delivery>;

    /// Reads a request before its sender is known: every side effect is refused. Its messages count
    /// only after [`verify_hmac`] or [`verify_token`] returned true.
    fn received(request: &Request) -> Result<Reception>;
}

/// Whether the signature is an HMAC-SHA256 of the data with the channel's secret. The data must end
/// with the request's body.
#[must_use]
pub fn verify_hmac(data: &[u8], signature: &[u8]) -> bool {
    verify(&Proof::HmacSha256(SignedData { data: data.to_vec(), signature: signature.to_vec() }))
}

/// Whether the token is the channel's secret.
#[must_use]
pub fn verify_token(token: &str) -> bool {
    verify(&Proof::Token(token.to_owned()))
}

fn verify(proof: &Proof) -> bool {
    #[cfg(target_family = "wasm")]
    let is_valid = channel_secret::verify(proof);
    // A test names the valid proofs.
    #[cfg(not(target_family = "wasm"))]
    let is_valid = crate::native::fake(|fake| fake.proofs.contains(proof));
    is_valid
}

/// The value of a header, by its name in lower case.
#[must_use]
pub fn header<'r>(request: &'r Request, name: &str) -> Option<&'r str> {
    request.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}
