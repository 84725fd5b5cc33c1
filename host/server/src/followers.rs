//! The runs that event streams follow. The store is asked for the new records of a run once, however
//! many streams follow it, and each stream takes them from here at its own speed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use conclave_core::types::ids::RoomId;
use conclave_runtime::store::{RunPosition, RunRecord, StoreError, StoreReader};
use serde_json::Value;
use tokio::sync::watch;

use crate::readers::{ReadFailed, Readers};

/// The time after which the store is asked again for a run that another process has open.
const POLL: Duration = Duration::from_secs(1);
/// Records that are read at once.
const RECORDS: u64 = 50;
/// Bytes of records that a stream takes at once. It holds them until its reader has taken them.
const BATCH: usize = 128 << 10;
/// Bytes of recent records of a run. A stream that is further behind reads from the store.
const RECENT: usize = 1 << 20;

/// The followers of runs.
#[derive(Clone)]
pub(crate) struct Followers {
    readers: Readers,
    runs: Arc<Mutex<BTreeMap<RoomId, Weak<RunFollower>>>>,
}

/// A record of a run, as event streams send it.
#[derive(Debug)]
pub(crate) struct FollowedRecord {
    pub(crate) position: RunPosition,
    /// The record and its room, as JSON.
    pub(crate) data: String,
}

/// The newest records of a run. Its task ends with the last stream that follows the run.
pub(crate) struct RunFollower {
    run: RoomId,
    readers: Readers,
    recent: Mutex<RecentRecords>,
    /// Notified of new records. Closed if the store cannot be read.
    news: watch::Receiver<()>,
}

#[derive(Default)]
struct RecentRecords {
    /// The position of the last record that is not among them.
    begin: Option<RunPosition>,
    records: VecDeque<Arc<FollowedRecord>>,
    bytes: usize,
}

impl Followers {
    pub(crate) fn new(readers: Readers) -> Self {
        Self { readers, runs: Arc::default() }
    }

    /// Follows a run. `changes` is notified when a run of this process has a new record.
    pub(crate) async fn follow(
        &self,
        run: &RoomId,
        changes: Option<watch::Receiver<()>>,
    ) -> Result<Arc<RunFollower>, ReadFailed> {
        if let Some(follower) = self.known(run) {
            return Ok(follower);
        }
        let of_run = run.clone();
        // Read before the stream reads what is before it, so that nothing is between the two.
        let end = self.readers.read(move |reader| reader.run_end(&of_run)).await?;
        let mut runs = self.runs();
        // Another stream may have begun to follow it meanwhile.
        if let Some(follower) = runs.get(run).and_then(Weak::upgrade) {
            return Ok(follower);
        }
        let (publish, news) = watch::channel(());
        let follower = Arc::new(RunFollower {
            run: run.clone(),
            readers: self.readers.clone(),
            recent: Mutex::new(RecentRecords { begin: end, ..RecentRecords::default() }),
            news,
        });
        runs.retain(|_, follower| follower.strong_count() > 0);
        runs.insert(run.clone(), Arc::downgrade(&follower));
        tokio::spawn(attend(Arc::downgrade(&follower), publish, changes, end));
        Ok(follower)
    }

    fn known(&self, run: &RoomId) -> Option<Arc<RunFollower>> {
        let follower = self.runs().get(run).and_then(Weak::upgrade)?;
        // One that could not read the store has ended.
        follower.news.has_changed().is_ok().then_some(follower)
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<RoomId, Weak<RunFollower>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the new records of a run, as long as a stream follows it.
async fn attend(
    follower: Weak<RunFollower>,
    publish: watch::Sender<()>,
    mut changes: Option<watch::Receiver<()>>,
    mut end: Option<RunPosition>,
) {
    loop {
        // Marked as seen before the look, so that a change during it leads to another look.
        if let Some(changes) = &mut changes {
            changes.borrow_and_update();
        }
        let Some(following) = follower.upgrade() else { return };
        // If the store is unreadable, readers connect again and name their last event.
        let Ok(records) = following.read(end).await else { return };
        let is_last = (records.len() as u64) < RECORDS;
        if let Some(last) = records.last() {
            end = Some(last.position);
            following.recent().push(records);
            publish.send_replace(());
        }
        drop(following);
        if is_last {
            wait(&mut changes).await;
        }
    }
}

/// Waits for a change of a run, or for the next look at one that another process may have open.
async fn wait(changes: &mut Option<watch::Receiver<()>>) {
    match changes {
        Some(receiver) => {
            // The time is for a run that has ended here and goes on elsewhere.
            let changed = tokio::time::timeout(POLL, receiver.changed()).await;
            if matches!(changed, Ok(Err(_))) {
                *changes = None;
            }
        }
        None => tokio::time::sleep(POLL).await,
    }
}

impl RunFollower {
    /// A receiver that is notified of new records.
    pub(crate) fn news(&self) -> watch::Receiver<()> {
        self.news.clone()
    }

    /// Some of the records that follow a position; empty if there are none now.
    pub(crate) async fn after(
        &self,
        after: Option<RunPosition>,
    ) -> Result<Vec<Arc<FollowedRecord>>, ReadFailed> {
        let recent = self.recent().after(after);
        match recent {
            Some(records) => Ok(records),
            None => self.read_batch(after).await,
        }
    }

    /// Reads records for a stream that is further behind than the recent ones.
    async fn read_batch(
        &self,
        after: Option<RunPosition>,
    ) -> Result<Vec<Arc<FollowedRecord>>, ReadFailed> {
        let run = self.run.clone();
        self.readers.read(move |reader| batch_after(reader, &run, after)).await
    }

    async fn read(
        &self,
        after: Option<RunPosition>,
    ) -> Result<Vec<Arc<FollowedRecord>>, ReadFailed> {
        let run = self.run.clone();
        let read = move |reader: &StoreReader| {
            let records = reader.run_records(&run, after, RECORDS)?;
            Ok(records.into_iter().map(|record| Arc::new(followed(record))).collect())
        };
        self.readers.read(read).await
    }

    fn recent(&self) -> MutexGuard<'_, RecentRecords> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecentRecords {
    fn push(&mut self, records: Vec<Arc<FollowedRecord>>) {
        self.bytes += records.iter().map(|record| record.data.len()).sum::<usize>();
        self.records.extend(records);
        while self.bytes > RECENT
            && let Some(oldest) = self.records.pop_front()
        {
            self.bytes -= oldest.data.len();
            self.begin = Some(oldest.position);
        }
    }

    /// Some of the records that follow a position; `None` if older ones than these do.
    fn after(&self, after: Option<RunPosition>) -> Option<Vec<Arc<FollowedRecord>>> {
        if after < self.begin {
            return None;
        }
        let first = self.records.partition_point(|record| Some(record.position) <= after);
        let mut batch = Batch::default();
        let records = self.records.iter().skip(first);
        let _ = records.cloned().try_for_each(|record| batch.push(record).then_some(()));
        Some(batch.records)
    }
}

/// The records that a stream takes at once: at least one, and no more than it may hold.
#[derive(Default)]
struct Batch {
    records: Vec<Arc<FollowedRecord>>,
    bytes: usize,
}

impl Batch {
    /// Adds a record, unless the batch is full. Returns whether more may follow.
    fn push(&mut self, record: Arc<FollowedRecord>) -> bool {
        let bytes = self.bytes + record.data.len();
        if bytes > BATCH && !self.records.is_empty() {
            return false;
        }
        self.bytes = bytes;
        self.records.push(record);
        bytes <= BATCH && (self.records.len() as u64) < RECORDS
    }
}

/// Reads the records of a run that follow a position, as many as a stream takes at once.
fn batch_after(
    reader: &StoreReader,
    run: &RoomId,
    mut after: Option<RunPosition>,
) -> Result<Vec<Arc<FollowedRecord>>, StoreError> {
    let mut batch = Batch::default();
    loop {
        // One, and then as many again: how large records are is known when they are read.
        let count = batch.records.len() as u64;
        let more = count.max(1).min(RECORDS - count);
        let records = reader.run_records(run, after, more)?;
        let is_last = (records.len() as u64) < more;
        for record in records {
            after = Some(record.position);
            if !batch.push(Arc::new(followed(record))) {
                return Ok(batch.records);
            }
        }
        if is_last {
            return Ok(batch.records);
        }
    }
}

/// Removes from the grants of a setup where their folders and programs are on this machine. Each
/// folder stays with the name that the operator wrote and the one that plugins see.
fn withhold_places(setup: &mut Value) {
    match setup {
        Value::Object(fields) => {
            if fields.contains_key("dir") && fields.contains_key("shown") {
                fields.remove("dir");
            }
            if fields.contains_key("confinement") && fields.contains_key("commands") {
                fields.retain(|name, _| name != "read" && name != "starts");
            }
            fields.values_mut().for_each(withhold_places);
        }
        Value::Array(values) => values.iter_mut().for_each(withhold_places),
        _ => {}
    }
}

fn followed(record: RunRecord) -> FollowedRecord {
    let RunRecord { position, room, record } = record;
    let record = Arc::new(record).without_secret();
    // A record always has a JSON form, which has no line break.
    let mut value = serde_json::to_value(&*record).unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        fields.insert("room".to_owned(), room.as_str().into());
    }
    if let Some(setup) = value.get_mut("setup") {
        withhold_places(setup);
    }
    FollowedRecord { position, data: value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64, bytes: usize) -> Arc<FollowedRecord> {
        let position = format!("0-{number}").parse().expect("a position");
        Arc::new(FollowedRecord { position, data: "x".repeat(bytes) })
    }

    fn numbers(records: Option<Vec<Arc<FollowedRecord>>>) -> Option<Vec<String>> {
        Some(records?.iter().map(|record| record.position.to_string()).collect())
    }

    #[test]
    fn a_setup_is_sent_without_the_places_of_this_machine() {
        let mut setup = serde_json::json!({ "plugins": { "a": { "grants": {
            "files": [{ "at": "/docs", "dir": "/srv/secret/docs", "shown": "docs/", "mode": "ro" }],
            "exec": { "commands": ["git"], "confinement": "strict", "read": ["/srv/secret"], "starts": ["/srv/secret/bin"] },
        }, "config": { "dir": "/box" } } } });
        withhold_places(&mut setup);
        assert!(!setup.to_string().contains("/srv/secret"), "{setup}");
        let plugin = &setup["plugins"]["a"];
        assert_eq!(
            (&plugin["grants"]["files"][0]["shown"], &plugin["config"]["dir"]),
            (&"docs/".into(), &"/box".into())
        );
    }

    #[test]
    fn recent_records_are_bounded_and_a_reader_further_behind_gets_none_of_them() {
        let mut recent = RecentRecords { begin: "0-4".parse().ok(), ..RecentRecords::default() };
        assert_eq!(numbers(recent.after(None)), None);
        assert_eq!(numbers(recent.after("0-4".parse().ok())), Some(vec![]));
        recent.push(vec![record(5, 1), record(9, 2)]);
        assert_eq!(numbers(recent.after("0-4".parse().ok())).unwrap(), ["0-5", "0-9"]);
        assert_eq!(numbers(recent.after("0-5".parse().ok())).unwrap(), ["0-9"]);
        recent.push(vec![record(10, RECENT)]);
        assert_eq!(numbers(recent.after("0-5".parse().ok())), None, "it was removed");
        assert_eq!(numbers(recent.after("0-9".parse().ok())).unwrap(), ["0-10"]);
        recent.push(vec![record(11, RECENT + 1)]);
        assert_eq!((recent.records.len(), recent.bytes), (0, 0));
        assert_eq!(recent.begin.unwrap().to_string(), "0-11");
    }

    #[test]
    fn a_stream_takes_no_more_than_it_may_hold_but_always_one() {
        let mut recent = RecentRecords { begin: "0-4".parse().ok(), ..RecentRecords::default() };
        let large = BATCH / 2;
        recent.push(vec![record(5, BATCH + 1), record(6, large), record(7, large), record(8, 1)]);
        let after = |position: &str| numbers(recent.after(position.parse().ok())).unwrap();
        assert_eq!(after("0-4"), ["0-5"]);
        assert_eq!(after("0-5"), ["0-6", "0-7"]);
        assert_eq!(after("0-7"), ["0-8"]);
        recent.push((9..9 + 2 * RECORDS).map(|number| record(number, 1)).collect());
        let count = recent.after("0-8".parse().ok()).map(|records| records.len() as u64);
        assert_eq!(count, Some(RECORDS));
    }
}
