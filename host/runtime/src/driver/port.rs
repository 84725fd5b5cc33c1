//! The path of a request from a plugin to the room, and of the answer back: model requests and nested
//! calls. The plugin waits in its import. The loop journals the request before anything leaves, and
//! the answer before the plugin gets it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_core::protocol::event::Event;
use conclave_core::types::completion::{Completion, ModelError, ModelRequest};
use conclave_core::types::ids::CallId;
use conclave_core::types::tool::{NestedAnswer, NestedCall};
use tokio::sync::oneshot;

use crate::calls::{ModelPort, ToolPort, not_run};
use crate::driver::event_queue::EventSender;
use crate::support::clock::BoxFuture;

type Answer = Result<Completion, ModelError>;

/// The maximum number of model requests of one call; each is an event that the room keeps.
const REQUESTS: u32 = 256;
/// The maximum number of concurrent model requests of one call.
const AT_ONCE: usize = 64;
/// The answer to a plugin that still waits when its run ends.
const OVER: &str = "the run is over";

/// The requests of a room's plugins that wait for their answers.
#[derive(Default)]
pub(super) struct WaitingRequests {
    pub(super) models: Arc<Waiting<Answer>>,
    pub(super) tools: Arc<Waiting<Vec<NestedAnswer>>>,
}

impl WaitingRequests {
    pub(super) fn forget(&self, call: CallId) {
        self.models.forget(call);
        self.tools.forget(call);
    }

    pub(super) fn clear(&self) {
        self.models.clear();
        self.tools.clear();
    }
}

/// The requests of one kind that wait for their answers.
pub(super) struct Waiting<A> {
    waiting: Mutex<HashMap<CallId, OfCall<A>>>,
    expected: Mutex<HashMap<(CallId, u32), Option<A>>>,
}

/// The waiting requests of a call, by ordinal. A call without waiting requests has no entry.
type OfCall<A> = HashMap<u32, oneshot::Sender<A>>;

impl<A> Default for Waiting<A> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), expected: Mutex::default() }
    }
}

impl<A: Send + 'static> Waiting<A> {
    fn lock(&self) -> MutexGuard<'_, HashMap<CallId, OfCall<A>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expected(&self) -> MutexGuard<'_, HashMap<(CallId, u32), Option<A>>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a request that a replayed call made before. Its answer may arrive before the call
    /// runs again.
    pub(super) fn expect(&self, call: CallId, ordinal: u32) {
        self.expected().insert((call, ordinal), None);
    }

    /// The number of a call's waiting requests.
    fn count(&self, call: CallId) -> usize {
        self.lock().get(&call).map_or(0, HashMap::len)
    }

    /// Registers a waiting request. The answer is `None` if the run ends first.
    fn enter(self: &Arc<Self>, call: CallId, ordinal: u32) -> BoxFuture<'static, Option<A>> {
        let (sender, receiver) = oneshot::channel();
        self.lock().entry(call).or_default().insert(ordinal, sender);
        let place = Waiter { waiting: Arc::clone(self), call, ordinal };
        Box::pin(async move {
            let _place = place;
            receiver.await.ok()
        })
    }

    /// Registers a request that was made before the host stopped; `None` if it was not.
    fn enter_expected(
        self: &Arc<Self>,
        call: CallId,
        ordinal: u32,
    ) -> Option<BoxFuture<'static, Option<A>>> {
        // Locked until the request waits: an answer that comes in between would find neither.
        let mut expected = self.expected();
        Some(match expected.remove(&(call, ordinal))? {
            Some(answer) => Box::pin(std::future::ready(Some(answer))),
            None => self.enter(call, ordinal),
        })
    }

    fn take(&self, call: CallId, ordinal: u32) -> Option<oneshot::Sender<A>> {
        let mut waiting = self.lock();
        let of_call = waiting.get_mut(&call)?;
        let sender = of_call.remove(&ordinal);
        if of_call.is_empty() {
            waiting.remove(&call);
        }
        sender
    }

    /// Delivers an answer to its waiting request, if it still waits.
    pub(super) fn answer(&self, call: CallId, ordinal: u32, answer: A) {
        if let Some(place) = self.expected().get_mut(&(call, ordinal)) {
            *place = Some(answer);
            return;
        }
        if let Some(waiting) = self.take(call, ordinal) {
            let _ = waiting.send(answer);
        }
    }

    fn forget(&self, call: CallId) {
        self.lock().remove(&call);
        self.expected().retain(|(of, _), _| *of != call);
    }

    fn clear(&self) {
        self.lock().clear();
        self.expected().clear();
    }
}

/// The registration of a waiting request; dropping it removes the entry.
struct Waiter<A: Send + 'static> {
    waiting: Arc<Waiting<A>>,
    call: CallId,
    ordinal: u32,
}

impl<A: Send + 'static> Drop for Waiter<A> {
    fn drop(&mut self) {
        self.waiting.take(self.call, self.ordinal);
    }
}

/// The port of a room's plugins for model requests and nested calls.
pub(super) struct RoomPort {
    pub(super) events: EventSender,
    pub(super) waiting: Arc<WaitingRequests>,
}

impl ModelPort for RoomPort {
    fn ask(&self, call: CallId, ordinal: u32, request: ModelRequest) -> BoxFuture<'static, Answer> {
        let failed = |message: String| Err(ModelError::Other { message });
        let models = &self.waiting.models;
        let answer = match models.enter_expected(call, ordinal) {
            Some(answer) => answer,
            None => {
                // Only for new requests: a replayed one was permitted before.
                let refused = if ordinal >= REQUESTS {
                    Some(format!("more than {REQUESTS} model requests in one call"))
                } else if models.count(call) >= AT_ONCE {
                    Some(format!("more than {AT_ONCE} model requests at once in one call"))
                } else {
                    None
                };
                if let Some(refused) = refused {
                    return Box::pin(std::future::ready(failed(refused)));
                }
                // Before the event is sent, because the answer may come at once.
                let answer = models.enter(call, ordinal);
                if self.events.send(Event::ModelAsked { call, ordinal, request }).is_err() {
                    return Box::pin(std::future::ready(failed(OVER.to_owned())));
                }
                answer
            }
        };
        Box::pin(async move { answer.await.unwrap_or_else(|| failed(OVER.to_owned())) })
    }
}

impl ToolPort for RoomPort {
    fn ask(
        &self,
        call: CallId,
        ordinal: u32,
        calls: Vec<NestedCall>,
    ) -> BoxFuture<'static, Vec<NestedAnswer>> {
        let tools = &self.waiting.tools;
        let over = not_run(&calls, OVER);
        let answers = match tools.enter_expected(call, ordinal) {
            Some(answers) => answers,
            None => {
                let answers = tools.enter(call, ordinal);
                if self.events.send(Event::ToolsAsked { call, ordinal, calls }).is_err() {
                    return Box::pin(std::future::ready(over));
                }
                answers
            }
        };
        Box::pin(async move { answers.await.unwrap_or(over) })
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
        ModelPort::ask(port, call, ordinal, ModelRequest::default())
    }

    #[tokio::test]
    async fn requests_that_are_given_up_end_too() {
        let (port, received) = port();
        (0..1_000).for_each(|ordinal| drop(ask(&port, CALL, ordinal)));
        assert_eq!(received.len(), 256);
        assert!(port.waiting.models.lock().is_empty(), "nobody waits any more");
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
        let error = ModelError::Other { message: "gone".to_owned() };
        port.waiting.models.answer(CALL, 65, Err(error.clone()));
        assert_eq!(waiting.pop().unwrap().await, Err(error));
    }
}
