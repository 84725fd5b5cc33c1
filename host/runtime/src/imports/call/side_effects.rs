//! Side effects of imports. An import asks the room, acts, and reports the outcome before the
//! plugin learns it. Each import checks its own permission first. Tool calls themselves are
//! recorded by the driver (`driver/commit`).

use std::time::Instant;

use conclave_core::types::denial::Layer;
use conclave_core::types::side_effect::{Digest, SideEffect, SideEffectAnswer};

use super::call_core::CallCore;
use super::replay::EffectDecision;
use crate::imports::bindings::plugin::types;
use crate::imports::convert::denial_out;

/// Maximum side effects of one call; each takes two lines of the journal.
pub(crate) const MOST_EFFECTS: u32 = 10_000;

impl CallCore {
    /// Asks for permission. Returns the ordinal of the side effect, and its outcome if it was done
    /// before the replay.
    pub(crate) async fn begin(
        &mut self,
        side_effect: SideEffect,
    ) -> Result<(u32, Option<SideEffectAnswer>), types::Denial> {
        let ordinal = self.effects;
        if ordinal >= MOST_EFFECTS {
            let reason =
                format!("one call may do {MOST_EFFECTS} things to the world, and has done them");
            let record = self.rights().refuse(
                side_effect.capability(),
                &side_effect.target(),
                Layer::Host,
                &reason,
                None,
            );
            return Err(self.refuse(*record));
        }
        self.effects += 1;
        let (capability, target) = (side_effect.capability(), side_effect.target().into_owned());
        let began = Instant::now();
        let leave = self.replay.ask_effect(ordinal, side_effect).await;
        self.note_wait_since(began);
        match leave {
            // The guard is not needed: the guest waits for this import, so the call cannot be
            // suspended meanwhile.
            EffectDecision::Go(_) => Ok((ordinal, None)),
            EffectDecision::Told(answer) => Ok((ordinal, Some(answer))),
            // The refusal is already reported to the operator.
            EffectDecision::Refused(denial) => Err(denial_out(&denial)),
            EffectDecision::Lost => Err(types::Denial {
                capability: capability.as_str().to_owned(),
                target,
                detail: String::new(),
            }),
        }
    }

    /// Reports the outcome.
    pub(crate) async fn end(&mut self, ordinal: u32, answer: SideEffectAnswer) {
        let began = Instant::now();
        self.replay.effect_ended(ordinal, answer).await;
        self.note_wait_since(began);
    }

    /// Runs blocking work on another thread, excluded from the guest's time.
    pub(crate) async fn off_loop<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let began = Instant::now();
        let result = tokio::task::spawn_blocking(work).await.ok();
        self.note_wait_since(began);
        result
    }
}

/// The digest and length of bytes.
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    Digest { sha256: crate::support::digest::sha256(bytes), length: bytes.len() as u64 }
}
