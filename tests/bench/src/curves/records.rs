//! The records in the store: the cost of an append that survives a power cut, of reading an
//! interrupted run for its resumption, and of listing the newest runs. The store is filled with
//! copies of the records of one real run, each copy under a name of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conclave_core::protocol::event::{Event, Record};
use conclave_core::types::ids::RoomId;
use conclave_core::types::outcome::Outcome;
use conclave_core::types::usage::Spent;
use conclave_runtime::RunOptions;
use conclave_runtime::ids::{Ids, RandomIds};
use conclave_runtime::journal::{JournalBatch, Journals, Keeping, MemoryJournals};
use conclave_runtime::store::{Durability, RunFilter, RunOrigin, Store, StoreReader};
use tokio::task::JoinSet;

use super::series::{Curve, Rounds};
use super::{Place, failed};
use crate::BenchError;
use crate::durable::Folder;
use crate::measure::Effort;

const RECORDS: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];
/// One of so many runs is interrupted.
const INTERRUPTED: u64 = 100;
/// The runs that are written at once.
const WRITERS: u64 = 8;
/// The bytes that stay free on the disk.
const FREE: u64 = 30 << 30;
/// The runs of one list.
const LISTED: usize = 20;

pub(super) async fn curve(place: &Place<'_>) -> Result<Curve, BenchError> {
    let budget = Duration::from_secs(if place.effort == Effort::Quick { 20 } else { 600 });
    let folder = Folder::make(&place.folder()?, "records")?;
    let store = Store::open(folder.path().join("store")).map_err(failed)?;
    let mut filler = Filler::prepare(place, &store).await?;
    let mut append = Rounds::new("a durable append");
    let mut reopen = Rounds::new("reading an interrupted run");
    let mut list = Rounds::new("listing 20 runs");
    let mut remark = None;
    for &records in place.sizes(&RECORDS) {
        if let Some(reason) = filler.reason_to_stop(records, budget, folder.path()) {
            remark = Some(reason);
            break;
        }
        filler.fill(records).await?;
        eprintln!("  {records} records after {:.0?}", filler.took);
        for _ in 0..place.rounds() {
            append.take(records, filler.appends().await?);
            reopen.take(records, filler.reopened(place).await?);
            list.take(records, lists(&folder_of(&store))?);
        }
    }
    Ok(Curve {
        what: super::RECORDS.to_owned(),
        axis: "records in the store".to_owned(),
        series: vec![append.series(), reopen.series(), list.series()],
        remark,
    })
}

/// Fills a store.
struct Filler {
    store: Store,
    run: Arc<RecordedRun>,
    interrupted: Vec<RoomId>,
    runs: u64,
    took: Duration,
}

/// The records of one run, and its end.
struct RecordedRun {
    records: Vec<Arc<Record>>,
    outcome: Arc<Outcome>,
}

impl Filler {
    async fn prepare(place: &Place<'_>, store: &Store) -> Result<Self, BenchError> {
        let journals = MemoryJournals::default();
        let options = RunOptions { journals: Arc::new(journals.clone()), ..RunOptions::default() };
        let run = place.hosted.prepared().start(Some("go".to_owned()), options).map_err(failed)?;
        let room = run.room().clone();
        let outcome = run.outcome().await.map_err(failed)?;
        let run = Arc::new(RecordedRun { records: journals.records(&room), outcome });
        let (interrupted, took) = (Vec::new(), Duration::ZERO);
        Ok(Self { store: store.clone(), run, interrupted, runs: 0, took })
    }

    /// Returns the reason why the store is not filled up to this many records: the next size takes
    /// too long, or too much of the disk.
    fn reason_to_stop(&self, records: u64, budget: Duration, folder: &Path) -> Option<String> {
        let there = self.runs * self.run.records.len() as u64;
        let factor = records.checked_div(there)?;
        if self.took * u32::try_from(factor).unwrap_or(u32::MAX) > budget {
            let seconds = budget.as_secs();
            return Some(format!("{records} records would take longer than {seconds} s to write"));
        }
        let bytes = size(&self.store) * factor;
        let free = free(folder).unwrap_or(u64::MAX);
        (free < bytes.saturating_add(FREE))
            .then(|| format!("{records} records would leave less than 30 GiB of the disk free"))
    }

    /// Adds runs until there are this many records.
    async fn fill(&mut self, records: u64) -> Result<(), BenchError> {
        let began = Instant::now();
        let until = records / self.run.records.len() as u64;
        let journals = self.store.journals(Durability::Exit, RunOrigin::default());
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let (run, journals) = (Arc::clone(&self.run), Arc::clone(&journals));
            let numbers = self.runs..until;
            writers.spawn(async move {
                let mut interrupted = Vec::new();
                for number in numbers.filter(|number| number % WRITERS == writer) {
                    let ends = number % INTERRUPTED != 0;
                    let room = run.write(&*journals, number, ends).await?;
                    if !ends {
                        interrupted.push(room);
                    }
                }
                Ok::<_, BenchError>(interrupted)
            });
        }
        while let Some(written) = writers.join_next().await {
            self.interrupted.extend(written.map_err(failed)??);
        }
        self.runs = until;
        // Waits for the thread that writes, and makes the measurement begin with a synced file.
        self.appends().await?;
        self.took += began.elapsed();
        Ok(())
    }

    /// Returns the times of appends of a whole run in one batch, each until it is durable.
    async fn appends(&mut self) -> Result<Vec<Duration>, BenchError> {
        const SAMPLES: u64 = 40;
        let journals = self.store.journals(Durability::Sync, RunOrigin::default());
        let mut times = Vec::new();
        for number in 0..SAMPLES {
            let room = RandomIds.run();
            let records = self.run.at(self.runs + number, true);
            let mut journal = journals.open(&room).map_err(failed)?.await.map_err(failed)?;
            let began = Instant::now();
            match journal.append(&self.run.batch(&records, true)).map_err(failed)? {
                Keeping::Kept => {}
                Keeping::Soon(kept) | Keeping::First(kept) => kept.await.map_err(failed)?,
            }
            times.push(began.elapsed());
        }
        Ok(times)
    }

    /// Returns the times of reading interrupted runs, up to the room that can go on.
    async fn reopened(&self, place: &Place<'_>) -> Result<Vec<Duration>, BenchError> {
        const SAMPLES: usize = 100;
        let journals = self.store.journals(Durability::Group, RunOrigin::default());
        let mut times = Vec::new();
        // Steps of a prime number of rooms reach old and new ones.
        let rooms = self.interrupted.iter().cycle().step_by(7_919).take(SAMPLES);
        for room in rooms {
            let options = RunOptions { journals: Arc::clone(&journals), ..RunOptions::default() };
            let began = Instant::now();
            let session = place.hosted.prepared().reopen(room, options).await.map_err(failed)?;
            times.push(began.elapsed());
            if !session.is_cut_off() {
                return Err(BenchError::Answer(format!("run {room} had ended")));
            }
        }
        Ok(times)
    }
}

impl RecordedRun {
    /// Writes a copy of the run and returns its room.
    async fn write(
        &self,
        journals: &dyn Journals,
        number: u64,
        ends: bool,
    ) -> Result<RoomId, BenchError> {
        let room = RandomIds.run();
        let records = self.at(number, ends);
        let mut journal = journals.open(&room).map_err(failed)?.await.map_err(failed)?;
        journal.ready().await.map_err(failed)?;
        journal.append(&self.batch(&records, ends)).map_err(failed)?;
        Ok(room)
    }

    /// Returns the records as of the run with this number, one each second. A run that does not end
    /// stops after half of its records.
    fn at(&self, number: u64, ends: bool) -> Vec<Arc<Record>> {
        let count = if ends { self.records.len() } else { self.records.len() / 2 };
        let later_ms = number * 1_000;
        let later = |record: &Arc<Record>| {
            let mut record = Record::clone(record);
            record.at = record.at.plus(later_ms);
            if let Event::RoomOpened { opening, .. } = &mut record.event {
                opening.deadline = opening.deadline.map(|at| at.plus(later_ms));
            }
            Arc::new(record)
        };
        self.records.iter().take(count).map(later).collect()
    }

    fn batch<'a>(&'a self, records: &'a [Arc<Record>], ends: bool) -> JournalBatch<'a> {
        let outcome = ends.then_some(&self.outcome);
        JournalBatch { records, waits: &[], outcome, spent: Spent::default() }
    }
}

/// Returns the times of lists of the newest runs.
fn lists(store: &Path) -> Result<Vec<Duration>, BenchError> {
    const ENOUGH: Duration = Duration::from_millis(200);
    let reader = StoreReader::open(store).map_err(failed)?;
    let filter = RunFilter { most: Some(LISTED), ..RunFilter::default() };
    let (began, mut times) = (Instant::now(), Vec::new());
    while times.len() < 3 || (began.elapsed() < ENOUGH && times.len() < 100) {
        let began = Instant::now();
        let runs = reader.runs(&filter).map_err(failed)?;
        times.push(began.elapsed());
        if runs.len() != LISTED {
            return Err(BenchError::Answer(format!("{} runs were listed", runs.len())));
        }
    }
    Ok(times)
}

/// The folder of a store; the bench has no other.
fn folder_of(store: &Store) -> PathBuf {
    store.folder().map(Path::to_owned).unwrap_or_default()
}

/// Returns the bytes of the store's files.
fn size(store: &Store) -> u64 {
    let files = std::fs::read_dir(folder_of(store)).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

/// Returns the free bytes of the folder's disk; `None` if `df` does not say.
fn free(folder: &Path) -> Option<u64> {
    let output = Command::new("df").arg("-Pk").arg(folder).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let kib: u64 = text.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    Some(kib << 10)
}
