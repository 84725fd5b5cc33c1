//! The part of a call's state that every import uses: the caller, its input, its usage, its replay
//! and its refusals. An import adds its own state in a view of its own, see `interfaces`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use conclave_core::permissions::grants::Rights;
use conclave_core::types::delivery::DeliveryView;
use conclave_core::types::denial::DenialRecord;
use conclave_core::types::view::AgentView;
use wasmtime::component::ResourceTable;

use super::log::LogBook;
use super::meter::Meter;
use super::plugin_context::PluginContext;
use super::refusals::{LateRefusals, Refusals};
use super::replay::CallReplay;
use super::secrets::CallSecrets;
use crate::calls::{CallStart, ToolInput};
use crate::imports::bindings::plugin::types;
use crate::imports::secrets::scrub::Scrubbed;
use crate::support::suspension::Suspension;

/// Minimum ratio of the time waited to the time that a replay costs.
const WORTH: u32 = 4;

/// The input of a call, which imports read lazily.
pub(crate) enum CallInput {
    Nothing,
    Agent(AgentView),
    Tool(ToolInput),
    Delivery(DeliveryView),
}

/// A growing counter, shared by its clones.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedCounter(Arc<AtomicU64>);

impl SharedCounter {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds to the counter; saturates.
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.get().saturating_add(more), Ordering::Relaxed);
    }
}

/// The state that all imports of a call share.
pub(crate) struct CallCore {
    pub(crate) plugin: Arc<PluginContext>,
    pub(crate) start: CallStart,
    pub(crate) input: CallInput,
    pub(crate) meter: Meter,
    /// The recorded results of this attempt and of earlier ones.
    pub(crate) replay: Arc<CallReplay>,
    /// `None` if the call keeps its instance while it waits.
    pub(crate) suspension: Option<Suspension>,
    /// The start of this attempt, and the time it has waited for the host since.
    pub(crate) began: Instant,
    waited: Duration,
    pub(crate) book: Arc<LogBook>,
    /// Resources of the guest other than those of its input.
    pub(crate) table: ResourceTable,
    /// Bytes read from files, keys and blobs.
    pub(crate) read: SharedCounter,
    /// Number of side effects so far; the ordinal of the next one.
    pub(crate) effects: u32,
    pub(crate) refusals: Refusals,
}

impl CallCore {
    pub(crate) fn new(plugin: Arc<PluginContext>, mut start: CallStart, input: CallInput) -> Self {
        if plugin.has_secrets() {
            start.observer = Arc::new(Scrubbed::new(&start.observer, &plugin.vault));
        }
        let limits = plugin.limits();
        let book = LogBook::new(start.call, Arc::clone(&start.observer), limits.log);
        Self {
            meter: Meter::new(limits),
            replay: CallReplay::new(&plugin, &start),
            suspension: None,
            began: Instant::now(),
            waited: Duration::ZERO,
            book: Arc::new(book),
            table: empty_table(&plugin),
            read: SharedCounter::default(),
            effects: 0,
            refusals: Refusals::default(),
            plugin,
            start,
            input,
        }
    }

    /// Counts a host call. Every import begins with this.
    ///
    /// # Errors
    /// If the guest exceeds its limit of host calls, or deviates from its replay.
    pub(crate) fn enter(&mut self) -> wasmtime::Result<()> {
        self.replay.check()?;
        Ok(self.meter.count_host_call()?)
    }

    pub(crate) fn rights(&self) -> Rights<'_> {
        self.plugin.rights_in(&self.start.task)
    }

    /// Records a refusal and returns the part that the guest may see.
    pub(crate) fn refuse(&mut self, record: DenialRecord) -> types::Denial {
        self.refusals.record(&self.plugin, &self.start, record)
    }

    /// Records the refusals of work that ran beside the guest.
    pub(crate) fn refuse_late(&mut self) {
        for record in self.refusals.late.take() {
            self.refuse(record);
        }
    }

    /// Counts a host call, and returns the input of a tool call.
    ///
    /// # Errors
    /// As [`enter`](Self::enter), or if this is no tool call.
    pub(crate) fn tool_input(&mut self) -> wasmtime::Result<&ToolInput> {
        self.enter()?;
        let CallInput::Tool(input) = &self.input else {
            return Err(wasmtime::Error::msg("`call` was read outside a tool call"));
        };
        Ok(input)
    }

    /// The bytes that the call may still read.
    pub(crate) fn unread(&self) -> u64 {
        self.plugin.limits().read.saturating_sub(self.read.get())
    }

    /// The secrets that this call may use.
    pub(crate) fn secrets(&self) -> CallSecrets {
        CallSecrets::new(Arc::clone(&self.plugin), self.start.task.clone(), self.secrets_seed())
    }

    /// The seed of its secret placeholders. A replay keeps that of the first attempt.
    pub(crate) fn secrets_seed(&self) -> [u8; 32] {
        let own = || self.plugin.vault.seed(&self.start.room, self.start.call);
        self.replay.seed().unwrap_or_else(own)
    }

    /// Completes when a wait that starts now has lasted long enough to be worth a replay. Never
    /// completes if the call cannot be replayed.
    pub(crate) fn due(&self) -> impl Future<Output = ()> + Send + use<> {
        let suspension = self.suspension.clone().filter(|_| self.meter.may_repeat());
        let (began, waited) = (self.began, self.waited);
        let replay = Arc::clone(&self.replay);
        async move {
            let Some(suspension) = suspension else { return std::future::pending().await };
            let own =
                suspension.clock.now().saturating_duration_since(began).saturating_sub(waited);
            suspension.clock.sleep(own.saturating_mul(WORTH)).await;
            suspension.due().await;
            replay.may_park().await;
        }
    }

    /// Excludes the time since `began` from the guest's computing time. In it the host worked or
    /// the call waited, which a replay does not repeat.
    pub(crate) fn note_wait_since(&mut self, began: Instant) {
        let waited = began.elapsed();
        self.waited += waited;
        self.meter.note_wait(waited);
    }

    /// Drops the resources of the instance, and what still runs beside it.
    pub(crate) fn release_instance(&mut self) {
        self.refuse_late();
        self.refusals.late = LateRefusals::default();
        self.table = empty_table(&self.plugin);
    }

    /// Prepares for the next attempt.
    pub(crate) fn begin_attempt(&mut self) {
        self.replay.begin_attempt();
        self.refusals.begin_attempt();
        self.book = Arc::new(self.book.begin_attempt());
        self.meter.begin_attempt();
        (self.read, self.effects) = (SharedCounter::default(), 0);
        (self.began, self.waited) = (Instant::now(), Duration::ZERO);
    }
}

/// A table of resources with the plugin's limit. WASI resources count too, so that no resource type
/// escapes it.
fn empty_table(plugin: &PluginContext) -> ResourceTable {
    let mut table = ResourceTable::new();
    table.set_max_capacity(usize::try_from(plugin.limits().handles).unwrap_or(usize::MAX));
    table
}
