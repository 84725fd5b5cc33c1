//! One attempt at a message to a webhook: a signed request to a checked address, without redirects,
//! and with a bounded answer.

use ipnet::IpNet;
use url::Url;

use super::{IdentifiedMessage, SendFailure};
use crate::support::webhook::WebhookSecret;

#[cfg(feature = "fetch")]
pub(super) use sending::post;

/// Without the feature there is no client.
#[cfg(not(feature = "fetch"))]
pub(super) async fn post(
    _: &Url,
    _: &WebhookSecret,
    _: &[IpNet],
    message: &IdentifiedMessage,
) -> Result<(), SendFailure> {
    let IdentifiedMessage { id, room, .. } = message;
    let reason =
        format!("this program was built without requests over HTTP, so {id} of {room} stays here");
    Err(SendFailure::new(super::FailureKind::Never, reason))
}

#[cfg(feature = "fetch")]
mod sending {
    use std::net::IpAddr;
    use std::time::{SystemTime, UNIX_EPOCH};

    use conclave_core::permissions::fetch::check_address;
    use conclave_core::permissions::secret::RequestParts;
    use serde_json::json;
    use url::Host;

    use super::super::FailureKind;
    use super::*;
    use crate::imports::fetch::{ConnectionError, send};
    use crate::imports::outgoing::resolver::{Resolve, System};
    use crate::support::webhook;

    /// Bytes of an answer, of which only the status counts.
    const ANSWER: u64 = 64 << 10;

    /// Sends the request.
    pub(in super::super) async fn post(
        url: &Url,
        secret: &WebhookSecret,
        private: &[IpNet],
        message: &IdentifiedMessage,
    ) -> Result<(), SendFailure> {
        let addresses = addresses(url, private).await?;
        let body = body(message);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let id = message.id.as_str();
        let signature = secret.sign(id, time, &body);
        let headers = [
            ("content-type", "application/json".to_owned()),
            ("idempotency-key", id.to_owned()),
            (webhook::ID, id.to_owned()),
            (webhook::TIMESTAMP, time.to_string()),
            (webhook::SIGNATURE, signature),
        ];
        let parts = RequestParts {
            method: "POST".to_owned(),
            url: url.clone(),
            headers: headers.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            body: Some(body),
        };
        match send(parts, &addresses, ANSWER).await {
            Ok(answer) => accepted(answer.status),
            Err(error) => Err(failed(error)),
        }
    }

    fn body(message: &IdentifiedMessage) -> Vec<u8> {
        let IdentifiedMessage { room, message, .. } = message;
        let data = json!({
            "room": room, "channel": message.channel, "text": message.text, "tasks": message.tasks,
        });
        json!({ "type": "message", "data": data }).to_string().into_bytes()
    }

    /// The addresses of the URL's host, of which each may be connected to.
    async fn addresses(url: &Url, private: &[IpNet]) -> Result<Vec<IpAddr>, SendFailure> {
        let not_yet = |reason: String| SendFailure::new(FailureKind::NotYet, reason);
        let unresolved = || not_yet("its name stands for no address".to_owned());
        let addresses = match url.host() {
            Some(Host::Ipv4(address)) => vec![address.into()],
            Some(Host::Ipv6(address)) => vec![address.into()],
            Some(Host::Domain(name)) => {
                System.resolve(name.to_owned()).await.map_err(|_| unresolved())?
            }
            None => Vec::new(),
        };
        if addresses.is_empty() {
            return Err(unresolved());
        }
        // One forbidden address rejects them all, as for a plugin's request.
        for address in &addresses {
            check_address(*address, private).map_err(|kind| {
                let reason = format!(
                    "{address} is a {kind} address; `private` of the channel may name its network"
                );
                SendFailure::new(FailureKind::Never, reason)
            })?;
        }
        Ok(addresses)
    }

    /// Whether the receiver has the message, by the status of its answer.
    fn accepted(status: u16) -> Result<(), SendFailure> {
        let (kind, what) = match status {
            200..=299 => return Ok(()),
            300..=399 => (FailureKind::Never, "a redirect, which is not followed"),
            // These two say that the request was not processed.
            429 | 503 => (FailureKind::NotYet, "which says to try later"),
            500..=599 => (FailureKind::Unknown, "which does not say whether it has the message"),
            _ => (FailureKind::Never, "which refuses it"),
        };
        Err(SendFailure::new(kind, format!("the receiver answered {status}, {what}")))
    }

    fn failed(error: ConnectionError) -> SendFailure {
        match error {
            ConnectionError::TooLong => {
                let reason = "the answer is longer than 64 KiB";
                SendFailure::new(FailureKind::Unknown, reason)
            }
            ConnectionError::NotSent(reason) => SendFailure::new(FailureKind::Never, reason),
            error if error.is_unconnected() => {
                let reason = "no connection could be made, or none that is secure";
                SendFailure::new(FailureKind::NotYet, reason)
            }
            ConnectionError::NoAnswer(reason) => SendFailure::new(FailureKind::Unknown, reason),
        }
    }
}
