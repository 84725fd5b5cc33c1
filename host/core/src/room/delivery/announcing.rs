//! Announcements: messages in a room at the request of the program around the host (R-115, R-117,
//! Each request gets the outcome. A request with a known key gets the outcome of the first
//! one.

use serde::{Deserialize, Serialize};

use super::ROOM_CLOSED;
use crate::room::queue_limit::{QUEUE_MAX, QueueLimit};
use crate::room::state::gated::GatedMessage;
use crate::room::{Deliveries, Purpose, ResultDelivery, RoomChannels, RoomContext};
use crate::types::delegation::CHAIN_MAX;
use crate::types::delivery::{DeliveryRecord, DeliveryState, OutgoingMessage, preferred_channel};
use crate::types::ids::ChannelId;
use crate::types::request::{
    Announcement, Refusal, RefusalCode, RequestId, RequestReply, check_key,
};

/// Keys that are remembered; those of the oldest announcements are dropped.
pub(super) const MAX_KEYS: usize = 1_000;

/// An announcement with a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KeyedAnnouncement {
    /// Its number in order of arrival.
    number: u64,
    /// `None` while it is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    record: Option<DeliveryRecord>,
    /// Requests with the same key that arrived meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    also: Vec<RequestId>,
}

impl ResultDelivery<'_> {
    pub(in crate::room) fn announce(&mut self, request: RequestId, announcement: Announcement) {
        // Found before the look-up, which borrows the announcements.
        let refusal_of_more = self.deliveries.refusal_of_more();
        let refusal_of_text = self.refusal_of_text(&announcement);
        if let Some(known) =
            announcement.key.as_ref().and_then(|key| self.deliveries.announced.get_mut(key))
        {
            match known.record.clone() {
                Some(record) => {
                    self.cx.reply(request, Ok(RequestReply::Delivery { record, duplicate: true }))
                }
                None => match refusal_of_more {
                    Some(refusal) => self.cx.reply(request, Err(refusal)),
                    None => {
                        known.also.push(request);
                        self.deliveries.waiting_requests.insert(request);
                    }
                },
            }
            return;
        }
        let checked = self.channels.may_announce(self.cx, &announcement);
        let channel = match refusal_of_more.or(refusal_of_text).map_or(checked, Err) {
            Ok(channel) => channel,
            Err(refusal) => {
                self.cx.reply(request, Err(refusal));
                return;
            }
        };
        let number = self.deliveries.announcements;
        self.deliveries.announcements += 1;
        let Announcement { content, addressed_to, key, chain_depth, interrupt, .. } = announcement;
        // Registered before the gates are asked, so that a repeated request finds it.
        if let Some(key) = &key {
            self.deliveries
                .announced
                .insert(key.clone(), KeyedAnnouncement { number, record: None, also: Vec::new() });
            self.deliveries.forget_keys();
        }
        self.deliveries.waiting_requests.insert(request);
        // If the addressed task cannot take a turn, the text is said on the channel.
        let relay =
            addressed_to.filter(|task| self.channels.can_take_turn(self.cx, self.frames, task));
        // A channel recognizes a repeated message by its key, so each one needs its own.
        let key = key.unwrap_or_else(|| format!("announcement-{number}"));
        let otherwise = relay.is_some().then(|| content.clone());
        let outgoing =
            OutgoingMessage { channel, text: content, interrupt, key, tasks: Vec::new() };
        let gated = GatedMessage {
            outgoing,
            strategy: None,
            request: Some(request),
            relay,
            chain_depth,
            otherwise,
        };
        self.send_through_gates(gated);
    }

    /// Returns why the text of an announcement may not wait beside those of open ones, if so.
    fn refusal_of_text(&self, announcement: &Announcement) -> Option<Refusal> {
        let is_open = |gated: &&GatedMessage| gated.request.is_some();
        let on_channels = self.cx.calls.values().filter_map(|purpose| match purpose {
            Purpose::Send { gated } => Some(&**gated),
            _ => None,
        });
        let open = self.gating.deliveries().chain(on_channels).chain(self.deliveries.relayed());
        let weights = open.filter(is_open).map(GatedMessage::weight);
        QueueLimit::exceeded_by(weights.chain([announcement.content.len()])).map(busy)
    }
}

/// The refusal of an announcement that would have to wait.
fn busy(limit: QueueLimit) -> Refusal {
    let reason = limit.reason("announcements", "wait to be said");
    let message = format!("{reason}; the room takes no more until some are");
    Refusal::new(RefusalCode::Busy, message)
}

impl RoomChannels {
    /// Returns the channel for an announcement, if it is allowed.
    fn may_announce(
        &self,
        cx: &RoomContext,
        announcement: &Announcement,
    ) -> Result<ChannelId, Refusal> {
        if self.is_closed() {
            return Err(Refusal::new(
                RefusalCode::RoomClosed,
                "the room was closed; nothing is said in it any more",
            ));
        }
        if announcement.content.trim().is_empty() {
            return Err(Refusal::new(
                RefusalCode::BadArguments,
                "an announcement needs a `content`: what is to be said",
            ));
        }
        check_key(announcement.key.as_ref(), "an announcement")?;
        if announcement.chain_depth >= CHAIN_MAX {
            let message = format!(
                "{} automatic answers led to it; {CHAIN_MAX} are too many",
                announcement.chain_depth
            );
            return Err(Refusal::new(RefusalCode::ChainDepth, message));
        }
        if let Some(task) =
            announcement.addressed_to.as_ref().filter(|task| !cx.setup.tasks.contains_key(*task))
        {
            let allowed = cx.setup.tasks.keys().map(ToString::to_string).collect();
            return Err(Refusal {
                allowed,
                ..Refusal::new(RefusalCode::UnknownAgent, format!("the config has no task {task}"))
            });
        }
        let bound = self.bound();
        let nowhere = |what: String| {
            let allowed = bound
                .iter()
                .filter(|(_, binding)| binding.can_receive())
                .map(|(id, _)| id.to_string())
                .collect();
            Refusal { allowed, ..Refusal::new(RefusalCode::UnknownChannel, what) }
        };
        let best = || {
            preferred_channel(bound)
                .cloned()
                .ok_or_else(|| nowhere("no channel of the room accepts messages".to_owned()))
        };
        let Some(channel) = &announcement.channel else { return best() };
        match bound.get(channel) {
            None => Err(nowhere(format!("the room has no channel {channel}"))),
            // an agent's channel has no listener, so a channel to people is used instead.
            Some(binding) if !binding.kind.is_for_people() => best(),
            Some(binding) if binding.can_receive() => Ok(channel.clone()),
            Some(binding) => {
                let why =
                    if binding.muted { "is muted" } else { "accepts no messages in this room" };
                Err(Refusal::new(RefusalCode::NoAccess, format!("{channel} {why}")))
            }
        }
    }
}

impl Deliveries {
    /// Returns why no further request may wait, if so.
    fn refusal_of_more(&self) -> Option<Refusal> {
        (self.waiting_requests.len() >= QUEUE_MAX).then(|| busy(QueueLimit::Number))
    }

    /// The messages that wait for a turn of an agent.
    fn relayed(&self) -> impl Iterator<Item = &GatedMessage> {
        self.relays.values().flatten()
    }

    fn forget_keys(&mut self) {
        let announced = &mut self.announced;
        if announced.len() <= MAX_KEYS {
            return;
        }
        // Requests wait for the record of an announcement in progress, so it keeps its key.
        let oldest = announced
            .iter()
            .filter(|(_, known)| known.record.is_some())
            .min_by_key(|(_, known)| known.number);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            announced.remove(&key);
        }
    }

    /// Ends an announcement that a channel took.
    pub(super) fn announcement_delivered(&mut self, cx: &mut RoomContext, gated: &GatedMessage) {
        let channel = Some(gated.outgoing.channel.clone());
        self.announcement_taken(
            cx,
            gated,
            DeliveryRecord {
                state: DeliveryState::Delivered,
                channel,
                attempts: 1,
                ..DeliveryRecord::default()
            },
        );
    }

    pub(super) fn announcement_taken(
        &mut self,
        cx: &mut RoomContext,
        gated: &GatedMessage,
        record: DeliveryRecord,
    ) {
        self.end_announcement(cx, gated, Ok(record));
    }

    pub(super) fn announcement_blocked(
        &mut self,
        cx: &mut RoomContext,
        gated: &GatedMessage,
        reason: &str,
    ) {
        let came_of_it = if reason == ROOM_CLOSED {
            Err(Refusal::new(RefusalCode::RoomClosed, "the room was closed before it was said"))
        } else {
            Ok(DeliveryRecord {
                state: DeliveryState::Blocked,
                reason: Some(reason.to_owned()),
                ..DeliveryRecord::default()
            })
        };
        self.end_announcement(cx, gated, came_of_it);
    }

    /// Ends a failed announcement. The client may try again.
    pub(super) fn announcement_failed(
        &mut self,
        cx: &mut RoomContext,
        gated: &GatedMessage,
        reason: &str,
    ) {
        self.end_announcement(cx, gated, Err(Refusal::new(RefusalCode::Busy, reason)));
    }

    pub(super) fn announcement_interrupted(
        &mut self,
        cx: &mut RoomContext,
        gated: &GatedMessage,
        reason: &str,
    ) {
        self.end_announcement(cx, gated, Err(Refusal::new(RefusalCode::RoomClosed, reason)));
    }

    fn end_announcement(
        &mut self,
        cx: &mut RoomContext,
        gated: &GatedMessage,
        came_of_it: Result<DeliveryRecord, Refusal>,
    ) {
        // Requests without a reply share one number, which the end of the first removes.
        let is_open = |request: &RequestId| {
            self.waiting_requests.remove(request) || *request == RequestId::NO_REPLY
        };
        let Some(request) = gated.request.filter(is_open) else { return };
        let mut also = Vec::new();
        if let Some(known) = self.announced.get_mut(&gated.outgoing.key) {
            also = std::mem::take(&mut known.also);
            known.record = came_of_it.as_ref().ok().cloned();
            if came_of_it.is_err() {
                // It was not said, so another one with the key is no duplicate.
                self.announced.remove(&gated.outgoing.key);
            }
        }
        let reply = |duplicate: bool| {
            came_of_it.clone().map(|record| RequestReply::Delivery { record, duplicate })
        };
        cx.reply(request, reply(false));
        for request in also {
            self.waiting_requests.remove(&request);
            cx.reply(request, reply(true));
        }
    }

    /// Refuses the open requests at the end of the run, so that no client waits without end.
    pub(super) fn refuse_announcements(&mut self, cx: &mut RoomContext) {
        self.announced.retain(|_, known| known.record.is_some());
        for request in std::mem::take(&mut self.waiting_requests) {
            cx.reply(
                request,
                Err(Refusal::new(
                    RefusalCode::RoomClosed,
                    "the run ended before its channel confirmed it",
                )),
            );
        }
    }
}
