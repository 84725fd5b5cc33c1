//! How an import does something to the world: it asks the room, does it, and says how it went before the plugin learns of it. What may be
//! done at all is each import's own question, asked before.

use std::time::Instant;

use conclave_core::grant::Layer;
use conclave_core::side_effect::{Digest, SideEffect, SideEffectAnswer};

use crate::bindings::conclave::plugin::types;
use crate::convert::denial_out;
use crate::sandbox::CallState;

/// Side effects of one call: each is two lines of the journal.
pub(crate) const MOST: u32 = 10_000;

impl CallState {
    /// Asks for leave; the number under which it is kept.
    pub(crate) async fn begin(&mut self, side_effect: SideEffect) -> Result<u32, types::Denial> {
        let ordinal = self.effects;
        if ordinal >= MOST {
            let reason = format!("one call may do {MOST} things to the world, and has done them");
            let record = self.rights().refuse(side_effect.capability(), side_effect.target(), Layer::Host, &reason, None);
            return Err(self.refuse(*record));
        }
        self.effects += 1;
        let began = Instant::now();
        let leave = self.start.effects.ask(self.start.call, ordinal, side_effect).await;
        self.note_wait_since(began);
        // Whoever refused has told the operator.
        leave.map(|()| ordinal).map_err(|denial| denial_out(&denial))
    }

    /// Says how it went.
    pub(crate) async fn end(&mut self, ordinal: u32, answer: SideEffectAnswer) {
        let began = Instant::now();
        self.start.effects.ended(self.start.call, ordinal, answer).await;
        self.note_wait_since(began);
    }

    /// Does what waits for a disk, beside the guest's time.
    pub(crate) async fn off_loop<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let began = Instant::now();
        let done = tokio::task::spawn_blocking(work).await.ok();
        self.note_wait_since(began);
        done
    }
}

/// Bytes by what they are.
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    Digest { sha256: crate::digest::sha256(bytes), length: bytes.len() as u64 }
}
