//! The store data of one call: the caller, its input, its usage and its refusals. It is dropped
//! with the sandbox.

mod again;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use conclave_core::permissions::grants::{FileMode, Rights};
use conclave_core::types::delivery::DeliveryView;
use conclave_core::types::denial::{Denial, DenialRecord, Layer};
use conclave_core::types::fault::CallReport;
use conclave_core::types::tool::ToolError;
use conclave_core::types::view::AgentView;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtxView, WasiView};

use super::log::{LogBook, harmless};
use super::meter::Meter;
use super::plugin_context::PluginContext;
use super::replay::CallReplay;
use super::wasi::{ProgramInput, Wasi};
use crate::calls::{CallStart, ToolInput};
use crate::imports::bindings::conclave::plugin::types;
use crate::imports::convert;
use crate::imports::interfaces::blobs::Reach;
use crate::imports::interfaces::files::Listings;
use crate::imports::interfaces::folder::RunOverlays;
use crate::imports::interfaces::judge_feedback::JudgeFeedback;
use crate::imports::interfaces::wasi_files::FileStreams;
use crate::imports::secrets::scrub::{Scrubbed, scrubber};
use crate::imports::secrets::vault::CallSecrets;
use crate::support::suspension::Suspension;

/// Number of refusals that the report lists one by one. A guest that repeats one attempt thousands
/// of times must not flood it.
const DENIALS_KEPT: usize = 64;
/// Characters of a refusal's target, which the guest chooses and which can be as long as its
/// output.
const TARGET: usize = 256;
/// Bytes of a suggested config line. A longer one is omitted.
const SUGGESTION: usize = 4 << 10;

/// The input of a call, which the resources of `capability` read lazily.
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

/// The state of one call.
pub(crate) struct CallState {
    pub(crate) plugin: Arc<PluginContext>,
    pub(crate) start: CallStart,
    pub(crate) lent: CallInput,
    pub(crate) meter: Meter,
    /// The recorded results of this attempt and of earlier ones.
    pub(crate) replay: Arc<CallReplay>,
    /// `None` if the call keeps its instance while it waits.
    pub(crate) parking: Option<Suspension>,
    /// The start of this attempt, and the time it has waited for the host since.
    pub(crate) began: Instant,
    pub(super) waited: Duration,
    /// The time waited since a tick was last left out of its computing time.
    pub(crate) uncharged: Duration,
    pub(crate) book: Arc<LogBook>,
    /// Resources of the guest other than those of its input.
    pub(crate) table: ResourceTable,
    /// The scratch data that the guest set, if any.
    pub(crate) scratch: Option<Vec<u8>>,
    /// Bytes read from files.
    pub(crate) read: SharedCounter,
    /// State shared by its file streams.
    pub(crate) streams: FileStreams,
    /// Directory listings in progress.
    pub(crate) listings: Listings,
    /// The overlays of the run; `None` if it is not stored, or the plugin has none.
    pub(crate) overlays: Option<Arc<RunOverlays>>,
    /// Number of model requests so far.
    pub(crate) requests: u32,
    /// Number of requests of nested calls so far.
    pub(crate) tool_requests: u32,
    /// Blobs that the call can reach, computed at the first use.
    pub(crate) blobs: Reach,
    /// Number of side effects so far; the ordinal of the next one.
    pub(crate) effects: u32,
    /// The last network host that the guest named.
    pub(crate) authority: Option<String>,
    #[cfg(feature = "fetch")]
    pub(crate) fetching: crate::imports::fetch::Fetching,
    denials: Vec<DenialRecord>,
    /// Denials of nested calls. The room reports them, so they are not in `denials`.
    nested_denials: Vec<Denial>,
    /// Refusals that earlier attempts reported.
    reported: Vec<DenialRecord>,
    /// Refusals beyond the listed ones: the count for each capability, and the layer of the first.
    more: BTreeMap<String, (u64, Layer)>,
    /// The input of a program, if the call runs one.
    pub(crate) program: Option<ProgramInput>,
    pub(crate) feedback: JudgeFeedback,
    wasi: Option<Box<Wasi>>,
}

impl CallState {
    pub(crate) fn new(plugin: Arc<PluginContext>, mut start: CallStart, lent: CallInput) -> Self {
        start.observer = Scrubbed::around(&start.observer, &plugin);
        let limits = plugin.limits();
        let mut table = ResourceTable::new();
        // WASI resources count too, so that no resource type escapes the limit.
        table.set_max_capacity(usize::try_from(limits.handles).unwrap_or(usize::MAX));
        let has_overlay = plugin.setup.grants.files.iter().any(|it| it.mode == FileMode::Overlay);
        let overlays = start.effects.overlay_folder().filter(|_| has_overlay).map(RunOverlays::of);
        let book = Arc::new(LogBook::new(start.call, Arc::clone(&start.observer), limits.log));
        Self {
            meter: Meter::new(limits),
            replay: CallReplay::new(&plugin, &start),
            parking: None,
            began: Instant::now(),
            waited: Duration::ZERO,
            uncharged: Duration::ZERO,
            plugin,
            start,
            lent,
            book,
            table,
            scratch: None,
            read: SharedCounter::default(),
            streams: FileStreams::default(),
            listings: Listings::default(),
            overlays,
            requests: 0,
            tool_requests: 0,
            blobs: Reach::default(),
            effects: 0,
            authority: None,
            #[cfg(feature = "fetch")]
            fetching: crate::imports::fetch::Fetching::default(),
            denials: Vec::new(),
            nested_denials: Vec::new(),
            reported: Vec::new(),
            more: BTreeMap::new(),
            program: None,
            feedback: JudgeFeedback::default(),
            wasi: None,
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

    /// The secrets that this call may use.
    pub(crate) fn secrets(&self) -> CallSecrets {
        let secrets = CallSecrets::new(
            Arc::clone(&self.plugin),
            self.start.task.clone(),
            &self.start.room,
            self.start.call,
        );
        match self.replay.seed() {
            Some(seed) => secrets.with_seed(seed),
            None => secrets,
        }
    }

    /// Records a refusal and returns the part that the guest may see.
    pub(crate) fn refuse(&mut self, mut record: DenialRecord) -> types::Denial {
        if let Some(scrubber) = scrubber(&self.plugin) {
            // Scrubs before truncation: half a value would not be found.
            record.denial.target = scrubber.scrub_text(&record.denial.target).into_owned();
            record.denial.detail = scrubber.scrub_text(&record.denial.detail).into_owned();
            record.reason = scrubber.scrub_text(&record.reason).into_owned();
        }
        // The guest chose this text, and it reaches the operator's terminal. Escaping makes it
        // longer, so it is truncated afterwards.
        record.denial.target = harmless(&record.denial.target).chars().take(TARGET).collect();
        record.suggestion = record.suggestion.filter(|line| line.len() <= SUGGESTION);
        let denial = convert::denial_out(&record.denial);
        let known = self
            .denials
            .iter()
            .any(|known| known.denial == record.denial && known.layer == record.layer);
        if !known {
            self.keep(record);
        }
        denial
    }

    /// Keeps the denial of a nested call, as the guest sees it.
    pub(crate) fn note_nested_denial(&mut self, denial: &Denial) {
        if self.nested_denials.len() < DENIALS_KEPT && !self.nested_denials.contains(denial) {
            self.nested_denials.push(denial.clone());
        }
    }

    /// A tool's error as the host reports it. A denial counts as the host's only if the host
    /// denied that request in this call; otherwise a plugin could forge one.
    pub(crate) fn own_error(&self, error: ToolError) -> ToolError {
        let ToolError::Denied { denial: reported } = error else { return error };
        let is_same = |denial: &&Denial| {
            (&denial.capability, &denial.target) == (&reported.capability, &reported.target)
        };
        let own = self.denials.iter().map(|record| &record.denial);
        match own.chain(&self.nested_denials).find(is_same) {
            Some(denial) => ToolError::Denied { denial: denial.clone() },
            None => ToolError::Other {
                message: format!(
                    "the plugin reports a denial of {}: {}; the host denied no such request",
                    reported.capability, reported.target
                ),
            },
        }
    }

    /// Keeps a refusal, or counts it above the bound.
    fn keep(&mut self, record: DenialRecord) {
        let of_this = |stored: &DenialRecord| stored.denial.capability == record.denial.capability;
        // The first refusal of each capability is always kept, so that many refusals of one cannot
        // hide another.
        if self.denials.len() < DENIALS_KEPT || !self.denials.iter().any(of_this) {
            self.report_denied(record);
            return;
        }
        let (count, _) = self.more.entry(record.denial.capability).or_insert((0, record.layer));
        *count = count.saturating_add(1);
    }

    /// Reports one record per capability for the refusals that were only counted.
    fn report_of_more(&mut self) {
        for (capability, (count, layer)) in std::mem::take(&mut self.more) {
            let reason = format!(
                "{count} more refusals of `{capability}` in this call: only the first of a call are listed one by one"
            );
            let denial = Denial {
                capability,
                target: format!("{count} more"),
                detail: "too many to list".to_owned(),
            };
            let record = DenialRecord { denial, layer, reason, suggestion: None, writes: false };
            self.report_denied(record);
        }
    }

    fn report_denied(&mut self, record: DenialRecord) {
        if !self.reported.contains(&record) {
            self.start.observer.denied(self.start.call, &record);
        }
        self.denials.push(record);
    }

    /// Records the refusal of a function that this build of the host lacks.
    #[cfg(not(feature = "fetch"))]
    pub(crate) fn refuse_unbuilt(
        &mut self,
        capability: conclave_core::types::capability::Capability,
        target: &str,
    ) -> wasmtime::Result<types::Denial> {
        self.enter()?;
        let record = self.rights().refuse(
            capability,
            target,
            Layer::Host,
            "this build of the host cannot do it",
            None,
        );
        Ok(self.refuse(*record))
    }

    /// The end of standard error, empty if there was no output.
    pub(crate) fn finish_output(&self) -> String {
        self.wasi.as_ref().map_or_else(String::new, |wasi| {
            wasi.stdout.finish();
            wasi.stderr.finish()
        })
    }

    /// Returns what a program printed on standard output and on standard error.
    pub(crate) fn printed(&self) -> (String, String) {
        self.wasi.as_ref().map(|wasi| (wasi.stdout.text(), wasi.stderr.text())).unwrap_or_default()
    }

    /// Returns the usage and the refusals of the call; the caller sets `wall_us`.
    pub(crate) fn into_report(mut self) -> CallReport {
        #[cfg(feature = "fetch")]
        self.refuse_late();
        self.refuse_streamed();
        self.report_of_more();
        CallReport {
            wall_us: 0,
            cpu_ticks: self.meter.ticks(),
            memory: self.meter.memory(),
            log_dropped: self.book.dropped(),
            denials: self.denials,
            scratch: self.scratch,
        }
    }
}

impl WasiView for CallState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        // Runs once for every WASI function. It cannot fail here, so the next tick stops a guest
        // that is over its limit.
        let _ = self.meter.count_host_call();
        self.refuse_streamed();
        let (start, book) = (&self.start, &self.book);
        let most = usize::try_from(self.plugin.limits().output).unwrap_or(usize::MAX);
        let program = self.program.as_ref().map(|input| (input, most));
        let wasi = self.wasi.get_or_insert_with(|| Wasi::new(start, book, program));
        WasiCtxView { ctx: &mut wasi.context, table: &mut self.table }
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::types::capability::Capability;

    use super::super::testing::{setup, state};
    use super::*;

    #[test]
    fn many_refusals_hide_no_other() {
        let mut state = state(setup());
        let refuse = |state: &mut CallState, capability, target: &str| {
            let record = state.rights().require(capability, target, || None).unwrap_err();
            state.refuse(*record);
        };
        for decoy in 0..100 {
            refuse(&mut state, Capability::Model, &format!("decoy{decoy}"));
        }
        refuse(&mut state, Capability::Fetch, "https://evil.example/");
        refuse(&mut state, Capability::Fetch, "https://evil.example/2");
        let denials = state.into_report().denials;
        let of = |capability: &str| {
            denials
                .iter()
                .filter(|record| record.denial.capability == capability)
                .collect::<Vec<_>>()
        };
        assert_eq!(of("model").len(), 65, "{denials:?}");
        assert_eq!(of("model").last().unwrap().denial.target, "36 more");
        let fetch: Vec<&str> =
            of("fetch").iter().map(|record| record.denial.target.as_str()).collect();
        assert_eq!(fetch, ["https://evil.example/", "1 more"]);
    }

    #[test]
    fn what_a_guest_names_in_a_refusal_is_cut() {
        let mut state = state(setup());
        for name in ["x".repeat(1 << 20), "\u{1b}".repeat(1_000)] {
            let record = state
                .rights()
                .require(Capability::Model, &name, || Some(name.clone()))
                .unwrap_err();
            state.refuse(DenialRecord { suggestion: Some(name), ..*record });
        }
        let denials = state.into_report().denials;
        assert_eq!(denials.len(), 2);
        assert!(
            denials.iter().all(|record| record.denial.target.chars().count() == 256),
            "{denials:?}"
        );
        assert_eq!(denials[0].suggestion, None);
    }

    #[test]
    fn a_refusal_is_the_hosts_only_if_it_refused() {
        let mut state = state(setup());
        let record =
            state.rights().require(Capability::Fetch, "https://a.example/", || None).unwrap_err();
        let denial = record.denial.clone();
        state.refuse(*record);
        let error = |capability: &str| ToolError::Denied {
            denial: Denial { capability: capability.to_owned(), ..denial.clone() },
        };
        assert_eq!(state.own_error(error("fetch")), error("fetch"));
        let forged = state.own_error(error("files"));
        assert!(
            matches!(&forged, ToolError::Other { message } if message.contains("the host denied no such request")),
            "{forged:?}"
        );
        let nested = error("tools");
        if let ToolError::Denied { denial } = &nested {
            state.note_nested_denial(denial);
        }
        assert_eq!(state.own_error(nested.clone()), nested);
    }
}
