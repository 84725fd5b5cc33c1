//! A room that is open, as the program around the host speaks to it: messages on its channels, tasks in its background, its close. Each
//! request is journalled before its reply is given. Not what a room does with it, which is the core's.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::event::Event;
use conclave_core::ids::RoomId;
use conclave_core::request::{Refusal, RefusalCode, Reply, Request, RequestId};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

type Answer = Result<Reply, Refusal>;

/// Requests that wait for their replies.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    next: AtomicU64,
    waiting: Mutex<HashMap<RequestId, oneshot::Sender<Answer>>>,
}

impl Requests {
    fn open(&self) -> (RequestId, oneshot::Receiver<Answer>) {
        let request = RequestId(self.next.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(request, sender);
        (request, receiver)
    }

    /// Nobody may wait for it any more.
    pub(crate) fn answer(&self, request: RequestId, reply: Answer) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&request);
        if let Some(waiting) = waiting {
            let _ = waiting.send(reply);
        }
    }
}

/// Speaks to a room while it is open. Clones speak to the same.
#[derive(Clone, Debug)]
pub struct RoomHandle {
    room: RoomId,
    events: UnboundedSender<Event>,
    requests: Arc<Requests>,
}

impl RoomHandle {
    pub(crate) fn new(room: RoomId, events: UnboundedSender<Event>, requests: Arc<Requests>) -> Self {
        Self { room, events, requests }
    }

    /// The room's id.
    #[must_use]
    pub fn room(&self) -> &RoomId {
        &self.room
    }

    /// Asks something of the room.
    ///
    /// # Errors
    /// Why it came to nothing; `room_closed` too when the room is over before it answers.
    pub async fn ask(&self, what: Request) -> Result<Reply, Refusal> {
        let over = || Refusal::new(RefusalCode::RoomClosed, "the room is over");
        let (request, reply) = self.requests.open();
        self.events.send(Event::Requested { request, what }).map_err(|_| over())?;
        reply.await.unwrap_or_else(|_| Err(over()))
    }
}
