//! The runs that people look at, folded. A run is folded once, however many pages and requests show
//! it: a task keeps the fold, reads only the records that were added, and ends when nobody has
//! looked for a while. Records are read and folded on threads that may block.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use conclave_core::inspect::background::{BackgroundTasks, TaskRow};
use conclave_core::inspect::timeline::{Timeline, TimelineFold};
use conclave_core::policy::budget::{Budget, BudgetUse};
use conclave_core::types::ids::{Millis, RoomId};
use conclave_core::types::limits::RunLimits;
use conclave_runtime::store::{RoomRow, RunRow, RunState, StoreError, StoreReader};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::readers::{ReadFailed, Readers};

/// Folds in memory: more than a page of budgets shows. Each holds the histories of its run.
const RUNS: usize = 64;
/// The time without a look after which a fold is dropped.
const IDLE: Duration = Duration::from_secs(60);
/// Looks at one run that wait for their turn.
const LOOKS: usize = 64;
/// Records that are read at once.
const RECORDS: u64 = 500;

/// The folds of runs. Clones share them.
#[derive(Clone)]
pub(crate) struct RunFolds(Arc<RunFoldsState>);

struct RunFoldsState {
    readers: Readers,
    open: Mutex<OpenFolds>,
    records: AtomicU64,
}

/// The ways to the tasks that have folds.
#[derive(Default)]
struct OpenFolds(BTreeMap<RoomId, OpenFold>);

struct OpenFold {
    looks: mpsc::Sender<Look>,
    last: Instant,
}

type Look = oneshot::Sender<Result<Option<Arc<FoldedRun>>, ReadFailed>>;

/// A run as its records lead to it.
pub(crate) struct FoldedRun {
    /// Up to its newest record; [`Timeline::extend`] adds the time since.
    pub(crate) timeline: Timeline,
    pub(crate) tasks: Vec<TaskRow>,
    /// The limits in force, with the increases that were granted.
    pub(crate) limits: RunLimits,
    /// The limits that can be compared with what was used of them.
    pub(crate) budgets: Vec<BudgetUse>,
    /// The reason of its pause; `None` if it is not paused.
    pub(crate) paused: Option<String>,
}

impl RunFolds {
    pub(crate) fn new(readers: Readers) -> Self {
        let (open, records) = (Mutex::default(), AtomicU64::new(0));
        Self(Arc::new(RunFoldsState { readers, open, records }))
    }

    /// Returns a run with all records that were durable before the call; `None` if they do not begin
    /// with an opening.
    pub(crate) async fn run(&self, run: &RoomId) -> Result<Option<Arc<FoldedRun>>, ReadFailed> {
        // A task may have ended just before the look reached it.
        for _ in 0..2 {
            let (reply, folded) = oneshot::channel();
            if self.way_to(run).send(reply).await.is_ok()
                && let Ok(folded) = folded.await
            {
                return folded;
            }
        }
        Err(ReadFailed)
    }

    /// The number of folds in memory.
    pub(crate) fn open_runs(&self) -> usize {
        self.open().0.values().filter(|fold| !fold.looks.is_closed()).count()
    }

    /// The number of records that were folded since the start of the server.
    pub(crate) fn records(&self) -> u64 {
        self.0.records.load(Ordering::Relaxed)
    }

    /// The way to the task of a run, which begins if there is none.
    fn way_to(&self, run: &RoomId) -> mpsc::Sender<Look> {
        let (looks, requests) = self.open().way_to(run, Instant::now());
        if let Some(requests) = requests {
            tokio::spawn(self.clone().attend(run.clone(), requests));
        }
        looks
    }

    /// Answers the looks at a run until none comes any more, or its records cannot be read.
    async fn attend(self, run: RoomId, mut requests: mpsc::Receiver<Look>) {
        let mut fold = RunFold::default();
        while let Ok(Some(first)) = timeout(IDLE, requests.recv()).await {
            let mut looks = vec![first];
            // Those that came meanwhile are answered by the same reading.
            looks.extend(std::iter::from_fn(|| requests.try_recv().ok()));
            let (of_run, folds) = (run.clone(), self.clone());
            let reading = self.0.readers.read(move |reader| {
                let count = fold.catch_up(reader, &of_run)?;
                folds.0.records.fetch_add(count, Ordering::Relaxed);
                Ok(fold)
            });
            let read = reading.await;
            let folded = read.as_ref().map(|fold| fold.folded.clone()).map_err(|failed| *failed);
            for look in looks {
                // Whoever asked may have left.
                let _ = look.send(folded.clone());
            }
            match read {
                Ok(read) => fold = read,
                Err(_) => return,
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, OpenFolds> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenFolds {
    /// The way to the task of a run; if it is a new one, with its other end, for that task.
    fn way_to(
        &mut self,
        run: &RoomId,
        now: Instant,
    ) -> (mpsc::Sender<Look>, Option<mpsc::Receiver<Look>>) {
        self.0.retain(|_, fold| !fold.looks.is_closed());
        if let Some(fold) = self.0.get_mut(run) {
            fold.last = now;
            return (fold.looks.clone(), None);
        }
        if self.0.len() >= RUNS {
            let oldest =
                self.0.iter().min_by_key(|(_, fold)| fold.last).map(|(run, _)| run.clone());
            // Its task ends after the looks that have reached it.
            oldest.inspect(|oldest| drop(self.0.remove(oldest)));
        }
        let (looks, requests) = mpsc::channel(LOOKS);
        self.0.insert(run.clone(), OpenFold { looks: looks.clone(), last: now });
        (looks, Some(requests))
    }
}

/// The fold of a run, with the place up to which each of its rooms is read.
#[derive(Default)]
struct RunFold {
    timeline: TimelineFold,
    rooms: BTreeMap<RoomId, RoomPlace>,
    folded: Option<Arc<FoldedRun>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct RoomPlace {
    /// The number of its next record.
    next: u64,
    /// The number of its records in the list of rooms.
    listed: u64,
}

impl RunFold {
    /// Folds the records that were added, and returns their number.
    fn catch_up(&mut self, reader: &StoreReader, run: &RoomId) -> Result<u64, StoreError> {
        // Before their records, so that the record that started a room's task is read before those
        // of the room.
        let rooms = reader.rooms(run)?;
        if self.is_of_other_records(&rooms) {
            *self = Self::default();
        }
        let mut count = 0;
        for row in &rooms {
            count += self.catch_up_room(reader, row)?;
        }
        if count > 0 {
            self.folded = FoldedRun::of(&self.timeline).map(Arc::new);
        }
        Ok(count)
    }

    /// Whether the store has fewer records than were read, as after it was restored.
    fn is_of_other_records(&self, rooms: &[RoomRow]) -> bool {
        let listed: BTreeMap<&RoomId, u64> =
            rooms.iter().map(|row| (&row.room, row.records)).collect();
        self.rooms
            .iter()
            .any(|(room, place)| listed.get(room).is_none_or(|records| *records < place.listed))
    }

    fn catch_up_room(&mut self, reader: &StoreReader, row: &RoomRow) -> Result<u64, StoreError> {
        let place = self.rooms.entry(row.room.clone()).or_default();
        let mut count = 0;
        while place.listed < row.records {
            let records = reader.records_from(&row.room, place.next, RECORDS)?;
            let read = records.len() as u64;
            (place.next, count) = (place.next + read, count + read);
            if read < RECORDS {
                place.listed = row.records;
            }
            records.into_iter().for_each(|record| self.timeline.take(&row.room, record));
        }
        Ok(count)
    }
}

impl FoldedRun {
    /// The timeline up to now: the records of a run that goes on say nothing about the time since
    /// the newest.
    pub(crate) fn timeline_until(&self, row: &RunRow, now: Millis) -> Timeline {
        let mut timeline = self.timeline.clone();
        if !matches!(row.state, RunState::Ended(_)) {
            timeline.extend(row.until(now));
        }
        timeline
    }

    fn of(fold: &TimelineFold) -> Option<Self> {
        let (timeline, root) = (fold.timeline()?, fold.rooms().next()?);
        let mut tasks = BackgroundTasks::default();
        fold.rooms().for_each(|room| tasks.take(&timeline.run, room));
        Some(Self {
            tasks: tasks.into_rows(),
            limits: root.limits().clone(),
            budgets: Budget::uses(root.limits(), &root.spent()),
            paused: root.paused().map(str::to_owned),
            timeline,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_one_task_and_the_fold_that_nobody_looked_at_longest_gives_way() {
        let (mut open, begin) = (OpenFolds::default(), Instant::now());
        let mut tasks = Vec::new();
        let mut look = |run: &str, second: u64| {
            let at = begin + Duration::from_secs(second);
            let (_, task) = open.way_to(&RoomId::from(run), at);
            let is_new = task.is_some();
            tasks.extend(task);
            (is_new, open.0.len())
        };
        for number in 0..RUNS {
            assert_eq!(look(&format!("r{number}"), number as u64), (true, number + 1));
        }
        assert_eq!(look("r0", 1_000), (false, RUNS), "it has a task");
        assert_eq!(look("other", 1_001), (true, RUNS));
        assert_eq!(look("r0", 1_002), (false, RUNS), "it was looked at");
        assert_eq!(look("r1", 1_003), (true, RUNS), "it gave way");
        // The task of `r1` that gave way ends when its last look is answered.
        assert!(tasks[1].is_closed() && !tasks[0].is_closed());
        tasks.clear();
        assert_eq!(open.way_to(&RoomId::from("r0"), begin).1.map(|_| open.0.len()), Some(1));
    }
}
