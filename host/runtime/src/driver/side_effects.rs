//! The way from an import that is about to do something to the room, and of its leave back. The
//! plugin waits in its import; the loop journals what is about to be done before it is, and how it
//! went before the plugin learns of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_core::protocol::call_log::LoggedRead;
use conclave_core::protocol::event::Event;
use conclave_core::types::denial::Denial;
use conclave_core::types::ids::CallId;
use conclave_core::types::side_effect::{SideEffect, SideEffectAnswer};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::calls::EffectPort;
use crate::support::clock::BoxFuture;
use crate::support::fail_points::kill_point;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum EffectStep {
    Asked,
    Ended,
}

type Key = (CallId, u32, EffectStep);
type Leave = Result<(), Denial>;

/// Plugins that wait for leave, or for the end to be kept.
#[derive(Default)]
pub(super) struct WaitingSideEffects(Mutex<HashMap<Key, oneshot::Sender<Leave>>>);

impl WaitingSideEffects {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, oneshot::Sender<Leave>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whoever waits; nobody may wait any more.
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

/// The port that the imports of a room's plugins hold.
pub(super) struct SideEffectPort {
    pub(super) events: UnboundedSender<Event>,
    pub(super) waiting: Arc<WaitingSideEffects>,
    /// The room's journal survives power cuts.
    pub(super) survives_power_cuts: bool,
}

impl SideEffectPort {
    /// Sends an event, and waits until the loop has kept it; none when the room is over.
    fn kept(&self, key: Key, event: Event) -> BoxFuture<'static, Option<Leave>> {
        let (sender, receiver) = oneshot::channel();
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
        let kept = self.kept(
            (call, ordinal, EffectStep::Asked),
            Event::SideEffectAsked { call, ordinal, side_effect },
        );
        Box::pin(async move { kept.await.unwrap_or(Err(over)) })
    }

    fn read(&self, call: CallId, reads: Vec<LoggedRead>) {
        // The room may be over; then nothing comes of what was read.
        let _ = self.events.send(Event::ReadsKept { call, reads });
    }

    fn survives_power_cuts(&self) -> bool {
        self.survives_power_cuts
    }

    fn ended(
        &self,
        call: CallId,
        ordinal: u32,
        answer: SideEffectAnswer,
    ) -> BoxFuture<'static, ()> {
        kill_point!("after-side-effect-done");
        let kept = self.kept(
            (call, ordinal, EffectStep::Ended),
            Event::SideEffectEnded { call, ordinal, answer },
        );
        Box::pin(async move { drop(kept.await) })
    }
}

/// A place among those who wait, given up when nobody waits there any more.
struct EffectWaiter {
    waiting: Arc<WaitingSideEffects>,
    key: Key,
}

impl Drop for EffectWaiter {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.key);
    }
}
