//! A store of a test's own that many hosts share, and its broken variants: each is found by the law
//! that it breaks.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_runtime::event::{Event, Principal, RULES, Record};
use conclave_runtime::ids::{Millis, RoomId};
use conclave_runtime::journal::{
    AppendFailure, Journal, JournalBatch, JournalFailure, Journals, Keeping, Opening,
    RecordsReading, Reopened, Reopening,
};
use conclave_runtime::store::StoreOptions;
use conclave_store_laws::{LawReport, LawResult, TestedHost, TestedStore, try_all};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// An append is not checked against the epoch of its run.
    NoFence,
    /// As above for child rooms alone.
    NoFenceOfChildren,
    /// An append is acknowledged before it is stored.
    EarlyAcknowledgement,
    /// A batch is stored up to its first gap.
    HalfBatches,
    /// A take-over does not look whether the host before has a lease.
    NoLease,
    /// A take-over keeps the epoch.
    SameEpoch,
}

#[derive(Default)]
struct Run {
    epoch: u64,
    host: Option<String>,
}

#[derive(Default)]
struct Tables {
    rooms: BTreeMap<RoomId, Vec<Record>>,
    runs: BTreeMap<RoomId, Run>,
    leases: Vec<String>,
}

struct Shared {
    fault: Fault,
    hosts: AtomicUsize,
    tables: Arc<Mutex<Tables>>,
}

/// A host, and what it has acknowledged and not stored.
/// Records that arrive later than they were acknowledged, by room.
type LateRecords = Vec<(RoomId, Vec<Record>)>;

#[derive(Clone)]
struct Host {
    name: String,
    fault: Fault,
    tables: Arc<Mutex<Tables>>,
    late: Arc<Mutex<LateRecords>>,
    /// The last handle closes the store.
    _closing: Arc<Closing>,
}

struct Closing(String, Arc<Mutex<Tables>>);

struct OneJournal {
    room: RoomId,
    epoch: u64,
    host: Host,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failure(room: &RoomId, answer: AppendFailure, what: &str) -> JournalFailure {
    let cause = io::Error::other(what.to_owned());
    JournalFailure { answer, ..JournalFailure::new(room.clone(), "memory".to_owned(), cause) }
}

impl TestedStore for Shared {
    fn open(&self, options: &StoreOptions) -> LawResult<Box<dyn TestedHost>> {
        let number = self.hosts.fetch_add(1, Ordering::SeqCst);
        let name = format!("{}-{number}", options.host);
        lock(&self.tables).leases.push(name.clone());
        let tables = Arc::clone(&self.tables);
        let _closing = Arc::new(Closing(name.clone(), Arc::clone(&tables)));
        Ok(Box::new(Host { name, fault: self.fault, tables, late: Arc::default(), _closing }))
    }

    fn crash(&self, host: Box<dyn TestedHost>) {
        std::mem::forget(host);
    }

    fn end_leases(&self) -> bool {
        lock(&self.tables).leases.clear();
        true
    }
}

impl TestedHost for Host {
    fn journals(&self) -> Arc<dyn Journals> {
        Arc::new(self.clone())
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let mut tables = lock(&self.1);
        tables.leases.retain(|host| *host != self.0);
        let runs = tables.runs.values_mut();
        runs.filter(|run| run.host.as_ref() == Some(&self.0)).for_each(|run| run.host = None);
    }
}

impl Host {
    fn journal(&self, room: &RoomId, epoch: u64) -> Box<dyn Journal> {
        Box::new(OneJournal { room: room.clone(), epoch, host: self.clone() })
    }

    /// Takes a run, and writes the record of that into each of `rooms`.
    fn take(&self, tables: &mut Tables, room: &RoomId) -> Result<u64, JournalFailure> {
        let Tables { rooms, runs, leases } = tables;
        let run = runs.entry(room.run()).or_default();
        let has_lease = |host: &String| leases.contains(host) && self.fault != Fault::NoLease;
        let is_mine = run.host.as_ref() == Some(&self.name);
        if let Some(other) = run.host.as_ref().filter(|host| !is_mine && has_lease(host)) {
            let what = format!("the host {other} has it in progress");
            return Err(failure(room, AppendFailure::Other, &what));
        }
        let is_new = *room == room.run() || !is_mine;
        run.epoch += u64::from(is_new && self.fault != Fault::SameEpoch);
        run.host = Some(self.name.clone());
        let records = rooms.entry(room.clone()).or_default();
        records.push(Record {
            seq: records.len() as u64,
            at: Millis(1),
            principal: Principal("ada".into()),
            rules: RULES,
            epoch: run.epoch,
            event: Event::Owned { host: self.name.clone(), epoch: run.epoch },
        });
        Ok(run.epoch)
    }
}

impl Journals for Host {
    fn open(&self, room: &RoomId) -> Result<Opening, JournalFailure> {
        let tables = lock(&self.tables);
        if tables.rooms.contains_key(room) {
            return Err(failure(room, AppendFailure::Other, "it has a journal already"));
        }
        let epoch = tables.runs.get(&room.run()).map_or(1, |run| match &run.host {
            Some(host) if *host == self.name => run.epoch,
            // That by which this host knew it.
            _ => run.epoch.saturating_sub(1),
        });
        Ok(Box::pin(std::future::ready(Ok(self.journal(room, epoch)))))
    }

    fn records(&self, room: &RoomId) -> RecordsReading {
        let records = lock(&self.tables).rooms.get(room).cloned();
        Box::pin(std::future::ready(Ok(records)))
    }

    fn reopen(&self, room: &RoomId, _: Millis) -> Reopening {
        let mut tables = lock(&self.tables);
        let reopened = if tables.rooms.contains_key(room) {
            self.take(&mut tables, room).map(|epoch| {
                let records = tables.rooms.get(room).cloned().unwrap_or_default();
                let (messages, journal) = (Vec::new(), self.journal(room, epoch));
                Some(Reopened { snapshot: None, records, stopped: None, messages, journal })
            })
        } else {
            Ok(None)
        };
        Box::pin(std::future::ready(reopened))
    }
}

impl Host {
    fn store(
        &self,
        tables: &mut Tables,
        room: &RoomId,
        batch: &[Record],
    ) -> Result<(), JournalFailure> {
        let fault = self.fault;
        let Tables { rooms, runs, .. } = tables;
        let is_root = *room == room.run();
        let run = runs.entry(room.run()).or_default();
        if is_root && !rooms.contains_key(room) {
            *run = Run { epoch: 1, host: Some(self.name.clone()) };
        }
        let has_no_fence = match fault {
            Fault::NoFence => true,
            Fault::NoFenceOfChildren => !is_root,
            _ => false,
        };
        if batch.iter().any(|record| record.epoch != run.epoch) && !has_no_fence {
            return Err(failure(room, AppendFailure::Fenced, "another host has it"));
        }
        let records = rooms.entry(room.clone()).or_default();
        let next = records.len() as u64;
        let in_order =
            batch.iter().zip(next..).take_while(|(record, seq)| record.seq == *seq).count();
        if in_order == batch.len() || fault == Fault::HalfBatches {
            records.extend_from_slice(&batch[..in_order]);
        }
        if in_order < batch.len() {
            return Err(failure(room, AppendFailure::Behind, "there is a gap"));
        }
        Ok(())
    }
}

impl Journal for OneJournal {
    fn append(&mut self, entry: &JournalBatch<'_>) -> Result<Keeping, JournalFailure> {
        let batch: Vec<Record> = entry.records.iter().map(|record| Record::clone(record)).collect();
        let mut tables = lock(&self.host.tables);
        if self.host.fault == Fault::EarlyAcknowledgement {
            // Stored with the next append.
            let mut late = lock(&self.host.late);
            for (room, batch) in late.drain(..) {
                self.host.store(&mut tables, &room, &batch)?;
            }
            late.push((self.room.clone(), batch));
            return Ok(Keeping::Kept);
        }
        self.host.store(&mut tables, &self.room, &batch).map(|()| Keeping::Kept)
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl Drop for OneJournal {
    fn drop(&mut self) {
        let mut tables = lock(&self.host.tables);
        let Some(run) = tables.runs.get_mut(&self.room) else { return };
        if run.epoch == self.epoch && run.host.as_ref() == Some(&self.host.name) {
            run.host = None;
        }
    }
}

fn report(fault: Fault) -> LawReport {
    try_all(|| Shared { fault, hosts: AtomicUsize::new(0), tables: Arc::default() })
}

#[test]
fn a_store_of_ones_own_obeys_the_laws_of_journals() {
    let report = report(Fault::Nothing);
    assert_eq!(report.broken, [], "{report}");
    assert_eq!((report.held.len(), report.not_tried.len()), (13, 24), "{report}");
}

#[test]
fn a_broken_store_is_found_by_the_law_that_it_breaks() {
    for (fault, law) in [
        (Fault::NoFence, "a_host_that_lost_a_run_appends_to_none_of_its_rooms"),
        (Fault::NoFenceOfChildren, "a_host_that_lost_a_run_opens_no_child_room"),
        (Fault::EarlyAcknowledgement, "what_is_acknowledged_is_read_after_a_crash"),
        (Fault::HalfBatches, "a_batch_with_a_gap_is_refused_and_stores_nothing"),
        (Fault::NoLease, "the_run_of_a_live_host_is_busy"),
        (Fault::SameEpoch, "a_take_over_is_the_first_record_of_the_next_epoch"),
    ] {
        let report = report(fault);
        let is_found = report.broken.iter().any(|(broken, _)| *broken == law);
        assert!(is_found, "{fault:?}: {report}");
    }
}
