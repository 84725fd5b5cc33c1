//! The replay state of a call: the results it received, in this process and before. A call that
//! runs again, after a restart or a suspension, gets the same results and repeats no side effect.
//! Reads are buffered here until something that depends on them may leave the call.

mod effects;
mod reads;
mod requests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use conclave_core::protocol::call_log::CallLog;
use conclave_core::types::denial::DenialRecord;
use conclave_core::types::fault::{Fault, FaultKind};
use conclave_core::types::ids::CallId;
use conclave_core::types::tool::NestedAnswer;
use tokio::sync::Notify;

use super::plugin_context::PluginContext;
use crate::calls::{CallStart, EffectPort, ModelPort, ToolPort};
use crate::support::blobs::Blobs;

pub(crate) use effects::EffectDecision;
pub(crate) use reads::{Packed, Recalled};
use requests::{Answer, Awaited, Requests};

/// The replay state of one call, shared by its attempts.
pub(crate) struct CallReplay {
    blobs: Arc<dyn Blobs>,
    call: CallId,
    models: Arc<dyn ModelPort>,
    tools: Arc<dyn ToolPort>,
    effects: Arc<dyn EffectPort>,
    /// Whether anything besides its answer can leave the call. If not, its reads need not be
    /// journalled.
    records: bool,
    state: Mutex<ReplayState>,
    /// Number of side effects in progress and of tasks that run beside the guest.
    under_way: AtomicUsize,
    /// Notified when one of them ends.
    idle: Notify,
    deviation: OnceLock<String>,
    /// The seed of its secret placeholders, once it has one.
    seed: OnceLock<[u8; 32]>,
}

struct ReplayState {
    trace: CallLog,
    /// Number of recorded reads that this attempt has consumed.
    replayed: usize,
    /// Number of recorded reads that are journalled.
    journalled: usize,
    /// Bytes of the reads that are not journalled, and of all reads.
    loose: usize,
    read_bytes: usize,
    models: Requests<Answer>,
    tools: Requests<Vec<NestedAnswer>>,
    /// The request that a suspended call waits for.
    waits_for: Option<Awaited>,
    /// Complete refusals of side effects; the journal only has the part that the plugin sees.
    records: BTreeMap<u32, DenialRecord>,
    /// Whether a result was not recorded, so that the call cannot be replayed and must keep its
    /// instance.
    forgetful: bool,
}

impl CallReplay {
    pub(crate) fn new(plugin: &PluginContext, start: &CallStart) -> Arc<Self> {
        let trace = CallLog::clone(&start.trace);
        let state = ReplayState {
            replayed: 0,
            journalled: trace.reads.len(),
            trace,
            loose: 0,
            read_bytes: 0,
            models: Requests::default(),
            tools: Requests::default(),
            waits_for: None,
            records: BTreeMap::new(),
            forgetful: false,
        };
        Arc::new(Self {
            blobs: Arc::clone(&plugin.services.blobs),
            call: start.call,
            models: Arc::clone(&start.models),
            tools: Arc::clone(&start.tools),
            effects: Arc::clone(&start.effects),
            records: plugin.setup.grants.can_act(),
            state: Mutex::new(state),
            under_way: AtomicUsize::new(0),
            idle: Notify::new(),
            deviation: OnceLock::new(),
            seed: OnceLock::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, ReplayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts another attempt of the call.
    pub(crate) fn begin_attempt(&self) {
        let mut state = self.state();
        (state.replayed, state.models.next, state.tools.next) = (0, 0, 0);
    }

    /// Waits until nothing is in progress that would end with the instance. Never returns if the
    /// call cannot be replayed.
    pub(crate) async fn may_park(&self) {
        loop {
            // Enabled before the check, so that a notification in between is not lost.
            let mut idle = std::pin::pin!(self.idle.notified());
            idle.as_mut().enable();
            let is_idle = self.under_way.load(Ordering::SeqCst) == 0;
            // Checked after the counter: a task that has just ended may have set it.
            if self.deviation.get().is_some() || self.state().forgetful {
                return std::future::pending().await;
            }
            if is_idle {
                return;
            }
            idle.await;
        }
    }

    /// The seed of the call's secret placeholders.
    pub(crate) fn seed(&self) -> Option<[u8; 32]> {
        self.seed.get().copied()
    }

    /// Sets the seed, unless one is set.
    pub(crate) fn set_seed(&self, seed: [u8; 32]) {
        self.seed.get_or_init(|| seed);
    }

    /// Records that a result was not kept, which rules out a replay.
    pub(crate) fn forget(&self) {
        self.state().forgetful = true;
    }

    /// Marks a task as in progress until the guard is dropped.
    pub(crate) fn busy(self: &Arc<Self>) -> BusyGuard {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        BusyGuard(Arc::clone(self))
    }

    /// Records that the call deviates from its replay, so it must end.
    pub(crate) fn lose(&self, what: &str) {
        self.deviation.get_or_init(|| format!("it did not go on as it did before the host stopped: {what}; nothing of it was repeated"));
    }

    /// Checks that the call may continue.
    ///
    /// # Errors
    /// If the call deviates from its replay.
    pub(crate) fn check(&self) -> Result<(), ReplayMismatch> {
        if self.deviation.get().is_some() { Err(ReplayMismatch) } else { Ok(()) }
    }

    /// The fault of a call that deviated from its replay.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.deviation.get().map(|why| Fault::new(FaultKind::Interrupted, why.clone()))
    }
}

/// Stops a guest that deviates from its replay.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the call does not run as it did")]
pub(crate) struct ReplayMismatch;

/// A task in progress.
pub(crate) struct BusyGuard(Arc<CallReplay>);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
        self.0.idle.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::types::side_effect::{Digest, SideEffect};

    use super::*;
    use crate::imports::testing::{core, setup};

    /// Polls once, without waiting.
    async fn is_parked(replay: &CallReplay) -> bool {
        tokio::select! {
            biased;
            () = replay.may_park() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn what_is_under_way_puts_parking_off_and_does_not_rule_it_out() {
        let replay = core(setup()).replay;
        let wrote = SideEffect::WriteFile {
            path: "notes".to_owned(),
            offset: 0,
            truncate: false,
            bytes: Digest { sha256: String::new(), length: 0 },
        };
        let EffectDecision::Go(busy) = replay.ask_effect(0, wrote).await else {
            panic!("it is let through")
        };
        assert!(!is_parked(&replay).await);
        let waits = tokio::spawn({
            let replay = Arc::clone(&replay);
            async move { replay.may_park().await }
        });
        tokio::task::yield_now().await;
        // The task ended without a recorded outcome.
        drop(busy);
        waits.await.unwrap();
        replay.forget();
        assert!(!is_parked(&replay).await);
    }
}
