//! State shared by the requests of all calls of a plugin: the number in progress, and the names
//! that each run has resolved.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::permissions::grant::Grants;
use conclave_core::types::ids::RoomId;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::resolver::{Resolve, System};

/// Maximum runs whose names are kept; a server has many, and the oldest is dropped.
const RUNS: usize = 256;

/// The outgoing requests of a plugin.
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

    /// Returns a client with its own resolver.
    pub(super) fn resolving(grants: &Grants, resolver: Arc<dyn Resolve>) -> Self {
        let at_once = grants.fetch.as_ref().map_or(0, |grant| grant.at_once);
        let at_once =
            usize::try_from(at_once).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        Self { at_once: Semaphore::new(at_once), names: Mutex::default(), resolver }
    }

    /// Waits for a permit.
    pub(super) async fn turn(&self) -> SemaphorePermit<'_> {
        self.at_once.acquire().await.expect("the semaphore is never closed")
    }

    /// Returns whether the run may resolve the name: a known one, or a new one below the limit
    /// `most`. Each new name can leak data, because the query reaches the servers of the name's
    /// owner.
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
