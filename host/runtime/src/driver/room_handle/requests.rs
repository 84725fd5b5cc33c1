//! Requests that wait for their replies, by number. A room without an active run accepts none.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use conclave_core::types::request::{Refusal, RefusalCode, RequestId, RequestReply};
use tokio::sync::oneshot;

pub(super) type RequestAnswer = Result<RequestReply, Refusal>;

/// Requests that wait for their replies.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<PendingRequests>);

#[derive(Debug, Default)]
struct PendingRequests {
    /// Whether a run is active or about to be.
    is_open: bool,
    next: u64,
    by_id: HashMap<RequestId, oneshot::Sender<RequestAnswer>>,
}

/// The refusal of a request to a room that is over.
pub(super) fn room_closed() -> Refusal {
    Refusal::new(
        RefusalCode::RoomClosed,
        "the room is over, or nobody runs it yet: no run goes on in it",
    )
}

impl Requests {
    fn lock(&self) -> MutexGuard<'_, PendingRequests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts requests from now on.
    pub(crate) fn open(&self) {
        self.lock().is_open = true;
    }

    /// Skips the numbers that an earlier host used.
    pub(crate) fn resume_from(&self, next: u64) {
        self.lock().next = next;
    }

    /// Registers a request; `None` if no run is active.
    pub(super) fn enter(&self) -> Option<(RequestId, oneshot::Receiver<RequestAnswer>)> {
        let mut waiting = self.lock();
        if !waiting.is_open {
            return None;
        }
        let request = RequestId(waiting.next);
        waiting.next += 1;
        let (sender, receiver) = oneshot::channel();
        waiting.by_id.insert(request, sender);
        Some((request, receiver))
    }

    /// Delivers a reply, if its request still waits.
    pub(crate) fn answer(&self, request: RequestId, reply: RequestAnswer) {
        let waiting = self.lock().by_id.remove(&request);
        if let Some(waiting) = waiting {
            let _ = waiting.send(reply);
        }
    }

    /// Refuses all waiting requests and accepts no more.
    pub(crate) fn close(&self) {
        // Takes the senders out first, so that none is used under the lock.
        let waiting = {
            let mut waiting = self.lock();
            waiting.is_open = false;
            std::mem::take(&mut waiting.by_id)
        };
        for (_, waiting) in waiting {
            let _ = waiting.send(Err(room_closed()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_waits_when_the_room_ends_is_told_so() {
        let requests = Requests::default();
        assert!(requests.enter().is_none(), "no run goes on");
        requests.open();
        let (first, waits) = requests.enter().unwrap();
        let (second, waits_too) = requests.enter().unwrap();
        assert_ne!(first, second);
        requests.answer(second, Ok(RequestReply::Done));
        requests.close();
        assert_eq!(waits.await.unwrap().unwrap_err().error, RefusalCode::RoomClosed);
        assert_eq!(waits_too.await.unwrap(), Ok(RequestReply::Done));
        assert!(requests.enter().is_none());
        requests.answer(first, Ok(RequestReply::Done));
    }
}
