//! Channels whose protocol a plugin speaks. An attempt at a message is a call of the room that sends
//! it, so its side effects are journalled and limited there. The reading of a request comes before
//! any room, and may do nothing to the world.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use conclave_core::config::ChannelPeer;
use conclave_core::setup::plugin_query::{
    ChannelDelivery, ChannelMessage, ChannelReception, ChannelRequest, PluginQuery, PluginReply,
};
use conclave_core::types::capability::Capability;
use conclave_core::types::denial::{Denial, DenialRecord};
use conclave_core::types::fault::Fault;
use conclave_core::types::ids::{CallId, ChannelId, Millis, PluginName, RoomId};
use conclave_core::types::room_secret::RoomSecret;
use conclave_core::types::side_effect::{SideEffect, SideEffectAnswer};
use tokio::time::{Instant, timeout, timeout_at};

use super::verification::RequestVerification;
use super::{
    ChannelEndpoints, ChannelSecret, FailureKind, HookRefusal, IdentifiedMessage, SendFailure,
};
use crate::calls::{
    CallStart, EffectPort, NoEffects, NoModels, NoSignatures, NoTools, Observer, PluginCall,
    PluginOutput, Plugins,
};
use crate::observe::subscribe::Level;
use crate::support::clock::BoxFuture;

/// The time limit for the reading of one request, whose sender is not known yet.
const READING: Duration = Duration::from_secs(5);

/// Calls the plugin of a channel for the attempts at one message.
pub(crate) struct PluginCaller {
    pub(crate) plugins: Arc<dyn Plugins>,
    pub(crate) start: CallStart,
    /// Whether the host sees all that the plugin does to the world.
    pub(crate) is_sandboxed: bool,
    /// The number of side effects that the call has in the journal, of all attempts.
    pub(crate) effects: u32,
}

impl PluginCaller {
    /// Makes an attempt, until that time at the latest.
    pub(super) async fn attempt(
        &mut self,
        message: &IdentifiedMessage,
        attempt: u32,
        until: Instant,
    ) -> Result<(), SendFailure> {
        let port = Arc::new(AttemptEffects {
            port: Arc::clone(&self.start.effects),
            first: self.effects,
            next: AtomicU32::new(self.effects),
            has_sent: Arc::default(),
        });
        let query = PluginQuery::Deliver {
            message: Box::new(ChannelMessage {
                id: message.id.clone(),
                attempt,
                conversation: message.conversation.clone(),
                room: message.room.clone(),
                text: message.message.text.clone(),
            }),
        };
        let start = self.start_with(Arc::<AttemptEffects>::clone(&port));
        let called = self.plugins.call(start, PluginCall::Query { query, view: None });
        let answer = timeout_at(until, called).await.ok();
        self.effects = port.next.load(Ordering::Acquire);
        let failed = |reason: String| {
            let is_unsent = self.is_sandboxed && !port.has_sent.load(Ordering::Acquire);
            let kind = if is_unsent { FailureKind::Never } else { FailureKind::Unknown };
            Err(SendFailure::new(kind, format!("the plugin {reason}")))
        };
        match answer.map(|answer| answer.output) {
            None => failed("gave no answer in time".to_owned()),
            Some(PluginOutput::Query(Ok(PluginReply::Deliver { delivery }))) => known(delivery),
            Some(PluginOutput::Query(Err(fault))) => {
                failed(format!("failed: {}", described(&fault)))
            }
            Some(_) => failed("answered another question".to_owned()),
        }
    }

    /// The conditions of an attempt. It asks no models and no tools, whose answers a later attempt
    /// could not tell from its own.
    fn start_with(&self, effects: Arc<dyn EffectPort>) -> CallStart {
        let start = &self.start;
        CallStart {
            room: start.room.clone(),
            secret: start.secret.clone(),
            call: start.call,
            plugin: start.plugin.clone(),
            setup: start.setup.clone(),
            now: start.now,
            scratch: Arc::default(),
            trace: Arc::default(),
            task: None,
            models: Arc::new(NoModels),
            tools: Arc::new(NoTools),
            effects,
            signatures: Arc::new(NoSignatures),
            observer: Arc::clone(&start.observer),
        }
    }
}

fn described(fault: &Fault) -> String {
    format!("{}: {}", fault.kind.as_str(), fault.message)
}

/// What is known of a message, by the word of the plugin.
fn known(delivery: ChannelDelivery) -> Result<(), SendFailure> {
    let failure = match delivery {
        ChannelDelivery::Delivered { .. } => return Ok(()),
        ChannelDelivery::Retry { after_ms, reason } => SendFailure {
            pause: after_ms.map(Duration::from_millis),
            ..SendFailure::new(FailureKind::NotYet, reason)
        },
        ChannelDelivery::Refused { reason } => SendFailure::new(FailureKind::Never, reason),
        ChannelDelivery::Unknown { reason } => SendFailure::new(FailureKind::Unknown, reason),
    };
    Err(failure)
}

/// The side effects of one attempt. Their numbers go on from those of the attempts before, as all
/// belong to one call.
struct AttemptEffects {
    port: Arc<dyn EffectPort>,
    first: u32,
    next: AtomicU32,
    /// Whether a request may have left the host.
    has_sent: Arc<AtomicBool>,
}

impl EffectPort for AttemptEffects {
    fn ask(
        &self,
        call: CallId,
        ordinal: u32,
        side_effect: SideEffect,
    ) -> BoxFuture<'static, Result<(), Denial>> {
        let ordinal = self.first.saturating_add(ordinal);
        self.next.fetch_max(ordinal.saturating_add(1), Ordering::AcqRel);
        let is_request = side_effect.capability() == Capability::Fetch;
        let (permit, has_sent) =
            (self.port.ask(call, ordinal, side_effect), Arc::clone(&self.has_sent));
        Box::pin(async move {
            let permitted = permit.await;
            if is_request && permitted.is_ok() {
                has_sent.store(true, Ordering::Release);
            }
            permitted
        })
    }

    // The reads of an attempt are not journalled: no attempt runs again from a log.

    fn survives_power_cuts(&self) -> bool {
        self.port.survives_power_cuts()
    }

    fn overlay_folder(&self) -> Option<&std::path::Path> {
        self.port.overlay_folder()
    }

    fn ended(
        &self,
        call: CallId,
        ordinal: u32,
        answer: SideEffectAnswer,
    ) -> BoxFuture<'static, ()> {
        self.port.ended(call, self.first.saturating_add(ordinal), answer)
    }
}

impl ChannelEndpoints {
    /// Has the plugin of a channel read a request. Of its messages those remain whose senders may
    /// speak.
    ///
    /// # Errors
    /// `Unsigned` if no plugin has such a channel, `Refused`, `Failed`, or `Busy`.
    pub async fn receive(
        &self,
        plugins: &dyn Plugins,
        channel: &ChannelId,
        request: ChannelRequest,
    ) -> Result<ChannelReception, HookRefusal> {
        let endpoint = self.endpoints.get(channel).ok_or(HookRefusal::Unsigned)?;
        let (ChannelPeer::Plugin { plugin, senders }, Some(_)) = (&endpoint.peer, &endpoint.secret)
        else {
            return Err(HookRefusal::Unsigned);
        };
        let _permit = self.reading.try_acquire().map_err(|_| HookRefusal::Busy)?;
        let secret = match self.secret(channel, endpoint).await.map_err(HookRefusal::Failed)? {
            ChannelSecret::Shared(secret) => secret,
            ChannelSecret::Webhook(_) => return Err(HookRefusal::Unsigned),
        };
        let verification = Arc::new(RequestVerification::new(secret, request.body.clone()));
        let start = reading_start(plugin, &request, Arc::clone(&verification))?;
        let query = PluginQuery::Receive { request: Arc::new(request) };
        let called = plugins.call(start, PluginCall::Query { query, view: None });
        let failed = |what: String| {
            HookRefusal::Failed(format!("the plugin {plugin} of the channel {channel} {what}"))
        };
        let answer = timeout(READING, called).await;
        let reception = match answer.map(|answer| answer.output) {
            Ok(PluginOutput::Query(Ok(PluginReply::Receive { reception }))) => reception,
            Ok(PluginOutput::Query(Err(fault))) => {
                // The words of a fault can be those of a stranger.
                let what = match verification.is_verified() {
                    true => described(&fault),
                    false => fault.kind.as_str().to_owned(),
                };
                return Err(failed(format!("failed: {what}")));
            }
            Ok(_) => return Err(failed("answered another question".to_owned())),
            Err(_) => return Err(failed("gave no answer in time".to_owned())),
        };
        match reception {
            ChannelReception::Refused { reason } => Err(HookRefusal::Refused(reason)),
            ChannelReception::Messages { messages } if !messages.is_empty() => {
                if !verification.is_verified() {
                    let reason = "it has messages, and its plugin had nothing verified";
                    return Err(HookRefusal::Refused(reason.to_owned()));
                }
                let admitted = messages.into_iter().filter(|it| senders.admit(&it.sender));
                Ok(ChannelReception::Messages { messages: admitted.collect() })
            }
            other => Ok(other),
        }
    }
}

/// The conditions of a call that reads a request: it belongs to no room.
fn reading_start(
    plugin: &PluginName,
    request: &ChannelRequest,
    verification: Arc<RequestVerification>,
) -> Result<CallStart, HookRefusal> {
    let mut random = [0; RoomSecret::LENGTH];
    getrandom::fill(&mut random)
        .map_err(|error| HookRefusal::Failed(format!("there are no random numbers: {error}")))?;
    Ok(CallStart {
        room: RoomId::from("channel"),
        secret: RoomSecret::new(random),
        call: CallId(0),
        plugin: plugin.clone(),
        setup: None,
        now: Millis(request.time),
        scratch: Arc::default(),
        trace: Arc::default(),
        task: None,
        models: Arc::new(NoModels),
        tools: Arc::new(NoTools),
        effects: Arc::new(NoEffects),
        signatures: verification,
        observer: Arc::new(Unobserved),
    })
}

/// Receives what belongs to no room: strangers must not fill the operator's log.
struct Unobserved;

impl Observer for Unobserved {
    fn log(&self, _: CallId, _: Level, _: &str) {}
    fn progress(&self, _: CallId, _: u64, _: Option<u64>, _: &str) {}
    fn denied(&self, _: CallId, _: &DenialRecord) {}
}
