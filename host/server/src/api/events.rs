//! The records of a run as server-sent events. The id of an event is the position of its record, so
//! a reader that comes late or again gets everything from there. A reader whose position this store
//! does not have gets a `reset` and then all records. A slow reader delays nobody: it takes some
//! records at a time, at its own speed.

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

/// Where a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// With the records that follow this one; `None` for all.
    After(Option<RunPosition>),
    /// With all records, because its last one is none of this store. It must drop what it has.
    Anew,
}

impl Begin {
    /// Where a reader begins that names its last event, in a run that has records up to `end`.
    pub(super) fn after(last: Option<&str>, end: Option<RunPosition>) -> Self {
        match last.map(str::parse) {
            None => Self::After(None),
            // A store that was restored from a backup has fewer records than the reader.
            Some(Ok(position)) if Some(position) <= end => Self::After(Some(position)),
            Some(_) => Self::Anew,
        }
    }
}

/// The position of a reader in a run.
struct RunCursor {
    follower: Arc<RunFollower>,
    news: watch::Receiver<()>,
    /// The position of the last record that was taken.
    last: Option<RunPosition>,
    /// Whether the reader must drop its records before the next one.
    resets: bool,
    ready: VecDeque<Arc<FollowedRecord>>,
    _permit: StreamPermit,
}

/// The records of all rooms of a run.
pub(super) fn run_events(
    follower: Arc<RunFollower>,
    begin: Begin,
    permit: StreamPermit,
) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
    let (news, ready) = (follower.news(), VecDeque::new());
    let (last, resets) = match begin {
        Begin::After(last) => (last, false),
        Begin::Anew => (None, true),
    };
    let cursor = RunCursor { follower, news, last, resets, ready, _permit: permit };
    unfold(cursor, |mut cursor| async move {
        if std::mem::take(&mut cursor.resets) {
            return Some((Ok(Event::default().event("reset").data("{}")), cursor));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_goes_on_behind_its_last_event_or_begins_anew_and_is_never_left_without_records() {
        let at = |text: &str| text.parse().ok();
        let end = at("2-40");
        assert_eq!(Begin::after(None, end), Begin::After(None));
        for known in ["2-40", "1-7", "0.7"] {
            assert_eq!(Begin::after(Some(known), end), Begin::After(at(known)), "{known}");
        }
        // A line of a chain, as ids of a database were before; and records that are not there.
        for unknown in ["2.7", "2-41", "x", ""] {
            assert_eq!(Begin::after(Some(unknown), end), Begin::Anew, "{unknown}");
        }
        assert_eq!(Begin::after(Some("1-1"), None), Begin::Anew);
    }
}
