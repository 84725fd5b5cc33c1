//! The subject: steps whose records the store acknowledges.

use std::sync::Arc;

use conclave_core::protocol::event::{Event, Principal, RULES, Record};
use conclave_core::types::ids::{CallId, Millis, RoomId};
use conclave_core::types::usage::Spent;
use conclave_runtime::journal::{Journal, JournalBatch, Keeping};
use conclave_runtime::store::{Durability, RunOrigin, Store};

use super::failed;
use crate::BenchError;

/// The number of records of a step.
pub(super) const RECORDS: u64 = 2;
/// The length of the text of a record.
const TEXT: usize = 500;

/// The event of a record.
pub(super) fn event(seq: u64) -> Event {
    let text = Some("0123456789".repeat(TEXT / 10));
    Event::UserAnswered { call: CallId(seq), text, attachments: Vec::new(), passed: false }
}

/// Open rooms of a store.
pub(super) struct StoredRooms {
    journals: Vec<Box<dyn Journal>>,
    /// The number of records of each.
    next: u64,
}

impl StoredRooms {
    pub(super) async fn open(store: &Store, rooms: usize) -> Result<Self, BenchError> {
        let of_store = store.journals(Durability::Sync, RunOrigin::default());
        let mut journals = Vec::new();
        for number in 0..rooms {
            let opening = of_store.open(&RoomId::from(format!("room-{number}")));
            journals.push(opening.map_err(failed)?.await.map_err(failed)?);
        }
        Ok(Self { journals, next: 0 })
    }

    /// Appends the records of a step to each room, and waits until all are acknowledged.
    pub(super) async fn append(&mut self) -> Result<(), BenchError> {
        let mut acknowledged = Vec::with_capacity(self.journals.len());
        for journal in &mut self.journals {
            let record = |seq| {
                Arc::new(Record {
                    seq,
                    at: Millis(1_000 + seq),
                    principal: Principal("ada".into()),
                    rules: RULES,
                    epoch: journal.epoch(),
                    event: event(seq),
                })
            };
            let records: Vec<_> = (self.next..self.next + RECORDS).map(record).collect();
            let batch = JournalBatch {
                records: &records,
                waits: &[],
                outcome: None,
                spent: Spent::default(),
            };
            match journal.append(&batch).map_err(failed)? {
                Keeping::Kept => {}
                Keeping::Soon(durable) | Keeping::First(durable) => acknowledged.push(durable),
            }
        }
        self.next += RECORDS;
        for durable in acknowledged {
            durable.await.map_err(failed)?;
        }
        Ok(())
    }
}
