//! The path of a model request from a plugin to the room, and of the answer back. The plugin waits
//! in its import. The loop journals the request before it is sent, and the answer before the plugin
//! gets it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_core::protocol::event::Event;
use conclave_core::types::completion::{Completion, ModelError, ModelRequest};
use conclave_core::types::ids::CallId;
use tokio::sync::oneshot;

use crate::calls::ModelPort;
use crate::driver::event_queue::EventSender;
use crate::support::clock::BoxFuture;

type Answer = Result<Completion, ModelError>;

/// The maximum number of model requests of one call; each is an event that the room keeps.
const REQUESTS: u32 = 256;
/// The maximum number of concurrent model requests of one call.
const AT_ONCE: usize = 64;

/// The model requests that wait for their answers.
#[derive(Default)]
pub(super) struct WaitingModels {
    waiting: Mutex<Waiting>,
    expected: Mutex<HashMap<(CallId, u32), Option<Answer>>>,
}

/// The waiting requests, by call and ordinal. A call without waiting requests has no entry.
type Waiting = HashMap<CallId, HashMap<u32, oneshot::Sender<Answer>>>;

impl WaitingModels {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expected(&self) -> MutexGuard<'_, HashMap<(CallId, u32), Option<Answer>>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a request that a replayed call made before. Its answer may arrive before the call
    /// runs again.
    pub(super) fn expect(&self, call: CallId, ordinal: u32) {
        self.expected().insert((call, ordinal), None);
    }

    /// Registers a waiting request, unless the call has made too many.
    fn enter(
        self: &Arc<Self>,
        call: CallId,
        ordinal: u32,
    ) -> Result<(ModelWaiter, oneshot::Receiver<Answer>), ModelError> {
        let refused = |message: String| Err(ModelError::Other { message });
        if ordinal >= REQUESTS {
            return refused(format!("more than {REQUESTS} model requests in one call"));
        }
        let mut waiting = self.lock();
        if waiting.get(&call).is_some_and(|waiting| waiting.len() >= AT_ONCE) {
            return refused(format!("more than {AT_ONCE} model requests at once in one call"));
        }
        let (sender, receiver) = oneshot::channel();
        waiting.entry(call).or_default().insert(ordinal, sender);
        Ok((ModelWaiter { waiting: Arc::clone(self), call, ordinal }, receiver))
    }

    fn take(&self, call: CallId, ordinal: u32) -> Option<oneshot::Sender<Answer>> {
        let mut waiting = self.lock();
        let of_call = waiting.get_mut(&call)?;
        let taken = of_call.remove(&ordinal);
        if of_call.is_empty() {
            waiting.remove(&call);
        }
        taken
    }

    /// Delivers an answer to its waiting request, if it still waits.
    pub(super) fn answer(&self, call: CallId, ordinal: u32, answer: Answer) {
        if let Some(place) = self.expected().get_mut(&(call, ordinal)) {
            *place = Some(answer);
            return;
        }
        if let Some(waiting) = self.take(call, ordinal) {
            let _ = waiting.send(answer);
        }
    }

    pub(super) fn forget(&self, call: CallId) {
        self.lock().remove(&call);
        self.expected().retain(|(of, _), _| *of != call);
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
        self.expected().clear();
    }

    /// Registers a waiting request that was made before the host stopped; `None` if it was not.
    fn enter_expected(
        self: &Arc<Self>,
        call: CallId,
        ordinal: u32,
    ) -> Option<Result<(ModelWaiter, oneshot::Receiver<Answer>), Answer>> {
        let mut expected = self.expected();
        match expected.remove(&(call, ordinal))? {
            Some(answer) => Some(Err(answer)),
            None => {
                let (sender, receiver) = oneshot::channel();
                self.lock().entry(call).or_default().insert(ordinal, sender);
                Some(Ok((ModelWaiter { waiting: Arc::clone(self), call, ordinal }, receiver)))
            }
        }
    }
}

/// The registration of a waiting request; dropping it removes the entry.
struct ModelWaiter {
    waiting: Arc<WaitingModels>,
    call: CallId,
    ordinal: u32,
}

impl Drop for ModelWaiter {
    fn drop(&mut self) {
        self.waiting.take(self.call, self.ordinal);
    }
}

/// The model port of a room's plugins.
pub(super) struct RoomPort {
    pub(super) events: EventSender,
    pub(super) waiting: Arc<WaitingModels>,
}

impl ModelPort for RoomPort {
    fn ask(&self, call: CallId, ordinal: u32, request: ModelRequest) -> BoxFuture<'static, Answer> {
        match self.waiting.enter_expected(call, ordinal) {
            None => {}
            Some(Err(answer)) => return Box::pin(std::future::ready(answer)),
            Some(Ok((place, receiver))) => {
                return Box::pin(async move {
                    let _place = place;
                    receiver
                        .await
                        .map_err(|_| ModelError::Other { message: "the run is over".to_owned() })?
                });
            }
        }
        let (place, receiver) = match self.waiting.enter(call, ordinal) {
            Ok(entered) => entered,
            Err(refused) => return Box::pin(std::future::ready(Err(refused))),
        };
        let sent = self.events.send(Event::ModelAsked { call, ordinal, request });
        Box::pin(async move {
            let _place = place;
            let over = || ModelError::Other { message: "the run is over".to_owned() };
            sent.map_err(|_| over())?;
            receiver.await.map_err(|_| over())?
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::driver::event_queue::{EventQueue, event_queue};

    use super::*;

    const CALL: CallId = CallId(1);

    fn port() -> (RoomPort, EventQueue) {
        let (events, received) = event_queue();
        (RoomPort { events, waiting: Arc::default() }, received)
    }

    fn ask(port: &RoomPort, call: CallId, ordinal: u32) -> BoxFuture<'static, Answer> {
        port.ask(call, ordinal, ModelRequest::default())
    }

    #[tokio::test]
    async fn requests_that_are_given_up_end_too() {
        let (port, received) = port();
        (0..1_000).for_each(|ordinal| drop(ask(&port, CALL, ordinal)));
        assert_eq!(received.len(), 256);
        assert!(port.waiting.lock().is_empty(), "nobody waits any more");
        let refused = ask(&port, CALL, 1_000).await.unwrap_err();
        assert_eq!(
            refused,
            ModelError::Other { message: "more than 256 model requests in one call".to_owned() }
        );
        drop(ask(&port, CallId(2), 0));
        assert_eq!(received.len(), 257, "another call has its own");
    }

    #[tokio::test]
    async fn no_more_wait_at_once_than_may() {
        let (port, received) = port();
        let mut waiting: Vec<_> = (0..64).map(|ordinal| ask(&port, CALL, ordinal)).collect();
        let refused = ask(&port, CALL, 64).await.unwrap_err();
        assert_eq!(
            refused,
            ModelError::Other {
                message: "more than 64 model requests at once in one call".to_owned()
            }
        );
        assert_eq!(received.len(), 64);
        drop(waiting.pop());
        waiting.push(ask(&port, CALL, 65));
        assert_eq!(received.len(), 65);
        let gone = ModelError::Other { message: "gone".to_owned() };
        port.waiting.answer(CALL, 65, Err(gone.clone()));
        assert_eq!(waiting.pop().unwrap().await, Err(gone));
    }
}
