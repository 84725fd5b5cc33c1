//! The end of interest in work on another thread, which cannot be cancelled as a future can.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A guard that tells a working thread, when dropped, that its caller is gone.
#[derive(Debug, Default)]
pub(crate) struct AbandonGuard(AbandonFlag);

/// Whether the caller of a working thread is gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct AbandonFlag(Arc<AtomicBool>);

impl AbandonGuard {
    /// The flag for the working thread.
    pub(crate) fn flag(&self) -> AbandonFlag {
        self.0.clone()
    }
}

impl Drop for AbandonGuard {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

impl AbandonFlag {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
