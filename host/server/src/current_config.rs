//! The config of a server as it was read last.

use std::sync::{Arc, PoisonError, RwLock};

use conclave_runtime::Prepared;

/// The config for rooms that begin now. Rooms that run keep the one with which they began.
pub(crate) struct CurrentConfig(RwLock<Arc<Prepared>>);

impl CurrentConfig {
    pub(crate) fn new(prepared: Prepared) -> Self {
        Self(RwLock::new(Arc::new(prepared)))
    }

    pub(crate) fn prepared(&self) -> Arc<Prepared> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn replace(&self, prepared: Prepared) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(prepared);
    }
}
