//! The journals of fictitious rooms.

use std::sync::Arc;

use conclave_core::journal::pending_work::{PendingWork, WaitChange, WaitKey};
use conclave_core::types::ids::TimerId;
use conclave_runtime::control::SentCommand;
use conclave_runtime::event::{Event, Principal, RULES, Record, RunOpening};
use conclave_runtime::ids::{CallId, Millis, RoomId, TaskName};
use conclave_runtime::journal::{
    Journal, JournalBatch, JournalFailure, Journals, Keeping, Reopened, Unfinished,
};
use conclave_runtime::limits::RunLimits;
use conclave_runtime::message::Blob;
use conclave_runtime::outcome::{Outcome, Status};
use conclave_runtime::policy_rules::Policy;
use conclave_runtime::room_secret::RoomSecret;
use conclave_runtime::setup::Setup;
use conclave_runtime::usage::Spent;

use crate::{LawFailure, LawResult, TestedHost, reader_of, wait};

/// A room that a host has open, with all of its records.
pub(crate) struct OpenRoom {
    pub(crate) room: RoomId,
    pub(crate) records: Vec<Record>,
    pub(crate) journal: Box<dyn Journal>,
    /// The messages that were received when the room was reopened.
    pub(crate) messages: Vec<SentCommand>,
}

impl OpenRoom {
    /// Opens a new room, without a record.
    pub(crate) fn new(host: &dyn TestedHost, room: &str) -> LawResult<Self> {
        Self::new_in(&*host.journals(), room)
    }

    /// Opens a new room in these journals.
    pub(crate) fn new_in(journals: &dyn Journals, room: &str) -> LawResult<Self> {
        let room = RoomId::from(room);
        let journal = wait(async { journals.open(&room)?.await })??;
        Ok(Self { room, records: Vec::new(), journal, messages: Vec::new() })
    }

    /// Opens a new room and appends this number of records.
    pub(crate) fn with_records(host: &dyn TestedHost, room: &str, count: u64) -> LawResult<Self> {
        let mut room = Self::new(host, room)?;
        room.append(count)?;
        Ok(room)
    }

    /// Reopens a room of which no other host has the run.
    pub(crate) fn reopen(host: &dyn TestedHost, room: &str) -> LawResult<Self> {
        let room = RoomId::from(room);
        let reopened = wait(host.journals().reopen(&room, Millis(1_000)))??;
        let missing = || LawFailure::Broken(format!("the room {room} is not there"));
        let Reopened { messages, journal, .. } = reopened.ok_or_else(missing)?;
        let records = records(host, room.as_str())?;
        Ok(Self { room, records, journal, messages })
    }

    fn next(&self) -> u64 {
        self.records.len() as u64
    }

    /// The next records that the driver would append.
    pub(crate) fn next_records(&self, count: u64) -> Vec<Record> {
        let epoch = self.journal.epoch();
        let record = |seq| Record {
            seq,
            at: Millis(1_000 + seq),
            principal: Principal("ada".into()),
            rules: RULES,
            epoch,
            event: if seq == 0 { opening(&self.room, epoch) } else { said(seq, &[]) },
        };
        (self.next()..self.next() + count).map(record).collect()
    }

    /// Appends the next records and waits until they are acknowledged.
    pub(crate) fn append(&mut self, count: u64) -> LawResult {
        Ok(self.try_append(self.next_records(count), &[], None)?)
    }

    /// Appends a record that refers to attachments.
    pub(crate) fn append_with(&mut self, attachments: &[Blob]) -> LawResult {
        let mut records = self.next_records(1);
        records[0].event = said(self.next(), attachments);
        Ok(self.try_append(records, &[], None)?)
    }

    /// Appends a record after which the room waits for this work.
    pub(crate) fn append_wait(&mut self, kind: &str, at: Option<Millis>) -> LawResult {
        let next = self.next();
        let key = at.map_or(WaitKey::Call(CallId(next)), |_| WaitKey::Timer(TimerId(next)));
        let (kind, target) = (kind.to_owned(), "t".to_owned());
        let work = PendingWork { key, kind, target, at, request: None };
        Ok(self.try_append(self.next_records(1), &[WaitChange::Begun(work)], None)?)
    }

    /// Appends the record that ends the run.
    pub(crate) fn append_end(&mut self) -> LawResult {
        let outcome = Arc::new(Outcome::new(Status::Done, "it was so"));
        Ok(self.try_append(self.next_records(1), &[], Some(&outcome))?)
    }

    /// Appends records and waits until they are acknowledged.
    pub(crate) fn try_append(
        &mut self,
        records: Vec<Record>,
        waits: &[WaitChange],
        outcome: Option<&Arc<Outcome>>,
    ) -> Result<(), JournalFailure> {
        let keeping = self.send(&records, waits, outcome)?;
        self.journal.hurry();
        match keeping {
            Keeping::Kept => {}
            Keeping::Soon(acknowledged) | Keeping::First(acknowledged) => {
                let result = wait(acknowledged);
                result.unwrap_or(Ok(()))?;
            }
        }
        self.records.extend(records);
        Ok(())
    }

    /// Appends records, without waiting.
    pub(crate) fn send(
        &mut self,
        records: &[Record],
        waits: &[WaitChange],
        outcome: Option<&Arc<Outcome>>,
    ) -> Result<Keeping, JournalFailure> {
        let records: Vec<Arc<Record>> = records.iter().cloned().map(Arc::new).collect();
        let spent = Spent::default();
        self.journal.append(&JournalBatch { records: &records, waits, outcome, spent })
    }

    /// Appends records one by one, and takes the snapshots that are due.
    pub(crate) fn append_with_snapshots(&mut self, count: u64) -> LawResult {
        for _ in 0..count {
            self.append(1)?;
            let state = Unfinished::fold(self.records.iter().cloned());
            if self.journal.snapshot_due().is_some_and(|due| due <= state.next) {
                self.journal.keep_snapshot(state);
            }
        }
        Ok(())
    }
}

/// The records of a room as observers read them.
pub(crate) fn records(host: &dyn TestedHost, room: &str) -> LawResult<Vec<Record>> {
    let records = wait(host.journals().records(&RoomId::from(room)))??;
    Ok(records.unwrap_or_default())
}

/// The problems of the audit chain. Those of lists are left out, because a fictitious room is not in
/// the state that its list says.
pub(crate) fn problems(host: &dyn TestedHost) -> LawResult<Vec<String>> {
    let mut problems = reader_of(host)?.verify(&[])?.problems;
    problems.retain(|problem| !problem.ends_with("in the list is not what its records lead to"));
    Ok(problems)
}

fn opening(room: &RoomId, epoch: u64) -> Event {
    let (entry, limits) = (TaskName::from("desk"), RunLimits::default());
    let (tasks, plugins, models, channels) = Default::default();
    let (gates, observers, policy, policy_now) = (Vec::new(), Vec::new(), Policy::default(), None);
    let setup = Setup {
        entry: entry.clone(),
        tasks,
        plugins,
        models,
        channels,
        gates,
        observers,
        policy,
        policy_now,
        limits,
    };
    let content = Some(format!("Good morning, host {epoch}"));
    let opening = RunOpening { room: room.clone(), entry, content, ..RunOpening::default() };
    let secret = RoomSecret::new([0x5e; RoomSecret::LENGTH]);
    Event::RoomOpened { setup: Arc::new(setup), opening, secret }
}

fn said(seq: u64, attachments: &[Blob]) -> Event {
    let (text, attachments) = (Some(format!("yes, {seq}")), attachments.to_vec());
    Event::UserAnswered { call: CallId(seq), text, attachments, passed: false }
}
