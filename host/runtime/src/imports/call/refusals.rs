//! The refusals of one call: recorded for the report, shown to the operator, and bounded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_core::types::denial::{Denial, DenialRecord, Layer};
use conclave_core::types::tool::ToolError;

use super::plugin_context::PluginContext;
use crate::calls::CallStart;
use crate::imports::bindings::plugin::types;
use crate::imports::convert::denial_out;
use crate::support::escape::harmless;

/// Number of refusals that the report lists one by one. A guest that repeats one attempt thousands
/// of times must not flood it.
const DENIALS_KEPT: usize = 64;
/// Characters of a refusal's target, which the guest chooses and which can be as long as its
/// output.
const TARGET: usize = 256;
/// Bytes of a suggested config line. A longer one is omitted.
const SUGGESTION: usize = 4 << 10;

/// The refusals of a call.
#[derive(Default)]
pub(crate) struct Refusals {
    denials: Vec<DenialRecord>,
    /// Denials of nested calls. The room reports them, so they are not in `denials`.
    nested: Vec<Denial>,
    /// Refusals that earlier attempts reported.
    reported: Vec<DenialRecord>,
    /// Refusals beyond the listed ones: the count for each capability, and the layer of the first.
    more: BTreeMap<String, (u64, Layer)>,
    pub(crate) late: LateRefusals,
}

/// Refusals of work that runs beside the guest, until the call records them. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct LateRefusals(Arc<Mutex<Vec<DenialRecord>>>);

impl LateRefusals {
    pub(crate) fn extend(&self, records: impl IntoIterator<Item = DenialRecord>) {
        self.lock().extend(records);
    }

    pub(super) fn take(&self) -> Vec<DenialRecord> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<DenialRecord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Refusals {
    /// Records a refusal and returns it without the parts that the guest must not see.
    pub(super) fn record(
        &mut self,
        plugin: &PluginContext,
        start: &CallStart,
        mut record: DenialRecord,
    ) -> types::Denial {
        if let Some(scrubber) = plugin.scrubber() {
            // Scrubs before truncation: half a value would not be found.
            record.denial.target = scrubber.scrub_text(&record.denial.target).into_owned();
            record.denial.detail = scrubber.scrub_text(&record.denial.detail).into_owned();
            record.reason = scrubber.scrub_text(&record.reason).into_owned();
        }
        // The guest chose this text, and it reaches the operator's terminal. Escaping makes it
        // longer, so it is truncated afterwards.
        record.denial.target = harmless(&record.denial.target).chars().take(TARGET).collect();
        record.suggestion = record.suggestion.filter(|line| line.len() <= SUGGESTION);
        let denial = denial_out(&record.denial);
        let is_same =
            |known: &DenialRecord| known.denial == record.denial && known.layer == record.layer;
        if !self.denials.iter().any(is_same) {
            self.keep(start, record);
        }
        denial
    }

    /// Keeps the denial of a nested call, as the guest sees it.
    pub(crate) fn note_nested(&mut self, denial: &Denial) {
        if self.nested.len() < DENIALS_KEPT && !self.nested.contains(denial) {
            self.nested.push(denial.clone());
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
        match own.chain(&self.nested).find(is_same) {
            Some(denial) => ToolError::Denied { denial: denial.clone() },
            None => ToolError::Other {
                message: format!(
                    "the plugin reports a denial of {}: {}; the host denied no such request",
                    reported.capability, reported.target
                ),
            },
        }
    }

    /// Prepares for the next attempt, which does not report the same refusals again.
    pub(super) fn begin_attempt(&mut self) {
        for record in std::mem::take(&mut self.denials) {
            if !self.reported.contains(&record) {
                self.reported.push(record);
            }
        }
        self.more.clear();
    }

    /// The refusals for the call's report, with one record per capability for those that were only
    /// counted.
    pub(crate) fn into_records(mut self, start: &CallStart) -> Vec<DenialRecord> {
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
            self.report(start, record);
        }
        self.denials
    }

    /// Keeps a refusal, or counts it above the bound.
    fn keep(&mut self, start: &CallStart, record: DenialRecord) {
        let of_this = |stored: &DenialRecord| stored.denial.capability == record.denial.capability;
        // The first refusal of each capability is always kept, so that many refusals of one cannot
        // hide another.
        if self.denials.len() < DENIALS_KEPT || !self.denials.iter().any(of_this) {
            self.report(start, record);
            return;
        }
        let (count, _) = self.more.entry(record.denial.capability).or_insert((0, record.layer));
        *count = count.saturating_add(1);
    }

    fn report(&mut self, start: &CallStart, record: DenialRecord) {
        if !self.reported.contains(&record) {
            start.observer.denied(start.call, &record);
        }
        self.denials.push(record);
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::types::capability::Capability;

    use super::*;
    use crate::imports::testing::{core, setup};

    #[test]
    fn many_refusals_hide_no_other() {
        let mut core = core(setup());
        let mut refuse = |capability, target: &str| {
            let record = core.rights().require(capability, target, || None).unwrap_err();
            core.refuse(*record);
        };
        for decoy in 0..100 {
            refuse(Capability::Model, &format!("decoy{decoy}"));
        }
        refuse(Capability::Fetch, "https://evil.example/");
        refuse(Capability::Fetch, "https://evil.example/2");
        let denials = core.refusals.into_records(&core.start);
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
        let mut core = core(setup());
        for name in ["x".repeat(1 << 20), "\u{1b}".repeat(1_000)] {
            let record =
                core.rights().require(Capability::Model, &name, || Some(name.clone())).unwrap_err();
            core.refuse(DenialRecord { suggestion: Some(name), ..*record });
        }
        let denials = core.refusals.into_records(&core.start);
        assert_eq!(denials.len(), 2);
        assert!(
            denials.iter().all(|record| record.denial.target.chars().count() == 256),
            "{denials:?}"
        );
        assert_eq!(denials[0].suggestion, None);
    }

    #[test]
    fn a_refusal_is_the_hosts_only_if_it_refused() {
        let mut core = core(setup());
        let record =
            core.rights().require(Capability::Fetch, "https://a.example/", || None).unwrap_err();
        let denial = record.denial.clone();
        core.refuse(*record);
        let error = |capability: &str| ToolError::Denied {
            denial: Denial { capability: capability.to_owned(), ..denial.clone() },
        };
        let mut refusals = core.refusals;
        assert_eq!(refusals.own_error(error("fetch")), error("fetch"));
        let forged = refusals.own_error(error("files"));
        assert!(
            matches!(&forged, ToolError::Other { message } if message.contains("the host denied no such request")),
            "{forged:?}"
        );
        let nested = error("tools");
        if let ToolError::Denied { denial } = &nested {
            refusals.note_nested(denial);
        }
        assert_eq!(refusals.own_error(nested.clone()), nested);
    }
}
