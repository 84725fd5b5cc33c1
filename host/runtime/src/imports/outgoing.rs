//! State shared by the requests of all calls of a plugin: the number in progress, and the resolver.

mod hold;
pub(crate) mod resolver;

use std::sync::Arc;

use conclave_core::permissions::grants::Grants;
use tokio::sync::{Semaphore, SemaphorePermit};

pub(crate) use hold::{Hold, Holding};
use resolver::{Resolve, System};

/// The outgoing requests of a plugin.
#[derive(Debug)]
pub(crate) struct FetchClient {
    at_once: Semaphore,
    pub(crate) resolver: Arc<dyn Resolve>,
}

impl FetchClient {
    pub(crate) fn new(grants: &Grants) -> Self {
        Self::resolving(grants, Arc::new(System))
    }

    /// Returns a client with its own resolver.
    pub(crate) fn resolving(grants: &Grants, resolver: Arc<dyn Resolve>) -> Self {
        let at_once = grants.fetch.as_ref().map_or(0, |grant| grant.at_once);
        let at_once =
            usize::try_from(at_once).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        Self { at_once: Semaphore::new(at_once), resolver }
    }

    /// Waits for a permit.
    pub(crate) async fn turn(&self) -> SemaphorePermit<'_> {
        self.at_once.acquire().await.expect("the semaphore is never closed")
    }
}
