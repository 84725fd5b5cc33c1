//! The store data of one call: the core that all imports share, and the state of each import. It is
//! dropped with the sandbox.

use std::sync::Arc;

use conclave_core::types::fault::CallReport;
use wasmtime_wasi::{WasiCtxView, WasiView};

use super::call::wasi::Wasi;
use super::call::{CallCore, CallInput, PluginContext};
use super::interfaces::blobs::{BlobsImport, ReachableBlobs};
use super::interfaces::files::Files;
use super::interfaces::judge_feedback::JudgeFeedback;
use super::interfaces::wasi_files::FileStreams;
use crate::calls::CallStart;

/// The state of one call.
pub(crate) struct CallState {
    pub(crate) core: CallCore,
    pub(crate) files: Files,
    pub(crate) streams: FileStreams,
    pub(crate) blobs: ReachableBlobs,
    /// The scratch data that the guest set, if any.
    pub(crate) scratch: Option<Vec<u8>>,
    pub(crate) feedback: JudgeFeedback,
    /// The last network host that the guest named.
    pub(crate) authority: Option<String>,
    #[cfg(feature = "fetch")]
    pub(crate) holding: super::outgoing::Holding,
    #[cfg(feature = "fetch")]
    pub(crate) engine_http: super::interfaces::wasi_http::EngineHttp,
    pub(crate) wasi: Wasi,
}

impl CallState {
    pub(crate) fn new(plugin: Arc<PluginContext>, start: CallStart, input: CallInput) -> Self {
        Self {
            files: Files::new(&plugin, &start),
            core: CallCore::new(plugin, start, input),
            streams: FileStreams::default(),
            blobs: ReachableBlobs::default(),
            scratch: None,
            feedback: JudgeFeedback::default(),
            authority: None,
            #[cfg(feature = "fetch")]
            holding: Default::default(),
            #[cfg(feature = "fetch")]
            engine_http: Default::default(),
            wasi: Wasi::default(),
        }
    }

    pub(crate) fn blobs(&mut self) -> BlobsImport<'_> {
        BlobsImport { core: &mut self.core, blobs: &mut self.blobs }
    }

    /// Suspends the call: releases everything that belongs to the instance. Its replay state and
    /// its usage are kept.
    pub(crate) fn park(&mut self) {
        self.core.release_instance();
        #[cfg(feature = "fetch")]
        {
            (self.holding, self.engine_http) = Default::default();
        }
        self.files.release_listings();
        self.wasi.release();
        self.blobs = ReachableBlobs::default();
    }

    /// Prepares the state for the next attempt in this process.
    pub(crate) fn begin_attempt(&mut self) {
        self.core.begin_attempt();
        (self.streams, self.scratch, self.authority) = Default::default();
    }

    /// Returns the usage and the refusals of the call; the caller sets `wall_us`.
    pub(crate) fn into_report(mut self) -> CallReport {
        self.core.refuse_late();
        CallReport {
            wall_us: 0,
            cpu_ticks: self.core.meter.ticks(),
            memory: self.core.meter.memory(),
            log_dropped: self.core.book.dropped(),
            denials: self.core.refusals.into_records(&self.core.start),
            scratch: self.scratch,
        }
    }
}

impl WasiView for CallState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        // Runs once for every WASI function. It cannot fail here, so the next tick stops a guest
        // that is over its limit.
        let _ = self.core.meter.count_host_call();
        self.core.refuse_late();
        WasiCtxView { ctx: self.wasi.context(&self.core), table: &mut self.core.table }
    }
}
