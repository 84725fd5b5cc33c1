//! The records of a run as server-sent events. The id of an event is the position of its record, so
//! a reader that comes late or again gets everything from there. A slow reader delays nobody: it
//! takes some records at a time, at its own speed.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::Event;
use conclave_runtime::store::RunPosition;
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::sync::watch;

use crate::followers::{FollowedRecord, RunFollower};
use crate::http::StreamPermit;

/// The position of a reader in a run.
struct RunCursor {
    follower: Arc<RunFollower>,
    news: watch::Receiver<()>,
    /// The position of the last record that was taken.
    last: Option<RunPosition>,
    ready: VecDeque<Arc<FollowedRecord>>,
    _permit: StreamPermit,
}

/// The records of all rooms of a run that follow a position.
pub(super) fn run_events(
    follower: Arc<RunFollower>,
    last: Option<RunPosition>,
    permit: StreamPermit,
) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
    let (news, ready) = (follower.news(), VecDeque::new());
    let cursor = RunCursor { follower, news, last, ready, _permit: permit };
    unfold(cursor, |mut cursor| async move {
        loop {
            if let Some(record) = cursor.ready.pop_front() {
                return Some((Ok(event_of(&record)), cursor));
            }
            // Marked as seen before the look, so that a change during it leads to another look.
            cursor.news.borrow_and_update();
            // If the store is unreadable, the reader connects again and names its last event.
            cursor.ready.extend(cursor.follower.after(cursor.last).await.ok()?);
            match cursor.ready.back() {
                Some(record) => cursor.last = Some(record.position),
                None => cursor.news.changed().await.ok()?,
            }
        }
    })
}

fn event_of(record: &FollowedRecord) -> Event {
    Event::default().event("record").id(record.position.to_string()).data(&record.data)
}
