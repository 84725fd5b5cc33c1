//! The conversation of a room: its channels as they are bound now, what keeps each busy, and what comes in on them (R-002…R-008). Not what
//! agents do with it, which is the loop's, and not results of background tasks, which are `delivery`'s.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Room;
use crate::channel::{Activity, Binding};
use crate::ids::ChannelId;
use crate::request::{Inbound, Refusal, RefusalCode, Reply, RequestId};

/// A room's channels, and what came in on them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Conversation {
    pub(super) bindings: BTreeMap<ChannelId, Binding>,
    /// What clients reported; a channel that is not here is idle.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) activities: BTreeMap<ChannelId, Activity>,
    /// Somebody closed the room; why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) closed: Option<String>,
}

impl Conversation {
    /// Nothing to write down.
    pub(super) fn is_new(&self) -> bool {
        *self == Self::default()
    }
}

impl Room {
    pub(super) fn inbound(&mut self, request: RequestId, inbound: Inbound) {
        let _ = inbound;
        self.reply(request, Err(Refusal::new(RefusalCode::Busy, "not yet")));
    }

    pub(super) fn channel_is(&mut self, request: RequestId, channel: ChannelId, activity: Activity) {
        self.conversation.activities.insert(channel, activity);
        self.reply(request, Ok(Reply::Done));
    }

    pub(super) fn bind(&mut self, request: RequestId, channel: ChannelId, binding: Option<Binding>) {
        match binding {
            Some(binding) => drop(self.conversation.bindings.insert(channel, binding)),
            None => drop(self.conversation.bindings.remove(&channel)),
        }
        self.reply(request, Ok(Reply::Done));
    }

    pub(super) fn close(&mut self, request: RequestId, reason: &str) {
        self.conversation.closed = Some(reason.to_owned());
        self.reply(request, Ok(Reply::Done));
    }

    pub(super) fn inbound_passed(&mut self, request: RequestId, inbound: Inbound) {
        let _ = inbound;
        self.reply(request, Err(Refusal::new(RefusalCode::Busy, "not yet")));
    }

    pub(super) fn inbound_blocked(&mut self, request: RequestId, inbound: Inbound, reason: &str) {
        let _ = inbound;
        self.reply(request, Err(Refusal::new(RefusalCode::Blocked, reason)));
    }
}
