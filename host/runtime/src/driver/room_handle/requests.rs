//! Requests that wait for their replies, by number. A room that nobody runs takes none.

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
    /// A run goes on, or is about to.
    is_open: bool,
    next: u64,
    by_id: HashMap<RequestId, oneshot::Sender<RequestAnswer>>,
}

/// What whoever asks a room that is over is told.
pub(super) fn over() -> Refusal {
    Refusal::new(
        RefusalCode::RoomClosed,
        "the room is over, or nobody runs it yet: no run goes on in it",
    )
}

/// The first number that no request of an earlier host had: whoever asked them waits no more, and
/// nobody is to get their replies.
pub(crate) fn next_request<'a>(events: impl IntoIterator<Item = &'a Event>) -> u64 {
    let number = |event: &Event| match event {
        // The greatest number is that of requests that nobody waits for.
        Event::Requested { request, .. } if *request != RequestId::NO_REPLY => Some(request.0 + 1),
        _ => None,
    };
    events.into_iter().filter_map(number).max().unwrap_or_default()
}

impl Requests {
    fn lock(&self) -> MutexGuard<'_, PendingRequests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on there is somebody who answers.
    pub(crate) fn open(&self) {
        self.lock().is_open = true;
    }

    /// An earlier host gave away the numbers before.
    pub(crate) fn resume_from(&self, next: u64) {
        self.lock().next = next;
    }

    /// A place for a reply; none when nobody would give one.
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

    /// Nobody may wait for it any more.
    pub(crate) fn answer(&self, request: RequestId, reply: RequestAnswer) {
        let waiting = self.lock().by_id.remove(&request);
        if let Some(waiting) = waiting {
            let _ = waiting.send(reply);
        }
    }

    /// Nobody answers any more: whoever waits is told so.
    pub(crate) fn close(&self) {
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
