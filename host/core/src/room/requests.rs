//! What somebody outside asks of the room while it is open: each request is led to its place, and
//! gets one reply once the journal holds what came of it. Not what is decided there.

use super::{Room, RoomPhase};
use crate::protocol::effect::Effect;
use crate::types::request::{Refusal, RefusalCode, RequestId, RequestReply, RoomRequest};

impl Room {
    pub(super) fn requested(&mut self, request: RequestId, what: RoomRequest) {
        if let Some(refusal) = self.takes_nothing(&what) {
            self.reply(request, Err(refusal));
            return;
        }
        match what {
            RoomRequest::Inbound { inbound } => self.inbound(request, inbound),
            RoomRequest::Activity { channel, activity } => {
                self.channel_is(request, channel, activity)
            }
            RoomRequest::Bind { channel, binding } => self.bind(request, channel, binding),
            RoomRequest::Delegate { delegation, by } => {
                self.delegate_on_request(request, *delegation, by)
            }
            RoomRequest::CancelTask { task, reason } => {
                self.cancel_on_request(request, &task, &reason)
            }
            RoomRequest::TellTask { task, text } => self.report_on_request(request, &task, text),
            RoomRequest::Deliver { announcement } => self.announce(request, announcement),
            RoomRequest::Close { reason } => self.close(request, &reason),
        }
    }

    /// Why the room as it is now takes no such request.
    fn takes_nothing(&self, what: &RoomRequest) -> Option<Refusal> {
        match self.phase {
            RoomPhase::Unopened => {
                Some(Refusal::new(RefusalCode::RoomNotFound, "there is no such room"))
            }
            RoomPhase::Finished { .. } if matches!(what, RoomRequest::Close { .. }) => None,
            RoomPhase::Finished { .. } => {
                Some(Refusal::new(RefusalCode::RoomClosed, "the room is over"))
            }
            RoomPhase::Running { .. } | RoomPhase::Draining { .. } => None,
        }
    }

    /// Tells whoever asked what came of it.
    pub(super) fn reply(&mut self, request: RequestId, reply: Result<RequestReply, Refusal>) {
        self.effects.push_back(Effect::Reply { request, reply });
    }
}
