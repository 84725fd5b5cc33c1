//! The call of the stored function that commits a group.

use std::borrow::Cow;
use std::collections::HashSet;

use conclave_core::journal::ownership::{AfterUnknown, RoomHead};
use conclave_core::types::ids::RoomId;
use serde::Serialize;

use super::chain::HostChain;
use super::{CommitGroup, EventRow, HostEntry, Link, Refusal, SqlResult, StoredBytes, Write};
use crate::storage::store::chain::ChainHead;
use crate::storage::store::postgres::{call_safely, without_nul};
use crate::storage::store::record::Hash;
use crate::storage::store::sql::SqlErrorKind;
use crate::storage::store::writer::pending_work::{PendingChanges, PendingWorkRows};
use crate::storage::store::writer::queue::RoomWriting;

const COMMIT: &str = "commit_group(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,
    ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29)";

/// The parameters of the function.
#[derive(Default)]
pub(super) struct GroupCall<'a> {
    pub(super) blobs: Vec<&'a StoredBytes>,
    /// The digests of attachments that are stored already, and to which the records refer.
    references: &'a [String],
    /// In the order in which all hosts lock rooms: by run, then by room.
    pub(super) writes: Vec<WriteRow>,
    /// In the order of their lines in the chain.
    events: EventColumns<'a>,
    released: Vec<&'a str>,
    released_epoch: Vec<i64>,
}

/// The rows of `events` by column.
#[derive(Default)]
struct EventColumns<'a> {
    room: Vec<&'a str>,
    seq: Vec<i64>,
    at: Vec<i64>,
    kind: Vec<&'a str>,
    principal: Vec<Cow<'a, str>>,
    rules: Vec<i64>,
    body: Vec<&'a str>,
    parts: Vec<Option<&'a str>>,
    hash: Vec<Hash>,
    epoch: Vec<i64>,
}

/// A write to a room. Absent columns stay as they are.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteRow {
    /// The index in the group.
    pub(super) index: usize,
    pub(super) room: String,
    pub(super) epoch: u64,
    first: i64,
    /// The number of records of the room afterwards.
    next: i64,
    last_hash: Hash,
    at: Option<i64>,
    usage: Option<UsageColumns>,
    /// [`RoomChanges`] in JSON, unless there are none.
    changes: Option<String>,
}

/// What few writes change of a room.
#[derive(Serialize)]
struct RoomChanges<'a> {
    /// The columns that are set with the first record, or with that of another run.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    origin: Option<OriginColumns>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inbound: Option<String>,
    /// The time of the record that begins another run.
    #[serde(skip_serializing_if = "Option::is_none")]
    begins: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending: Option<&'a PendingChanges<'a>>,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Committed,
    /// Nothing is committed, because the database refuses one of the writes.
    Refused,
    /// Nothing is committed, because the bytes of a known blob are needed.
    BlobMissing,
}

#[derive(Clone, Debug)]
struct UsageColumns {
    turns: i64,
    tokens: i64,
    cost: i64,
    spent: String,
}

#[derive(Serialize)]
struct OriginColumns {
    started: i64,
    principal: String,
    entry: String,
    agents: String,
    text: String,
    durability: &'static str,
    config: Option<String>,
    command: String,
    locked: i64,
    approvals: String,
    questions: String,
    pool: Option<String>,
}

impl<'a> GroupCall<'a> {
    pub(super) fn of(group: &CommitGroup<'a>) -> Self {
        let mut call = Self { references: group.references, ..Self::default() };
        for (index, write) in group.writes.iter().enumerate() {
            if write.rows.is_empty() {
                continue;
            }
            let last_hash = call.add_rows(&write.writing.room, &write.rows);
            call.writes.push(WriteRow::of(index, write, last_hash));
        }
        // Writes to one room stay in their order.
        call.writes.sort_by(|one, other| one.lock_order().cmp(&other.lock_order()));
        let parts = group.writes.iter().flat_map(|write| &write.parts);
        let mut sent = HashSet::new();
        call.blobs =
            group.blobs.iter().chain(parts).filter(|part| sent.insert(&part.sha256)).collect();
        let is_root = |writing: &RoomWriting| writing.room == writing.room.run();
        for (writing, _) in group.claims.iter().filter(|(room, is_open)| !is_open && is_root(room))
        {
            call.released.push(writing.room.as_str());
            call.released_epoch.push(writing.epoch().cast_signed());
        }
        call
    }

    /// The records of a take-over, which change nothing else of their rooms. A root room comes before
    /// its child room.
    pub(super) fn of_take_over(owned: &'a [(&'a RoomId, EventRow)]) -> Self {
        let mut call = Self::default();
        for (index, (room, row)) in owned.iter().enumerate() {
            let last_hash = call.add_rows(room, std::slice::from_ref(row));
            let first = row.seq.cast_signed();
            call.writes.push(WriteRow {
                index,
                room: room.to_string(),
                epoch: row.epoch,
                first,
                next: first + 1,
                last_hash,
                ..WriteRow::default()
            });
        }
        call
    }

    /// Whether the group changes nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.blobs.is_empty() && self.writes.is_empty() && self.released.is_empty()
    }

    /// Adds the records of a write, and returns the hash of the last one.
    fn add_rows(&mut self, room: &'a RoomId, rows: &'a [EventRow]) -> Hash {
        let events = &mut self.events;
        for row in rows {
            let principal = without_nul(&row.principal);
            events.hash.push(match &principal {
                Cow::Borrowed(_) => row.hash(room.as_str()),
                // The hash is that of what the table holds.
                Cow::Owned(principal) => {
                    let principal = principal.as_str().into();
                    EventRow { principal, ..row.clone() }.hash(room.as_str())
                }
            });
            events.principal.push(principal);
            events.room.push(room.as_str());
            events.seq.push(row.seq.cast_signed());
            events.at.push(row.at.cast_signed());
            events.kind.push(row.kind());
            events.rules.push(row.rules.into());
            events.body.push(&row.body);
            events.parts.push(row.parts.as_deref());
            events.epoch.push(row.epoch.cast_signed());
        }
        events.hash.last().copied().unwrap_or_default()
    }

    /// Calls the function. The new lines of the chain are those that follow its newest one.
    pub(super) fn send(
        &self,
        link: &Link,
        known: &HashSet<String>,
        chain: &mut HostChain,
        entry: &HostEntry,
    ) -> SqlResult<Sent> {
        let sent = self.blobs.iter().map(|blob| {
            let bytes = (!known.contains(&blob.sha256)).then_some(&blob.bytes[..]);
            (blob.sha256.as_str(), bytes)
        });
        let stored = self.references.iter().map(|sha256| (sha256.as_str(), None));
        let (digests, bytes): (Vec<&str>, Vec<Option<&[u8]>>) = sent.chain(stored).unzip();
        let events = &self.events;
        // A group without records needs no chain.
        let has_records = !events.seq.is_empty();
        let (number, last) =
            if has_records { chain.head(link, entry)? } else { (0, ChainHead::default()) };
        let lines = events.lines(last);
        let hashes: Vec<&[u8]> = events.hash.iter().map(|hash| &hash[..]).collect();
        let line_hashes: Vec<&[u8]> = lines.iter().map(|line| &line.hash[..]).collect();
        let writes = &self.writes;
        let usage = |of: fn(&UsageColumns) -> i64| -> Vec<Option<i64>> {
            writes.iter().map(|write| write.usage.as_ref().map(of)).collect()
        };
        let result = call_safely(
            link,
            COMMIT,
            &[
                &digests,
                &bytes,
                &writes.iter().map(|write| write.room.as_str()).collect::<Vec<_>>(),
                &writes.iter().map(|write| write.epoch.cast_signed()).collect::<Vec<_>>(),
                &writes.iter().map(|write| write.first).collect::<Vec<_>>(),
                &writes.iter().map(|write| write.next).collect::<Vec<_>>(),
                &writes.iter().map(|write| write.at).collect::<Vec<_>>(),
                &usage(|usage| usage.turns),
                &usage(|usage| usage.tokens),
                &usage(|usage| usage.cost),
                &writes.iter().map(WriteRow::spent).collect::<Vec<_>>(),
                &writes.iter().map(|write| write.changes.as_deref()).collect::<Vec<_>>(),
                &events.room,
                &events.seq,
                &events.at,
                &events.kind,
                &events.principal,
                &events.rules,
                &events.body,
                &events.parts,
                &hashes,
                &events.epoch,
                &line_hashes,
                &number,
                &last.number.cast_signed(),
                &&last.hash[..],
                &self.released,
                &self.released_epoch,
                &entry.host,
            ],
        );
        match result {
            Ok(()) => {
                chain.went_on(lines.last().copied());
                Ok(Sent::Committed)
            }
            Err(error) => {
                chain.forget();
                match error.kind {
                    SqlErrorKind::WriteRefused => Ok(Sent::Refused),
                    SqlErrorKind::BlobMissing => Ok(Sent::BlobMissing),
                    _ => Err(error),
                }
            }
        }
    }
}

impl EventColumns<'_> {
    /// The lines of the records behind the newest line of a chain.
    fn lines(&self, last: ChainHead) -> Vec<ChainHead> {
        let mut head = last;
        let line = |index: usize| {
            let (seq, at) = (self.seq[index].cast_unsigned(), self.at[index].cast_unsigned());
            head = head.next(self.room[index], seq, at, &self.hash[index]);
            head
        };
        (0..self.seq.len()).map(line).collect()
    }
}

impl WriteRow {
    fn of(index: usize, write: &Write, last_hash: Hash) -> Self {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let (first, last) = (&write.rows[0], &write.rows[write.rows.len() - 1]);
        let usage = UsageColumns {
            turns: number(write.spent.turns),
            tokens: number(write.spent.tokens),
            cost: number(write.spent.cost_micro_usd),
            spent: serde_json::to_string(&write.spent).unwrap_or_default(),
        };
        Self {
            index,
            room: write.writing.room.to_string(),
            epoch: last.epoch,
            first: first.seq.cast_signed(),
            next: last.seq.cast_signed() + 1,
            last_hash,
            at: Some(last.at.cast_signed()),
            usage: Some(usage),
            changes: changes(write),
        }
    }

    fn lock_order(&self) -> (&str, &str) {
        (self.room.split('/').next().unwrap_or(&self.room), &self.room)
    }

    fn spent(&self) -> Option<&str> {
        self.usage.as_ref().map(|usage| usage.spent.as_str())
    }

    /// The reason why the database refuses this write; `None` if an earlier attempt stored it.
    pub(super) fn refusal(&self, link: &Link) -> SqlResult<Option<Refusal>> {
        let row = link.row(
            "SELECT next_seq, run_epoch, place_epoch FROM room_head(?1, ?2, ?3, ?4)",
            &[&self.room, &self.first, &(self.next - 1), &&self.last_hash[..]],
        )?;
        let (next, epoch, in_place): (i64, Option<i64>, Option<i64>) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let epoch = epoch.unwrap_or(0).cast_unsigned();
        let head = RoomHead { epoch, in_place: in_place.map(i64::cast_unsigned) };
        Ok(match AfterUnknown::of(head, self.epoch) {
            AfterUnknown::Stored => None,
            AfterUnknown::Stop if epoch != self.epoch => Some(Refusal::Fenced { epoch }),
            AfterUnknown::Stop | AfterUnknown::AppendAgain => {
                Some(Refusal::Behind { next: next.cast_unsigned() })
            }
        })
    }
}

/// What a write changes of its room beside its records and usage, in JSON.
fn changes(write: &Write) -> Option<String> {
    let text = |text: &str| without_nul(text).into_owned();
    let (first, last) = (&write.rows[0], &write.rows[write.rows.len() - 1]);
    let begins = write.begins.then(|| {
        let first = write.rows.iter().find(|row| row.kind() == "run-started").unwrap_or(last);
        first.at.cast_signed()
    });
    let origin = (first.seq == 0 || write.begins).then(|| {
        let (front, new_room) = (write.front.clone().unwrap_or_default(), &write.new_room);
        OriginColumns {
            started: first.at.cast_signed(),
            principal: text(&last.principal),
            entry: text(&front.entry),
            agents: if front.agents.is_empty() { "[]".to_owned() } else { text(&front.agents) },
            text: text(&front.text),
            durability: new_room.durability,
            config: new_room.config.as_deref().map(text),
            command: text(&new_room.command),
            locked: new_room.locked.into(),
            approvals: text(&new_room.approvals),
            questions: text(&new_room.questions),
            pool: new_room.pool.as_deref().map(text),
        }
    });
    let mut pending = PendingWorkRows::default();
    pending.add(write);
    let mut pending = pending.changes();
    let targets: Vec<Cow<'_, str>> =
        pending.waits.iter().map(|wait| without_nul(wait.target)).collect();
    for (wait, target) in pending.waits.iter_mut().zip(&targets) {
        wait.target = target;
    }
    let changes = RoomChanges {
        origin,
        inbound: write.inbound.as_deref().map(text),
        begins,
        status: write.outcome.as_ref().map(|outcome| outcome.status.as_str()),
        reason: write.outcome.as_ref().map(|outcome| text(&outcome.reason)),
        pending: (!pending.is_empty()).then_some(&pending),
    };
    let json = serde_json::to_string(&changes).unwrap_or_default();
    (json != "{}").then_some(json)
}
