//! The writer's thread: takes the queued tasks, commits them as one group and answers the waiting
//! callers. If a group cannot be committed, its rooms stop. If the file is unreliable, all rooms
//! stop until the store is opened again.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use conclave_core::journal::recovery::Unfinished;
use conclave_core::types::ids::RoomId;
use tokio::sync::{Notify, watch};

use super::commit::CommitGroup;
use super::engine::Engine;
#[cfg(feature = "postgres")]
use super::overlays::{ChangeAnswer, OverlayChange};
use super::queue::{Answer, Cause, RoomWriting, Write, WriterQueue, WriterTask};
use super::retention::find_digests;
use crate::storage::store::record::StoredBytes;
use crate::storage::store::snapshot;
use crate::storage::store::sql::{SqlError, SqlErrorKind, SqlResult};

/// The time in which a record refers to an attachment of this process. One that none refers to by
/// then would otherwise stay until the process ends; retention of other hosts has the same limit.
const HELD: Duration = Duration::from_secs(24 * 3_600);

/// The state that the thread shares with its callers.
#[derive(Default)]
pub(super) struct WriterState {
    pub(super) queue: WriterQueue,
    /// The rooms that have a journal open.
    pub(super) live: Mutex<HashSet<RoomId>>,
    /// The epochs of the runs that this process owns; empty in a store with one writing process.
    pub(super) epochs: Mutex<HashMap<RoomId, OwnedRun>>,
    /// Notified when a room is released.
    pub(super) released: Notify,
    /// The attachments that are not committed yet.
    pub(super) uncommitted: Mutex<HashMap<String, Arc<[u8]>>>,
    /// Why attachments cannot be stored at present.
    pub(super) rejection: Mutex<Option<Rejection>>,
    pub(super) records: AtomicU64,
    pub(super) commits: AtomicU64,
    pub(super) synced: AtomicU64,
    pub(super) snapshots: AtomicU64,
}

/// Why attachments cannot be stored, such as a full folder.
pub(super) struct Rejection {
    cause: Cause,
    /// The size of the smallest attachment that was not stored.
    bytes: usize,
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "workers report it"))]
    is_reported: bool,
}

/// A run that this process owns.
#[derive(Debug)]
pub(super) struct OwnedRun {
    pub(super) epoch: u64,
    /// Set once another host has taken the run.
    pub(super) is_lost: watch::Sender<bool>,
}

impl OwnedRun {
    pub(super) fn by(epoch: u64) -> Self {
        Self { epoch, is_lost: watch::Sender::new(false) }
    }
}

impl WriterState {
    pub(super) fn live(&self) -> std::sync::MutexGuard<'_, HashSet<RoomId>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases a room whose journal was closed.
    pub(super) fn release(&self, room: &RoomId) {
        self.live().remove(room);
        if *room == room.run() {
            self.epochs().remove(room);
        }
        self.released.notify_waiters();
    }

    pub(super) fn epochs(&self) -> std::sync::MutexGuard<'_, HashMap<RoomId, OwnedRun>> {
        self.epochs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a run of this process is lost, as it changes; `None` if it has no such run.
    pub(super) fn watch_loss(&self, run: &RoomId) -> Option<watch::Receiver<bool>> {
        Some(self.epochs().get(run)?.is_lost.subscribe())
    }

    fn rejection(&self) -> std::sync::MutexGuard<'_, Option<Rejection>> {
        self.rejection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_rejected(&self, bytes: usize, cause: &Cause) {
        let mut rejection = self.rejection();
        match &mut *rejection {
            Some(known) if known.cause.text == cause.text => known.bytes = known.bytes.min(bytes),
            _ => *rejection = Some(Rejection { cause: cause.clone(), bytes, is_reported: false }),
        }
    }

    /// Forgets why attachments were rejected, once one as large is stored.
    fn note_stored(&self, bytes: usize) {
        self.rejection().take_if(|rejection| rejection.bytes <= bytes);
    }

    /// Returns why attachments cannot be stored at present, once for each cause.
    #[cfg(feature = "postgres")]
    pub(super) fn report_rejection(&self) -> Option<Cause> {
        let mut rejection = self.rejection();
        let new = rejection.as_mut().filter(|rejection| !rejection.is_reported)?;
        new.is_reported = true;
        Some(new.cause.clone())
    }

    pub(super) fn uncommitted(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<[u8]>>> {
        self.uncommitted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Thread {
    pub(super) engine: Box<dyn Engine>,
    pub(super) shared: Arc<WriterState>,
    /// The attachments for the next commit.
    pub(super) blobs: Vec<StoredBytes>,
    /// The attachments stored by this process, which later records may refer to, and when.
    pub(super) stored: HashMap<String, Instant>,
    /// The attachments that did not fit, with the reason. Records that refer to one are refused.
    pub(super) rejected: HashMap<String, Cause>,
}

/// A group of tasks, sorted by kind.
#[derive(Default)]
struct Sorted {
    writes: Vec<Write>,
    snapshots: Vec<(Arc<RoomWriting>, Box<Unfinished>)>,
    claims: Vec<(Arc<RoomWriting>, bool)>,
    settle: Vec<Answer<()>>,
    barriers: Vec<Answer<()>>,
    #[cfg(feature = "postgres")]
    overlays: (Vec<OverlayChange>, Vec<Answer<ChangeAnswer>>),
}

/// Answers all waiting callers if the thread panics.
struct Gone(Arc<WriterState>);

impl Drop for Gone {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue.break_off(&Cause::new(
                std::io::ErrorKind::BrokenPipe,
                "the thread that writes it has failed",
            ));
            self.0.queue.forget();
        }
    }
}

impl Thread {
    /// Runs until the queue is closed.
    pub(super) fn run(mut self) {
        let guard = Gone(Arc::clone(&self.shared));
        while let Some(work) = self.shared.queue.next() {
            self.take(work);
        }
        if self.shared.queue.broken().is_none() {
            self.engine.close(&self.blobs);
        }
        drop(guard);
    }

    fn take(&mut self, work: Vec<WriterTask>) {
        let mut sorted = Sorted::default();
        for work in work {
            match work {
                WriterTask::Write(write) => sorted.writes.extend(self.sound(*write)),
                WriterTask::Snapshot(writing, snapshot) => {
                    sorted.snapshots.push((writing, snapshot))
                }
                WriterTask::Blob(part) => {
                    // An attachment that did not fit before may fit now.
                    self.rejected.remove(&part.sha256);
                    self.stored.insert(part.sha256.clone(), Instant::now());
                    self.blobs.push(part);
                }
                WriterTask::Claim(writing) => sorted.claims.push((writing, true)),
                WriterTask::Release(writing) => sorted.claims.push((writing, false)),
                WriterTask::Settle(answer) => sorted.settle.push(answer),
                WriterTask::Barrier(answer) => sorted.barriers.push(answer),
                WriterTask::Take(room, now, answer) => {
                    let _ = answer.send(self.ask(|thread| thread.engine.take(&room, now)));
                }
                WriterTask::Collect(keep, answer) => {
                    // An ended run may continue: its process can begin another run in the room.
                    let live = self.shared.live().iter().map(RoomId::run).collect();
                    let spared = held_at(&self.stored, Instant::now());
                    let collected = self.ask(|thread| thread.engine.collect(&keep, &live, &spared));
                    let _ = answer.send(collected);
                }
                #[cfg(feature = "postgres")]
                WriterTask::Overlay(change, answer) => {
                    sorted.overlays.0.push(*change);
                    sorted.overlays.1.push(answer);
                }
                WriterTask::NoteStop(at, answer) => {
                    let _ = answer.send(self.ask(|thread| thread.engine.note_stop(at)));
                }
            }
        }
        #[cfg(feature = "postgres")]
        let overlays = std::mem::take(&mut sorted.overlays);
        self.group(sorted);
        #[cfg(feature = "postgres")]
        self.change_overlays(&overlays.0, overlays.1);
    }

    /// Records changes of overlays with their contents.
    #[cfg(feature = "postgres")]
    fn change_overlays(&mut self, changes: &[OverlayChange], answers: Vec<Answer<ChangeAnswer>>) {
        if changes.is_empty() {
            return;
        }
        let recorded = match self.shared.queue.broken() {
            Some(cause) => Err(cause),
            None => match self.engine.change_overlays(changes) {
                // The content of one may be what does not fit; the others must not fail with it.
                Err(error) if changes.len() > 1 && is_of_blobs(&error) => {
                    for (change, answer) in changes.iter().zip(answers) {
                        self.change_overlays(std::slice::from_ref(change), vec![answer]);
                    }
                    return;
                }
                recorded => {
                    self.note_contents(changes, &recorded);
                    recorded.map_err(|error| Cause::of(&error))
                }
            },
        };
        for (index, answer) in answers.into_iter().enumerate() {
            let _ = answer.send(recorded.as_ref().map(|all| all[index]).map_err(Cause::clone));
        }
    }

    /// Notes whether the contents of changes could be stored.
    #[cfg(feature = "postgres")]
    fn note_contents(&self, changes: &[OverlayChange], recorded: &SqlResult<Vec<ChangeAnswer>>) {
        let contents = changes.iter().filter_map(|change| change.content.as_ref());
        let lengths = contents.map(|content| content.bytes.len());
        match recorded {
            Ok(_) => lengths.for_each(|bytes| self.shared.note_stored(bytes)),
            Err(error) if is_of_blobs(error) => {
                let cause = Cause::of(error);
                lengths.for_each(|bytes| self.shared.note_rejected(bytes, &cause));
            }
            Err(_) => {}
        }
    }

    /// Asks the engine, unless the store is broken.
    fn ask<T>(&mut self, question: impl FnOnce(&mut Self) -> SqlResult<T>) -> Result<T, Cause> {
        match self.shared.queue.broken() {
            Some(cause) => Err(cause),
            None => question(self).map_err(|error| Cause::of(&error)),
        }
    }

    /// The write, unless it must be refused; then its room gets the reason.
    fn sound(&self, write: Write) -> Option<Write> {
        let rejection = || {
            self.rejected
                .iter()
                .find(|(sha256, _)| refers(&write, sha256))
                .map(|(_, cause)| cause.clone())
        };
        let Some(cause) =
            write.writing.failed().or_else(|| self.shared.queue.broken()).or_else(rejection)
        else {
            return Some(write);
        };
        write.writing.fail(&cause);
        end(write, Err(cause));
        None
    }

    fn group(&mut self, sorted: Sorted) {
        let Sorted { mut writes, snapshots, claims, settle, barriers, .. } = sorted;
        let durable = !settle.is_empty();
        let is_idle = writes.is_empty() && claims.is_empty() && self.blobs.is_empty() && !durable;
        let mut result = if is_idle || self.shared.queue.broken().is_some() {
            Ok(Vec::new())
        } else {
            self.commit(&writes, &claims, durable)
        };
        if result.as_ref().is_err_and(is_of_blobs) && !self.blobs.is_empty() {
            // The attachments may be what does not fit; commit them separately and try again.
            self.commit_blobs_one_by_one();
            writes = writes.into_iter().filter_map(|write| self.sound(write)).collect();
            result = self.commit(&writes, &claims, durable);
        }
        let result = match result {
            // One write violates a constraint, or has a part that cannot be stored, so each is
            // committed alone: the others must not fail with it.
            Err(error) if is_of_one_write(&error) && writes.len() > 1 => {
                for write in writes {
                    // Checked again, because a room's later writes must not follow a failed one.
                    let Some(write) = self.sound(write) else { continue };
                    let result = self.commit(std::slice::from_ref(&write), &[], durable);
                    let _ = self.end(vec![write], result);
                }
                let result = self.commit(&[], &claims, durable);
                self.end(Vec::new(), result)
            }
            result => self.end(writes, result),
        };
        // Released after the commit, so that a reopened room reads all of its records.
        for (writing, is_claimed) in claims {
            if !is_claimed {
                self.shared.release(&writing.room);
            }
        }
        let result = result.and_then(|()| self.shared.queue.broken().map_or(Ok(()), Err));
        for answer in settle.into_iter().chain(barriers) {
            let _ = answer.send(result.clone());
        }
        // After the answers, because no room waits for a snapshot.
        for (writing, snapshot) in snapshots {
            self.keep_snapshot(&writing, &snapshot);
        }
    }

    /// Writes a snapshot.
    fn keep_snapshot(&mut self, writing: &RoomWriting, snapshot: &Unfinished) {
        // Without its records, the snapshot would be ahead of the journal.
        if writing.failed().is_some() || self.shared.queue.broken().is_some() {
            return;
        }
        let body = match snapshot.to_snapshot() {
            Ok(body) => body,
            Err(error) => return snapshot::report_unused(writing.room.as_str(), &error),
        };
        match self.engine.keep_snapshot(&writing.room, snapshot, &body) {
            Ok(is_kept) => {
                self.shared.snapshots.fetch_add(u64::from(is_kept), Ordering::Relaxed);
            }
            Err(error) => {
                snapshot::report_unused(writing.room.as_str(), &error);
                // No room stops: its records are committed.
                let _ = self.judge::<()>(Err(error), &[]);
            }
        }
    }

    /// Commits attachments one by one, and drops those that do not fit.
    fn commit_blobs_one_by_one(&mut self) {
        for part in std::mem::take(&mut self.blobs) {
            let group =
                CommitGroup { blobs: std::slice::from_ref(&part), ..CommitGroup::default() };
            let result = self.engine.commit(&group);
            // Also if it did not fit: records that refer to it are refused from here on.
            self.shared.uncommitted().remove(&part.sha256);
            match self.judge(result, &[]) {
                Ok(_) => self.shared.note_stored(part.bytes.len()),
                Err(cause) => {
                    self.shared.note_rejected(part.bytes.len(), &cause);
                    self.stored.remove(&part.sha256);
                    self.rejected.insert(part.sha256, cause);
                }
            }
        }
    }

    /// Commits writes, and returns those that were refused by their index, with the reason.
    fn commit(
        &mut self,
        writes: &[Write],
        claims: &[(Arc<RoomWriting>, bool)],
        durable: bool,
    ) -> SqlResult<Vec<(usize, Cause)>> {
        let writes: Vec<&Write> = writes.iter().collect();
        let claims = claims.iter().map(|(writing, is_claimed)| (&**writing, *is_claimed)).collect();
        let mut records: usize = writes.iter().map(|write| write.rows.len()).sum();
        let synced = durable || writes.iter().any(|write| write.durable);
        let references = self.references_of(&writes);
        let group =
            CommitGroup { writes, blobs: &self.blobs, references: &references, claims, durable };
        let committed = self.engine.commit(&group)?;
        let refused = committed.refused.into_iter();
        let refused: Vec<(usize, Cause)> = refused
            .map(|(index, refusal)| {
                records -= group.writes[index].rows.len();
                (index, Cause::of_refusal(refusal))
            })
            .collect();
        // After the commit: until then the bytes are nowhere else.
        let mut uncommitted = self.shared.uncommitted();
        let largest = self.blobs.iter().map(|part| part.bytes.len()).max();
        self.blobs.drain(..).for_each(|part| drop(uncommitted.remove(&part.sha256)));
        drop(uncommitted);
        largest.into_iter().for_each(|bytes| self.shared.note_stored(bytes));
        self.shared.records.fetch_add(records as u64, Ordering::Relaxed);
        self.shared.commits.fetch_add(u64::from(committed.has_changed), Ordering::Relaxed);
        self.shared.synced.fetch_add(u64::from(synced), Ordering::Relaxed);
        Ok(refused)
    }

    /// Returns the attachments to which writes refer and that an earlier commit stored.
    fn references_of(&self, writes: &[&Write]) -> Vec<String> {
        let mut digests = HashSet::new();
        if !self.stored.is_empty() {
            for write in writes {
                write.rows.iter().for_each(|row| find_digests(row.body.as_bytes(), &mut digests));
                write.parts.iter().for_each(|part| find_digests(&part.bytes, &mut digests));
            }
        }
        let is_sent = |sha256: &String| self.blobs.iter().any(|part| part.sha256 == *sha256);
        digests.retain(|sha256| self.stored.contains_key(sha256) && !is_sent(sha256));
        digests.into_iter().collect()
    }

    /// Answers the writes of a commit: those of refused rooms with the reason, the others with the
    /// commit's result, which is returned.
    fn end(
        &mut self,
        writes: Vec<Write>,
        result: SqlResult<Vec<(usize, Cause)>>,
    ) -> Result<(), Cause> {
        let result = self.judge(result, &writes);
        for (index, write) in writes.into_iter().enumerate() {
            let of_write = match &result {
                Ok(refused) => match refused.iter().find(|(other, _)| *other == index) {
                    Some((_, cause)) => {
                        write.writing.fail(cause);
                        Err(cause.clone())
                    }
                    None => Ok(()),
                },
                Err(cause) => Err(cause.clone()),
            };
            end(write, of_write);
        }
        result.map(drop)
    }

    /// Marks the rooms of a failed commit as failed, and the whole store after an I/O error or
    /// damage.
    fn judge<T>(&mut self, result: SqlResult<T>, writes: &[Write]) -> Result<T, Cause> {
        result.map_err(|error: SqlError| {
            let cause = Cause::of(&error);
            writes.iter().for_each(|write| write.writing.fail(&cause));
            if matches!(error.kind, SqlErrorKind::Disk | SqlErrorKind::Damaged) {
                // After a failed fsync the content of the disk is unknown.
                self.shared.queue.break_off(&cause);
            }
            cause
        })
    }
}

/// Returns the attachments that retention spares although no record refers to them.
fn held_at(stored: &HashMap<String, Instant>, now: Instant) -> HashSet<String> {
    let recent = stored.iter().filter(|(_, at)| now.saturating_duration_since(**at) < HELD);
    recent.map(|(sha256, _)| sha256.clone()).collect()
}

/// Whether a commit may have failed because of its blobs alone.
fn is_of_blobs(error: &SqlError) -> bool {
    match error.kind {
        SqlErrorKind::Full => true,
        #[cfg(feature = "postgres")]
        SqlErrorKind::BlobFolder => true,
        _ => false,
    }
}

/// Whether a commit may have failed because of one of its writes.
fn is_of_one_write(error: &SqlError) -> bool {
    match error.kind {
        SqlErrorKind::Constraint => true,
        #[cfg(feature = "postgres")]
        SqlErrorKind::BlobFolder => true,
        _ => false,
    }
}

/// Whether a write refers to a blob. A reference is the digest in the JSON of an event.
fn refers(write: &Write, sha256: &str) -> bool {
    let is_in =
        |bytes: &[u8]| bytes.windows(sha256.len()).any(|window| window == sha256.as_bytes());
    write.rows.iter().any(|row| is_in(row.body.as_bytes()))
        || write.parts.iter().any(|part| is_in(&part.bytes))
}

fn end(write: Write, result: Result<(), Cause>) {
    write.writing.ended();
    if let Some(answer) = write.answer {
        let _ = answer.send(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attachment_without_a_record_is_held_for_a_day() {
        let began = Instant::now();
        let later = began + HELD;
        let stored = HashMap::from([("old".to_owned(), began), ("new".to_owned(), later)]);
        assert_eq!(held_at(&stored, began).len(), 2);
        assert_eq!(held_at(&stored, later), HashSet::from(["new".to_owned()]));
    }
}
