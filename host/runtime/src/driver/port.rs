//! The way from a plugin that asks for a completion to the room, and of the answer back. The plugin waits in its import; the loop
//! journals the request before it goes out and the answer before the plugin sees it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::event::Event;
use conclave_core::ids::CallId;
use conclave_core::model::{Completion, ModelError, ModelRequest};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::calls::ModelPort;
use crate::clock::BoxFuture;

type Answer = Result<Completion, ModelError>;

/// Plugins that wait for a model.
#[derive(Default)]
pub(super) struct WaitingModels(Mutex<HashMap<(CallId, u32), oneshot::Sender<Answer>>>);

impl WaitingModels {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(CallId, u32), oneshot::Sender<Answer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an answer to whoever waits for it; nobody may wait any more.
    pub(super) fn answer(&self, call: CallId, ordinal: u32, answer: Answer) {
        if let Some(waiting) = self.lock().remove(&(call, ordinal)) {
            let _ = waiting.send(answer);
        }
    }

    pub(super) fn forget(&self, call: CallId) {
        self.lock().retain(|(waiting, _), _| *waiting != call);
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }
}

/// The port that the imports of a room's plugins hold.
pub(super) struct RoomPort {
    pub(super) events: UnboundedSender<Event>,
    pub(super) waiting: Arc<WaitingModels>,
}

impl ModelPort for RoomPort {
    fn ask(&self, call: CallId, ordinal: u32, request: ModelRequest) -> BoxFuture<'static, Answer> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().insert((call, ordinal), sender);
        let sent = self.events.send(Event::ModelAsked { call, ordinal, request });
        Box::pin(async move {
            let over = || ModelError::Other { message: "the run is over".to_owned() };
            sent.map_err(|_| over())?;
            receiver.await.map_err(|_| over())?
        })
    }
}
