//! What somebody outside asks of the room while it is open: each request is led to its place, and gets one reply once the journal holds
//! what came of it. Not what is decided there.

use super::{Phase, Room};
use crate::protocol::effect::Effect;
use crate::types::request::{Refusal, RefusalCode, Reply, Request, RequestId};

impl Room {
    pub(super) fn requested(&mut self, request: RequestId, what: Request) {
        if let Some(refusal) = self.takes_nothing(&what) {
            self.reply(request, Err(refusal));
            return;
        }
        match what {
            Request::Inbound { inbound } => self.inbound(request, inbound),
            Request::Activity { channel, activity } => self.channel_is(request, channel, activity),
            Request::Bind { channel, binding } => self.bind(request, channel, binding),
            Request::Delegate { delegation, by } => self.delegate_on_request(request, *delegation, by),
            Request::CancelTask { task, reason } => self.cancel_on_request(request, &task, &reason),
            Request::TellTask { task, text } => self.tell_on_request(request, &task, text),
            Request::Deliver { announcement } => self.announce(request, announcement),
            Request::Close { reason } => self.close(request, &reason),
        }
    }

    /// Why the room as it is now takes no such request.
    fn takes_nothing(&self, what: &Request) -> Option<Refusal> {
        match self.phase {
            Phase::Unopened => Some(Refusal::new(RefusalCode::RoomNotFound, "there is no such room")),
            Phase::Finished { .. } if matches!(what, Request::Close { .. }) => None,
            Phase::Finished { .. } => Some(Refusal::new(RefusalCode::RoomClosed, "the room is over")),
            Phase::Running { .. } | Phase::Draining { .. } => None,
        }
    }

    /// Tells whoever asked what came of it.
    pub(super) fn reply(&mut self, request: RequestId, reply: Result<Reply, Refusal>) {
        self.effects.push_back(Effect::Reply { request, reply });
    }
}
