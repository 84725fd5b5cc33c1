//! What records change in the tables of pending work. Both engines perform the same changes.

use std::collections::BTreeMap;

use conclave_core::journal::pending_work::{PendingWork, WaitChange, WaitKey};
use serde::Serialize;

use super::queue::Write;

/// The sum of what writes to one room change in its pending work.
#[derive(Default)]
pub(super) struct PendingWorkRows {
    all_over: bool,
    abandoned: Vec<u64>,
    keys: BTreeMap<WaitKey, Option<(PendingWork, u64)>>,
}

/// The changes of the tables `waits` and `timers`, in the order of the fields.
#[derive(Default, Serialize)]
pub(super) struct PendingChanges<'a> {
    /// Whether all rows of the room are removed.
    pub(super) is_over: bool,
    /// The calls whose waits are removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) calls_over: Vec<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) timers_over: Vec<i64>,
    /// The keys of waits that are removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) waits_over: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) waits: Vec<NewWait<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) timers: Vec<NewTimer>,
}

#[derive(Serialize)]
pub(super) struct NewWait<'a> {
    pub(super) key: String,
    pub(super) call: i64,
    pub(super) kind: &'a str,
    pub(super) target: &'a str,
    pub(super) since: i64,
}

#[derive(Serialize)]
pub(super) struct NewTimer {
    pub(super) timer: i64,
    pub(super) at: i64,
    pub(super) since: i64,
}

#[cfg(feature = "postgres")]
impl PendingChanges<'_> {
    pub(super) fn is_empty(&self) -> bool {
        let Self { is_over, calls_over, timers_over, waits_over, waits, timers } = self;
        !is_over
            && calls_over.is_empty()
            && timers_over.is_empty()
            && waits_over.is_empty()
            && waits.is_empty()
            && timers.is_empty()
    }
}

impl PendingWorkRows {
    pub(super) fn add(&mut self, write: &Write) {
        let since = write.rows.last().map_or(0, |row| row.at);
        for change in &write.waits {
            match change {
                WaitChange::Begun(wait) => {
                    drop(self.keys.insert(wait.key, Some((wait.clone(), since))))
                }
                WaitChange::Over(key) => drop(self.keys.insert(*key, None)),
                WaitChange::Abandoned(call) => {
                    self.keys.retain(|key, _| key.call() != Some(*call));
                    self.abandoned.push(call.0);
                }
                WaitChange::Finished => *self = Self { all_over: true, ..Self::default() },
            }
        }
    }

    pub(super) fn changes(&self) -> PendingChanges<'_> {
        let mut changes = PendingChanges { is_over: self.all_over, ..PendingChanges::default() };
        if !self.all_over {
            changes.calls_over = self.abandoned.iter().map(|call| call.cast_signed()).collect();
        }
        for (key, wait) in &self.keys {
            match (key, wait) {
                (WaitKey::Timer(timer), None) => changes.timers_over.push(timer.0.cast_signed()),
                (WaitKey::Timer(timer), Some((wait, since))) => changes.timers.push(NewTimer {
                    timer: timer.0.cast_signed(),
                    at: wait.at.unwrap_or_default().0.cast_signed(),
                    since: since.cast_signed(),
                }),
                (_, None) => changes.waits_over.push(name(key)),
                (_, Some((wait, since))) => changes.waits.push(NewWait {
                    key: name(key),
                    call: key.call().map_or(0, |call| call.0).cast_signed(),
                    kind: &wait.kind,
                    target: &wait.target,
                    since: since.cast_signed(),
                }),
            }
        }
        changes
    }
}

/// The key as JSON, as the table stores it, such as `{"call":3}`.
fn name(key: &WaitKey) -> String {
    serde_json::to_string(key).unwrap_or_default()
}
