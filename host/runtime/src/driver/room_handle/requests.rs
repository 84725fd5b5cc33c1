//! Requests that wait for their replies, by number. A room without an active run accepts none.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use conclave_core::protocol::event::Event;
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

/// Returns the refusal of a request to a room that is over.
pub(super) fn over() -> Refusal {
    Refusal::new(
        RefusalCode::RoomClosed,
        "the room is over, or nobody runs it yet: no run goes on in it",
    )
}

/// Returns the first request number that no earlier host used. Requests of an earlier host no
/// longer wait, and their numbers must not match new ones.
pub(crate) fn next_request<'a>(events: impl IntoIterator<Item = &'a Event>) -> u64 {
    let number = |event: &Event| match event {
        // `NO_REPLY` is the greatest number and marks requests without a reply.
        Event::Requested { request, .. } if *request != RequestId::NO_REPLY => Some(request.0 + 1),
        _ => None,
    };
    events.into_iter().filter_map(number).max().unwrap_or_default()
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
            let _ = waiting.send(Err(over()));
        }
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::types::request::RoomRequest;

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

    #[test]
    fn numbers_of_an_earlier_host_are_not_used_again() {
        let asked = |id: u64| Event::Requested {
            request: RequestId(id),
            what: RoomRequest::Close { reason: String::new() },
        };
        let next = next_request(&[asked(3), Event::Unpaused, asked(7), asked(u64::MAX), asked(1)]);
        let requests = Requests::default();
        requests.resume_from(next);
        requests.open();
        assert_eq!(requests.enter().unwrap().0, RequestId(8));
        assert_eq!(next_request(&[]), 0);
    }
}
