//! The beginning and the end of rows.

use super::super::row::{RowSubject, SandboxUsage};
use super::{DraftRow, Now, OpenRowKey};
use crate::types::fault::CallReport;
use crate::types::ids::{CallId, Millis};

impl Now<'_> {
    /// Whether a person has been asked about the call and has not answered.
    pub(super) fn is_asked(&self, call: CallId) -> bool {
        let row = self.of.open.get(&OpenRowKey::Call(call)).map(|row| &self.drafts.rows[*row].what);
        matches!(row, Some(RowSubject::Approval { .. } | RowSubject::TopUp { .. }))
    }

    /// The innermost task.
    pub(super) fn here(&self) -> Option<usize> {
        self.of.tasks.last().copied().or(self.of.lane)
    }

    pub(super) fn of_call(&self, call: CallId) -> Option<usize> {
        self.of.open.get(&OpenRowKey::Call(call)).copied().or_else(|| self.here())
    }

    pub(super) fn begin(&mut self, parent: Option<usize>, what: RowSubject) -> usize {
        let draft = DraftRow {
            room: self.of.id.clone(),
            seq: self.of.seq,
            parent,
            start: self.of.at,
            end: None,
            below: Millis(0),
            abandoned: false,
            what,
        };
        self.drafts.rows.push(draft);
        self.drafts.rows.len() - 1
    }

    pub(super) fn moment(&mut self, parent: Option<usize>, what: RowSubject) {
        let row = self.begin(parent, what);
        self.close(row, false);
    }

    pub(super) fn open(
        &mut self,
        key: OpenRowKey,
        parent: Option<usize>,
        what: RowSubject,
    ) -> usize {
        let row = self.begin(parent, what);
        if let Some(before) = self.of.open.insert(key, row) {
            self.close(before, true);
        }
        row
    }

    pub(super) fn end(&mut self, key: &OpenRowKey, change: impl FnOnce(&mut RowSubject)) {
        if let Some(row) = self.of.open.remove(key) {
            change(&mut self.drafts.rows[row].what);
            self.close(row, false);
        }
    }

    pub(super) fn close(&mut self, row: usize, abandoned: bool) {
        self.close_at(row, self.of.at, abandoned);
    }

    pub(super) fn close_at(&mut self, row: usize, at: Millis, abandoned: bool) {
        let row = &mut self.drafts.rows[row];
        if row.end.is_some() {
            return;
        }
        (row.end, row.abandoned) = (Some(at), abandoned);
        let parent = row.parent;
        if let Some(parent) = parent {
            let parent = &mut self.drafts.rows[parent];
            parent.below = parent.below.max(at);
        }
    }

    /// The end of a call by its own report. Answers of parallel calls are recorded together, when
    /// the last of them arrives.
    pub(super) fn end_of(&self, row: usize, report: &CallReport) -> Millis {
        let row = &self.drafts.rows[row];
        // The report of a call that began before an interruption covers its last attempt only.
        if report.wall_us == 0 || self.of.resumed > row.start {
            return self.of.at;
        }
        row.start.plus(report.wall_us / 1_000).max(row.below).min(self.of.at)
    }

    /// Ends the row of the call and those of its requests.
    pub(super) fn abandon(&mut self, call: CallId) {
        let is_of = |key: &OpenRowKey| match key {
            OpenRowKey::Call(of) | OpenRowKey::Model(of, _) | OpenRowKey::SideEffect(of, _) => {
                *of == call
            }
            OpenRowKey::Background(_) | OpenRowKey::Inbound(_) => false,
        };
        let keys: Vec<OpenRowKey> = self.of.open.keys().filter(|key| is_of(key)).cloned().collect();
        for key in keys {
            if let Some(row) = self.of.open.remove(&key) {
                self.close(row, true);
            }
        }
    }

    /// Adds a call's usage to the totals.
    pub(super) fn used(&mut self, report: &CallReport) -> Option<SandboxUsage> {
        let sandbox = SandboxUsage::of(report)?;
        let totals = &mut self.drafts.totals;
        totals.sandboxes += u64::from(sandbox.is_sandboxed());
        totals.memory = totals.memory.max(sandbox.memory);
        totals.cpu_ms = totals.cpu_ms.saturating_add(sandbox.cpu_ms);
        Some(sandbox)
    }
}
