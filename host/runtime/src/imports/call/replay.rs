//! What a call was told, in this process and before it: so that a call that is run again, because
//! the host stopped or because it gave its instance back, is told the same and does nothing twice.
//! What it reads is kept here until something may leave that depends on it.

mod effects;
mod models;
mod reads;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use conclave_core::permissions::grant::{FileMode, Grants};
use conclave_core::protocol::call_log::CallLog;
use conclave_core::types::completion::{Completion, ModelError};
use conclave_core::types::denial::DenialRecord;
use conclave_core::types::fault::{Fault, FaultKind};
use conclave_core::types::ids::CallId;
use tokio::sync::Notify;

use super::plugin_context::PluginContext;
use crate::calls::{CallStart, EffectPort, ModelPort};
use crate::support::blobs::Blobs;
use crate::support::clock::BoxFuture;

pub(crate) use effects::EffectDecision;
pub(crate) use reads::{Packed, Recalled};

/// What came of a model request.
pub(crate) type Answer = Result<Completion, ModelError>;

/// The past of one call, shared by its attempts.
pub(crate) struct CallReplay {
    blobs: Arc<dyn Blobs>,
    call: CallId,
    models: Arc<dyn ModelPort>,
    effects: Arc<dyn EffectPort>,
    /// Something besides its answer can leave the call. Of one that can only read and answer
    /// nothing needs to be kept.
    records: bool,
    known: Mutex<ReplayState>,
    /// Side effects that began and have not ended, and what goes on beside the guest.
    under_way: AtomicUsize,
    /// Something of that has ended.
    idle: Notify,
    lost: OnceLock<String>,
    /// What its placeholders come from, once it has one.
    seed: OnceLock<[u8; 32]>,
}

struct ReplayState {
    trace: CallLog,
    /// Reads of the trace that this attempt was told.
    told: usize,
    /// Reads of the trace that are journalled.
    kept: usize,
    /// Bytes of those that are not, and of all.
    loose: usize,
    held: usize,
    /// Requests whose answer is still to come.
    asked: HashMap<u32, BoxFuture<'static, Answer>>,
    /// Requests that the guest dropped.
    given_up: BTreeSet<u32>,
    /// What the call waits for while it is parked.
    waits_for: Option<u32>,
    /// Refusals of side effects, whole: the journal has what the plugin learned.
    records: BTreeMap<u32, DenialRecord>,
    /// Something of it is not here any more, so the call must go on where it is.
    forgetful: bool,
}

impl CallReplay {
    pub(crate) fn new(grantee: &PluginContext, start: &CallStart) -> Arc<Self> {
        let trace = CallLog::clone(&start.trace);
        let known = ReplayState {
            told: 0,
            kept: trace.reads.len(),
            trace,
            loose: 0,
            held: 0,
            asked: HashMap::new(),
            given_up: BTreeSet::new(),
            waits_for: None,
            records: BTreeMap::new(),
            forgetful: false,
        };
        Arc::new(Self {
            blobs: Arc::clone(&grantee.stores.blobs),
            call: start.call,
            models: Arc::clone(&start.models),
            effects: Arc::clone(&start.effects),
            records: can_act(&grantee.setup.grants),
            known: Mutex::new(known),
            under_way: AtomicUsize::new(0),
            idle: Notify::new(),
            lost: OnceLock::new(),
            seed: OnceLock::new(),
        })
    }

    fn known(&self) -> MutexGuard<'_, ReplayState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call begins once more.
    pub(crate) fn again(&self) {
        self.known().told = 0;
    }

    /// Returns once nothing is under way that ends with the instance; never when not all that it
    /// was told is here.
    pub(crate) async fn may_park(&self) {
        loop {
            let mut idle = std::pin::pin!(self.idle.notified());
            idle.as_mut().enable();
            let is_idle = self.under_way.load(Ordering::SeqCst) == 0;
            // Looked at afterwards: what was under way may have left something behind.
            if self.lost.get().is_some() || self.known().forgetful {
                return std::future::pending().await;
            }
            if is_idle {
                return;
            }
            idle.await;
        }
    }

    /// What the placeholders of the call come from.
    pub(crate) fn seed(&self) -> Option<[u8; 32]> {
        self.seed.get().copied()
    }

    /// The first one stays.
    pub(crate) fn set_seed(&self, seed: [u8; 32]) {
        self.seed.get_or_init(|| seed);
    }

    /// Something of what it was told is not kept.
    pub(crate) fn forget(&self) {
        self.known().forgetful = true;
    }

    /// Something is under way that ends with the instance, until this is dropped.
    pub(crate) fn busy(self: &Arc<Self>) -> BusyGuard {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        BusyGuard(Arc::clone(self))
    }

    /// The call does not run as it did: it must end.
    pub(crate) fn lose(&self, what: &str) {
        self.lost.get_or_init(|| format!("it did not go on as it did before the host stopped: {what}; nothing of it was repeated"));
    }

    /// # Errors
    /// When the call must end.
    pub(crate) fn check(&self) -> Result<(), ReplayMismatch> {
        if self.lost.get().is_some() { Err(ReplayMismatch) } else { Ok(()) }
    }

    /// Why it had to end, if it had.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.lost.get().map(|why| Fault::new(FaultKind::Interrupted, why.clone()))
    }
}

/// Stops a guest that does not run as it did.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the call does not run as it did")]
pub(crate) struct ReplayMismatch;

/// Something is under way.
pub(crate) struct BusyGuard(Arc<CallReplay>);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
        self.0.idle.notify_waiters();
    }
}

/// With these, something besides its answer can leave a call.
fn can_act(grants: &Grants) -> bool {
    let writes = || grants.files.iter().any(|grant| grant.mode != FileMode::Read);
    grants.model.is_some() || grants.fetch.is_some() || grants.kv.is_some() || writes()
}

#[cfg(test)]
mod tests {
    use conclave_core::types::side_effect::{Digest, SideEffect};

    use super::super::testing::{setup, state};
    use super::*;

    /// As things are: it is looked at once, and nothing is waited for.
    async fn is_parked(past: &CallReplay) -> bool {
        tokio::select! {
            biased;
            () = past.may_park() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn what_is_under_way_puts_parking_off_and_does_not_rule_it_out() {
        let past = state(setup()).past;
        let wrote = SideEffect::WriteFile {
            path: "notes".to_owned(),
            offset: 0,
            truncate: false,
            bytes: Digest { sha256: String::new(), length: 0 },
        };
        let EffectDecision::Go(busy) = past.ask_effect(0, wrote).await else {
            panic!("it is let through")
        };
        assert!(!is_parked(&past).await);
        let waits = tokio::spawn({
            let past = Arc::clone(&past);
            async move { past.may_park().await }
        });
        tokio::task::yield_now().await;
        // Whoever did it is gone without a word of how it went.
        drop(busy);
        waits.await.unwrap();
        past.forget();
        assert!(!is_parked(&past).await);
    }
}
