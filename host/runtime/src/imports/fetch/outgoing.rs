//! What all calls of a plugin share on the way out: how many requests are under way, and which
//! names each run has looked up.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::permissions::grant::Grants;
use conclave_core::types::ids::RoomId;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::resolver::{Resolve, System};

/// Runs whose names are remembered. A server has many; the oldest are forgotten first.
const RUNS: usize = 256;

/// A plugin's way out.
#[derive(Debug)]
pub(crate) struct FetchClient {
    at_once: Semaphore,
    names: Mutex<VecDeque<(RoomId, BTreeSet<String>)>>,
    pub(super) resolver: Arc<dyn Resolve>,
}

impl FetchClient {
    pub(crate) fn new(grants: &Grants) -> Self {
        Self::resolving(grants, Arc::new(System))
    }

    /// Looks names up in a way of its own.
    pub(super) fn resolving(grants: &Grants, resolver: Arc<dyn Resolve>) -> Self {
        let at_once = grants.fetch.as_ref().map_or(0, |grant| grant.at_once);
        let at_once =
            usize::try_from(at_once).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        Self { at_once: Semaphore::new(at_once), names: Mutex::default(), resolver }
    }

    /// Waits for its turn.
    pub(super) async fn turn(&self) -> SemaphorePermit<'_> {
        self.at_once.acquire().await.expect("the semaphore is never closed")
    }

    /// The name may be looked up in this run: it was before, or the run has not had `most` of them.
    /// Lookups reach servers of whoever owns the name, so that each new name can carry something
    /// out.
    pub(super) fn may_look_up(&self, run: &RoomId, name: &str, most: u32) -> bool {
        let mut runs = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let known = runs.iter().position(|(known, _)| known == run);
        let (run, mut names) =
            known.and_then(|at| runs.remove(at)).unwrap_or_else(|| (run.clone(), BTreeSet::new()));
        let may = names.contains(name) || names.len() < usize::try_from(most).unwrap_or(usize::MAX);
        if may {
            names.insert(name.to_owned());
        }
        runs.push_back((run, names));
        if runs.len() > RUNS {
            runs.pop_front();
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_once_in_each_run() {
        let outgoing = FetchClient::new(&Grants::default());
        let may = |run: &str, name: &str| outgoing.may_look_up(&RoomId::from(run), name, 2);
        assert!(may("a", "one") && may("a", "two") && may("a", "one"));
        assert!(!may("a", "three") && may("b", "three") && !may("a", "three"));
    }
}
