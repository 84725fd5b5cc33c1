//! Ends a run that will not be resumed: its rooms get the records of the end, and none of it is
//! run.

use std::sync::Arc;

use conclave_core::journal::pending_work::WaitChange;
use conclave_core::protocol::event::{Event, Principal, RULES, Record};
use conclave_core::types::ids::RoomId;
use conclave_core::types::outcome::{Outcome, Status};
use conclave_core::types::usage::Spent;

use super::StoreWriter;
use super::journal::StoreJournals;
use super::queue::{Cause, WriterTask};
use crate::storage::journal::{JournalBatch, Keeping, Reopened};
use crate::storage::store::{Durability, RunOrigin, StoreError};
use crate::support::clock::{Clock, SystemClock};

impl StoreWriter {
    pub(in crate::storage::store) fn give_up(
        self: &Arc<Self>,
        room: &RoomId,
        reason: &str,
    ) -> Result<(), StoreError> {
        self.ask(WriterTask::Barrier).map_err(|cause| self.failed(&cause))?;
        let run = room.as_str().split('/').next().unwrap_or_default().to_owned();
        let of_run = run.clone();
        let rooms = self.read_now(move |connection| {
            let mut query = connection.prepare_cached(
                "SELECT room, principal, ended IS NOT NULL FROM rooms WHERE run = ? ORDER BY room",
            )?;
            query
                .query_map([of_run], |row| {
                    let principal = Principal(row.get::<_, String>(1)?.into());
                    Ok((RoomId::from(row.get::<_, String>(0)?), principal, row.get::<_, bool>(2)?))
                })?
                .collect()
        });
        let rooms: Vec<(RoomId, Principal, bool)> =
            rooms.map_err(|error| self.failed(&Cause::of_sqlite(&error)))?;
        if rooms.is_empty() {
            return Err(StoreError::Other {
                folder: self.folder.clone(),
                what: format!("it has no run {run}"),
            });
        }
        for (room, principal, _) in rooms.iter().filter(|(.., ended)| !ended) {
            self.end(room, principal, reason)?;
        }
        Ok(())
    }

    fn end(
        self: &Arc<Self>,
        room: &RoomId,
        principal: &Principal,
        reason: &str,
    ) -> Result<(), StoreError> {
        let other = |what: String| StoreError::Other { folder: self.folder.clone(), what };
        // The origin noted with the run stays, so the default here is never written.
        let journals = StoreJournals::new(self, Durability::Group, RunOrigin::default());
        let reopened = journals.reopen_now(room).map_err(|cause| other(cause.text))?;
        let Some(Reopened { snapshot, records, mut journal }) = reopened else { return Ok(()) };
        let mut unfinished = snapshot.map(|snapshot| *snapshot).unwrap_or_default();
        unfinished.extend(records);
        // Never before the last record, even if the clock was set back.
        let now = SystemClock.now().max(unfinished.room.now());
        let (mut folded, mut records, mut waits) = (unfinished.room, Vec::new(), Vec::new());
        let events = [
            Event::Resumed { down_ms: now.since(folded.now()) },
            Event::Cancelled { reason: reason.to_owned() },
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
                event,
            }));
        }
        let spent: Spent = folded.spent();
        // A room that was never opened has no outcome of its own.
        let stopped = Arc::new(Outcome::new(Status::Kill, reason));
        let entry = JournalBatch {
            records: &records,
            waits: &waits,
            outcome: folded.outcome().or(Some(&stopped)),
            spent,
        };
        match journal.append(&entry).map_err(|error| other(error.cause.to_string()))? {
            Keeping::Kept => Ok(()),
            Keeping::Soon(kept) | Keeping::First(kept) => {
                futures_executor::block_on(tokio::task::unconstrained(kept))
                    .map_err(|error| other(error.cause.to_string()))
            }
        }
    }
}
