//! Ends a run that will not be resumed: its rooms get the records of the end, and none of it is
//! run.

use std::sync::Arc;

use conclave_core::journal::pending_work::WaitChange;
use conclave_core::protocol::control::ControlCommand;
use conclave_core::protocol::event::{Event, Principal, RULES, Record};
use conclave_core::types::ids::{Millis, RoomId};
use conclave_core::types::outcome::{Outcome, Status};
use conclave_core::types::usage::Spent;

use super::StoreWriter;
use super::journal::StoreJournals;
use super::queue::{Cause, WriterTask};
use crate::storage::journal::{Journal, JournalBatch, JournalFailure, Keeping};
use crate::storage::store::{ControlMessage, Durability, RunOrigin, StoreError};
use crate::support::clock::{Clock, SystemClock};

/// A room of a run that will not be resumed.
struct OpenRoom {
    room: RoomId,
    principal: Principal,
    spent: Spent,
    /// Whether records were written by rules that this host does not fold.
    has_other_rules: bool,
    has_ended: bool,
    /// The time of its last record.
    changed: Millis,
}

/// The stop of a run, as its rooms record it.
struct RunStop<'a> {
    message: &'a ControlMessage,
    reason: &'a str,
}

impl RunStop<'_> {
    /// The event of a room. The root room records the message, and so who stopped the run; the others
    /// stop with it. `has_received` is whether the room has recorded the message before.
    fn event(&self, room: &RoomId, has_received: bool) -> Event {
        if *room == room.run() && !has_received {
            return self.message.clone().into_command().into_event();
        }
        Event::Cancelled { reason: self.reason.to_owned() }
    }
}

impl StoreWriter {
    /// Ends the run of a message with the command `Stop`.
    pub(in crate::storage::store) fn give_up(
        self: &Arc<Self>,
        message: &ControlMessage,
    ) -> Result<(), StoreError> {
        let reason = match &message.word {
            ControlCommand::Stop { reason } => reason.as_str(),
            _ => "",
        };
        let stop = RunStop { message, reason };
        self.ask(WriterTask::Barrier).map_err(|cause| self.failed(&cause))?;
        let run = message.room.run();
        let of_run = run.to_string();
        let rooms = self.read_now(move |tables| {
            let rooms = "SELECT room, principal, spent,
                 EXISTS (SELECT 1 FROM events WHERE events.room = rooms.room AND rules <> ?2), ended IS NOT NULL,
                 changed FROM rooms WHERE run = ?1 ORDER BY room";
            tables.rows(rooms, &[(&of_run).into(), RULES.into()], |row| {
                Ok(OpenRoom {
                    room: RoomId::from(row.get::<String>(0)?),
                    principal: Principal(row.get::<String>(1)?.into()),
                    spent: serde_json::from_slice(row.bytes(2)?).unwrap_or_default(),
                    has_other_rules: row.get(3)?,
                    has_ended: row.get(4)?,
                    changed: Millis(row.get(5)?),
                })
            })
        });
        let rooms: Vec<OpenRoom> = rooms.map_err(|error| self.failed(&Cause::of(&error)))?;
        if rooms.is_empty() {
            return Err(StoreError::Other {
                store: self.address.clone(),
                what: format!("it has no run {run}"),
            });
        }
        for open in rooms.iter().filter(|open| !open.has_ended) {
            if open.has_other_rules || !self.end(&open.room, &open.principal, &stop)? {
                self.end_unread(open, &stop)?;
            }
        }
        Ok(())
    }

    /// Ends a room whose records this host cannot fold, because of other rules or damage: only the
    /// stop is recorded, so that the run counts as ended and can be removed.
    fn end_unread(self: &Arc<Self>, open: &OpenRoom, stop: &RunStop<'_>) -> Result<(), StoreError> {
        let other = |what: String| StoreError::Other { store: self.address.clone(), what };
        let journals = StoreJournals::new(self, Durability::Group, RunOrigin::default());
        let now = SystemClock.now().max(open.changed);
        let (mut journal, seq) =
            journals.open_to_append_end(&open.room, now).map_err(|cause| other(cause.text))?;
        let record = Record {
            seq,
            at: now,
            principal: open.principal.clone(),
            rules: RULES,
            epoch: journal.epoch(),
            event: stop.event(&open.room, false),
        };
        let entry = JournalBatch {
            records: &[Arc::new(record)],
            waits: &[WaitChange::Finished],
            outcome: Some(&Arc::new(Outcome::new(Status::Kill, stop.reason))),
            spent: open.spent,
        };
        self.append_durable(&mut *journal, &entry)
    }

    /// Appends the end of a room, and waits until it is durable.
    fn append_durable(
        &self,
        journal: &mut dyn Journal,
        end: &JournalBatch<'_>,
    ) -> Result<(), StoreError> {
        let other = |error: JournalFailure| StoreError::Other {
            store: self.address.clone(),
            what: error.cause.to_string(),
        };
        let keeping = journal.append(end).map_err(other)?;
        journal.hurry();
        match keeping {
            Keeping::Kept => Ok(()),
            Keeping::Soon(durable) | Keeping::First(durable) => {
                futures_executor::block_on(tokio::task::unconstrained(durable)).map_err(other)
            }
        }
    }

    /// Appends the end that the records of a room lead to. Returns false if the records are damaged,
    /// and appends nothing then.
    fn end(
        self: &Arc<Self>,
        room: &RoomId,
        principal: &Principal,
        stop: &RunStop<'_>,
    ) -> Result<bool, StoreError> {
        let other = |what: String| StoreError::Other { store: self.address.clone(), what };
        // The origin noted with the run stays, so the default here is never written.
        let journals = StoreJournals::new(self, Durability::Group, RunOrigin::default());
        let reopened = match journals.reopen_now(room, SystemClock.now()) {
            Ok(Some(reopened)) => reopened,
            Ok(None) => return Ok(true),
            Err(damaged) if damaged.kind == std::io::ErrorKind::InvalidData => return Ok(false),
            Err(cause) => return Err(other(cause.text)),
        };
        let last_at = reopened.last_at();
        let (unfinished, mut journal, _) = reopened.folded();
        // Never before the last record, even if the clock was set back.
        let now = SystemClock.now().max(unfinished.room.now()).max(last_at);
        let down = unfinished.downtime(now);
        let (mut folded, mut records, mut waits) = (unfinished.room, Vec::new(), Vec::new());
        let has_received = folded.has_received(&stop.message.id);
        let events = [
            Event::Resumed { down_ms: down.ms, is_exact: down.is_exact, setup: None },
            stop.event(room, has_received),
        ];
        for (event, seq) in events.into_iter().zip(unfinished.next..) {
            waits.extend(WaitChange::of_event(&event));
            folded.handle(event.clone(), now);
            // Nothing is published or performed; the effects only update the pending work.
            while folded.poll_notice().is_some() {}
            while let Some(effect) = folded.poll_effect() {
                waits.extend(WaitChange::of_effect(&effect));
            }
            records.push(Arc::new(Record {
                seq,
                at: now,
                principal: principal.clone(),
                rules: RULES,
                epoch: journal.epoch(),
                event,
            }));
        }
        let spent: Spent = folded.spent();
        // A room that was never opened has no outcome of its own.
        let stopped = Arc::new(Outcome::new(Status::Kill, stop.reason));
        let entry = JournalBatch {
            records: &records,
            waits: &waits,
            outcome: folded.outcome().or(Some(&stopped)),
            spent,
        };
        self.append_durable(&mut *journal, &entry).map(|()| true)
    }
}
