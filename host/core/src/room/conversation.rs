//! The conversation of a room: its bound channels, their activity, and the messages that arrived on
//! them (R-002…R-008). The step loop decides how agents use them; `delivery` handles results of
//! background tasks.

mod broadcast;
mod inbound;
mod limits;

use crate::room::{ResultDelivery, RoomContext};
use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::Room;
use super::pausing::UserWords;
use crate::protocol::event::RunOpening;
use crate::protocol::notice::Notice;
use crate::types::channel::{Activity, Binding, ChannelKind};
use crate::types::ids::ChannelId;
use crate::types::request::{Refusal, RefusalCode, RequestId, RequestReply};
use limits::{Bucket, SeenKeys};

/// Bytes of a channel's name. Channels bound at run time may use the name of the service behind
/// them.
const NAME_MAX: usize = 128;

/// A room's channels, and the messages that arrived on them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RoomChannels {
    pub(super) bindings: BTreeMap<ChannelId, Binding>,
    /// Activity as clients reported it; a channel without an entry is idle.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) activities: BTreeMap<ChannelId, Activity>,
    /// The reason why the room was closed, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) closed: Option<String>,
    /// Messages that each channel with a rate may still send at once.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    buckets: BTreeMap<ChannelId, Bucket>,
    /// Messages with a key.
    #[serde(skip_serializing_if = "SeenKeys::is_empty")]
    seen: SeenKeys,
    /// Keys of messages at the gates, with the requests that repeated them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    arriving: BTreeMap<String, Vec<RequestId>>,
    /// The number of the next inbound message; the first has 0.
    #[serde(skip_serializing_if = "is_zero")]
    next_index: u64,
    /// The number of the next answer of an agent.
    #[serde(skip_serializing_if = "is_zero")]
    next_answer: u64,
    /// Messages for a task that could not begin yet.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub(super) waiting: VecDeque<UserWords>,
    /// Number of automatic answers that led to the current work.
    #[serde(skip_serializing_if = "is_none")]
    pub(super) chain_depth: u32,
}

impl RoomChannels {
    /// Sets the channels as the room opens. Another run in the room leaves them unchanged unless
    /// its opening names some.
    pub(super) fn open(
        &mut self,
        opening: &RunOpening,
        of_setup: Option<&BTreeMap<ChannelId, Binding>>,
    ) {
        if let Some(bindings) = opening.bindings.as_ref().or(of_setup) {
            self.bindings.clone_from(bindings);
        }
        self.closed = None;
        self.chain_depth = opening.chain_depth;
    }
}

impl Room {
    /// Returns the current channel bindings of the room.
    #[must_use]
    pub fn bindings(&self) -> &BTreeMap<ChannelId, Binding> {
        self.channels.bindings()
    }

    /// Returns a channel's activity as its client last reported it.
    #[must_use]
    pub fn activity(&self, channel: &ChannelId) -> Activity {
        self.channels.activity(channel)
    }
}

impl RoomChannels {
    /// Returns the current channel bindings of the room.
    pub(super) fn bindings(&self) -> &BTreeMap<ChannelId, Binding> {
        &self.bindings
    }

    /// Returns a channel's activity as its client last reported it.
    pub(super) fn activity(&self, channel: &ChannelId) -> Activity {
        self.activities.get(channel).copied().unwrap_or_default()
    }

    fn attach(
        &mut self,
        cx: &mut RoomContext,
        channel: &ChannelId,
        binding: Binding,
    ) -> Result<(), Refusal> {
        let bad = |message: String| Err(Refusal::new(RefusalCode::BadArguments, message));
        let name = channel.as_str();
        if name.trim().is_empty()
            || name.len() > NAME_MAX
            || name.contains(|c: char| c == ',' || c.is_control())
        {
            return bad(format!(
                "{name:?} cannot be the name of a channel: it has 1 to {NAME_MAX} characters, and no comma"
            ));
        }
        if binding.simulate_ms.is_some() && binding.kind != ChannelKind::Voice {
            return bad(format!(
                "the channel {name} is no voice, so no voice can be simulated on it; bind it with the kind `voice`"
            ));
        }
        if binding.rate == Some(0) {
            return bad(format!(
                "with a rate of 0 nothing could come in from {name}; bind it with the access `read-only`"
            ));
        }
        cx.tell(Notice::ChannelBound { channel: channel.clone(), binding: binding.clone() });
        self.bindings.insert(channel.clone(), binding);
        Ok(())
    }

    /// Detaches a channel; does nothing if it is not attached.
    fn detach(&mut self, cx: &mut RoomContext, channel: &ChannelId) {
        if self.bindings.remove(channel).is_none() {
            return;
        }
        self.activities.remove(channel);
        self.buckets.remove(channel);
        cx.tell(Notice::ChannelUnbound { channel: channel.clone() });
    }

    /// Returns the refusal of an unknown channel, with the room's own channels.
    pub(super) fn unknown_channel(&self, channel: &ChannelId) -> Refusal {
        Refusal {
            error: RefusalCode::UnknownChannel,
            message: format!(
                "the room has no channel {:?}; bind it first, or name one of those that it has",
                channel.as_str()
            ),
            allowed: self.bindings.keys().map(ToString::to_string).collect(),
        }
    }
}

impl ResultDelivery<'_> {
    pub(super) fn channel_is(
        &mut self,
        request: RequestId,
        channel: ChannelId,
        activity: Activity,
    ) {
        if !self.channels.bindings.contains_key(&channel) {
            let refusal = self.channels.unknown_channel(&channel);
            self.cx.reply(request, Err(refusal));
            return;
        }
        self.cx.reply(request, Ok(RequestReply::Done));
        self.set_activity(channel, activity);
    }

    fn set_activity(&mut self, channel: ChannelId, activity: Activity) {
        if self.channels.activity(&channel) == activity {
            return;
        }
        match activity {
            Activity::Idle => drop(self.channels.activities.remove(&channel)),
            activity => drop(self.channels.activities.insert(channel.clone(), activity)),
        }
        self.channel_changed(&channel);
    }

    /// Resets all activities after a downtime of the host. The old reports may be outdated, and
    /// strategies must not wait for them.
    pub(super) fn forget_activities(&mut self) {
        for channel in std::mem::take(&mut self.channels.activities).into_keys() {
            self.channel_changed(&channel);
        }
    }

    pub(super) fn bind(
        &mut self,
        request: RequestId,
        channel: ChannelId,
        binding: Option<Binding>,
    ) {
        let bound = match binding {
            Some(binding) => self.channels.attach(self.cx, &channel, binding),
            None => {
                self.channels.detach(self.cx, &channel);
                Ok(())
            }
        };
        let is_bound = bound.is_ok();
        self.cx.reply(request, bound.map(|()| RequestReply::Done));
        if is_bound {
            self.channel_changed(&channel);
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_none(depth: &u32) -> bool {
    *depth == 0
}
