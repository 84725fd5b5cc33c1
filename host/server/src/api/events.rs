//! The records of a run as server-sent events. The id of an event is the number of its record, so
//! a reader that comes late or again gets everything from there. A slow reader delays nobody: it
//! reads from the store at its own speed, some records at a time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::Event;
use conclave_core::protocol::event::Record;
use conclave_core::types::ids::RoomId;
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::http::Server;

/// The time after which the store is asked again for a run that another process has open.
const POLL: Duration = Duration::from_secs(1);

/// Records that are prepared at once.
const RECORDS: u64 = 100;

/// The position of a reader in a run.
struct RunCursor {
    server: Server,
    run: RoomId,
    /// The number of the next record.
    next: u64,
    /// The newest epoch of a host. A record of an older one is void.
    epoch: u64,
    ready: VecDeque<Event>,
    /// Notified when a run of this process has a new record.
    changes: Option<watch::Receiver<()>>,
    _permit: OwnedSemaphorePermit,
}

/// The records of a run's root room from this number on.
pub(super) fn run_events(
    server: Server,
    run: RoomId,
    next: u64,
    changes: Option<watch::Receiver<()>>,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
    let (epoch, ready) = (0, VecDeque::new());
    let cursor = RunCursor { server, run, next, epoch, ready, changes, _permit: permit };
    unfold(cursor, |mut cursor| async move {
        loop {
            if let Some(event) = cursor.ready.pop_front() {
                return Some((Ok(event), cursor));
            }
            // Marked as seen before the look, so that a change during it leads to another look.
            if let Some(changes) = &mut cursor.changes {
                changes.borrow_and_update();
            }
            // If the store is unreadable, the reader connects again and names its last event.
            if !cursor.prepare().await? {
                cursor.wait().await;
            }
        }
    })
}

impl RunCursor {
    /// Prepares some of the records that follow. Returns whether there were any; `None` if they
    /// cannot be read.
    async fn prepare(&mut self) -> Option<bool> {
        let (run, next) = (self.run.clone(), self.next);
        let records =
            self.server.read(move |reader, _| reader.records_from(&run, next, RECORDS)).await;
        let records = records.ok()?;
        let has_any = !records.is_empty();
        for record in records {
            self.next = record.seq + 1;
            if record.epoch < self.epoch {
                continue;
            }
            self.epoch = record.epoch;
            self.ready.push_back(event_of(record));
        }
        Some(has_any)
    }

    async fn wait(&mut self) {
        match &mut self.changes {
            Some(changes) => {
                // A record is published after it is durable; the time is for a run that has ended
                // here and goes on elsewhere.
                let changed = tokio::time::timeout(POLL, changes.changed()).await;
                if matches!(changed, Ok(Err(_))) {
                    self.changes = None;
                }
            }
            None => tokio::time::sleep(POLL).await,
        }
    }
}

fn event_of(record: Record) -> Event {
    let record = Arc::new(record).without_secret();
    // JSON has no line break, and a record always has a JSON form.
    let data = serde_json::to_string(&*record).unwrap_or_default();
    Event::default().event("record").id(record.seq.to_string()).data(data)
}
