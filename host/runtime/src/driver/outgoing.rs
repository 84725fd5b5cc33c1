//! Messages on channels that the host serves itself: one signed request, or one call of a plugin, for
//! each attempt. The record of the event that sends a message is durable before its first attempt; an
//! attempt whose outcome is unknown is repeated only if the receiver drops what it has.

mod plugin;
mod verification;
mod webhook;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conclave_core::config::{ChannelEndpoint, ChannelPeer};
use conclave_core::types::ids::{ChannelId, PluginName, RoomId};
use conclave_core::types::room_secret::RoomSecret;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, sleep, timeout_at};
use verification::SharedSecret;

use crate::driver::channel::OutgoingMessage;
use crate::imports::secrets::SecretSource;
use crate::support::webhook::{SignatureFault, SignedHeaders, WebhookSecret};

pub(crate) use plugin::PluginCaller;

/// The time limit of one attempt.
const ATTEMPT: Duration = Duration::from_secs(15);
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The time for which a secret is not read again: a stranger's requests must not start a program each.
const FRESH: Duration = Duration::from_secs(10);
/// Bytes of an id, of those of its MAC.
const ID: usize = 16;
/// Requests that plugins read at once, which strangers can send.
const READING: usize = 8;

/// The channels of a config that the host serves itself.
pub struct ChannelEndpoints {
    endpoints: BTreeMap<ChannelId, ChannelEndpoint>,
    secrets: Arc<dyn SecretSource>,
    /// What was read of each secret last, and when.
    read: Mutex<BTreeMap<ChannelId, (Instant, SecretReading)>>,
    /// The permits of calls of plugins that read requests.
    reading: Semaphore,
}

/// A secret in the form of its channel's kind.
#[derive(Clone)]
enum ChannelSecret {
    Webhook(Arc<WebhookSecret>),
    Shared(Arc<SharedSecret>),
}

/// A secret, or why there is none.
type SecretReading = Result<ChannelSecret, String>;

impl fmt::Debug for ChannelEndpoints {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("ChannelEndpoints").field(&self.endpoints.keys()).finish()
    }
}

/// A message of a room with the id that its receiver knows it by.
pub(crate) struct IdentifiedMessage {
    pub(crate) id: String,
    pub(crate) room: RoomId,
    pub(crate) message: OutgoingMessage,
    /// The address of the conversation at the other side; `None` for a message of another room.
    pub(crate) conversation: Option<String>,
}

impl IdentifiedMessage {
    /// The id is the same for every attempt, also after a restart, and no other room of any store has
    /// it.
    pub(crate) fn new(secret: &RoomSecret, room: RoomId, message: OutgoingMessage) -> Self {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())
            .expect("a MAC takes a key of any length");
        mac.update(b"outgoing message\0");
        mac.update(message.channel.as_str().as_bytes());
        mac.update(b"\0");
        mac.update(message.key.as_bytes());
        let tag = mac.finalize().into_bytes();
        let digits = tag.iter().take(ID).map(|byte| format!("{byte:02x}")).collect::<String>();
        Self { id: format!("msg_{digits}"), room, message, conversation: None }
    }
}

/// Why a message was not accepted, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SendFailure {
    pub(crate) reason: String,
    pub(crate) kind: FailureKind,
    /// The shortest pause that the receiver asks for.
    pub(crate) pause: Option<Duration>,
}

/// What a failure says about the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The receiver does not have it, and may accept it later.
    NotYet,
    /// The receiver does not have it, and will not accept it.
    Never,
    /// The receiver may have it.
    Unknown,
}

impl SendFailure {
    fn new(kind: FailureKind, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), kind, pause: None }
    }
}

/// A request to a channel that takes webhooks.
#[derive(Clone, Copy, Debug)]
pub struct HookRequest<'a> {
    /// The channel that the request names.
    pub channel: &'a ChannelId,
    /// Its headers.
    pub headers: SignedHeaders<'a>,
    /// Its whole body.
    pub body: &'a [u8],
    /// The time, in seconds since the Unix epoch.
    pub now: u64,
}

/// Why a request is no message of a channel's sender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookRefusal {
    /// No such channel takes webhooks, or the signature is not valid: a stranger does not learn
    /// which.
    #[error("it is not signed with the secret of this webhook")]
    Unsigned,
    /// The signature is valid, and the message is too old or too young.
    #[error("{}", SignatureFault::Time)]
    Time,
    /// The plugin of the channel refuses it; the text is for the operator.
    #[error("the request is none of this channel's service")]
    Refused(String),
    /// The secret cannot be read, or the plugin failed; the text is for the operator.
    #[error("{0}")]
    Failed(String),
    /// Too many requests are being read.
    #[error("{READING} requests are read already; try again in a moment")]
    Busy,
}

impl ChannelEndpoints {
    pub(crate) fn new(
        endpoints: BTreeMap<ChannelId, ChannelEndpoint>,
        secrets: Arc<dyn SecretSource>,
    ) -> Self {
        Self { endpoints, secrets, read: Mutex::default(), reading: Semaphore::new(READING) }
    }

    /// Whether the host serves the channel itself.
    #[must_use]
    pub fn serves(&self, channel: &ChannelId) -> bool {
        self.endpoints.contains_key(channel)
    }

    /// The channels that the host serves itself.
    pub fn channels(&self) -> impl Iterator<Item = &ChannelId> {
        self.endpoints.keys()
    }

    /// The plugin that reads the requests to a channel; `None` if the host does.
    #[must_use]
    pub fn plugin(&self, channel: &ChannelId) -> Option<&PluginName> {
        match &self.endpoints.get(channel)?.peer {
            ChannelPeer::Plugin { plugin, .. } => Some(plugin),
            ChannelPeer::Webhook { .. } => None,
        }
    }

    /// Verifies that a webhook comes from the sender of its channel. Returns the sender's name.
    ///
    /// # Errors
    /// `Unsigned`, `Time`, or `Failed`.
    pub async fn verify(&self, request: HookRequest<'_>) -> Result<String, HookRefusal> {
        let HookRequest { channel, headers, body, now } = request;
        let endpoint = self.endpoints.get(channel).ok_or(HookRefusal::Unsigned)?;
        let ChannelPeer::Webhook { sender, .. } = &endpoint.peer else {
            return Err(HookRefusal::Unsigned);
        };
        let secret = self.webhook_secret(channel, endpoint).await.map_err(HookRefusal::Failed)?;
        match secret.verify(&headers, body, now) {
            Ok(()) if sender.is_empty() => Ok(channel.to_string()),
            Ok(()) => Ok(sender.clone()),
            Err(SignatureFault::Time) => Err(HookRefusal::Time),
            Err(SignatureFault::Headers | SignatureFault::Signature) => Err(HookRefusal::Unsigned),
        }
    }

    async fn webhook_secret(
        &self,
        channel: &ChannelId,
        endpoint: &ChannelEndpoint,
    ) -> Result<Arc<WebhookSecret>, String> {
        match self.secret(channel, endpoint).await? {
            ChannelSecret::Webhook(secret) => Ok(secret),
            ChannelSecret::Shared(_) => Err(format!("the channel {channel} is no webhook")),
        }
    }

    /// The secret of a channel.
    async fn secret(&self, channel: &ChannelId, endpoint: &ChannelEndpoint) -> SecretReading {
        let unread =
            |what: &str| format!("the secret of the channel {channel} cannot be used: {what}");
        // Held while it is read, so that many requests start one program.
        let mut read = self.read.lock().await;
        if let Some((_, secret)) = read.get(channel).filter(|(at, _)| at.elapsed() < FRESH) {
            return secret.clone();
        }
        let Some(key) = &endpoint.secret else { return Err(unread("the config has none")) };
        let reading = match self.secrets.secret(key).await {
            Ok(key) => parse_secret(&endpoint.peer, key.reveal()).map_err(unread),
            Err(what) => Err(unread(&what)),
        };
        read.insert(channel.clone(), (Instant::now(), reading.clone()));
        reading
    }

    /// Sends a message, in as many attempts and as much time as its channel allows. `caller` calls
    /// the plugin of a channel that has one.
    pub(crate) async fn send(
        &self,
        message: &IdentifiedMessage,
        mut caller: Option<PluginCaller>,
    ) -> Result<(), SendFailure> {
        let channel = &message.message.channel;
        let Some(endpoint) = self.endpoints.get(channel) else {
            let reason = format!("the config has no endpoint of {channel} any more");
            return Err(SendFailure::new(FailureKind::Never, reason));
        };
        let deadline = Instant::now() + Duration::from_millis(endpoint.timeout_ms);
        let mut was_lost = false;
        let mut attempt = 1;
        loop {
            let until = deadline.min(Instant::now() + ATTEMPT);
            let sent = match &mut caller {
                Some(caller) => caller.attempt(message, attempt, until).await,
                None => {
                    let unanswered =
                        |_| Err(SendFailure::new(FailureKind::Unknown, "no answer came in time"));
                    let sent = timeout_at(until, self.attempt(endpoint, message)).await;
                    sent.unwrap_or_else(unanswered)
                }
            };
            let Err(failure) = sent else { return Ok(()) };
            was_lost |= failure.kind == FailureKind::Unknown;
            let may_repeat = match failure.kind {
                FailureKind::NotYet => true,
                FailureKind::Never => false,
                FailureKind::Unknown => endpoint.deduplicates,
            };
            let pause = pause_after(attempt, getrandom::u32().unwrap_or(u32::MAX / 2))
                .max(failure.pause.unwrap_or_default());
            if !may_repeat || attempt >= endpoint.attempts || Instant::now() + pause >= deadline {
                let reason = match attempt {
                    1 => failure.reason,
                    count => format!("{count} attempts; the last one: {}", failure.reason),
                };
                // An earlier attempt may have arrived.
                return Err(match was_lost {
                    true => SendFailure::new(FailureKind::Unknown, format!("unknown: {reason}")),
                    false => SendFailure::new(failure.kind, reason),
                });
            }
            attempt += 1;
            sleep(pause).await;
        }
    }

    async fn attempt(
        &self,
        endpoint: &ChannelEndpoint,
        message: &IdentifiedMessage,
    ) -> Result<(), SendFailure> {
        let ChannelPeer::Webhook { url, private, .. } = &endpoint.peer else {
            let reason = "this run began without the channel's plugin";
            return Err(SendFailure::new(FailureKind::Never, reason));
        };
        let Some(url) = url else {
            let reason = "the channel has no url, and receives no messages";
            return Err(SendFailure::new(FailureKind::Never, reason));
        };
        let channel = &message.message.channel;
        let unread = |what| SendFailure::new(FailureKind::NotYet, what);
        let secret = self.webhook_secret(channel, endpoint).await.map_err(unread)?;
        webhook::post(url, &secret, private, message).await
    }
}

fn parse_secret(peer: &ChannelPeer, key: &str) -> Result<ChannelSecret, &'static str> {
    Ok(match peer {
        ChannelPeer::Webhook { .. } => ChannelSecret::Webhook(Arc::new(WebhookSecret::parse(key)?)),
        ChannelPeer::Plugin { .. } => ChannelSecret::Shared(Arc::new(SharedSecret::parse(key)?)),
    })
}

/// The pause after an attempt: twice as long each time, and a random part of up to a half shorter, so
/// that senders that failed together do not come back together.
fn pause_after(attempt: u32, random: u32) -> Duration {
    let longest = Duration::from_secs(1 << attempt.saturating_sub(1).min(5)).min(PAUSE_MAX);
    longest.mul_f64(1.0 - 0.5 * f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests;
