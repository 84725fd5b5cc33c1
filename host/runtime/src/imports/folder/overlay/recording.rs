//! An overlay as a working copy of changes that are recorded elsewhere. The recorded changes are the
//! truth: if one cannot be recorded, the copy is dropped, and the next use builds it anew.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use conclave_core::overlay::changes::ChangeRecord;

use crate::support::overlay_files::{ChangeRecorder, OverlayOrigin, RecordFailure, check_out};

#[derive(Debug)]
pub(super) struct Recording {
    recorder: Arc<dyn ChangeRecorder>,
    /// The number of the newest recorded change. Only the holder of the overlay's writer changes it.
    number: AtomicU64,
    /// Set once the working copy may differ from what is recorded.
    is_stale: AtomicBool,
}

impl Recording {
    /// Builds the working copy.
    pub(super) fn begin(
        recorder: &Arc<dyn ChangeRecorder>,
        origin: &OverlayOrigin,
        overlay: &Path,
    ) -> Result<Self, RecordFailure> {
        let number = AtomicU64::new(check_out(&**recorder, origin, overlay)?);
        Ok(Self { recorder: Arc::clone(recorder), number, is_stale: AtomicBool::new(false) })
    }

    pub(super) fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Acquire)
    }

    pub(super) fn most_bytes(&self) -> u64 {
        self.recorder.most_bytes()
    }

    /// Records the next change of the overlay.
    pub(super) fn record(
        &self,
        origin: &OverlayOrigin,
        change: &ChangeRecord,
        content: Option<&[u8]>,
    ) -> Result<(), RecordFailure> {
        let number = self.number.load(Ordering::Relaxed) + 1;
        self.recorder.record(origin, number, change, content)?;
        self.number.store(number, Ordering::Relaxed);
        Ok(())
    }
}

/// A change in progress. Unless it is completed, the working copy is dropped.
pub(super) struct ChangeInProgress<'a>(Option<&'a Recording>);

impl<'a> ChangeInProgress<'a> {
    pub(super) fn of(recording: Option<&'a Recording>) -> Self {
        Self(recording)
    }

    pub(super) fn completed(mut self) {
        self.0 = None;
    }
}

impl Drop for ChangeInProgress<'_> {
    fn drop(&mut self) {
        if let Some(recording) = self.0 {
            recording.is_stale.store(true, Ordering::Release);
        }
    }
}
