//! PostgreSQL as the committing engine: many hosts write, each to the runs that it owns. A group is
//! one statement, which the server commits as a whole or not at all, and which may be sent again.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use conclave_core::journal::ownership::LeaseClock;
use conclave_core::journal::recovery::Unfinished;
use conclave_core::protocol::event::{Event, RULES};
use conclave_core::types::ids::{Millis, RoomId};

use super::commit::CommitGroup;
use super::engine::{Committed, Engine, Refusal, Taken};
use super::overlays::{ChangeAnswer, OverlayChange};
use super::queue::Write;
use super::{Collected, Retention};
use crate::storage::store::PostgresAddress;
use crate::storage::store::closing::CloseTime;
use crate::storage::store::postgres::{
    BlobFolder, HostEntry, Lease, Link, Session, SessionError, check_commit, join_blob_folder,
    require_blob_folder,
};
use crate::storage::store::record::{EventRow, StoredBytes};
use crate::storage::store::sql::{SqlError, SqlErrorKind, SqlResult};
use crate::support::fail_points::kill_point;
use chain::HostChain;
use group::{GroupCall, Sent};

mod chain;
mod group;
mod overlays;
mod retention;
#[cfg(test)]
mod tests;

/// The time for each statement of retention.
const COLLECTING: Duration = Duration::from_secs(600);
/// The number of times that a group is sent again because a blob is gone.
const RESENDS: u32 = 2;
/// The maximum number of digests of blobs that are known to be stored.
const KNOWN: usize = 4_096;

pub(in crate::storage::store) struct PostgresEngine {
    session: Session,
    /// `None` once the engine is closed.
    lease: Option<Lease>,
    entry: HostEntry,
    /// The shared folder of large blobs; `None` if all are in the tables.
    folder: Option<BlobFolder>,
    /// Digests of blobs that this host has stored, whose bytes are not sent again.
    known: HashSet<String>,
    chain: HostChain,
}

impl PostgresEngine {
    /// Connects to the database, brings its tables to this host's version, and begins the lease.
    pub(in crate::storage::store) fn open(
        address: &PostgresAddress,
        entry: HostEntry,
    ) -> Result<Self, SessionError> {
        let mut session = Session::open(address)?;
        let folder = session.retry(|link| join_blob_folder(link, address))?;
        let lease = Some(Lease::begin(address, &entry)?);
        let (known, chain) = (HashSet::new(), HostChain::default());
        Ok(Self { session, lease, entry, folder, known, chain })
    }

    /// The same, which stops waiting for the database when its store has closed.
    pub(in crate::storage::store) fn with_close(self, close: &CloseTime) -> Self {
        Self { session: self.session.with_close(close), ..self }
    }

    /// Sends a group until its outcome is known. Returns whether it was committed; otherwise one of
    /// its writes is refused.
    fn send(&mut self, call: &GroupCall<'_>) -> SqlResult<bool> {
        let mut attempts = 0;
        while !call.is_empty() {
            self.store_files(call)?;
            let (entry, known, chain) = (&self.entry, &self.known, &mut self.chain);
            kill_point!("before-commit");
            let result = self.session.retry(|link| call.send(link, known, chain, entry))?;
            kill_point!("after-commit");
            match result {
                Sent::Committed => return Ok(true),
                Sent::Refused => return Ok(false),
                // Retention of another host removed a blob that this one has stored.
                Sent::BlobMissing if attempts < RESENDS => {
                    attempts += 1;
                    self.known.clear();
                }
                // Only an attachment whose bytes this host no longer has is still missing.
                Sent::BlobMissing => {
                    let what = "a record refers to an attachment that retention has removed";
                    return Err(SqlError::new(SqlErrorKind::Constraint, what));
                }
            }
        }
        Ok(true)
    }

    /// Sends each write of a group alone, so that the others are not refused with one. Returns the
    /// refused ones. Those that an earlier attempt of the group stored are not.
    fn send_one_by_one(&mut self, group: &CommitGroup<'_>) -> SqlResult<Vec<(usize, Refusal)>> {
        let mut refused = Vec::new();
        let (blobs, references) = (group.blobs, group.references);
        let blobs = CommitGroup { blobs, references, ..CommitGroup::default() };
        self.send(&GroupCall::of(&blobs))?;
        for (index, write) in group.writes.iter().enumerate() {
            let single = CommitGroup { writes: vec![write], references, ..CommitGroup::default() };
            let call = GroupCall::of(&single);
            if let ([row], false) = (&call.writes[..], self.send(&call)?) {
                let refusal = self.session.retry(|link| row.refusal(link))?;
                refused.extend(refusal.map(|refusal| (index, refusal)));
            }
        }
        // Released last, because another host then takes the runs.
        let claims = CommitGroup { claims: group.claims.clone(), ..CommitGroup::default() };
        self.send(&GroupCall::of(&claims))?;
        Ok(refused)
    }

    /// Writes the large blobs of a group into the shared folder, each with its row. They are durable
    /// before the records that name them.
    fn store_files(&mut self, call: &GroupCall<'_>) -> SqlResult<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        for blob in call.blobs.iter().filter(|blob| BlobFolder::is_large(blob)) {
            self.session.retry(|link| folder.store(link, blob))?;
            self.known.insert(blob.sha256.clone());
        }
        Ok(())
    }

    /// Remembers that the blobs of a group are stored.
    fn remember(&mut self, call: &GroupCall<'_>) {
        if self.known.len() > KNOWN {
            self.known.clear();
        }
        self.known.extend(call.blobs.iter().map(|blob| blob.sha256.clone()));
    }

    /// Notes that the next records of this host may refer to these attachments, so that retention of
    /// another one spares them.
    fn hold(&mut self, blobs: &[StoredBytes]) -> SqlResult<()> {
        if blobs.is_empty() {
            return Ok(());
        }
        let digests: Vec<&str> = blobs.iter().map(|blob| blob.sha256.as_str()).collect();
        let host = &self.entry.host;
        self.session.retry(|link| {
            link.run(
                "INSERT INTO held_blobs (host, sha256) SELECT DISTINCT ?1, unnest(CAST(?2 AS TEXT[]))
                 ON CONFLICT (host, sha256) DO UPDATE SET since = now()",
                &[host, &digests],
            )
        })?;
        Ok(())
    }

    /// Renews the lease, and adds the writes to rooms that another host has taken since they were
    /// committed.
    fn confirmed(
        &mut self,
        call: &GroupCall<'_>,
        mut refused: Vec<(usize, Refusal)>,
    ) -> SqlResult<Vec<(usize, Refusal)>> {
        let rooms: Vec<&str> = call.writes.iter().map(|write| write.room.as_str()).collect();
        let entry = &self.entry;
        let rows = self.session.retry(|link| {
            entry.renew(link)?;
            link.rows("SELECT room, epoch FROM rooms WHERE room = ANY (?1)", &[&rooms])
        })?;
        for row in rows {
            let (room, epoch): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
            for write in call.writes.iter().filter(|write| write.room == room) {
                let is_known = refused.iter().any(|(index, _)| *index == write.index);
                let epoch = epoch.cast_unsigned();
                if epoch > write.epoch && !is_known {
                    refused.push((write.index, Refusal::Fenced { epoch }));
                }
            }
        }
        Ok(refused)
    }
}

impl Engine for PostgresEngine {
    fn commit(&mut self, group: &CommitGroup<'_>) -> SqlResult<Committed> {
        let call = GroupCall::of(group);
        if call.is_empty() {
            return Ok(Committed::default());
        }
        self.hold(group.blobs)?;
        let began = Instant::now();
        let mut refused = Vec::new();
        if !self.send(&call)? {
            refused = self.send_one_by_one(group)?;
        }
        // By this process's own clock: whatever the answer, the lease may have ended meanwhile.
        let age = Millis(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
        if !LeaseClock::renewed_by_request_at(Millis(0)).may_start_effects(age) {
            refused = self.confirmed(&call, refused)?;
        }
        self.remember(&call);
        Ok(Committed { has_changed: true, refused })
    }

    fn take(&mut self, room: &RoomId, now: Millis) -> SqlResult<Taken> {
        let (entry, chain, folder) = (&self.entry, &mut self.chain, self.folder.as_ref());
        self.session.retry(|link| {
            // A run whose contents this host cannot read would end here by a failure.
            require_blob_folder(link, folder)?;
            let result = take_in_transaction(link, (room, now), entry, chain);
            // The line of the take-over counts with its transaction.
            if result.is_err() {
                chain.forget();
            }
            result
        })
    }

    fn keep_snapshot(
        &mut self,
        room: &RoomId,
        snapshot: &Unfinished,
        body: &str,
    ) -> SqlResult<bool> {
        let (run, next) = (room.run(), snapshot.next.cast_signed());
        let timers: Vec<i64> =
            snapshot.in_flight.timers().map(|timer| timer.0.cast_signed()).collect();
        let host = &self.entry.host;
        kill_point!("before-snapshot");
        // The snapshot is bound to the record before it, so one of a host that lost the run would
        // only be older than the newest.
        let written = self.session.retry(|link| {
            link.row(
                "WITH written AS (
                     INSERT INTO snapshots (room, next, body, hash)
                     SELECT ?1, CAST(?2 AS BIGINT), ?3, sha256(events.hash || ?3) FROM events
                     WHERE events.room = ?1 AND events.seq = CAST(?2 AS BIGINT) - 1
                     AND EXISTS (SELECT 1 FROM rooms WHERE rooms.room = ?4 AND rooms.host = ?5)
                     ON CONFLICT (room) DO UPDATE
                     SET next = EXCLUDED.next, body = EXCLUDED.body, hash = EXCLUDED.hash
                     WHERE snapshots.next <= EXCLUDED.next RETURNING room),
                 dropped AS (DELETE FROM timers WHERE timers.room = ?1 AND timer <> ALL (?6)
                     AND EXISTS (SELECT 1 FROM written))
                 SELECT count(*) FROM written",
                &[&room.as_str(), &next, &body.as_bytes(), &run.as_str(), host, &timers],
            )
        })?;
        kill_point!("after-snapshot");
        Ok(written.try_get::<_, i64>(0)? > 0)
    }

    fn change_overlays(&mut self, changes: &[OverlayChange]) -> SqlResult<Vec<ChangeAnswer>> {
        let contents: Vec<StoredBytes> =
            changes.iter().filter_map(|change| change.content.clone()).collect();
        let contents = CommitGroup { blobs: &contents, ..CommitGroup::default() };
        let call = GroupCall::of(&contents);
        // Not held: retention of other hosts spares what was just stored, and a hold would outlast
        // the change that names the content, until this host ends.
        self.send(&call)?;
        self.remember(&call);
        let answers = self.session.retry(|link| overlays::change(link, changes))?;
        for (change, _) in
            changes.iter().zip(&answers).filter(|it| *it.1 == ChangeAnswer::NoContent)
        {
            // Retention of another host removed it, so its bytes are sent again.
            self.known
                .retain(|sha256| change.content.as_ref().is_none_or(|it| it.sha256 != *sha256));
        }
        Ok(answers)
    }

    fn note_stop(&mut self, at: Millis) -> SqlResult<()> {
        let (at, host) = (at.0.cast_signed(), &self.entry.host);
        self.session.retry(|link| {
            link.run(
                "UPDATE rooms SET stopped = ?1 WHERE ended IS NULL
                 AND run IN (SELECT room FROM rooms WHERE host = ?2)",
                &[&at, host],
            )
        })?;
        Ok(())
    }

    fn collect(
        &mut self,
        keep: &Retention,
        live: &HashSet<RoomId>,
        stored: &HashSet<String>,
    ) -> SqlResult<Collected> {
        let (entry, chain, folder) = (&self.entry, &mut self.chain, self.folder.as_ref());
        self.session.retry(|link| {
            link.patiently(COLLECTING, |link| {
                // Files whose rows went earlier. Those of this collection are counted by their rows.
                let orphans = folder.map(|folder| folder.sweep(link, keep.dry)).transpose()?;
                let orphans = orphans.unwrap_or_default();
                let collected =
                    retention::collect(link, folder, (entry, chain), keep, (live, stored));
                // The lines of removals count with their transaction.
                if keep.dry || collected.is_err() {
                    chain.forget();
                }
                let mut collected = collected?;
                if let Some(folder) = folder.filter(|_| !keep.dry) {
                    // Only now that their rows are gone for good.
                    folder.sweep(link, false)?;
                }
                collected.blobs += orphans.files;
                collected.bytes += orphans.bytes;
                Ok(collected)
            })
        })
    }

    /// Commits the last attachments, releases the runs and ends the lease.
    fn close(&mut self, blobs: &[StoredBytes]) {
        let last = CommitGroup { blobs, ..CommitGroup::default() };
        // Without it nothing refers to them, and the lease ends by itself.
        let _ = self.commit(&last);
        // Ended first, because a renewal would bring the row back.
        self.lease.take();
        let host = &self.entry.host;
        let _ = self.session.retry(|link| {
            link.run("UPDATE rooms SET host = NULL WHERE host = ?1", &[host])?;
            link.run("DELETE FROM hosts WHERE host = ?1", &[host])
        });
    }
}

fn take_in_transaction(
    link: &Link,
    (room, now): (&RoomId, Millis),
    entry: &HostEntry,
    chain: &mut HostChain,
) -> SqlResult<Taken> {
    link.batch("BEGIN")?;
    let result = take(link, (room, now), entry, chain)?;
    let is_owned = matches!(result, Taken::Owned { .. });
    link.batch(if is_owned { "COMMIT" } else { "ROLLBACK" })?;
    check_commit(link)?;
    Ok(result)
}

/// Takes a room within a transaction. A child room belongs to whoever has its run.
fn take(
    link: &Link,
    (room, now): (&RoomId, Millis),
    entry: &HostEntry,
    chain: &mut HostChain,
) -> SqlResult<Taken> {
    let run = room.run();
    let is_root = run == *room;
    let mine = "SELECT epoch FROM rooms WHERE room = ?1 AND host = ?2 FOR NO KEY UPDATE";
    let mine = if is_root { None } else { link.rows(mine, &[&run.as_str(), &entry.host])?.pop() };
    let (epoch, is_new): (i64, bool) = match mine {
        Some(row) => (row.try_get(0)?, false),
        None => {
            let answer =
                link.rows("SELECT * FROM take_run(?1, ?2)", &[&run.as_str(), &entry.host])?;
            let Some(row) = answer.first() else { return Ok(Taken::Missing) };
            if let Some(host) = row.try_get(0)? {
                return Ok(Taken::Busy { host });
            }
            (row.try_get(1)?, true)
        }
    };
    let mut rooms = Vec::new();
    if is_new {
        rooms.push(&run);
    }
    if !is_root {
        rooms.push(room);
    }
    let mut owned = Vec::new();
    for room in rooms {
        let sql = "SELECT records, principal, (SELECT at FROM events WHERE events.room = rooms.room
             ORDER BY seq DESC LIMIT 1) FROM rooms WHERE room = ?1";
        let Some(row) = link.rows(sql, &[&room.as_str()])?.pop() else {
            return Ok(Taken::Missing);
        };
        let (records, last_at): (i64, Option<i64>) = (row.try_get(0)?, row.try_get(2)?);
        let epoch = epoch.cast_unsigned();
        let event = Event::Owned { host: entry.host.clone(), epoch };
        let body = serde_json::to_string(&event)
            .map_err(|error| SqlError::new(SqlErrorKind::Other, error.to_string()))?;
        let row = EventRow {
            seq: records.cast_unsigned(),
            // The clock of the host before may be ahead.
            at: now.0.max(last_at.unwrap_or_default().cast_unsigned()),
            principal: row.try_get::<_, &str>(1)?.into(),
            rules: RULES,
            epoch,
            body,
            parts: None,
        };
        owned.push((room, row));
    }
    let call = GroupCall::of_take_over(&owned);
    if call.send(link, &HashSet::new(), chain, entry)? != Sent::Committed {
        let what = "the record of a take-over was refused";
        return Err(SqlError::new(SqlErrorKind::Conflict, what));
    }
    Ok(Taken::Owned { epoch: epoch.cast_unsigned() })
}
