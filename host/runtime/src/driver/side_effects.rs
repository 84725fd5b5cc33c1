//! The path of a side effect from an import to the room, and of the permit back. The plugin waits
//! in its import. The loop journals the side effect before it is performed, and its result before
//! the plugin gets it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_core::protocol::call_log::LoggedRead;
use conclave_core::protocol::event::Event;
use conclave_core::types::denial::Denial;
use conclave_core::types::ids::CallId;
use conclave_core::types::side_effect::{SideEffect, SideEffectAnswer};
use tokio::sync::oneshot;

use crate::calls::EffectPort;
use crate::driver::event_queue::EventSender;
use crate::imports::folder::RunOverlays;
use crate::support::clock::BoxFuture;
use crate::support::fail_points::kill_point;

/// The step of a side effect that an import waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum EffectStep {
    Asked,
    Ended,
}

type Key = (CallId, u32, EffectStep);
type Leave = Result<(), Denial>;

/// Imports that wait for a permit, or for the record of a side effect's end.
#[derive(Default)]
pub(super) struct WaitingSideEffects(Mutex<HashMap<Key, oneshot::Sender<Leave>>>);

impl WaitingSideEffects {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, oneshot::Sender<Leave>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers the waiting import, if it still waits.
    pub(super) fn answer(&self, call: CallId, ordinal: u32, step: EffectStep, leave: Leave) {
        let waiting = self.lock().remove(&(call, ordinal, step));
        if let Some(waiting) = waiting {
            let _ = waiting.send(leave);
        }
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }
}

/// The side-effect port of a room's plugins.
pub(super) struct SideEffectPort {
    pub(super) events: EventSender,
    pub(super) waiting: Arc<WaitingSideEffects>,
    /// Whether the room's journal survives power cuts.
    pub(super) survives_power_cuts: bool,
    /// The run's overlays; `None` if it is not stored.
    pub(super) overlays: Option<Arc<RunOverlays>>,
}

impl SideEffectPort {
    /// Sends an event and waits until its record is durable; `None` if the room is over.
    fn send_durable(&self, key: Key, event: Event) -> BoxFuture<'static, Option<Leave>> {
        let (sender, receiver) = oneshot::channel();
        // Registered before the event is sent, so that the answer finds its receiver.
        self.waiting.lock().insert(key, sender);
        let place = EffectWaiter { waiting: Arc::clone(&self.waiting), key };
        let sent = self.events.send(event);
        Box::pin(async move {
            let _place = place;
            sent.ok()?;
            receiver.await.ok()
        })
    }
}

impl EffectPort for SideEffectPort {
    fn ask(
        &self,
        call: CallId,
        ordinal: u32,
        side_effect: SideEffect,
    ) -> BoxFuture<'static, Leave> {
        let over = Denial {
            capability: side_effect.capability().as_str().to_owned(),
            target: side_effect.target().chars().take(256).collect(),
            detail: "the run is over".to_owned(),
        };
        kill_point!("before-side-effect-asked");
        let recorded = self.send_durable(
            (call, ordinal, EffectStep::Asked),
            Event::SideEffectAsked { call, ordinal, side_effect },
        );
        Box::pin(async move { recorded.await.unwrap_or(Err(over)) })
    }

    fn read(&self, call: CallId, reads: Vec<LoggedRead>) {
        // If the room is over, the reads have no effect on it.
        let _ = self.events.send(Event::ReadsRecorded { call, reads });
    }

    fn survives_power_cuts(&self) -> bool {
        self.survives_power_cuts
    }

    fn overlay_folder(&self) -> Option<&Path> {
        Some(self.overlays.as_ref()?.folder())
    }

    fn ended(
        &self,
        call: CallId,
        ordinal: u32,
        answer: SideEffectAnswer,
    ) -> BoxFuture<'static, ()> {
        kill_point!("after-side-effect-done");
        let recorded = self.send_durable(
            (call, ordinal, EffectStep::Ended),
            Event::SideEffectEnded { call, ordinal, answer },
        );
        Box::pin(async move { drop(recorded.await) })
    }
}

/// The registration of a waiting import; dropping it removes the entry.
struct EffectWaiter {
    waiting: Arc<WaitingSideEffects>,
    key: Key,
}

impl Drop for EffectWaiter {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.key);
    }
}
