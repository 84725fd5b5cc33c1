//! What came of events and waits until they are kept. What does not leave the host need not wait,
//! so a step begins while the disk still works; what leaves, and what people are told, waits its
//! turn.

use std::collections::VecDeque;
use std::sync::Arc;

use conclave_core::journal::recovery::Start;
use conclave_core::protocol::effect::Effect;
use conclave_core::types::delegation::BackgroundRecord;
use conclave_core::types::ids::ControlId;

use crate::observe::subscribe::RunEvent;
use crate::storage::journal::JournalFailure;
use crate::support::clock::BoxFuture;

/// Something that came of an event.
pub(super) enum HeldOutput {
    /// For followers, with the number of its record.
    What(Option<u64>, RunEvent),
    /// A background task, for those who list and wait.
    Task(Arc<BackgroundRecord>),
    /// A control message was received, for whoever sent it.
    Control(ControlId),
    Effect(Effect, Option<Box<Start>>),
    /// All that came of the batch of this number was told.
    Batch(u64),
}

type Kept = BoxFuture<'static, Result<(), JournalFailure>>;

/// In the order in which it came up.
#[derive(Default)]
pub(super) struct OutputBuffer {
    /// May be done now.
    free: VecDeque<HeldOutput>,
    /// Each batch waits for its records; they are kept one after the other.
    batches: VecDeque<(Kept, Vec<HeldOutput>)>,
    /// Batches that had to wait so far, those that are kept among them.
    numbered: u64,
}

impl OutputBuffer {
    /// Nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Takes what came of a batch of events; without `kept` they are kept already. What `may_go`
    /// lets go need not wait.
    pub(super) fn add(
        &mut self,
        told: Vec<HeldOutput>,
        kept: Option<Kept>,
        may_go: impl Fn(&Effect) -> bool,
    ) {
        let Some(kept) = kept else {
            // What is kept later was handed over later, so nothing waits before it.
            self.free.extend(told);
            return;
        };
        let may_go =
            |told: &HeldOutput| matches!(told, HeldOutput::Effect(effect, _) if may_go(effect));
        let (free, waits): (Vec<HeldOutput>, Vec<HeldOutput>) = told.into_iter().partition(may_go);
        self.free.extend(free);
        self.numbered += 1;
        self.batches.push_back((kept, waits));
    }

    /// Takes what is to wait until all that was handed over before is kept.
    pub(super) fn add_after_all(&mut self, told: Vec<HeldOutput>) {
        match self.batches.back_mut() {
            Some((_, waits)) => waits.extend(told),
            None => self.free.extend(told),
        }
    }

    /// Returns the number of the batch that was added last.
    pub(super) fn last_batch(&self) -> u64 {
        self.numbered
    }

    /// What may be done now.
    pub(super) fn next(&mut self) -> Option<HeldOutput> {
        self.free.pop_front()
    }

    /// Waits until the oldest batch is kept; what waited for it may be done then. Dropping the
    /// future loses nothing.
    pub(super) async fn kept(&mut self) -> Result<(), JournalFailure> {
        let Some((kept, _)) = self.batches.front_mut() else { return std::future::pending().await };
        kept.await?;
        if let Some((_, waited)) = self.batches.pop_front() {
            self.free.extend(waited);
            self.free.push_back(HeldOutput::Batch(self.numbered - self.batches.len() as u64));
        }
        Ok(())
    }
}
