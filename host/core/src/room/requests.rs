//! Requests from outside to an open room. Each is passed to its handler, and gets one reply once
//! the journal holds the outcome. The handlers decide the outcome.

use super::{Room, RoomContext, RoomPhase};
use crate::protocol::effect::Effect;
use crate::types::request::{Refusal, RefusalCode, RequestId, RequestReply, RoomRequest};

impl Room {
    pub(super) fn requested(&mut self, request: RequestId, what: RoomRequest) {
        if let Some(refusal) = self.cx.refusal_of(&what) {
            self.cx.reply(request, Err(refusal));
            return;
        }
        match what {
            RoomRequest::Inbound { inbound } => self.inbound(request, inbound),
            RoomRequest::Activity { channel, activity } => {
                self.result_delivery().report_activity(request, channel, activity)
            }
            RoomRequest::Bind { channel, binding } => {
                self.result_delivery().bind(request, channel, binding)
            }
            RoomRequest::Delegate { delegation, by } => {
                self.background_work().delegate_on_request(request, *delegation, by)
            }
            RoomRequest::CancelTask { task, reason } => {
                self.background_work().cancel_on_request(request, &task, &reason)
            }
            RoomRequest::TellTask { task, text } => {
                self.background.report_on_request(&mut self.cx, request, &task, text)
            }
            RoomRequest::Redeliver { task } => {
                self.result_delivery().redeliver_on_request(request, &task)
            }
            RoomRequest::Deliver { announcement } => {
                self.result_delivery().announce(request, announcement)
            }
            RoomRequest::Observe { observer, events } => {
                self.observing.enqueue(&mut self.cx, request, observer, events)
            }
            RoomRequest::Close { reason } => self.close(request, &reason),
        }
    }
}

impl RoomContext {
    /// The refusal of a request in the current phase, if any.
    fn refusal_of(&self, what: &RoomRequest) -> Option<Refusal> {
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

    /// Sends the reply to a request.
    pub(super) fn reply(&mut self, request: RequestId, reply: Result<RequestReply, Refusal>) {
        self.effects.push_back(Effect::Reply { request, reply });
    }
}
