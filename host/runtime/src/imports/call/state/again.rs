//! Suspends and restarts calls in the same process. The guest's resources end with its instance;
//! its replay state and its usage are kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::component::ResourceTable;

use super::{CallState, SharedCounter};
use crate::imports::interfaces::blobs::Reach;
use crate::imports::interfaces::files::Listings;
use crate::imports::interfaces::wasi_files::FileStreams;

/// Minimum ratio of the time waited to the time that a replay costs.
const WORTH: u32 = 4;

impl CallState {
    /// Completes when a wait that starts now has lasted long enough to be worth a replay. Never
    /// completes if the call cannot be replayed.
    pub(crate) fn due(&self) -> impl Future<Output = ()> + Send + use<> {
        let parking = self.parking.clone().filter(|_| self.meter.may_repeat());
        let (began, waited) = (self.began, self.waited);
        let replay = Arc::clone(&self.replay);
        async move {
            let Some(parking) = parking else { return std::future::pending().await };
            let own = parking.clock.now().saturating_duration_since(began).saturating_sub(waited);
            parking.clock.sleep(own.saturating_mul(WORTH)).await;
            parking.due().await;
            replay.may_park().await;
        }
    }

    /// Adds time in which the host worked or the call waited, which a replay does not repeat.
    pub(crate) fn note_waited(&mut self, waited: Duration) {
        self.waited += waited;
    }

    /// Releases everything that belongs to the instance.
    pub(crate) fn park(&mut self) {
        #[cfg(feature = "fetch")]
        {
            self.refuse_late();
            self.fetching = crate::imports::fetch::Fetching::default();
        }
        self.refuse_streamed();
        self.listings = Listings::default();
        let mut table = ResourceTable::new();
        table.set_max_capacity(usize::try_from(self.plugin.limits().handles).unwrap_or(usize::MAX));
        self.table = table;
        self.wasi = None;
        self.blobs = Reach::default();
    }

    /// Prepares the state for the next attempt.
    pub(crate) fn begin_attempt(&mut self) {
        self.replay.begin_attempt();
        for record in std::mem::take(&mut self.denials) {
            if !self.reported.contains(&record) {
                self.reported.push(record);
            }
        }
        self.more.clear();
        self.book = Arc::new(self.book.begin_attempt());
        self.meter.begin_attempt();
        self.scratch = None;
        (self.read, self.streams) = (SharedCounter::default(), FileStreams::default());
        (self.requests, self.tool_requests, self.effects) = (0, 0, 0);
        self.authority = None;
        (self.began, self.waited) = (Instant::now(), Duration::ZERO);
    }
}
