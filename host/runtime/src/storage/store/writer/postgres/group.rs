//! The call of the stored function that commits a group.

use std::borrow::Cow;
use std::collections::HashSet;

use conclave_core::journal::ownership::{AfterUnknown, RoomHead};
use conclave_core::types::ids::RoomId;
use serde::Serialize;

use super::{CommitGroup, EventRow, HostEntry, Link, Refusal, SqlResult, StoredBytes, Write};
use crate::storage::store::postgres::{
    UNSAFE, check_durability, noting_unsafe_commits, without_nul,
};
use crate::storage::store::record::Hash;
use crate::storage::store::sql::{SqlError, SqlErrorKind};
use crate::storage::store::writer::pending_work::{PendingChanges, PendingWorkRows};
use crate::storage::store::writer::queue::RoomWriting;

const COMMIT: &str =
    "SELECT refused, next_seq, room_epoch, place_epoch FROM commit_group(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,
    ?11, ?12, ?13, ?14, ?15, ?16, ?17)";

/// The parameters of the function.
#[derive(Default)]
pub(super) struct GroupCall<'a> {
    pub(super) blobs: Vec<&'a StoredBytes>,
    /// The digests of attachments that are stored already, and to which the records refer.
    references: &'a [String],
    pub(super) writes: Vec<WriteRow>,
    writes_json: String,
    events: EventColumns<'a>,
    released: Vec<&'a str>,
    released_epoch: Vec<i64>,
}

/// The rows of `events` by column.
#[derive(Default)]
struct EventColumns<'a> {
    write: Vec<i64>,
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

/// A write to a room, as the function reads it. Absent columns stay as they are.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct WriteRow {
    /// The index in the group.
    pub(super) index: usize,
    pub(super) room: String,
    pub(super) epoch: i64,
    first: i64,
    /// The number of records of the room afterwards.
    next: i64,
    /// The place of the last record among the group's, from 1.
    last_event: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<i64>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    usage: Option<UsageColumns>,
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
    /// What it changes in the room's pending work, in JSON.
    #[serde(flatten)]
    pending: serde_json::Value,
}

#[derive(Clone, Debug, Serialize)]
struct UsageColumns {
    turns: i64,
    tokens: i64,
    cost: i64,
    spent: String,
}

#[derive(Clone, Debug, Serialize)]
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
            call.add_rows(index, &write.writing.room, &write.rows);
            call.writes.push(WriteRow::of(index, write, call.events.seq.len()));
        }
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
        call.with_json()
    }

    /// The records of a take-over, which change nothing else of their rooms.
    pub(super) fn of_take_over(owned: &'a [(&'a RoomId, EventRow)]) -> Self {
        let mut call = Self::default();
        for (index, (room, row)) in owned.iter().enumerate() {
            call.add_rows(index, room, std::slice::from_ref(row));
            let seq = row.seq.cast_signed();
            call.writes.push(WriteRow {
                index,
                room: room.to_string(),
                epoch: row.epoch.cast_signed(),
                first: seq,
                next: seq + 1,
                last_event: index + 1,
                pending: to_json(&PendingChanges::default()),
                ..WriteRow::default()
            });
        }
        call.with_json()
    }

    fn with_json(mut self) -> Self {
        self.writes_json = serde_json::to_string(&self.writes).unwrap_or_default();
        self
    }

    /// Whether the group changes nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.blobs.is_empty() && self.writes.is_empty() && self.released.is_empty()
    }

    fn add_rows(&mut self, index: usize, room: &'a RoomId, rows: &'a [EventRow]) {
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
            events.write.push(i64::try_from(index).unwrap_or(i64::MAX));
            events.room.push(room.as_str());
            events.seq.push(row.seq.cast_signed());
            events.at.push(row.at.cast_signed());
            events.kind.push(row.kind());
            events.rules.push(row.rules.into());
            events.body.push(&row.body);
            events.parts.push(row.parts.as_deref());
            events.epoch.push(row.epoch.cast_signed());
        }
    }

    /// Calls the function. Returns the refused writes; `None` if a blob is gone
    /// whose bytes were not sent.
    pub(super) fn send(
        &self,
        link: &Link,
        known: &HashSet<String>,
        entry: &HostEntry,
    ) -> SqlResult<Option<Vec<(usize, Refusal)>>> {
        let sent = self.blobs.iter().map(|blob| {
            let bytes = (!known.contains(&blob.sha256)).then_some(&blob.bytes[..]);
            (blob.sha256.as_str(), bytes)
        });
        let stored = self.references.iter().map(|sha256| (sha256.as_str(), None));
        let (digests, bytes): (Vec<&str>, Vec<Option<&[u8]>>) = sent.chain(stored).unzip();
        let EventColumns { write, room, seq, at, kind, principal, rules, body, parts, hash, epoch } =
            &self.events;
        let hash: Vec<&[u8]> = hash.iter().map(|hash| &hash[..]).collect();
        let rows = link.rows(
            &noting_unsafe_commits(link, COMMIT),
            &[
                &digests,
                &bytes,
                &self.writes_json,
                write,
                room,
                seq,
                at,
                kind,
                principal,
                rules,
                body,
                parts,
                &hash,
                epoch,
                &self.released,
                &self.released_epoch,
                &entry.host,
            ],
        )?;
        let mut refused = Vec::new();
        for row in rows {
            let Some(index) = row.try_get::<_, Option<i64>>(0)? else { return Ok(None) };
            if index == UNSAFE {
                check_durability(link)?;
                let what = "the settings of the server were changed during a commit";
                return Err(SqlError::new(SqlErrorKind::Unsafe, what));
            }
            let own = self.writes.iter().find(|write| write.index as i64 == index);
            let own = own.map_or(0, |write| write.epoch.cast_unsigned());
            let (next, epoch, in_place): (i64, Option<i64>, Option<i64>) =
                (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
            let epoch = epoch.unwrap_or(0).cast_unsigned();
            let head = RoomHead { epoch, in_place: in_place.map(i64::cast_unsigned) };
            let refusal = match AfterUnknown::of(head, own) {
                // An earlier attempt of this call stored the records.
                AfterUnknown::Stored => continue,
                AfterUnknown::Stop if epoch != own => Refusal::Fenced { epoch },
                AfterUnknown::Stop | AfterUnknown::AppendAgain => {
                    Refusal::Behind { next: next.cast_unsigned() }
                }
            };
            let index = usize::try_from(index).map_err(|_| {
                SqlError::new(SqlErrorKind::Other, "the database refused an unknown write")
            })?;
            refused.push((index, refusal));
        }
        Ok(Some(refused))
    }
}

impl WriteRow {
    fn of(index: usize, write: &Write, last_event: usize) -> Self {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
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
        let mut changes = pending.changes();
        let targets: Vec<Cow<'_, str>> =
            changes.waits.iter().map(|wait| without_nul(wait.target)).collect();
        for (wait, target) in changes.waits.iter_mut().zip(&targets) {
            wait.target = target;
        }
        Self {
            index,
            room: write.writing.room.to_string(),
            epoch: last.epoch.cast_signed(),
            first: first.seq.cast_signed(),
            next: last.seq.cast_signed() + 1,
            last_event,
            at: Some(last.at.cast_signed()),
            usage: Some(UsageColumns {
                turns: number(write.spent.turns),
                tokens: number(write.spent.tokens),
                cost: number(write.spent.cost_micro_usd),
                spent: serde_json::to_string(&write.spent).unwrap_or_default(),
            }),
            origin,
            inbound: write.inbound.as_deref().map(text),
            begins,
            status: write.outcome.as_ref().map(|outcome| outcome.status.as_str()),
            reason: write.outcome.as_ref().map(|outcome| text(&outcome.reason)),
            pending: to_json(&changes),
        }
    }
}

fn to_json(changes: &PendingChanges<'_>) -> serde_json::Value {
    serde_json::to_value(changes).unwrap_or_default()
}
